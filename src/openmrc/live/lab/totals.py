"""The counters of all switches of a lab together, in the simulator's terms."""

from __future__ import annotations

from typing import Any, NamedTuple

# Drop reasons of queues and of faults; the others are those of invalid frames.
QUEUE = ("queue_full", "control_full", "receiver_full")
FAULT = ("link_down", "loss", "switch_down")


class Totals(NamedTuple):
    """Packets since the lab came up."""

    link_traversals: int = 0  # that left a port, including those of NICs
    injected: int = 0  # that came from NICs
    delivered: int = 0  # that NICs' sockets accepted
    in_flight: int = 0
    ecn_marked: int = 0
    trimmed: int = 0
    dropped_queue: int = 0
    dropped_fault: int = 0
    dropped_socket: int = 0  # by the kernel, before a switch read them
    dropped_other: int = 0  # that a switch could not forward


def of_our_switches(counted: Any) -> Totals:
    """Return the totals of a `switch_counters.Counters`."""
    drops = counted.drops
    queue, fault = (sum(drops[reason] for reason in reasons) for reasons in (QUEUE, FAULT))
    return Totals(
        link_traversals=int(counted.packets.sum()),
        injected=int(counted.received.sum()),
        delivered=int(counted.delivered.sum()),
        in_flight=int(counted.in_flight),
        ecn_marked=int(counted.ecn_marked.sum()),
        trimmed=int(counted.trimmed.sum()),
        dropped_queue=queue,
        dropped_fault=fault,
        dropped_socket=int(counted.socket_lost.sum()),
        dropped_other=sum(drops.values()) - queue - fault,
    )
