"""What senders of a lab tell of packets and paths: kept by each agent, joined for all of a run.

The engine tells the same as in the simulator (`engine.account`); here an agent takes it from its
device now and then, and the coordinator makes of all reports what `run.witness` makes of a
simulated run. Times are ps since the common start. Ports of a lab's switches are not read: of a
tick only what senders know is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from openmrc.engine import account
from openmrc.fabric.model import Fabric
from openmrc.fabric.ways import routes
from openmrc.run import witness
from openmrc.run.ports import TICK, TICKS_MAX, Testimony
from openmrc.run.witness import ANSWERED, NO_EVENT, OF_EV, PORT_DOWN, PORT_UP
from openmrc.traffic.traffic import Traffic

if TYPE_CHECKING:
    from openmrc.verbs import Device, QueuePair

ROWS_MAX = 2**17  # of a host; later ones are not reported
COUNTS_MAX = 2 * TICKS_MAX  # readings of a host; then every second one goes
TICK_PS_MIN = 20 * 10**9
TOLD = (
    *(account.LOST, account.LATE, account.PROBE_ANSWERED, account.PROBE_MISSED),
    *(account.PROBE_LATE, account.EV_CHANGED, account.PORT_DOWN, account.PORT_UP),
)
ROW = ("what", "why", "at_ps", "sent_ps", "qp", "ev")
Array = NDArray[Any]
Columns = dict[str, Array]
Reports = Mapping[int, Mapping[str, list[Any]]]  # by host, then by name, rows


class Account:
    """What the device of one host tells from a common start on of the queue pairs that send."""

    def __init__(self, device: Device, qps: Mapping[int, QueuePair], start_ns: int) -> None:
        assert device.fabric is not None
        self._device, self._qps, self._start_ps = device, qps, start_ns * 1000
        self._fabric = fabric = device.fabric
        self._number = {end.index: qp for qp, end in qps.items()}
        paths = [(end, *end.path_counts()) for end in qps.values()]
        self._evs = {end.index: evs for end, evs, _ in paths}
        ends = [np.full(len(evs), end.peer) for end, evs, _ in paths]
        nothing = np.zeros(0, np.int64)
        dst, evs = (np.concatenate([nothing, *it]) for it in (ends, self._evs.values()))
        self._routes = routes(fabric, np.full(len(dst), device.nic), dst, evs)
        self._rows: list[list[int]] = []
        self._readings: list[tuple[int, Array]] = []  # time, [2, ports] packets sent and answered
        self._due_ps, self._every_ps = 0, TICK_PS_MIN
        device.account()  # what was before the start

    def take(self, now_ps: int) -> None:
        """Take what the engine has told, and read the counters of paths if that is due."""
        found, _ = self._device.account()
        for told in found[np.isin(found["what"], TOLD)].tolist():
            if len(self._rows) < ROWS_MAX:
                self._note(dict(zip(account.RECORD.names or (), told, strict=True)))
        if now_ps >= self._due_ps:
            self._readings.append((now_ps, self._by_port()))
            self._due_ps = now_ps + self._every_ps
        if len(self._readings) > COUNTS_MAX:
            del self._readings[1::2]
            self._every_ps *= 2

    def _note(self, told: dict[str, int]) -> None:
        qp, ev = self._number.get(told["qp"], -1), told["ev"]
        if told["qp"] < 0:
            ev = told["plane"] << self._fabric.ev_plane_shift
        elif qp < 0:
            return  # a queue pair that only receives
        else:
            ev = int(self._evs[told["qp"]][ev]) if ev >= 0 else -1
        times = told["at"] - self._start_ps, told["sent_at"] - self._start_ps
        if ev >= 0:
            self._rows.append([told["what"], told["why"], *times, qp, ev])

    def _by_port(self) -> Array:
        """[2, ports] packets put on paths across each directed port so far, and those answered."""
        none = np.zeros((2, 0), np.int64)
        counts = np.concatenate([none, *(it.path_counts()[1] for it in self._qps.values())], axis=1)
        found = np.zeros((self._fabric.n_ports, 2), np.int64)
        for column in self._routes.T:
            there = column >= 0
            np.add.at(found, column[there], counts.T[there])
        return found.T

    def report(self) -> dict[str, list[list[int]]]:
        """Return rows by name: `told` as `ROW`; `counts`: time, port, sent and answered so far;
        `paths`: queue pair, EV, packets, and the payload of the smallest that it loses though it
        passes smaller ones.
        """
        self._readings.append((self._readings[-1][0] + 1 if self._readings else 0, self._by_port()))
        counts = [
            [at_ps, port, *each[:, port].tolist()]
            for at_ps, each in self._readings
            for port in np.flatnonzero(self._readings[-1][1].any(axis=0)).tolist()
        ]
        paths = [
            [qp, path["ev"], path["packets"], path["narrow_bytes"]]
            for qp, end in self._qps.items()
            for path in end.evs()
            if path["packets"]
        ]
        return {"told": self._rows, "counts": counts, "paths": paths}


def testimony(
    fabric: Fabric, traffic: Traffic, reports: Reports, end_ps: int, rtt_ps: int
) -> Testimony | None:
    """Return what all senders told up to the end of a run; None if none of them kept an account."""
    if not reports:
        return None
    told = _columns(reports, "told", ("nic", *ROW))
    keys, path = np.unique(np.stack([told["qp"], told["ev"]]), axis=1, return_inverse=True)
    told["path"] = path.ravel()
    of_path = _named(traffic, *keys)
    losses, proved, rows = _account(told, end_ps, rtt_ps)
    ends_ps, ticks = _ticks(fabric, reports, end_ps)
    return Testimony(
        bin_ps=max(end_ps, 1),  # of paths, all of the run is one bin
        end_ps=end_ps,
        tick_ends_ps=ends_ps,
        ticks=ticks,
        events=_events(told, of_path, end_ps),
        events_left_out=0,
        lossy=_lossy(reports, losses, proved, of_path),
        account=_with_paths(rows, of_path),
    )


def _columns(reports: Reports, name: str, columns: tuple[str, ...]) -> Columns:
    """The rows of all hosts as columns, of which the first is the host."""
    rows = [(nic, *row) for nic, report in reports.items() for row in report.get(name, ())]
    table = np.array(rows, np.int64).reshape(-1, len(columns))
    return dict(zip(columns, table.T, strict=True))


def _named(traffic: Traffic, qp: Array, ev: Array) -> Columns:
    """Queue pair, ends and EV of paths; the ends of no queue pair (-1) are any."""
    return {"qp": qp, "src": traffic.qp_src[qp], "dst": traffic.qp_dst[qp], "ev": ev}


def _with_paths(columns: Columns, of_path: Columns) -> Columns:
    at = columns.pop("ev_at")
    return columns | {name: column[at] for name, column in of_path.items()}


def _account(told: Columns, end_ps: int, rtt_ps: int) -> tuple[Columns, Array, Columns]:
    """Losses, which of them proved to be none, and what became of what was sent, one by one."""
    what, within = told["what"], (told["sent_ps"] >= 0) & (told["at_ps"] <= end_ps)
    missed = what == account.PROBE_MISSED

    def some(which: Array) -> Columns:
        of = {"ev_at": told["path"], "sent_ps": told["sent_ps"], "known_ps": told["at_ps"]}
        return {name: column[which] for name, column in of.items()}

    lost = within & (missed | (what == account.LOST))
    losses = some(lost) | {"probe": missed[lost]}
    # the answer to a probe was due a round trip after it left; it is missed when the next does
    due_ps = np.minimum(losses["sent_ps"] + rtt_ps, losses["known_ps"])
    losses["when_ps"] = np.where(losses["probe"], due_ps, losses["known_ps"])
    late = (what == account.LATE) | (what == account.PROBE_LATE)
    of_late = some(late) | {"probe": what[late] == account.PROBE_LATE}
    proved = witness.false_alarms(losses, of_late)
    answers = some(within & (what == account.PROBE_ANSWERED))
    rows = {name: np.concatenate([losses[name], column]) for name, column in answers.items()}
    answered = np.full(len(answers["ev_at"]), ANSWERED)
    rows["became"] = np.append(2 * losses["probe"] + proved, answered)
    order = np.lexsort((rows["became"], rows["ev_at"], rows["sent_ps"]))
    return losses, proved, {name: column[order] for name, column in rows.items()}


def _events(told: Columns, of_path: Columns, end_ps: int) -> Columns:
    """What became of paths, and of NICs' own ports."""
    what, own = told["what"], told["qp"] < 0
    event = np.where(what == account.PORT_UP, PORT_UP, PORT_DOWN)
    changed = what == account.EV_CHANGED
    event[~own] = np.where(changed, OF_EV[np.where(changed, told["why"], 0)], NO_EVENT)[~own]
    rows = np.flatnonzero((event != NO_EVENT) & (told["at_ps"] >= 0) & (told["at_ps"] <= end_ps))
    found = _with_paths({"ev_at": told["path"][rows]}, of_path)
    for end in ("src", "dst"):
        found[end] = np.where(own[rows], told["nic"][rows], found[end])
    return {"at_ps": told["at_ps"][rows], "event": event[rows]} | found


