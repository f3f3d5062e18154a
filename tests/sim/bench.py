"""Parts of the simulator on a bench: one egress port, or the queue of events, without endpoints.

The functions of the event loop are compiled into their callers, so what is tested here is driven
from compiled code too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.engine.state import NEVER
from openmrc.jit import compiled
from openmrc.sim.net import events, health, link
from openmrc.sim.world import World
from tests.sim.lab import kind_of

WHEEL, HEAP, TAKE = range(3)


@compiled
def offer(net: Any, port_no: int, n: int, now: int) -> None:
    """A packet comes to an egress port."""
    net.ctl[0].now = now
    link.enqueue(net, port_no, n, now)


@compiled
def fates(net: Any, port_no: int, frame_bytes: int, klass: int, found: Any) -> None:
    """Of packets that come to an egress port one behind the other: which a fault loses."""
    ctl, port = net.ctl[0], net.port[port_no]
    now = np.int64(0)
    for i in range(len(found)):
        n = ctl.free_head
        h = net.hop[n]
        ctl.free_head = h.next
        ctl.n_free -= 1
        ctl.injected += 1
        h.frame_bytes, h.klass, h.dst = frame_bytes, klass, 0
        h.trimmable, h.marks = True, 0
        ctl.now = now
        before = ctl.dropped_fault
        link.enqueue(net, port_no, n, now)
        found[i] = ctl.dropped_fault > before
        now = port.free_at


@compiled
def lateness(net: Any, port_no: int, due: Any, found: Any) -> None:
    """By how much packets are late that are due at the end of a port's link."""
    for i in range(len(due)):
        found[i] = health.late_ps(net, port_no, due[i])


@compiled
def transmission_over(net: Any, port_no: int, now: int) -> None:
    """A switch port's pending event."""
    net.ctl[0].now = now
    link.on_switch_port_free(net, port_no, now)


@compiled
def lose_queue(net: Any, port_no: int) -> None:
    link.flush(net, net.port[port_no])


@compiled
def play(net: Any, kinds: Any, first: Any, second: Any, taken: Any) -> int:
    """Play a list of operations on the queue of events; what was taken goes to `taken` [n, 2].

    WHEEL packet delay, HEAP number delay (kind = number // 1000), TAKE. Delays count from the
    event taken last. Takes as the event loop does: the heap's entry first where both are due.
    """
    ctl = net.ctl[0]
    now = ctl.now
    n = 0
    for i in range(kinds.shape[0]):
        if kinds[i] == WHEEL:
            h = net.hop[first[i]]
            events.schedule_packet(net, first[i], h, now + second[i])
        elif kinds[i] == HEAP:
            events.push(net, now + second[i], first[i] // 1000, first[i] % 1000)
        elif kinds[i] == TAKE:
            at = events.next_at(net)
            heap_at = net.heap[0].at if ctl.heap_n > 0 else NEVER
            if heap_at <= at and heap_at < NEVER:
                events.rewind(net, heap_at)
                kind, number = events.pop(net)
                now = heap_at
                taken[n, 1] = -1 - (kind << events.KIND_SHIFT | number)
            elif at < NEVER:
                now = at
                taken[n, 1] = events.take(net) - ctl.n_ports
            else:
                return -1
            ctl.now = now
            taken[n, 0] = now
            n += 1
    return n


class PortBench:
    """One egress port of a switch, to which packets are offered by hand.

    bench = PortBench(world, port)
    first = bench.offer(1000, DATA)
    bench.run()
    assert bench.sent == [(first, arrival)]
    """

    def __init__(self, world: World, port: int) -> None:
        self.net = world.net
        self.number = port
        self.record = self.net.port[port]
        self.kind = kind_of(world, port)
        self.now = 0
        self.sent: list[tuple[int, int, int]] = []  # packet, first bit, arrival at the other end

    def offer(self, frame_bytes: int, klass: int, trimmable: bool = True, name: int = 0) -> int:
        """A packet comes now; its index. It can be told by its `dst`, which is its name."""
        ctl = self.net.ctl[0]
        n = int(ctl.free_head)
        ctl.free_head = self.net.hop[n].next
        ctl.n_free -= 1
        ctl.injected += 1
        h = self.net.hop[n]
        h.frame_bytes = frame_bytes
        h.klass = klass
        h.dst = name
        h.trimmable = trimmable
        h.marks = 0
        before = int(ctl.traversals)
        offer(self.net, self.number, n, self.now)
        if ctl.traversals > before:
            self._note(n)
        return n

    def run(self) -> list[int]:
        """Until the port is silent; the packets that went out meanwhile, in order."""
        start = len(self.sent)
        while self.record.armed:
            self.over()
        return [n for n, _, _ in self.sent[start:]]

    def over(self) -> int:
        """The transmission under way ends; the packet that follows, or -1."""
        ctl = self.net.ctl[0]
        self.now = int(self.record.free_at)
        heads = [int(n) for n in self.record.head]
        before = int(ctl.traversals)
        transmission_over(self.net, self.number, self.now)
        if ctl.traversals == before:
            return -1
        (n,) = [old for old, new in zip(heads, self.record.head, strict=True) if old != new]
        self._note(n)
        return n

    def _note(self, n: int) -> None:
        self.sent.append((n, self.now, int(self.net.hop[n].at)))


def play_events(world: World, operations: list[tuple[int, int, int]]) -> npt.NDArray[np.int64]:
    """What was taken, [n, 2]: time, and the packet or -1 - what."""
    table = np.array(operations, np.int64).reshape(-1, 3)
    taken = np.zeros((len(table), 2), np.int64)
    columns = [np.ascontiguousarray(table[:, i]) for i in range(3)]
    n = play(world.net, *columns, taken)
    assert n >= 0
    return taken[:n]
