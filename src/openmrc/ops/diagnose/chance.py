"""How probable a loss is where nothing is broken.

Each packet ends somewhere, and is counted there: dropped by a full queue, damaged at a NIC, or
missing on a link or in a switch. A loss that is missing nowhere on its way, while its sender waited
for an answer, is none: what is late is judged lost, too. So of losses that some place on their way
has in common as many are of faults as are missing there, and the others are chance: they were
dropped because a queue was full, or only late.
"""

from __future__ import annotations

import numpy as np

from openmrc.fabric.model import IntArray
from openmrc.ops.diagnose.missing import missing
from openmrc.ops.diagnose.observed import FloatArray, Observed, Packets

FLOOR = 1e-5  # of a million packets that senders judge lost ten may only have been late
MOST = 0.95
REPORTED_NATS = -20.0  # a NIC that says that its own port is down is hardly ever wrong


def of_losses(seen: Observed, lost: Packets) -> FloatArray:
    """Return by how many nats chance explains each loss: the logarithm of its probability."""
    none = 1 - _missing_part(seen, lost) if seen.counted else _harmless_part(seen, lost)
    log = np.log(np.clip(none, FLOOR, MOST))
    log[lost.ev < 0] = REPORTED_NATS
    return np.asarray(log)


def _harmless_part(seen: Observed, lost: Packets) -> FloatArray:
    """Return how probable it is that each loss is of no fault, where nobody counts what is missing:
    of data that senders judged lost while they waited for its answer as much is late as proved so,
    since where hosts stand still all is late; of probes as many as the answers that took longer
    than these were waited for; and of losses across a port as many as its full queue dropped.
    """
    n, begin, end = len(seen.edges_us) - 1, seen.bin_of(lost.sent_us), seen.bin_of(lost.known_us)
    counts = (
        np.bincount(seen.bin_of(at_us), minlength=n)
        for at_us in (seen.late_us, lost.known_us[~lost.probe])
    )
    upto = (np.append(0, np.cumsum(each)) for each in counts)
    late, left = (each[end + 1] - each[begin] for each in upto)
    there = lost.routes[lost.routes >= 0]
    dropped = np.append(seen.dropped.sum(axis=0), 0.0)  # the last is that of no port
    part = dropped / np.maximum(np.bincount(there, minlength=len(dropped)), 1)
    queues = np.minimum(part, 1)[lost.routes].max(axis=1, initial=0)
    took_us = np.sort(seen.answered.known_us - seen.answered.sent_us)
    sooner = np.searchsorted(took_us, lost.known_us - lost.sent_us, side="right")
    slow = 1 - sooner / len(took_us) if len(took_us) else 0.0
    none = np.where(lost.probe, slow, late / np.maximum(late + left, 1))
    return np.asarray(1 - (1 - none) * (1 - queues))


def _missing_part(seen: Observed, lost: Packets) -> FloatArray:
    """Return how probable it is that each loss is missing somewhere on its way, or that its answer
    is: of losses that have a place in common, about as many as are missing there meanwhile.
    """
    fabric = seen.fabric
    n_ports, n = fabric.n_ports, fabric.n_ports + fabric.n_switches
    links, inside = missing(seen)
    there = np.concatenate([links + seen.damaged, inside], axis=1)
    ways = np.concatenate([lost.routes, lost.back], axis=1)
    far = np.where(ways < 0, -1, fabric.port_peer_switch[ways])
    places = np.concatenate([ways, np.where(far < 0, -1, n_ports + far)], axis=1)
    begin, end = seen.bin_of(lost.sent_us), seen.bin_of(lost.known_us) + 1

    def upto(weight: FloatArray) -> FloatArray:
        """[bins + 1, places] so many losses have a place on their way, by when they left."""
        found = np.zeros((len(there), n + 1))
        for column in places.T:
            np.add.at(found, (begin, np.where(column < 0, n, column)), weight)
        return np.pad(np.cumsum(found, axis=0), ((1, 0), (0, 0)))

    gone = np.pad(np.cumsum(there, axis=0), ((1, 0), (0, 1)))
    dropped = np.pad(np.cumsum(seen.dropped, axis=0), ((1, 0), (0, 1)))
    all_lost = upto(np.ones(len(lost)))

    def part(counts: FloatArray, column: IntArray) -> FloatArray:
        then = all_lost[end, column] - all_lost[begin, column]
        return np.asarray((counts[end, column] - counts[begin, column]) / np.maximum(then, 1))

    by_queues = sum(part(dropped, column) * ~lost.probe for column in lost.routes.T)
    # What is lost in a switch may be missing there sooner: since then something waited there. So
    # what is missing before a loss counts, too, unless it was lost before, or a queue dropped it.
    more = gone - upto(np.maximum(1 - by_queues, 0))
    before = (more - np.minimum.accumulate(more, axis=0)) * (np.arange(n + 1) >= n_ports)
    # It is missing at one place: their probabilities add up.
    found = np.sum([part(gone, column) for column in places.T], axis=0)
    then = (np.maximum(all_lost[end, it] - all_lost[begin, it], 1) for it in places.T)
    sooner = np.sum([before[begin, it] / n for it, n in zip(places.T, then, strict=True)], axis=0)
    return np.asarray(np.minimum(found + np.clip(1 - found - by_queues, 0, sooner), 1))


def draws(lost: Packets, n_planes: int, rtt_us: float) -> FloatArray:
    """Return which part of a draw each loss is: what a queue pair sent within a round trip in one
    of so many planes, and missed within one, is one draw, of chance and of a fault.
    """
    plane = np.where(lost.ev < 0, 0, lost.routes[:, 0] % n_planes)
    sent, known = (np.floor(it / rtt_us).astype(np.int64) for it in (lost.sent_us, lost.known_us))
    _, of, size = np.unique(
        np.stack([lost.qp, plane, sent, known], axis=1),
        axis=0,
        return_inverse=True,
        return_counts=True,
    )
    return np.asarray(1 / size[of.ravel()])
