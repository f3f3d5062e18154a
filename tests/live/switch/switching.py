"""What tests of the switches say: a small fabric between sockets, frames, time given by hand."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from openmrc.engine import packet
from openmrc.engine.packet import CLASS_CONTROL, CLASS_DATA, PACKET
from openmrc.engine.state import NEVER
from openmrc.fabric.actions import EVENT
from openmrc.fabric.clos import multiplane
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import Queues
from openmrc.jit import records
from openmrc.live.overlay import Overlay, overlay_ports
from openmrc.live.switch.switches import Switches
from openmrc.wire import addresses, codec, layout, srv6
from openmrc.wire.frame import ENVELOPE

US, MS = 10**6, 10**9  # ps
GBPS = 10**9
HOP_LIMIT = 64
ON_WIRE = 24  # preamble, gap, FCS
PATIENCE_S = 20


def small(nics: int = 4, planes: int = 2, rate_bps: int = GBPS) -> Fabric:
    """T0s of two NICs with two uplinks; 1 us a link, 0.5 us a switch."""
    return multiplane(nics, planes, rate_bps, 2, 2, 1 * US, US // 2)


class Rig:
    """A fabric whose NICs are this test; time passes when `run` says so."""

    def __init__(
        self,
        fabric: Fabric | None = None,
        rules: Queues | None = None,
        kind: str = "local",
        **more: Any,
    ) -> None:
        self.fabric = fabric or small()
        self.ends: Overlay = overlay_ports(self.fabric.n_nics * self.fabric.n_planes, kind)
        self.switches = Switches(self.fabric, rules or Queues(), self.ends.switch, **more)
        self.now = 0
        _, self._speller = srv6.of_fabric(self.fabric)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.switches.close()
        for fd in (*self.ends.switch, *self.ends.endpoint):
            os.close(fd)

    def frame(
        self,
        src: int,
        dst: int,
        ev: int = 0,
        psn: int = 0,
        payload: int = 1000,
        klass: int = CLASS_DATA,
        flags: int = 0,
        srv6_in: bool = True,
    ) -> bytes:
        """A frame of a NIC, as its codec writes it; control is a SACK, the rest is data."""
        p, e = records(1, PACKET)[0], records(1, ENVELOPE)[0]
        plane = self.fabric.hops(ev).plane
        control = klass == CLASS_CONTROL
        p.opcode = packet.SACK if control else packet.WRITE_MIDDLE
        p.klass, p.psn, p.ev, p.flag_bits = klass, psn, ev, flags
        p.payload_len = 0 if control else payload
        e.dscps = self.fabric.dscps.packed
        addresses.write_nic_mac(e.src_mac, 0, src, plane)
        addresses.write_ipv6(e.inner_src, 0, src, plane)
        addresses.write_ipv6(e.inner_dst, 0, dst, plane)
        addresses.write_ipv6(e.outer_src, 0, src, plane)
        assert srv6.write_carrier(e.carrier, 0, self._speller, src, dst, ev) > 0
        e.srv6, e.tseth, e.udp_port = int(srv6_in), 1, layout.UDP_PORT
        e.hop_limit = e.inner_hop_limit = HOP_LIMIT
        if not srv6_in:
            e.inner_dst = e.carrier
        out = np.zeros(9300, np.uint8)
        n = codec.encode(p, e, np.arange(payload, dtype=np.uint64).astype(np.uint8), out, 1)
        assert n > 0
        return out[:n].tobytes()

    def send(self, nic: int, plane: int, *frames: bytes) -> None:
        """The NIC sends on a port."""
        for data in frames:
            os.write(self.ends.endpoint[self.fabric.nic_port(nic, plane)], data)

    def run(self, until_ps: int | None = None) -> int:
        """Take every turn that is due, each at its exact time; return the time of the last."""
        due = self._turn()
        while due < NEVER and (until_ps is None or due <= until_ps):
            self.now = due
            due = self._turn()
        if until_ps is not None:
            self.now = until_ps
            self._turn()
        return self.now

    def _turn(self) -> int:
        """Turns at one time, until nothing more comes in: one turn reads a batch of each wire."""
        received = self.switches.net.count.received
        while True:
            before = int(received.sum())
            due = self.switches.step(self.now)
            if int(received.sum()) == before:
                return due

    def got(self, nic: int, plane: int) -> list[bytes]:
        """What has come to a port of a NIC."""
        return drained(int(self.ends.endpoint[self.fabric.nic_port(nic, plane)]))

    def all_got(self) -> dict[tuple[int, int], list[bytes]]:
        """What has come to any port."""
        found = {}
        for nic in range(self.fabric.n_nics):
            for plane in range(self.fabric.n_planes):
                if frames := self.got(nic, plane):
                    found[nic, plane] = frames
        return found

    def act(self, action: int, target: int, rate: float = 0.0, burst: float = 0.0) -> None:
        """One action of a fault, now."""
        self.switches.act(event(action, target, rate, burst))

    def drops(self) -> dict[str, int]:
        """Reasons that have lost something."""
        return {reason: n for reason, n in self.switches.counters().drops.items() if n}

    def check_conserved(self) -> None:
        """Everything that came in went out, was dropped for a reason, or is still inside."""
        c = self.switches.counters()
        assert c.received.sum() == c.delivered.sum() + c.dropped.sum() + c.in_flight


def event(action: int, target: int, rate: float = 0.0, burst: float = 0.0, at_ps: int = 0) -> Any:
    """One row of a schedule."""
    row = np.zeros(1, EVENT)
    row["at_ps"], row["action"], row["target"] = at_ps, action, target
    row["rate"], row["burst"] = rate, burst
    return row


def drained(fd: int) -> list[bytes]:
    """Every datagram that waits in a socket."""
    found = []
    while True:
        try:
            found.append(os.read(fd, 65536))
        except BlockingIOError:
            return found


def decoded(data: bytes, check: int = 1) -> tuple[int, Any, Any]:
    """Code, packet and envelope of a frame."""
    p, e = records(1, PACKET), records(1, ENVELOPE)
    code = codec.decode(np.frombuffer(data, np.uint8).copy(), len(data), p[0], e[0], check)
    return int(code), p[0], e[0]


def on_wire_ps(data: bytes, rate_bps: int) -> int:
    """How long a frame occupies a link."""
    return (len(data) + ON_WIRE) * 8 * 10**12 // rate_bps


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "nothing happens"
        time.sleep(0.002)


def collected(rig: Rig, nic: int, plane: int, n: int) -> list[bytes]:
    """Wait for `n` frames."""
    found: list[bytes] = []

    def enough() -> bool:
        found.extend(rig.got(nic, plane))
        return len(found) >= n

    until(enough)
    return found
