"""Trimming by Linux's switches: a BPF program before a shaper of three classes, at every port.

The program (`trim.bpf.c`) is compiled by clang when a lab comes up, once for each set of
thresholds, and loaded by `tc`. The kernel accepts it only from the machine's root, never from the
root of a user namespace: such a lab has no user namespace (`isolation`), and its hosts' commands
run as root.

Control packets and trimmed headers go first, then retransmissions, then data (row 15). The shaper
is HTB: green classes are served in the order of their priority, and borrow in the same order.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import UNLIMITED, Limits, bounds_of, sizes_at
from openmrc.live.lab.namespaces import TOOL_PATH, LabError, tool_environment
from openmrc.live.lab.shapers import WIRE_BYTES, Shapers
from openmrc.live.lab.topology import Topology
from openmrc.wire.framing import MRC_FRAMING

SOURCE = Path(__file__).with_name("trim.bpf.c")
CLANG = ("clang", "-O2", "-g", "-target", "bpf", "-x", "c", "-c", "-o", "-")
# Classes as the program names them, and the fraction of the rate that each has before it borrows.
CLASSES = (("10", 0.8), ("11", 0.1), ("12", 0.1))
NEVER = (1 << 32) - 1  # bytes that no queue holds
QUANTUM_BYTES = 10_000  # a turn: at least a frame


class TrimmingShapers(Shapers):
    """As `Shapers`, except for the ports of switches, which get classes and the program."""

    def __init__(self, topology: Topology, queues: Any, bounds: Limits) -> None:
        super().__init__(topology, queues)
        self._bounds = bounds
        self._programs: dict[tuple[str, ...], str] = {}

    def _lines(self, port: int, share: float, verb: str) -> list[str]:
        if self._topology.fabric.port_nic[port] >= 0:
            return super()._lines(port, share, verb)
        interface = self._topology.end_of[port].interface
        rate_bps, burst = self._rate(port, share)
        common = f"burst {burst} cburst {burst} quantum {QUANTUM_BYTES} overhead {WIRE_BYTES}"
        lines = [
            f"class {verb} dev {interface} parent 1: classid 1:1 htb rate {rate_bps}bit {common}"
        ]
        for order, (name, part) in enumerate(CLASSES):
            lines.append(
                f"class {verb} dev {interface} parent 1:1 classid 1:{name} htb"
                f" rate {int(rate_bps * part)}bit ceil {rate_bps}bit prio {order} {common}"
            )
        return lines if verb == "change" else self._add(port, interface, lines)

    def _add(self, port: int, interface: str, classes: list[str]) -> list[str]:
        """All lines of a port: shaper, classes with their queues, program."""
        bounds = self._bounds
        room = [int(bounds.control_queue_bytes[port]), *[2 * int(bounds.queue_bytes[port])] * 2]
        queues = [
            f"qdisc add dev {interface} parent 1:{name} bfifo limit {n_bytes}"
            for (name, _), n_bytes in zip(CLASSES, room, strict=True)
        ]
        program = self._program(thresholds(self._topology.fabric, self._bounds, port))
        return [
            f"qdisc add dev {interface} root handle 1: htb default {CLASSES[-1][0]}",
            *classes,
            *queues,
            f"qdisc add dev {interface} clsact",
            f"filter add dev {interface} egress bpf direct-action object-file {program} section tc",
        ]

    def _program(self, words: tuple[str, ...]) -> str:
        """The path of a compiled program, a file in memory that disappears with this process."""
        if words not in self._programs:
            fd = os.memfd_create("trim.bpf.o")
            os.write(fd, compiled(words))
            self._programs[words] = f"/proc/{os.readlink('/proc/self')}/fd/{fd}"
        return self._programs[words]


def thresholds(fabric: Fabric, bounds: Limits, port: int) -> tuple[str, ...]:
    """Return the constants with which the program of a switch's port is compiled."""
    low, high = int(bounds.ecn_low_bytes[port]), int(bounds.ecn_high_bytes[port])
    if low == UNLIMITED:
        low, high = NEVER - 1, NEVER
    last = bool(np.asarray(fabric.port_last_hop)[port])
    return (
        f"-DLIMIT={int(bounds.queue_bytes[port])}u",
        f"-DECN_LOW={low}u",
        f"-DECN_HIGH={high}u",
        f"-DTRIMMED={fabric.dscps.trimmed_lasthop if last else fabric.dscps.trimmed}",
        f"-DOUTER_LENGTH_ALONE={int(fabric.trim_lengths == 'outer')}",
        *(f"-DDSCP_{name}={value}" for value, name in fabric.dscps.names.items()),
    )


def compiled(words: tuple[str, ...]) -> bytes:
    """Return the object file of the program; `LabError` if clang is missing or refuses."""
    if lacks := missing():
        raise LabError(lacks)
    done = subprocess.run(
        [*CLANG, *words, "-"],
        input=SOURCE.read_bytes(),
        capture_output=True,
        env=tool_environment(),
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["without a message"]
        raise LabError(f"clang does not compile the program that trims: {said[0]}")
    return done.stdout


def missing() -> str:
    """Return "" or a line that says what such a lab lacks, as far as known in advance."""
    if os.geteuid() != 0:
        return (
            "lab.bpf: the kernel takes BPF programs from root alone; start it with sudo, or use"
            ' switch = "openmrc"'
        )
    if shutil.which(CLANG[0], path=TOOL_PATH) is None:
        return "lab.bpf: there is no `clang`; type: sudo apt install clang"
    return ""


def shapers(topology: Topology, queues: Any, **sizes: Any) -> Shapers:
    """Return the shapers of a lab of Linux's switches; `sizes` determine the queues."""
    if not topology.settings.bpf:
        return Shapers(topology, queues)
    fabric, pmtu = topology.fabric, sizes["pmtu"]
    rtt_ps = sizes["base_rtt_ps"] or MRC_FRAMING.base_rtt_ps(fabric, pmtu)
    packet = MRC_FRAMING.data_bytes(pmtu)
    of_queues = sizes_at(fabric, queues, rtt_ps, packet, sizes["senders_per_nic"])
    bounds = bounds_of(fabric, of_queues, queues, packet)
    return TrimmingShapers(topology, queues, bounds.limits)
