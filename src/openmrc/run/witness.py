"""What the senders of a run tell of their paths, binned.

MRC's senders keep track of each path: how many packets took it, which were lost, when it was set
aside and when it returned to service, and which probes of it were not answered (rows 10 and 11 of
the choices). A real NIC reports such things to its controller as EV events. Of switches three
counters are recorded, which every switch has: the packets that a port dropped because its queues
were full, those that it trimmed instead, and all that it sent; and of NICs, how many packets each
port got whose iCRC was wrong. Both ends of a link count packets, so what the link lost is known.
What a fault loses elsewhere nobody counts, and nothing recorded here comes from the faults of the
scenario.

A `Witness` has the world keep an account (`engine.account`) and reads it at the end of each bin of
time, with the counters of paths. Losses are summed by path and bin; there are at most `BINS_MAX`
bins, because neighbours are merged when these are used up. A loss that proves to be none, because
the packet or the answer only came late, is taken back, however late that is.

Beside that stands what a sender said of each loss and of each probe that was answered, one by one,
and what ports counted in ticks, four in a bin (`run.ports`): the basis of `mrc why`.

A path is avoided because of a loss; or because its plane is silent as a whole, which says nothing
of the path itself until its probes stay unanswered; or because of repeated marks, which mean
congestion and not loss. A NIC also records its own ports that go down and come back.

Where switches hash, a sender knows the plane of a path and its source port: these are its EV in the
record (`fabric.outline`). What it sends upwards counts as shared equally by all uplinks.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.engine import account, ev, observe, place
from openmrc.engine.packet import TIMESTAMP_UNIT_PS
from openmrc.fabric.model import LongArray
from openmrc.fabric.outline import SOURCE_PORT_BITS, Outline, outline
from openmrc.fabric.ways import routes
from openmrc.run.ports import BIN_RTTS, Ports, Testimony
from openmrc.units import NS

Array = npt.NDArray[Any]

EVENTS_MAX = 2**19  # later ones are only counted
EVS_MAX = 2**23  # of a run that is recorded: some 40,000 queue pairs
EVS_AT_ONCE = 2**18

ANSWERS_MAX = 2**19  # of probes that are recorded; later ones are not

# What became of what a sender sent.
BECAME = ("lost", "late", "probe lost", "probe late", "probe answered")
ANSWERED = BECAME.index("probe answered")

SET_ASIDE, CONGESTED, SILENT, BACK, FALSE_ALARM, PORT_DOWN, PORT_UP = range(7)
EVENTS = ("avoided", "congested", "plane silent", "back", "false alarm", "port down", "port up")
UNITS_PS = (NS, TIMESTAMP_UNIT_PS)  # when a late packet left (`engine.fate`), and a late probe
NO_EVENT = -1
OF_EV = np.full(len(ev.EVENTS), NO_EVENT, np.int8)  # by the event of the engine
OF_EV[[ev.LOSS, ev.ALWAYS_SKIP, ev.SILENCE, ev.FALSE_ALARM]] = (
    *(SET_ASIDE, CONGESTED, SILENT, FALSE_ALARM),
)
OF_EV[[ev.FIRST_ANSWER, ev.ANSWER, ev.MARKED_ANSWER, ev.RECALL]] = BACK


class Witness(Ports):
    """Reads what the senders of a world tell; the world must not have begun. `take` is due at
    `due_ps`; `testimony` may come at any time.
    """

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        world.keep_account()
        self._outline: Outline | None = outline(world.fabric) if world.transport.hashed else None
        self._known = self._fabric if self._outline is None else self._outline.fabric
        engine = world.engine
        self._ends = np.asarray(world.ends.sender, np.int64)
        self._sender = np.full(len(engine.qp), -1)  # workload's queue pair of each sending end
        self._sender[self._ends] = np.arange(len(self._ends))
        q = engine.qp[self._ends]
        self._ev0, self._n_evs = place.runs_of_evs(q)
        self._base_rtt_ps = int(observe.base_rtt_ps(q).max(initial=0)) or int(
            world.values.base_rtt_ps
        )
        n_evs = len(engine.ev)
        self._narrow_bytes = np.zeros(n_evs, np.int16)
        self._used = np.zeros(n_evs, np.int32)  # at the start of the current bin
        self._told_before = np.zeros((2, n_evs), np.int32)  # packets sent and answered, by EV
        self._answers: list[dict[str, Array]] = []
        self._n_answers = 0
        self._n_bins = 0
        self.bin_ps = self._base_rtt_ps * BIN_RTTS
        self._losses: list[dict[str, Array]] = []
        self._late: list[dict[str, Array]] = []
        self._lossy: list[dict[str, Array]] = []
        self._events: list[dict[str, Array]] = []
        self._ports: list[dict[str, Array]] = []
        self._n_events, self._left_out = 0, 0

    def take(self) -> None:
        """The simulated time is `due_ps`: record what was told since the last time."""
        self._tick(self.due_ps)
        if self._tick_ends_ps[-1] == (self._n_bins + 1) * self.bin_ps:
            self._bin()

    def _bin(self) -> None:
        self._read()
        self._count()
        self._n_bins += 1
        if self._n_bins == self._bins_max:
            self._join()

    def testimony(self) -> Testimony:
        """Return the record up to now. The run must not continue afterwards."""
        end_ps = int(self._world.net.ctl[0].now)
        self._tick(end_ps)
        self._bin()
        lossy = self._rows()
        lossy["narrow_bytes"] = self._narrow_bytes[lossy["ev_at"]].astype(np.int64)
        return Testimony(
            self.bin_ps,
            end_ps,
            np.array(self._tick_ends_ps, np.int64),
            np.stack(self._ticks),
            self._all_events(),
            self._left_out,
            self._named(lossy),
            self._all_account(),
        )

    # --- what was told

    def _read(self) -> None:
        told, missing = self._world.account()
        self._left_out += missing
        self._note_ports(told[told["qp"] < 0])
        told = told[told["qp"] >= 0]
        told = told[(self._sender[told["qp"]] >= 0) & (told["ev"] >= 0)]
        what, why = told["what"], told["why"]
        at = self._ev0[self._sender[told["qp"]]] + told["ev"]
        changes = np.flatnonzero(what == account.EV_CHANGED)
        self._note(at[changes], told["at"][changes], OF_EV[why[changes]])
        missed = what == account.PROBE_MISSED
        rows = np.flatnonzero(missed | (what == account.LOST))
        sent_ps, when = told["sent_at"][rows], told["at"][rows]
        # the answer to a probe was due a round trip after it left; it is missed when the next does
        due = np.where(missed[rows], np.minimum(sent_ps + self._base_rtt_ps, when), when)
        of = {"bin": np.full(len(rows), self._n_bins), "ev_at": at[rows], "probe": missed[rows]}
        of["known_ps"] = when
        self._losses.append(of | {"sent_ps": sent_ps, "when_ps": due})
        rows = np.flatnonzero((what == account.LATE) | (what == account.PROBE_LATE))
        probe = what[rows] == account.PROBE_LATE
        self._late.append({"ev_at": at[rows], "probe": probe, "sent_ps": told["sent_at"][rows]})
        rows = np.flatnonzero(what == account.PROBE_ANSWERED)[: ANSWERS_MAX - self._n_answers]
        self._n_answers += len(rows)
        sent_ps, when = told["sent_at"][rows], told["at"][rows]
        self._answers.append({"ev_at": at[rows], "sent_ps": sent_ps, "known_ps": when})

    def _note(self, at: LongArray, when: LongArray, event: Array) -> None:
        at, when, event = (each[event != NO_EVENT] for each in (at, when, event))
        room = max(EVENTS_MAX - self._n_events, 0)
        self._left_out += max(len(at) - room, 0)
        self._n_events += len(at)
        self._events.append({"at_ps": when[:room], "ev_at": at[:room], "event": event[:room]})

    def _note_ports(self, told: Array) -> None:
        """The NICs' own ports that went down or came up."""
        told = told[np.isin(told["what"], (account.PORT_DOWN, account.PORT_UP))]
        nics = told["nic"].astype(np.int64)
        ev_of = told["plane"].astype(np.int64) << self._known.ev_plane_shift
        kind = np.where(told["what"] == account.PORT_UP, PORT_UP, PORT_DOWN)
        one = {"at_ps": told["at"], "event": kind, "ev": ev_of}
        self._ports.append(one | {"qp": np.full(len(nics), -1), "src": nics, "dst": nics})

    def _all_events(self) -> dict[str, Array]:
        """Events of paths, followed by those of ports."""
        paths = self._named(_columns(self._events, ("at_ps", "ev_at", "event")))
        ports = _columns(self._ports, tuple(paths))
        return {name: np.concatenate([paths[name], ports[name]]) for name in paths}

    def _all_account(self) -> dict[str, Array]:
        """What became of what was sent, in order."""
        names = ("ev_at", "sent_ps", "known_ps")
        losses, proved = self._all_losses()
        answers = _columns(self._answers, names)
        became = 2 * losses["probe"] + proved
        found = {name: np.concatenate([losses[name], answers[name]]) for name in names}
        found["became"] = np.append(became, np.full(len(answers["ev_at"]), ANSWERED))
        order = np.lexsort((found["became"], found["ev_at"], found["sent_ps"]))
        order = order[found["sent_ps"][order] >= 0]
        return self._named({name: column[order] for name, column in found.items()})

    def _all_losses(self) -> tuple[dict[str, Array], Array]:
        """All losses, and which of them proved to be none."""
        names = ("bin", "ev_at", "sent_ps", "when_ps", "known_ps", "probe")
        losses = _columns(self._losses, names)
        return losses, false_alarms(losses, _columns(self._late, ("ev_at", "sent_ps", "probe")))

    def _rows(self) -> dict[str, Array]:
        """Losses by bin and path, without those that proved to be none, and what was sent then."""
        losses, proved = self._all_losses()
        left = ~proved
        losses = {name: column[left] for name, column in losses.items()}
        n = len(self._used)
        keys, which = np.unique(losses["bin"] * n + losses["ev_at"], return_inverse=True)
        sent = _columns(self._lossy, ("bin", "ev_at", "sent"))
        known, of = np.unique(sent["bin"] * n + sent["ev_at"], return_inverse=True)
        total = np.bincount(of, sent["sent"], len(known)).astype(np.int64)
        rows = by_path(which, losses["when_ps"], len(keys))
        return rows | {
            "bin": keys // n,
            "ev_at": keys % n,
            "sent": total[np.searchsorted(known, keys)],
        }

    # --- bins

    def _told(self) -> Array:
        """[2, ports] packets that senders put on paths across each port, and those answered."""
        engine = self._world.engine
        told = np.stack([np.asarray(engine.ev.used), np.asarray(engine.tally).sum(axis=1)])
        told = told.astype(np.int32)
        at = np.flatnonzero((told != self._told_before).any(axis=0))
        at = at[self._qp_of(at) >= 0]
        new = (told - self._told_before)[:, at]
        self._told_before = told
        return np.stack([self._summed(at, each) for each in new])

    def _count(self) -> None:
        """Note what was sent on the paths that lost packets in a bin."""
        engine = self._world.engine
        used = np.asarray(engine.ev.used).astype(np.int32)
        paths = np.unique(self._losses[-1]["ev_at"])
        bins = np.full(len(paths), self._n_bins)
        self._lossy.append({"bin": bins, "ev_at": paths, "sent": (used - self._used)[paths]})
        narrow = ev.narrow_bytes(np.asarray(engine.blame[engine.ev.blame[paths]]))
        self._narrow_bytes[paths] = np.where(narrow > 0, narrow, self._narrow_bytes[paths])
        self._used = used

    def _join(self) -> None:
        self._n_bins = self._bins_max // 2
        self._coarsen()
        for part in (*self._losses, *self._lossy):
            part["bin"] //= 2

    def _summed(self, at: LongArray, packets: Array) -> LongArray:
        """By directed port, the sum of these packets of some paths."""
        total = np.zeros(self._known.n_ports)
        for start in range(0, len(at), EVS_AT_ONCE):
            part = slice(start, start + EVS_AT_ONCE)
            for column in routes(self._known, *self._ends_of(at[part])).T:
                there = column >= 0
                total += np.bincount(column[there], packets[part][there], len(total))
        if self._outline is not None:
            total = self._outline.spread(total)
        return np.asarray(np.rint(total), np.int64)

    def _qp_of(self, at: LongArray) -> LongArray:
        """The workload's queue pair of these EVs; -1 for a receiver's."""
        order = np.argsort(self._ev0, kind="stable")
        place = np.searchsorted(self._ev0[order], at, side="right") - 1
        qp = order[np.maximum(place, 0)]
        return np.where((place >= 0) & (at < self._ev0[qp] + self._n_evs[qp]), qp, -1)

    def _ends_of(self, at: LongArray) -> tuple[Array, Array, Array]:
        """Sender, receiver and EV of the paths of these EVs."""
        q, ev = self._world.engine.qp, self._world.engine.ev
        end = self._ends[self._qp_of(at)]
        evs = np.asarray(ev.value)[at].astype(np.int64)
        if self._outline is not None:
            evs |= np.asarray(ev.plane)[at].astype(np.int64) << SOURCE_PORT_BITS
        return np.asarray(q.nic)[end], np.asarray(q.peer_nic)[end], evs

    def _named(self, columns: dict[str, Array]) -> dict[str, Array]:
        """Columns with queue pair, ends and EV in place of the index in the engine's arrays."""
        at = columns.pop("ev_at")
        src, dst, evs = self._ends_of(at)
        return columns | {"qp": self._qp_of(at), "src": src, "dst": dst, "ev": evs}


