"""What senders of a lab tell of packets and paths: kept by each agent, joined for all of a run.

The engine tells the same as in the simulator (`engine.account`); here an agent takes it from its
device now and then, and the coordinator makes of all reports what `run.witness` makes of a
simulated run. Times are ps since the common start. Of a lab's ports only the drops of full queues
are read, once: what they sent, and what is missing, nobody counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
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
    """What the device of one host tells from a common start on of paths that it sends on, and of
    what came twice.
    """

    def __init__(
        self, device: Device, every: Mapping[int, QueuePair], sends: Set[int], start_ns: int
    ) -> None:
        """`every` queue pair by its number, and those that `sends` has of them."""
        assert device.fabric is not None
        self._device, self._start_ps = device, start_ns * 1000
        self._qps = qps = {qp: end for qp, end in every.items() if qp in sends}
        self._receives = {qp: end for qp, end in every.items() if qp not in sends}
        self._fabric = fabric = device.fabric
        self._number = {end.index: qp for qp, end in qps.items()}
        paths = [(end, *end.path_counts()) for end in qps.values()]
        self._evs = {end.index: evs for end, evs, _ in paths}
        ends = [np.full(len(evs), end.peer) for end, evs, _ in paths]
        nothing = np.zeros(0, np.int64)
        dst, evs = (np.concatenate([nothing, *it]) for it in (ends, self._evs.values()))
        self._routes = routes(fabric, np.full(len(dst), device.nic), dst, evs)
        self._rows: list[list[int]] = []
        # Time, [2, ports] packets sent and answered, [queue pairs] that came twice
        self._readings: list[tuple[int, Array, list[int]]] = []
        self._due_ps, self._every_ps = 0, TICK_PS_MIN
        device.account()  # what was before the start

    def take(self, now_ps: int) -> None:
        """Take what the engine has told, and read the counters of paths if that is due."""
        found, _ = self._device.account()
        for told in found[np.isin(found["what"], TOLD)].tolist():
            if len(self._rows) < ROWS_MAX:
                self._note(dict(zip(account.RECORD.names or (), told, strict=True)))
        if now_ps >= self._due_ps:
            self._readings.append((now_ps, self._by_port(), self._twice()))
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

    def _twice(self) -> list[int]:
        return [end.counters()["dup"] for end in self._receives.values()]

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
        `twice`: time, queue pair, and how many packets came twice so far; `paths`: queue pair, EV,
        packets, and the payload of the smallest that it loses though it passes smaller ones.
        """
        last_ps = self._readings[-1][0] if self._readings else 0
        self._readings.append((last_ps + 1, self._by_port(), self._twice()))
        used = np.flatnonzero(self._readings[-1][1].any(axis=0)).tolist()
        counts = [
            [at_ps, port, *each[:, port].tolist()]
            for at_ps, each, _ in self._readings
            for port in used
        ]
        twice = [
            [at_ps, qp, n]
            for at_ps, _, each in self._readings
            for qp, n in zip(self._receives, each, strict=True)
            if n
        ]
        paths = [
            [qp, path["ev"], path["packets"], path["narrow_bytes"]]
            for qp, end in self._qps.items()
            for path in end.evs()
            if path["packets"]
        ]
        return {"told": self._rows, "counts": counts, "twice": twice, "paths": paths}


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
    twice = _columns(reports, "twice", ("nic", "at_ps", "qp", "n"))
    losses, proved, rows = _account(told, twice, end_ps, rtt_ps)
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


def add_drops(seen: Testimony, dropped: Array) -> None:
    """Add the packets that each port [ports] dropped in the run because its queue was full: read at
    its end, and so taken to be spread evenly.
    """
    upto = np.rint(np.outer(np.append(0, seen.tick_ends_ps) / max(seen.end_ps, 1), dropped))
    seen.ticks[:, TICK.index("dropped")] = np.diff(upto, axis=0)


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


def _account(
    told: Columns, twice: Columns, end_ps: int, rtt_ps: int
) -> tuple[Columns, Array, Columns]:
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
    proved |= _came(losses | {"qp": told["qp"][lost]}, proved, twice)
    answers = some(within & (what == account.PROBE_ANSWERED))
    rows = {name: np.concatenate([losses[name], column]) for name, column in answers.items()}
    answered = np.full(len(answers["ev_at"]), ANSWERED)
    rows["became"] = np.append(2 * losses["probe"] + proved, answered)
    order = np.lexsort((rows["became"], rows["ev_at"], rows["sent_ps"]))
    return losses, proved, {name: column[order] for name, column in rows.items()}


def _came(losses: Columns, proved: Array, twice: Columns) -> Array:
    """Return which losses were none because their receiver has two of the packet: one that a
    standing host had not taken yet comes after it was sent again, and its sender does not learn
    that. A packet comes twice soon after it is judged lost: of a queue pair, the latest ones are
    meant, beside those that the sender knows of.
    """
    found = np.zeros(len(proved), np.bool_)
    for qp in np.unique(twice["qp"]).tolist():
        own = np.flatnonzero((losses["qp"] == qp) & ~losses["probe"])
        own = own[np.argsort(losses["known_ps"][own], kind="stable")]
        open_, taken = list[int](), 0
        known_ps, at = losses["known_ps"][own].tolist(), 0
        rows = np.flatnonzero(twice["qp"] == qp)
        for row in rows[np.argsort(twice["at_ps"][rows], kind="stable")].tolist():
            while at < len(own) and known_ps[at] <= twice["at_ps"][row]:
                taken += int(proved[own[at]])
                open_ += [] if proved[own[at]] else [int(own[at])]
                at += 1
            while open_ and taken < twice["n"][row]:
                found[open_.pop()] = True
                taken += 1
    return found


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
