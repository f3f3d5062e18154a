"""How probable a loss is where nothing is broken."""

from __future__ import annotations

import numpy as np

from openmrc.ops.diagnose.counters import Counters, counters
from openmrc.ops.diagnose.observed import FloatArray, Observed, Packets

FLOOR = 1e-5  # of a million packets that senders judge lost ten may only have been late
JAMMED = 0.15  # of the packets behind a queue that trims all: headers and answers are late
FORGOTTEN = 0.05  # of the packets that come late after they were judged lost are never proved so
UNPROVEN = 3.0  # at most so many times as many as are proved late are late and not proved so
UNSURE = 0.05  # of the losses: as many may be late, although ports account for all
PART_MIN = 0.1  # of what full queues may make late: they fill at a few places
UNEVEN = 2.0  # times as many of them as on the whole there are at places
LATE_MAX = 0.2  # at which what lets nothing through still stands out
AFTER_BINS = 1  # a packet meets a queue in the bin in which it left, or in the next
MOST = 0.9
REPORTED_NATS = -20.0  # a NIC that says that its own port is down is hardly ever wrong


def of_losses(seen: Observed, lost: Packets) -> FloatArray:
    """Return by how many nats chance explains each loss: the logarithm of its probability."""
    ports = seen.sent.shape[1]
    sent = np.maximum(seen.out + seen.dropped, 1)
    drop = np.concatenate([seen.dropped / sent, np.zeros((len(sent), 1))], axis=1)
    # Of late packets some are never proved so.
    soft = FORGOTTEN * np.minimum(seen.late / np.maximum(seen.sent, 1), 1)
    soft = np.maximum(soft, JAMMED * np.minimum(seen.trimmed / np.maximum(seen.sent, 1), 1) ** 2)
    rest = _unaccounted(seen, lost)
    usual = _late_everywhere(seen, rest)
    expected = float((soft * seen.sent).sum())
    wide = min(max(UNEVEN * rest / max(expected, 1), PART_MIN), 1.0)
    soft = np.concatenate([soft, np.zeros((len(sent), 1))], axis=1)
    part = np.where(lost.probe, 1.0, wide)  # ports do not tell probes from others
    back = np.append(seen.fabric.port_reverse, ports)
    through = np.ones(len(lost))
    first = seen.bin_of(lost.sent_us)
    for after in range(AFTER_BINS + 1):
        at = np.minimum(first + after, len(sent) - 1)
        this = np.ones(len(lost))
        for column in lost.routes.T:
            port = np.where(column < 0, ports, column)
            this *= (1 - drop[at, port]) * (1 - part * soft[at, port]) * (1 - drop[at, back[port]])
        through = np.minimum(through, this * (1 - usual[at]))
    chance = np.maximum(FLOOR + 1 - through, _dropped_part(seen, lost))
    log = np.log(np.clip(chance, FLOOR, MOST))
    log[lost.ev < 0] = REPORTED_NATS
    return np.asarray(log)


def _unaccounted(seen: Observed, lost: Packets) -> float:
    """Return how many packets may be late of those that senders judge lost: the others ports miss,
    dropped or got damaged. What ports miss may have been an answer.
    """
    n_lost = int((~lost.probe).sum())
    counted = counters(seen)
    accounted = float(_surely(counted).sum() + seen.dropped.sum())
    return max(n_lost - accounted, UNSURE * n_lost)


def _surely(counted: Counters) -> FloatArray:
    """[switches + ports] counts without what may have been under way."""
    return np.asarray(np.maximum(counted.counts - counted.usual, 0))


def part_late(seen: Observed, weight: FloatArray) -> FloatArray:
    """Return which part of the losses of the plane of each may be late, not lost: as many as were
    proved late allow, and as ports there do not account for.
    """
    fabric, lost = seen.fabric, seen.lost
    n = fabric.n_planes
    plane = np.where(lost.ev < 0, 0, lost.routes[:, 0] % n)
    losses = np.bincount(plane, np.where(lost.probe, 0, weight), n)
    own_plane = fabric.sw_plane[np.maximum(fabric.port_switch, 0)]
    of_port = np.where(fabric.port_switch < 0, np.arange(fabric.n_ports) % n, own_plane)
    there = _surely(counters(seen))
    there[fabric.n_switches :] += seen.dropped.sum(axis=0)
    rest = losses - np.bincount(np.append(fabric.sw_plane, of_port), there, n)
    own = seen.late[:, : fabric.n_nics * n].sum(axis=0).reshape(-1, n).sum(axis=0)
    part = np.minimum(UNPROVEN * own, rest) / np.maximum(losses, 1)
    return np.asarray(np.clip(part, FORGOTTEN, 1.0)[plane])


def _late_everywhere(seen: Observed, rest: float) -> FloatArray:
    """Return [bins] the probability that a packet is late and never proved so, wherever it goes:
    about as many are so as are proved late.
    """
    sent, late = (_around(it).sum(axis=1) for it in (seen.sent, seen.late))
    proved = UNPROVEN * late / np.maximum(sent, 1)
    mean = UNPROVEN * float(seen.late.sum()) / max(float(seen.sent.sum()), 1)
    part = min(UNEVEN * rest / _sent_by_nics(seen) / mean, 1.0) if mean > 0 else 0.0
    return np.asarray(np.minimum(part * np.maximum(proved, mean), LATE_MAX))


def _sent_by_nics(seen: Observed) -> float:
    return float(seen.sent[:, : seen.fabric.n_nics * seen.fabric.n_planes].sum())


def _dropped_part(seen: Observed, lost: Packets) -> FloatArray:
    """Return which part of the losses around each, in place and time, are drops that ports counted:
    queues fill and empty within a bin, and the mean over it says little of the moment.
    """
    bins, ports = seen.dropped.shape
    at, back = seen.bin_of(lost.sent_us), np.append(seen.fabric.port_reverse, ports)
    losses = np.zeros((bins, ports + 1))
    for column in lost.routes.T:
        np.add.at(losses, (at, np.where(column < 0, ports, column)), 1)
    drops = np.concatenate([seen.dropped, np.zeros((bins, 1))], axis=1)
    part = np.minimum(_around(drops) / np.maximum(_around(losses), 1), 1)
    left = np.ones(len(lost))
    for column in lost.routes.T:
        port = np.where(column < 0, ports, column)
        left *= (1 - part[at, port]) * (1 - np.where(lost.probe, part[at, back[port]], 0))
    return np.asarray(1 - left)


def _around(counts: FloatArray) -> FloatArray:
    """Counts of each bin with those of the bins before and after."""
    padded = np.pad(counts, ((1, 1), (0, 0)))
    return np.asarray(padded[:-2] + padded[1:-1] + padded[2:])


def draws(lost: Packets, n_planes: int, rtt_us: float) -> FloatArray:
    """Return which part of a draw each loss is: what a queue pair sent within a round trip in a
    plane, and missed within one, is one draw, of chance and of a fault.
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