def _lossy(reports: Reports, losses: Columns, proved: Array, of_path: Columns) -> Columns:
    """Paths that lost packets, and what was sent on them, in all of the run."""
    at, which = np.unique(losses["ev_at"][~proved], return_inverse=True)
    found = witness.by_path(which.ravel(), losses["when_ps"][~proved], len(at))
    used = _columns(reports, "paths", ("nic", "qp", "ev", "packets", "narrow_bytes"))
    qps, evs, *told = (used[name].tolist() for name in ("qp", "ev", "packets", "narrow_bytes"))
    of = dict(zip(zip(qps, evs, strict=True), zip(*told, strict=True), strict=True))
    keys = zip(of_path["qp"][at].tolist(), of_path["ev"][at].tolist(), strict=True)
    sent, narrow_bytes = np.array([of.get(it, (0, 0)) for it in keys], np.int64).reshape(-1, 2).T
    more = {"bin": np.zeros(len(at), np.int64), "sent": sent, "narrow_bytes": narrow_bytes}
    return _with_paths(found | more | {"ev_at": at}, of_path)


def _ticks(fabric: Fabric, reports: Reports, end_ps: int) -> tuple[Array, Array]:
    """The ends of ticks, and [ticks, `TICK`, ports] what senders counted in them: each reads its
    counters at its own times, between which they are taken to grow evenly.
    """
    n = max(1, min(TICKS_MAX, end_ps // TICK_PS_MIN))
    edges_ps = np.linspace(0, end_ps, n + 1).astype(np.int64)
    upto = np.zeros((n + 1, len(TICK), fabric.n_ports))
    columns = ("nic", "at_ps", "port", "packets", "answered")
    each = _columns(reports, "counts", columns)
    _, of = np.unique(np.stack([each["nic"], each["port"]]), axis=1, return_inverse=True)
    order = np.lexsort((each["at_ps"], of.ravel()))
    for rows in np.split(order, np.flatnonzero(np.diff(of.ravel()[order])) + 1):
        for name in columns[3:] if len(rows) else ():
            grown = np.interp(edges_ps, each["at_ps"][rows], each[name][rows])
            upto[:, TICK.index(name), each["port"][rows[0]]] += grown
    return edges_ps[1:], np.diff(np.rint(upto), axis=0).astype(np.int32)
