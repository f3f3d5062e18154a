"""The reports of agents and switches, as the result of a run: the same arrays as the simulator's.

A message's retransmissions are those of its queue pair since the message before it completed. Each
agent samples payload placed and packets lost at its own times; the samples are interpolated into
common bins. A message without immediate data tells its receiver nothing: when it was delivered is
not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.errors import OpenMrcError
from openmrc.fabric.model import Fabric
from openmrc.fabric.ways import routes
from openmrc.run.lab import account, narrow
from openmrc.run.lab.coordinator import Heard
from openmrc.run.lab.plan import Plan
from openmrc.run.outcome import TransportResult
from openmrc.run.ports import Testimony
from openmrc.sim.mrc.derive import Derived
from openmrc.traffic.traffic import Traffic
from openmrc.units import US

BIN_PS = 20_000 * US
NO_TIME = -1
OF_QPS = {
    "retransmitted": "rtx",
    "sack": "sack",
    "nack": "nack",
    "probe": "probe",
    "duplicates": "dup",
    "assumed_bad": "paths_bad",
    "revived": "paths_revived",
    "skips": "paths_skipped",
    "false_alarms": "false",
    "inferred": "inferred",
    "timeouts": "timeouts",
}
Array = NDArray[Any]


def result_of(
    name: str,
    fabric: Fabric,
    traffic: Traffic,
    plan: Plan,
    heard: Heard,
    derived: Derived,
    ideal_ps: int,
) -> TransportResult:
    """Return one transport's result; `OpenMrcError` if a byte is not where it belongs."""
    done_ps, start_ps, delivered_ps, again, failed, errors = _messages(plan, heard)
    verified = _verified(plan, heard, done_ps)
    by = _Entries(traffic, plan)
    complete = by.all(done_ps >= 0)
    # The acknowledgement came after the message; its receiver's process may have heard of it later.
    delivered_ps = np.where(done_ps >= 0, np.minimum(delivered_ps, done_ps), delivered_ps)
    flows: dict[str, Array] = {
        "src": traffic.msg_src,
        "dst": traffic.msg_dst,
        "qp": traffic.msg_qp,
        "bytes": traffic.msg_total_bytes,
        "messages": traffic.msg_count.copy(),
        "start_ps": by.first(start_ps),
        "done_ps": np.where(complete, by.max(done_ps), NO_TIME),
        "delivered_ps": np.where(by.all(delivered_ps >= 0), by.max(delivered_ps), NO_TIME),
        "retransmitted": by.sum(again),
        "failed": ~by.all(~failed),
    }
    end_ps = int(flows["done_ps"].max()) if complete.all() else heard.ended_ps
    timeline = _timeline(heard, end_ps)
    texts = [""] * traffic.n_msgs
    for m in np.flatnonzero(failed).tolist():
        texts[int(plan.entry[m])] = texts[int(plan.entry[m])] or errors[m]
    return TransportResult(
        name=name,
        flows=flows,
        flow_errors=texts,
        qp_errors=_qp_errors(plan, heard),
        narrow_paths=_narrow_paths(fabric, traffic, heard),
        counters=_counters(heard),
        timeline=timeline,
        bin_ps=BIN_PS,
        derived=derived.as_dict() | _measured(heard),
        ideal_ps=ideal_ps,
        now_ps=end_ps,
        loop_s=heard.ended_ps / 1e12,
        bytes_verified=verified,
        jobs=traffic.jobs,
        flow_job=traffic.msg_job,
        placed_ps=_last_placed(timeline),
        testimony=_testimony(fabric, traffic, heard, end_ps, derived.base_rtt_ps),
    )


def _testimony(
    fabric: Fabric, traffic: Traffic, heard: Heard, end_ps: int, rtt_ps: int
) -> Testimony | None:
    """What senders told, with what queues dropped."""
    found = account.testimony(fabric, traffic, heard.accounts, end_ps, rtt_ps)
    if found is not None and heard.queue_drops:
        account.add_drops(found, np.array(heard.queue_drops))
    return found


class _Entries:
    """Columns by message joined to columns by entry; an entry's messages follow each other."""

    def __init__(self, traffic: Traffic, plan: Plan) -> None:
        self._begin = np.searchsorted(plan.entry, np.arange(traffic.n_msgs))

    def first(self, column: Array) -> Array:
        return column[self._begin]

    def sum(self, column: Array) -> Array:
        return np.add.reduceat(column, self._begin)

    def max(self, column: Array) -> Array:
        return np.maximum.reduceat(column, self._begin)

    def all(self, column: Array) -> Array:
        every: Array = np.logical_and.reduceat(column, self._begin)
        return every


def _messages(plan: Plan, heard: Heard) -> tuple[Array, Array, Array, Array, Array, list[str]]:
    n = plan.traffic.n_msgs
    start, done, delivered = (np.full(n, NO_TIME, np.int64) for _ in range(3))
    again, failed, errors = np.zeros(n, np.int64), np.zeros(n, np.bool_), [""] * n
    for m, start_ps, done_ps, retransmitted, error in heard.flows:
        start[m], done[m], again[m] = start_ps, done_ps, retransmitted
        failed[m], errors[m] = bool(error), error
    for m, delivered_ps, _ in heard.received:
        delivered[m] = delivered_ps
    return done, start, delivered, again, failed, errors


