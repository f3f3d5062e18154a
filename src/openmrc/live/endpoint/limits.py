"""What a device is opened with: its ports, its capacities, the parameters of its protocol."""

from __future__ import annotations

from dataclasses import dataclass

from openmrc.engine import parameters
from openmrc.live.endpoint.planes import Sockets


@dataclass(frozen=True)
class Port:
    """One port of a device: a descriptor on which a datagram is a frame, and what it leads to."""

    fd: int
    gateway_mac: bytes  # of the T0, or of whatever receives frames from this port
    interface: str | None = None  # its name, if the kernel can tell whether it is up
    mtu: int = 9000  # bytes of an IP packet
    sockets: Sockets | None = None  # plain UDP: the plane's sockets


@dataclass(frozen=True, kw_only=True)
class Limits(parameters.Parameters):
    """The capacities of a device, and the parameters of its protocol."""

    # The RTO on a machine with other work: 16.8 ms, doubled only a few times.
    rto_exponent: int = 14
    exp_cnt: int = 7
    mpr: int = parameters.MPR_MIN  # the fabric's delay is not known
    qps: int = 64
    send_depth: int = 256  # requests of a QP
    receive_depth: int = 256
    regions: int = 256
    cqs: int = 16
    cq_depth: int = 4096
    trimming: bool = True  # the network trims
    ports_from_1: bool = False  # port masks on the wire: bit p is port p - 1, row 32
    spin: bool = False
    check_mtu: bool = True  # `exchange` tests whether paths carry full packets, row 20
    fill_mtu: bool = False  # in plain UDP packets are as large as the MTU, row 20
    account: int = 0  # records that the engine's account has room for between two looks; 0: none
