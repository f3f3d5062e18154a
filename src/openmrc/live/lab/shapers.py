"""Token buckets, which limit an interface to the rate of its link.

A rate counts what a link carries, preamble, gap and FCS included, as the simulator does. On a host
the bucket's queue is longer than any socket's send buffer, so a full socket pushes back: the sender
waits, and nothing is lost before the wire.
"""

from __future__ import annotations

from typing import Any

from openmrc.fabric.queues import in_packets
from openmrc.live.lab.namespaces import Batch
from openmrc.live.lab.topology import Topology

ETHERNET_BYTES = 14
WIRE_BYTES = 24  # of each frame, in addition to what the kernel counts: preamble, gap, FCS
# Burst of a bucket: enough for the timers of a busy machine, little compared with a queue.
BURST_S, BURST_FRAMES_MIN = 0.0005, 3
# Default without [fabric]: 2 ms at 1 Gb/s, more than the delay of a busy machine's timers.
QUEUE_BYTES = 256 * 1024
HOST_QUEUE_BYTES = 16 << 20  # net.core.wmem_max is 4 MiB if it is raised, and counts double
RATE_BPS_MIN = 1000


class Shapers:
    """The buckets of a lab's interfaces; `queues` are the keys of `[fabric]` about queues."""

    def __init__(self, topology: Topology, queues: Any) -> None:
        self._topology = topology
        self._queues = queues
        self._share: dict[int, float] = {}  # by port: its bucket's fraction of the rate, unless 1

    def first(self, ports: Any) -> list[Batch]:
        """Return the batches that create the buckets of these directed ports, which exist."""
        lines: dict[str, list[str]] = {}
        for port in ports:
            of_one = lines.setdefault(self._topology.end_of[port].namespace, [])
            of_one += self._lines(port, 1.0, "add")
        return [Batch(name, "tc", of_one) for name, of_one in lines.items()]

    def changed(self, ports: Any, shares: Any) -> list[Batch]:
        """Return the batches for those of these ports whose fraction of their rate has changed."""
        batches = []
        for port in sorted(ports):
            share = float(shares[port])
            if share == self._share.get(port, 1.0):
                continue
            self._share[port] = share
            namespace = self._topology.end_of[port].namespace
            batches.append(Batch(namespace, "tc", self._lines(port, share, "change")))
        return batches

    def _lines(self, port: int, share: float, verb: str) -> list[str]:
        """The lines of `tc` for one port: `verb` is "add" or "change"."""
        interface = self._topology.end_of[port].interface
        return [f"qdisc {verb} dev {interface} root {self._bucket(port, share)}"]

    def _rate(self, port: int, share: float) -> tuple[int, int]:
        """Rate of a port in bit/s, and its burst in bytes."""
        rate_bps = max(RATE_BPS_MIN, int(int(self._topology.fabric.port_rate_bps[port]) * share))
        return rate_bps, max(BURST_FRAMES_MIN * self._frame, int(rate_bps / 8 * BURST_S))

    @property
    def _frame(self) -> int:
        """The longest frame on the wire, bytes."""
        return self._topology.settings.mtu + ETHERNET_BYTES + WIRE_BYTES

    def _queue_bytes(self, rate_bps: int, last_hop: bool) -> int:
        """The queue limit of a switch's port of this rate, bytes: as stated, in bytes or as a
        time.
        """
        said = self._queues
        stated = [(said.queue_bytes, said.queue_ps)]
        if last_hop:
            stated.insert(0, (said.queue_last_hop_bytes, said.queue_last_hop_ps))
        for n_bytes, time_ps in stated:
            if n_bytes is not None or time_ps is not None:
                return int(n_bytes or in_packets(time_ps, rate_bps, 1) or 0)
        return QUEUE_BYTES

    def _bucket(self, port: int, share: float) -> str:
        fabric = self._topology.fabric
        rate_bps, burst = self._rate(port, share)
        if fabric.port_nic[port] >= 0:
            queue_bytes = HOST_QUEUE_BYTES
        else:
            of_port = self._queue_bytes(rate_bps, bool(fabric.port_last_hop[port]))
            queue_bytes = max(of_port, 2 * self._frame)
        limit = queue_bytes + burst
        return f"tbf rate {rate_bps}bit burst {burst} limit {limit} overhead {WIRE_BYTES}"