def _verified(plan: Plan, heard: Heard, done_ps: Array) -> int:
    """Bytes of the messages that are complete; all that completed must be."""
    whole = np.zeros(plan.traffic.n_msgs, np.bool_)
    for m, _, right in heard.received:
        whole[m] = right
    wrong = np.flatnonzero((done_ps >= 0) & ~whole)
    if len(wrong):
        m, t = int(wrong[0]), plan.traffic
        raise OpenMrcError(
            f"message {m} (nic {t.msg_src[m]} to nic {t.msg_dst[m]}) completed, and its bytes are"
            f" not what was sent ({len(wrong)} such messages): this is a bug"
        )
    if heard.astray:
        raise OpenMrcError(f"{heard.astray} bytes were written beside all messages: this is a bug")
    return int(plan.traffic.msg_bytes[whole].sum())


def _qp_errors(plan: Plan, heard: Heard) -> list[str]:
    t, lines = plan.traffic, []
    for one in sorted(heard.qps, key=lambda one: (one["qp"], not one["sends"])):
        if not one["error"]:
            continue
        src, dst = int(t.qp_src[one["qp"]]), int(t.qp_dst[one["qp"]])
        way = f"nic {src} to nic {dst}" if one["sends"] else f"nic {dst} from nic {src}"
        lines.append(f"QP {one['qpn']:#08x} of {way}: {one['error']}")
    return lines


def _narrow_paths(fabric: Fabric, traffic: Traffic, heard: Heard) -> list[str]:
    """A line for each place where senders believe the MTU to be too small."""
    rows = [
        (traffic.qp_src[one["qp"]], traffic.qp_dst[one["qp"]], *path)
        for one in heard.qps
        if one["sends"]
        for path in one["paths"]
    ]
    src, dst, evs, times, lost, packets, blamed = np.array(rows, np.int64).reshape(-1, 7).T
    paths = narrow.Paths(routes(fabric, src, dst, evs), times, lost, packets, blamed > 0)
    return narrow.lines(fabric, paths, heard.qps[0]["probe_bytes"])


def of_queue_pairs(every: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return what queue pairs counted, by their counters, as a result names it."""

    def all_(key: str) -> int:
        return sum(one[key] for one in every)

    return {
        "data": all_("tx_packets") - all_("rtx"),
        **{name: all_(key) for name, key in OF_QPS.items()},
    }


def _counters(heard: Heard) -> dict[str, int]:
    last = heard.totals[-1][1]
    corrupt = sum(
        n
        for device in heard.devices.values()
        for port in device["ports"]
        for reason, n in port["refused"].items()
        if "iCRC" in reason
    )
    return {
        **of_queue_pairs(heard.qps),
        "trimmed": last.trimmed,
        "dropped_queue": last.dropped_queue + last.dropped_socket + last.dropped_other,
        "dropped_fault": last.dropped_fault,
        "dropped_corrupt": corrupt,
        "ecn_marked": last.ecn_marked,
        "link_traversals": last.link_traversals,
        "injected": last.injected,
        "delivered": last.delivered,
        "in_flight": last.in_flight,
    }


def _timeline(heard: Heard, end_ps: int) -> dict[str, NDArray[np.int64]]:
    edges = np.arange(0, end_ps // BIN_PS + 2) * BIN_PS
    placed = sum((_binned(rows, 1, edges) for rows in heard.samples.values()), np.zeros(1))
    again = sum((_binned(rows, 2, edges) for rows in heard.samples.values()), np.zeros(1))
    switches = [(at, t.dropped_fault, t.trimmed) for at, t in heard.totals]
    return {
        "t_ps": edges[:-1],
        "goodput_bytes": _whole(placed),
        "retransmitted": _whole(again),
        "lost": _whole(_binned(switches, 1, edges)),
        "trimmed": _whole(_binned(switches, 2, edges)),
    }


def _last_placed(timeline: dict[str, NDArray[np.int64]]) -> int:
    """The end of the last bin in which something was placed; `NO_TIME` if nothing was."""
    filled = np.flatnonzero(timeline["goodput_bytes"])
    return (int(filled[-1]) + 1) * BIN_PS if len(filled) else NO_TIME


def _binned(rows: Sequence[tuple[int, ...]], column: int, edges: Array) -> Array:
    """Return how much a count grew from edge to edge, interpolated between two samples of it."""
    if not rows:
        return np.zeros(len(edges) - 1)
    table = np.array(rows, np.float64)
    at = np.minimum(table[:, 0], edges[-1])  # a busy machine takes the last sample after the end
    grown: Array = np.diff(np.interp(edges, at, table[:, column], left=0))
    return grown


def _whole(grown: Array) -> NDArray[np.int64]:
    """Whole numbers with the same sum, but for less than one."""
    counted: NDArray[np.int64] = np.diff(np.rint(np.cumsum(grown)), prepend=0).astype(np.int64)
    return counted


def _measured(heard: Heard) -> dict[str, int]:
    """The time of small packets in the idle fabric, at the median of the hosts."""
    measured = [rtt for rtt in heard.rtt_us.values() if rtt is not None]
    return {"measured_rtt_ps": round(float(np.median(measured)) * US)} if measured else {}
