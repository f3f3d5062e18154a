"""The least time a workload can take on a perfect network, to compare measured times with.

Nothing is ever lost, queued behind another message, or held back by a window. What remains is
physics: every packet is sent bit by bit, every switch stores it (or its header, in cut-through)
before it forwards it, links have propagation delay, the acknowledgement must return, and a NIC
cannot send or receive faster than its ports. These are bounds, not estimates: no run can beat them,
however it spreads its packets.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from openmrc.fabric.model import Fabric, IntArray, LongArray
from openmrc.fabric.rtt import before_last_ps, serial_ps
from openmrc.traffic.earliest import NO_HOP, Cost, earliest_ps, no_cost
from openmrc.traffic.releases import released_by, waves
from openmrc.traffic.traffic import Traffic


def ideal_ps(
    fabric: Fabric,
    traffic: Traffic,
    frame_bytes: Callable[[int], int],
    pmtu: int,
    control_wire_bytes: int,
    parts: int = 1,
) -> int:
    """Return a lower bound of the time at which the last message of `traffic` completes, without
    messages the last computation, ps from time 0.

    `frame_bytes(payload)` is what a data packet with that many bytes of payload occupies on the
    wire, `control_wire_bytes` what an acknowledgement does. Each message is cut into `parts` equal
    ones (a transport may stripe it over queue pairs). The result is the larger of two bounds:
    the longest chain of messages that wait for each other, each as if alone, and the busiest NIC,
    whose ports must carry all that it sends or receives. Each message of a series, and each part,
    counts as the shortest of them, at most one byte too short.
    """
    if not traffic.n_msgs:
        begin, _ = earliest_ps(traffic, no_cost(traffic), fabric.n_planes)
        return int((begin + traffic.calc_ps).max())
    cost = costs(fabric, traffic, frame_bytes, pmtu, control_wire_bytes, parts)
    if traffic.mixed:
        posted, last = (ps[: traffic.n_msgs] for ps in earliest_ps(traffic, cost, fabric.n_planes))
    else:
        posted = _posted_ps(traffic, cost)
        last = np.where(traffic.msg_count > 1, _last_of_series_ps(traffic, cost, posted), posted)
    chain = int((last + cost.arrive + cost.ack).max())
    cost = cost._replace(
        send=cost.send * traffic.msg_count, receive=cost.receive * traffic.msg_count
    )
    planes = fabric.n_planes
    sent = _busiest_ps(traffic.msg_src, posted, cost.send, cost.trail + cost.ack, planes)
    received = _busiest_ps(traffic.msg_dst, posted + cost.lead, cost.receive, cost.ack, planes)
    return max(chain, sent, received)


def costs(
    fabric: Fabric,
    traffic: Traffic,
    frame_bytes: Callable[[int], int],
    pmtu: int,
    control_wire_bytes: int,
    parts: int = 1,
) -> Cost:
    """Return the time that each message takes, alone in the network; arguments as of `ideal_ps`."""
    n_parts = np.clip(traffic.msg_bytes, 1, parts)
    size = traffic.msg_bytes // n_parts
    n_full = (size - 1) // pmtu  # packets of a part before its last one
    payloads, payload_of = np.unique(size - n_full * pmtu, return_inverse=True)
    last = np.array([frame_bytes(payload) for payload in payloads.tolist()], np.int64)[payload_of]
    full = frame_bytes(pmtu)
    cost = Cost(*(np.zeros(traffic.n_msgs, np.int64) for _ in Cost._fields))
    uplinks = fabric.uplinks(traffic.msg_src, traffic.msg_dst)
    for n_up in np.unique(uplinks):  # paths of one length are alike
        these = np.flatnonzero(uplinks == n_up)
        src, dst = int(traffic.msg_src[these[0]]), int(traffic.msg_dst[these[0]])
        there = fabric.route(src, dst, fabric.ev(0, 0))
        back = fabric.route(dst, src, fabric.ev(0, 0))
        paths = _pathcosts(fabric, there, n_parts[these], n_full[these], full, last[these])
        for column, values in zip(cost, paths, strict=False):
            column[these] = values
        cost.ack[these] = _latency_ps(fabric, back) + serial_ps(fabric, back, control_wire_bytes)
    return cost


def _pathcosts(
    fabric: Fabric,
    there: list[int],
    n_parts: LongArray,
    n_full: LongArray,
    full: int,
    last: LongArray,
) -> tuple[LongArray, ...]:
    """Return all columns of `Cost` but the last, for messages on this path."""
    first_ps, last_ps = (
        [serial_ps(fabric, [port], full), serial_ps(fabric, [port], last)]
        for port in (there[0], there[-1])
    )
    latency = _latency_ps(fabric, there)
    lead = latency + before_last_ps(fabric, there, last)
    trail = latency + serial_ps(fabric, there, last) - first_ps[1]
    full_trail = latency + serial_ps(fabric, there, full) - first_ps[0]
    # Of n_full equal packets and one that is no longer, either some plane carries a full packet
    # more than the even share, or all carry the even share and one of them the last packet too.
    even = n_full // fabric.n_planes
    most = -(-n_full // fabric.n_planes)
    arrive = np.maximum(
        even * first_ps[0] + first_ps[1] + trail,
        np.where(n_full > 0, most * first_ps[0] + full_trail, 0),
    )
    send, receive = (n_parts * (n_full * ps[0] + ps[1]) for ps in (first_ps, last_ps))
    least_trail = np.where(n_full > 0, np.minimum(full_trail, trail), trail)
    arrive = np.maximum(arrive, send // fabric.n_planes + least_trail)  # says more of several parts
    behind = np.where(n_full > 0, np.maximum(full_trail, trail), trail)
    return send, receive, arrive, lead, trail, behind


def _posted_ps(traffic: Traffic, cost: Cost) -> LongArray:
    """Return the earliest time at which each message can be posted.

    A message that needs only some of its releases counts as waiting for its start alone: which
    of them come first is not known here, and too early is still a bound.
    """
    recv, sent = (traffic.recv_first, traffic.recv_next), (traffic.sent_first, traffic.sent_next)
    given = np.bincount(np.concatenate([recv[1], sent[1]]), minlength=traffic.n_entries)
    needs_all = traffic.deps == given
    posted = np.concatenate([traffic.msg_start_ps, traffic.calc_start_ps])
    none = np.zeros(traffic.n_calcs, np.int64)
    compute = np.concatenate([traffic.msg_compute_ps, none])
    # A computation "arrives" when it ends; other computations on its core are ignored: still a
    # bound.
    arrive = np.concatenate([cost.arrive, traffic.calc_ps])
    ack = np.concatenate([cost.ack, none])
    for wave in waves((recv, sent), np.where(needs_all, traffic.deps, 0).astype(np.int32)):
        arrived = posted[wave] + arrive[wave]
        for (first, nxt), ready in ((recv, arrived), (sent, arrived + ack[wave])):
            giving, released = released_by(wave, first, nxt)
            waits = needs_all[released]
            later = ready[giving[waits]] + compute[released[waits]]
            np.maximum.at(posted, released[waits], later)
    messages: LongArray = posted[: traffic.n_msgs]
    return messages


def _last_of_series_ps(traffic: Traffic, cost: Cost, posted: LongArray) -> LongArray:
    """Return the earliest time at which the last message of each series can be posted, ps.

    Message k of a series waits for message k - lag of another (lag = 1 - deps), that for one of a
    third, and so on, thousands of times round a ring. Tables of 1, 2, 4 ... such hops at once give
    the sum over the longest chain in as many steps as its length has binary digits.
    """
    n = traffic.n_msgs
    hop, lag = np.full(n, n), np.full(n + 1, NO_HOP)
    time = np.zeros(n + 1, np.int64)
    for first, nxt, ack in (
        (traffic.recv_first, traffic.recv_next, 0),
        (traffic.sent_first, traffic.sent_next, cost.ack),
    ):
        in_series = np.append(traffic.msg_count, np.ones(traffic.n_calcs, np.int32))[nxt] > 1
        released = nxt[in_series]
        giving = np.repeat(np.arange(traffic.n_entries), np.diff(first))[in_series]
        hop[released] = giving
        lag[released] = 1 - traffic.msg_deps[released]
        time[released] = (cost.arrive + ack)[giving] + traffic.msg_compute_ps[released]
    hop = np.append(hop, n)  # entry n is where all chains end: no hop leads on from there
    tables = [(hop, lag, time)]
    k = traffic.msg_count.astype(np.int64) - 1
    while (k >= lag[:n]).any():
        onward = lag[hop]
        lag, time, hop = np.minimum(lag + onward, NO_HOP), time + time[hop], hop[hop]
        tables.append((hop, lag, time))
    here, total = np.arange(n), np.zeros(n, np.int64)
    for hop, lag, time in reversed(tables):
        able = k >= lag[here]
        total += np.where(able, time[here], 0)
        k = np.where(able, k - lag[here], k)
        here = np.where(able, hop[here], here)
    first_posted: LongArray = posted[here] + total
    return first_posted


def _busiest_ps(
    nic: IntArray, begin: LongArray, work: LongArray, end: LongArray, n_planes: int
) -> int:
    """Return the earliest end of the busiest NIC: its first start, all its work, and its shortest
    tail.
    """
    n = int(nic.max()) + 1
    earliest, least_end = (np.full(n, np.iinfo(np.int64).max // 4) for _ in range(2))
    total = np.zeros(n, np.int64)
    np.minimum.at(earliest, nic, begin)
    np.minimum.at(least_end, nic, end)
    np.add.at(total, nic, work)
    done = earliest + total // n_planes + least_end
    return int(done[total > 0].max())


def _latency_ps(fabric: Fabric, ports: list[int]) -> int:
    """Return the propagation along `ports` plus the delay of the switches between them, ps."""
    switches = fabric.port_switch[ports[1:]]
    return int(fabric.port_delay_ps[ports].sum() + fabric.sw_delay_ps[switches].sum())
