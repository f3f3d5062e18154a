"""The counters of a live fabric's switches, as plain numbers."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from openmrc.fabric.model import Fabric, LongArray
from openmrc.live.switch.state import AT_EGRESS, DROPS, LATE_BINS, Net

_SO_MEMINFO, _MEMINFO_DROPS = 55, 8  # linux/sock_diag.h: frames lost to a full socket buffer
OF_PORT = ("received", "packets", "wire_bytes", "delivered", "ecn_marked", "trimmed", "damaged")
OF_SWITCH = ("packets", "wire_bytes", "ecn_marked", "trimmed")


@dataclass(frozen=True, eq=False)
class Counters:
    """A snapshot; arrays are int64 by directed port of the fabric.

    `received` == delivered + dropped + in_flight, summed over all ports, when the loop is at rest;
    while it runs, the values of a snapshot may be some frames apart.
    """

    fabric: Fabric
    received: LongArray  # from NICs, at their own ports
    packets: LongArray  # put on the wire
    wire_bytes: LongArray  # of these, with preamble, gap and FCS: 24 B each
    delivered: LongArray  # accepted by NICs' sockets, at the ports to them
    ecn_marked: LongArray
    trimmed: LongArray
    damaged: LongArray
    paused: LongArray  # times a NIC's wire was not read because its queue here was full
    dropped: LongArray  # [n_ports, len(DROPS)]
    in_flight: int  # frames inside the switches
    socket_lost: LongArray  # by NIC port: frames that the kernel dropped before they were read
    late_ps_max: int  # the largest delay of a frame to its NIC
    late: LongArray  # frames by lateness: bin 0 below 1 us, bin i below 2^i us
    no_room: int  # times that nothing was read because every buffer was in use
    turns: int  # of the loop

    @property
    def drops(self) -> dict[str, int]:
        """All drops by reason."""
        return dict(zip(DROPS, self.dropped.sum(axis=0).tolist(), strict=True))

    @property
    def trims(self) -> dict[str, int]:
        """Trims by kind."""
        last = self.fabric.port_last_hop
        return {
            "trimmed": int(self.trimmed[~last].sum()),
            "trimmed_last_hop": int(self.trimmed[last].sum()),
        }

    def late_us(self, share: float) -> int:
        """Return the microseconds (a power of 2) within which this fraction of frames left."""
        enough = share * self.late.sum()
        return 1 << int(np.searchsorted(np.cumsum(self.late), enough))

    def by_switch(self) -> list[dict[str, Any]]:
        """Return one object per switch: packets, bytes, marks, trims, drops by reason.

        A frame that a switch cannot forward is counted for that switch, although it passed none of
        its ports.
        """
        fabric, own, peer = self.fabric, self.fabric.port_switch, self.fabric.port_peer_switch
        found = []
        for switch in range(fabric.n_switches):
            mine, to_me = own == switch, peer == switch
            dropped = np.concatenate(
                [
                    self.dropped[mine, :AT_EGRESS].sum(axis=0),
                    self.dropped[to_me, AT_EGRESS:].sum(axis=0),
                ]
            )
            found.append(
                {
                    "switch": fabric.switch_name(switch),
                    **{name: int(getattr(self, name)[mine].sum()) for name in OF_SWITCH},
                    "dropped": dict(zip(DROPS, dropped.tolist(), strict=True)),
                }
            )
        return found

    def by_port(self) -> list[dict[str, Any]]:
        """Return one object per directed port with a count above 0, named as faults name it."""
        busy = self.received + self.packets + self.dropped.sum(axis=1) > 0
        return [
            {
                "port": self.fabric.port_name(port),
                **{name: int(getattr(self, name)[port]) for name in OF_PORT},
                "dropped": {
                    reason: n
                    for reason, n in zip(DROPS, self.dropped[port].tolist(), strict=True)
                    if n
                },
            }
            for port in np.flatnonzero(busy).tolist()
        ]


def snapshot(fabric: Fabric, net: Net) -> Counters:
    """Return the counts so far."""
    ctl, count = net.ctl[0], net.count
    lost = np.array([_socket_lost(int(fd)) for fd in net.wire.fd], np.int64)
    names = (*OF_PORT, "paused", "dropped")
    return Counters(
        fabric=fabric,
        **{name: np.array(count[name], np.int64) for name in names},
        in_flight=len(net.frame) - int(ctl.n_free) - int(ctl.n_armed),
        socket_lost=lost,
        late_ps_max=int(ctl.late_max),
        late=np.array(net.late[:LATE_BINS]),
        no_room=int(ctl.no_room),
        turns=int(ctl.turns),
    )


def _socket_lost(fd: int) -> int:
    """Frames that the kernel dropped because the socket buffer was full; 0 if it does not report
    them.
    """
    try:
        copy = socket.socket(fileno=fd)
    except OSError:
        return 0
    try:
        info = copy.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 4 * (_MEMINFO_DROPS + 1))
        return int(struct.unpack(f"{len(info) // 4}I", info)[_MEMINFO_DROPS])
    except (OSError, IndexError):
        return 0
    finally:
        copy.detach()