def can_tell(world: Any) -> bool:
    """Whether the senders of a world keep track of their paths."""
    transport = world.transport
    of_mrc = getattr(transport, "paths", "") == "mrc" and getattr(transport, "rules", "") != "peer"
    return of_mrc and len(world.engine.ev) <= EVS_MAX


def false_alarms(losses: dict[str, Array], late: dict[str, Array]) -> Array:
    """Return which losses proved to be none: the packet, or the answer, came late. When that
    one left is known to within `UNITS_PS`, rounded down.
    """
    found = np.zeros(len(losses["ev_at"]), np.bool_)
    of_path: dict[tuple[int, int], list[tuple[int, int]]] = {}
    rows = np.flatnonzero(np.isin(losses["ev_at"], late["ev_at"]))
    columns = (losses[name][rows].tolist() for name in ("ev_at", "probe", "sent_ps"))
    for row, at, probe, sent_ps in zip(rows.tolist(), *columns, strict=True):
        of_path.setdefault((at, int(probe)), []).append((sent_ps, row))
    for sent in of_path.values():
        sent.sort()
    columns = (late[name].tolist() for name in ("ev_at", "probe", "sent_ps"))
    for at, probe, sent_ps in zip(*columns, strict=True):
        sent = of_path.get((at, int(probe)), [])
        place = bisect_left(sent, (sent_ps, -1))
        if place < len(sent) and sent[place][0] < sent_ps + UNITS_PS[int(probe)]:
            found[sent.pop(place)[1]] = True
    return found


def by_path(which: LongArray, when_ps: LongArray, n: int) -> dict[str, Array]:
    """Return the number of losses, and their first and last times, by path and bin."""
    first = np.full(n, np.iinfo(np.int64).max)
    last = np.full(n, -1)
    np.minimum.at(first, which, when_ps)
    np.maximum.at(last, which, when_ps)
    return {"lost": np.bincount(which, minlength=n), "first_ps": first, "last_ps": last}


def _columns(parts: list[dict[str, Array]], names: tuple[str, ...]) -> dict[str, Array]:
    empty = np.zeros(0, np.int64)
    return {name: np.concatenate([empty, *(part[name] for part in parts)]) for name in names}
