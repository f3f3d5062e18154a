"""A device on an ordinary network: plain UDP over interfaces or addresses of this host.

    with Device.on_network(["eth0", "eth1"]) as device:      # each is a plane
        ...

No host file and no fabric: peers have the addresses that their attributes state. Interfaces report
their MTU, which determines the PMTU, and their rate.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from openmrc.engine.parameters import PLANES_MAX
from openmrc.errors import InputError
from openmrc.fabric.clos import multiplane
from openmrc.fabric.dscp import Dscps
from openmrc.live.endpoint import ip, planes, state
from openmrc.live.endpoint.limits import Port
from openmrc.live.endpoint.peers import Reach
from openmrc.live.endpoint.pmtu import fitting, plain_bytes
from openmrc.verbs.hostfile import Attachment, limits_of

ACTIVE, BACKUP = 16, 8  # source ports of a plane by default
PMTU = 8192
MPR = 2048  # packets: enough for a window of small ones, too
SACK_BYTES = 65_536  # as much as a burst carries
RATE_MAX_BPS = 400 * 10**9


def planes_of(reach: Sequence[Reach]) -> list[str]:
    """Return the addresses of planes, as text."""
    return [f"{one.address} port {one.port}" for one in reach]


def _burst(pmtu: int) -> int:
    """As many packets as the kernel takes in one datagram, which it segments."""
    return min(ip.DATAGRAM_MAX // (pmtu + plain_bytes(ipv4=True)), ip.SEGMENTS_MAX)


@contextlib.contextmanager
def attached(
    names: Sequence[str],
    port: int | None = None,
    rate_bps: int | None = None,
    base_rtt_ps: int | None = None,
    dscp: str = "",
    **limits: Any,
) -> Iterator[Attachment]:
    """Open the planes; their sockets are closed if the block fails."""
    dscps = Dscps.parse(dscp)
    if len(names) > PLANES_MAX:
        raise InputError(f"planes: {len(names)} are named; 1 to {PLANES_MAX} are accepted")
    if port is not None and not 1 <= port <= 65_535:
        raise InputError(f"port {port}: 1 to 65535 is accepted")
    if rate_bps is not None and not 10**6 <= rate_bps <= RATE_MAX_BPS:
        raise InputError(f"rate {rate_bps} bit/s: 1 Mb/s to 400 Gb/s is accepted")
    found, pmtu = planes.find(names), limits.get("pmtu", PMTU)
    fills = "pmtu" not in limits
    size = min(fitting(one.mtu, one.ipv4, pmtu, fills) for one in found)
    own = limits_of(
        {
            "trimming": False,
            "pmtu": pmtu,
            "mpr": MPR,
            "fill_mtu": fills,
            "burst": _burst(size),
            "sack_bytes": SACK_BYTES,
            "evs_active": ACTIVE * len(found),
            "evs_backup": BACKUP * len(found),
            **limits,
        }
    )
    sources = sum(own.evs_per_plane(len(found)))
    if sources > state.SOURCES_MAX:
        raise InputError(
            f"evs_active and evs_backup: {sources} source ports of a plane;"
            f" up to {state.SOURCES_MAX} are accepted"
        )
    rates = [plane.rate_bps for plane in found if plane.rate_bps]
    rate = rate_bps or min(rates, default=planes.RATE_BPS)
    with planes.opened(found, sources, port) as opened:
        yield Attachment(
            fabric=replace(
                multiplane(own.qps + 1, len(found), rate, own.qps + 1, 1, 0, 0), dscps=dscps
            ),
            nic=0,
            ports=[
                Port(one.hears.fileno(), bytes(6), one.plane.interface, one.plane.mtu, one)
                for one in opened
            ],
            limits=own,
            base_rtt_ps=base_rtt_ps,
            mode=state.IP,
            sockets=[
                each for one in opened for each in (one.hears, *(own for _, own in one.sends))
            ],
        )
