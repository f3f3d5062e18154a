"""What the senders of a run know of their paths, recorded while it runs: the basis of `mrc why`.

MRC's senders keep track of each path: how many packets took it, when it was set aside and when it
returned to service, and which probes of it were not answered (rows 10 and 11 of the choices). A
real NIC reports such things to its controller as EV events. Of switches three counters are
recorded, which every switch has: the packets that a port dropped because its queues were full,
those that it trimmed instead, and all that it sent; and of NICs, how many packets each port got
whose iCRC was wrong. What a fault loses no switch counts, and nothing recorded here comes from the
faults of the scenario.

A `Witness` is called at intervals that widen with the run, reads the senders' arrays and writes
nothing into them. Losses are summed by path and bin of time, packets by directed link and bin;
there are at most `BINS_MAX` bins, because neighbours are merged when these are used up.

A path is set aside because of a loss; or because its plane is silent as a whole, which says nothing
of the path itself until its probes stay unanswered; or because of repeated marks, which mean
congestion and not loss. A NIC also records its own ports that go down and come back, as far as the
intervals show it.

Where switches hash, a sender knows the plane of a path and its source port: these are its EV in the
record (`fabric.outline`). What it sends upwards counts as shared equally by all uplinks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.engine import observe, place
from openmrc.engine import state as es
from openmrc.engine.ev import ASSUMED_BAD, narrow_bytes
from openmrc.fabric.model import IntArray, LongArray
from openmrc.fabric.outline import SOURCE_PORT_BITS, Outline, outline
from openmrc.run.ways import routes

Array = npt.NDArray[Any]

BINS_MAX = 32
BIN_CELLS_MAX = 2**20  # bins times directed ports: with many ports, there are fewer bins
LOOKS_A_BIN = 8
EVENTS_MAX = 2**19  # later ones are only counted
EVS_MAX = 2**23  # of a run that is recorded: some 40,000 queue pairs
EVS_AT_ONCE = 2**18
LATE = 2  # RTTs, of the largest: a probe may meet queues that data has not met yet
NEARLY = 1e-6  # of a doubling

COUNTED = ("dropped", "trimmed_here", "packets_out", "damaged")

SET_ASIDE, CONGESTED, SILENT, BACK, FALSE_ALARM, PORT_DOWN, PORT_UP = range(7)
EVENTS = ("set aside", "congested", "plane silent", "back", "false alarm", "port down", "port up")


class Testimony(NamedTuple):
    """The record; times in ps, one column each."""

    bin_ps: int
    end_ps: int
    # at_ps, qp, src, dst, ev, event (a number of `EVENTS`); for a port of the NIC `src` qp is -1
    # and the EV identifies only its plane.
    events: dict[str, Array]
    events_left_out: int
    # By bin and path with losses: bin, qp, src, dst, ev, sent, lost, first_ps, last_ps, and
    # narrow_bytes of the whole run (`engine.ev`).
    lossy: dict[str, Array]
    # [bins, ports] packets put on paths across each directed port; on average, if switches hash
    sent: LongArray
    trimmed: LongArray  # [bins, ports] how many of them were trimmed somewhere on their path
    # [bins, ports] what a port counts: packets of any class for which its queues had no room,
    # packets that it trimmed, packets that it sent, trimmed ones and those of endpoints as well
    dropped: LongArray
    trimmed_here: LongArray
    packets_out: LongArray
    damaged: LongArray  # [bins, ports] packets that the NIC at its end discarded: iCRC errors


class Witness:
    """Reads the senders of a world. `take` is due at `due_ps`; `testimony` may come at any time."""

    def __init__(self, world: Any) -> None:
        self._world, self._fabric = world, world.fabric
        self._outline: Outline | None = outline(world.fabric) if world.transport.hashed else None
        self._known = self._fabric if self._outline is None else self._outline.fabric
        engine = world.engine
        self._ends = np.asarray(world.ends.sender, np.int64)
        q = engine.qp[self._ends]
        self._ev0, self._n_evs = place.runs_of_evs(q)
        self._base_rtt_ps = int(observe.base_rtt_ps(q).max(initial=0)) or int(
            world.values.base_rtt_ps
        )
        n_evs = len(engine.ev)
        self._demoted_at = np.full(n_evs, np.iinfo(np.int64).min)
        self._demotions = np.zeros(n_evs, np.int16)
        self._unanswered = np.zeros(n_evs, np.int8)
        self._bad = np.zeros(n_evs, np.bool_)
        self._narrow_bytes = np.zeros(n_evs, np.int16)
        self._used = np.zeros(n_evs, np.int32)  # at the start of the current bin
        self._counts = self._of_qps()
        n_ports = self._fabric.n_ports
        self._bins_max = max(2, min(BINS_MAX, BIN_CELLS_MAX // n_ports)) & ~1
        self._sent = np.zeros((self._bins_max, n_ports), np.int64)
        self._sent_before = np.zeros(n_ports, np.int64)
        self._trimmed = np.zeros((self._bins_max, n_ports), np.int64)
        self._counted = np.zeros((len(COUNTED), self._bins_max, n_ports), np.int64)
        self._counted_before = np.zeros((len(COUNTED), n_ports), np.int64)
        self._again_before = np.zeros(len(self._ends), np.int64)
        self._n_bins, self._looks = 0, 0
        self.look_ps = self._base_rtt_ps
        self._lost: list[dict[str, Array]] = []  # of the current bin
        self._lossy: list[dict[str, Array]] = []
        self._events: list[dict[str, Array]] = []
        self._up = np.array(engine.nic.up_mask, np.int64)
        self._ports: list[dict[str, Array]] = []
        self._n_events, self._left_out, self._looked_ps = 0, 0, 0

    @property
    def bin_ps(self) -> int:
        """Width of a bin, ps."""
        return self.look_ps * LOOKS_A_BIN

    @property
    def due_ps(self) -> int:
        """When the next reading is due, ps."""
        return self._n_bins * self.bin_ps + (self._looks + 1) * self.look_ps

    def take(self) -> None:
        """The simulated time is `due_ps`: record what has changed."""
        self._look(self.due_ps)
        self._looks += 1
        if self._looks == LOOKS_A_BIN:
            self._close()

    def testimony(self) -> Testimony:
        """Return the record up to now. The run must not continue afterwards."""
        end_ps = int(self._world.net.ctl[0].now)
        self._look(end_ps)
        self._close()
        lossy = _columns(self._lossy, ("bin", "ev_at", "sent", "lost", "first_ps", "last_ps"))
        lossy["narrow_bytes"] = self._narrow_bytes[lossy["ev_at"]].astype(np.int64)
        return Testimony(
            self.bin_ps,
            end_ps,
            self._all_events(),
            self._left_out,
            self._named(lossy),
            self._sent[: self._n_bins],
            self._trimmed[: self._n_bins],
            *self._counted[:, : self._n_bins],
        )

    # --- a reading

    def _of_qps(self) -> Array:
        """[5, QPs] counters whose change shows that something happened to a queue pair's paths."""
        q = self._world.engine.qp
        counted = observe.counters(q)
        lost = np.asarray(counted["inferred"]) + np.asarray(counted["timeouts"])
        names = ("n_bad", "n_bad_total", "n_revived", "n_false")
        counts = [np.asarray(q[name])[self._ends] for name in names]
        return np.stack([*counts, lost[self._ends]]).astype(np.int64)

    def _look(self, now_ps: int) -> None:
        self._note_ports(now_ps)
        counts, before = self._of_qps(), self._counts
        self._counts = counts
        which = np.flatnonzero((counts != before).any(axis=0) | (counts[0] > 0))
        if not len(which):
            self._looked_ps = now_ps
            return
        n = self._n_evs[which]
        qp = np.repeat(which, n)
        at = np.repeat(self._ev0[which] - (np.cumsum(n) - n), n) + np.arange(int(n.sum()))
        e = self._world.engine.ev[at]
        bad = np.asarray(e.state) == ASSUMED_BAD
        b = self._world.engine.blame[e.blame]
        demoted_at, demotions = np.asarray(b.demoted_at), np.asarray(b.demotions)
        demoted = (demoted_at > self._demoted_at[at]) & (demoted_at >= 0)
        more = demotions.astype(np.int64) - self._demotions[at]
        blamed = demoted & (more != 0)  # paths that a silent plane sets aside are not counted
        lost, congested = self._losses(qp, blamed, np.maximum(more, 1), counts - before, e)
        back = (self._bad[at] | demoted) & ~bad
        acquitted = self._acquitted(qp, back, (counts - before)[3])
        new = self._unanswered_probes(at, qp, b, bad, demoted)

        self._demoted_at[at] = np.where(demoted, demoted_at, self._demoted_at[at])
        self._demotions[at], self._bad[at] = demotions, bad
        narrow = narrow_bytes(np.asarray(b))
        self._narrow_bytes[at] = np.where(narrow > 0, narrow, self._narrow_bytes[at])
        self._note(at[lost > 0], demoted_at[lost > 0], SET_ASIDE)
        self._note(at[congested], demoted_at[congested], CONGESTED)
        silent = demoted & ~blamed
        self._note(at[silent], demoted_at[silent], SILENT)
        self._note(at[back & ~acquitted], now_ps, BACK)
        self._note(at[acquitted], now_ps, FALSE_ALARM)

        total = lost + new - acquitted
        rows = np.flatnonzero(total)
        missed = self._missed_at(qp, b, now_ps)
        first = np.where(lost > 0, demoted_at, missed)[rows]
        last = np.where(new > 0, missed, demoted_at)[rows]
        self._lost.append(
            {"ev_at": at[rows], "lost": total[rows], "first_ps": first, "last_ps": last}
        )
        self._note_unblamed(qp, at, lost, counts - before, now_ps)
        self._looked_ps = now_ps

    def _losses(
        self, qp: LongArray, blamed: Array, times: LongArray, changes: Array, e: Any
    ) -> tuple[LongArray, Array]:
        """Losses of each path, and whether it was set aside because of its marks alone.

        A queue pair that has judged fewer packets lost than it has set paths aside left some of
        them because of their marks: those that were marked last.
        """
        judged = changes[4]
        asked = np.bincount(qp, blamed, len(judged))
        marked = np.asarray(e.marks) == 1
        left = (judged[qp] == 0) | ((asked > judged)[qp] & marked)
        congested = blamed & left
        return np.where(blamed & ~left, times, 0), congested

    def _note_unblamed(
        self, qp: LongArray, at: LongArray, lost: LongArray, changes: Array, now_ps: int
    ) -> None:
        """Record losses for which no path was set aside, such as those of a plane's only path:
        slots keep the EV of a transmission that was judged lost.
        """
        blamed = np.bincount(qp, lost, changes.shape[1]).astype(np.int64)
        left = changes[4] - changes[3] - blamed
        engine, guilty = self._world.engine, set(at[lost > 0].tolist())
        for which in np.flatnonzero(left > 0).tolist():
            q = engine.qp[self._ends[which]]
            slots = engine.slot[place.slots(q)]
            again = (np.asarray(slots.past) & es.INFERRED != 0) & (np.asarray(slots.bad_ev) >= 0)
            again &= np.asarray(slots.sent_at) > self._looked_ps
            paths = place.evs(q).start + np.asarray(slots.bad_ev)[again].astype(np.int64)
            found = [path for path in paths.tolist() if path not in guilty][: int(left[which])]
            if found:
                when = np.full(len(found), now_ps)
                one = {"ev_at": np.array(found), "lost": np.ones(len(found), np.int64)}
                self._lost.append(one | {"first_ps": when, "last_ps": when})

    def _acquitted(self, qp: LongArray, back: Array, alarms: LongArray) -> Array:
        """Which paths returned because their loss was a false alarm: that many of each queue
        pair.
        """
        rank = np.cumsum(back) - back
        first = np.full(len(alarms) + 1, len(qp))
        np.minimum.at(first, qp, rank)
        found: Array = back & (rank - first[qp] < alarms[qp])
        return found

    def _unanswered_probes(
        self, at: LongArray, qp: LongArray, b: Any, bad: Array, demoted: Array
    ) -> LongArray:
        """Probes of each path that stayed unanswered since the last reading: each doubles the time
        until the next one (row 11). Probes whose answers had less time than that do not count:
        behind full queues answers are late.
        """
        patience_ps = np.maximum(2 * self._base_rtt_ps, LATE * self._largest_rtts())[qp]
        doubled = np.ceil(np.log2(np.maximum(np.asarray(b.spacing) / patience_ps, 1)) - NEARLY)
        now = np.where(bad, doubled, 0).astype(np.int8)
        before = np.where(demoted, 0, self._unanswered[at])
        self._unanswered[at] = now
        return np.maximum(now.astype(np.int64) - before, 0)

    def _missed_at(self, qp: LongArray, b: Any, now_ps: int) -> LongArray:
        """When the answer to the last unanswered probe of each path was due, a base round trip
        after it was sent. It is only counted when the next one is sent, twice as late as the last.
        """
        spacing = np.asarray(b.spacing)
        sent_ps = np.asarray(b.probe_at) - spacing - spacing // 2
        base_rtt_ps = observe.base_rtt_ps(self._world.engine.qp[self._ends])[qp]
        return np.asarray(np.minimum(sent_ps + base_rtt_ps, now_ps), np.int64)

    def _largest_rtts(self) -> LongArray:
        """[QPs] The largest recent round trip of any queue pair of its NIC: one that sends no data
        knows only the probes whose answers came in time, although they wait behind data of others.
        """
        q = self._world.engine.qp[self._ends]
        own = observe.largest_rtts_ps(q)
        of_nics = np.zeros(self._fabric.n_nics, np.int64)
        np.maximum.at(of_nics, np.asarray(q.nic), own)
        return np.asarray(of_nics[np.asarray(q.nic)], np.int64)

    def _note(self, at: LongArray, when: Any, event: int) -> None:
        room = max(EVENTS_MAX - self._n_events, 0)
        self._left_out += max(len(at) - room, 0)
        at, when = at[:room], np.broadcast_to(when, at.shape)[:room]
        self._n_events += len(at)
        if len(at):
            kind = np.full(len(at), event, np.int8)
            self._events.append({"at_ps": when.astype(np.int64), "ev_at": at, "event": kind})

    def _note_ports(self, now_ps: int) -> None:
        """Record the NICs' own ports that went down or came up since the last reading."""
        up = np.array(self._world.engine.nic.up_mask, np.int64)
        for plane in range(self._fabric.n_planes):
            nics = np.flatnonzero((up ^ self._up) >> plane & 1)
            if not len(nics):
                continue
            is_up = up[nics] >> plane & 1
            ev = np.full(len(nics), plane << self._known.ev_plane_shift)
            kind = np.where(is_up, PORT_UP, PORT_DOWN)
            one = {"at_ps": np.full(len(nics), now_ps), "event": kind, "ev": ev}
            self._ports.append(one | {"qp": np.full(len(nics), -1), "src": nics, "dst": nics})
        self._up = up

    def _all_events(self) -> dict[str, Array]:
        """Events of paths, followed by those of ports."""
        paths = self._named(_columns(self._events, ("at_ps", "ev_at", "event")))
        ports = _columns(self._ports, tuple(paths))
        return {name: np.concatenate([paths[name], ports[name]]) for name in paths}

    # --- bins

    def _close(self) -> None:
        """Close the current bin."""
        used = np.asarray(self._world.engine.ev.used).astype(np.int32)
        sent = self._across(used)
        self._sent[self._n_bins] = sent - self._sent_before
        self._sent_before = sent
        self._trimmed[self._n_bins] = self._summed(*self._trims())
        counted = self._by_ports()
        self._counted[:, self._n_bins] = counted - self._counted_before
        self._counted_before = counted
        lost = _columns(self._lost, ("ev_at", "lost", "first_ps", "last_ps"))
        if len(lost["ev_at"]):
            paths, which = np.unique(lost["ev_at"], return_inverse=True)
            self._lossy.append(
                _by_path(which, lost, len(paths))
                | {
                    "bin": np.full(len(paths), self._n_bins),
                    "ev_at": paths,
                    "sent": (used - self._used)[paths].astype(np.int64),
                }
            )
        self._lost, self._used, self._looks = [], used, 0
        self._n_bins += 1
        if self._n_bins == self._bins_max:
            self._join()

    def _by_ports(self) -> LongArray:
        """[`COUNTED`, ports] what ports have counted so far."""
        net = self._world.net
        tally = net.tally
        counts = (tally.dropped, tally.trimmed, net.port.sent_packets, tally.damaged)
        return np.stack([np.asarray(each, np.int64) for each in counts])

    def _trims(self) -> tuple[LongArray, LongArray]:
        """Paths on which packets were trimmed in this bin, and how many on each.

        A queue pair knows how many packets it sent again, how many of them because they tried a
        path, and how many it judged lost: the others were trimmed. Slots keep the EV of the
        transmission that was trimmed until they are used again; of a packet that was trimmed twice
        they keep one, so these are scaled.
        """
        q = self._world.engine.qp[self._ends]
        counted = observe.counters(q)
        unasked = np.asarray(counted["rtx"]).astype(np.int64) - np.asarray(counted["trial"])
        again = np.maximum(unasked - self._counts[4], self._again_before)
        more = again - self._again_before
        self._again_before = again
        which = np.flatnonzero(more)
        paths, many = [np.zeros(0, np.int64)], [np.zeros(0)]
        size = int(place.runs_of_slots(q)[1].max(initial=1))
        for part in np.array_split(which, max(1, len(which) * size // EVS_AT_ONCE)):
            of, evs = self._sent_again(part)
            seen = np.bincount(of, minlength=len(more))
            paths.append(self._ev0[of] + evs)
            many.append(more[of] / seen[of])
        return np.concatenate(paths), np.concatenate(many)

    def _sent_again(self, which: LongArray) -> tuple[LongArray, LongArray]:
        """Of packets that these queue pairs sent again in this bin, and had not judged lost: the
        queue pair, and the index of the EV of the transmission before.
        """
        q = self._world.engine.qp[self._ends[which]]
        first, n = place.runs_of_slots(q)
        at = np.repeat(first - (np.cumsum(n) - n), n) + np.arange(n.sum())
        slots = self._world.engine.slot
        past, evs = np.asarray(slots.past)[at], np.asarray(slots.bad_ev)[at]
        late = np.asarray(slots.sent_at)[at] >= self._n_bins * self.bin_ps
        kinds = es.RESENT | es.INFERRED | es.TRIAL
        mine = (past & kinds == es.RESENT) & (evs >= 0) & late
        return np.repeat(which, n)[mine], evs[mine].astype(np.int64)

    def _join(self) -> None:
        half = self._bins_max // 2
        for counts in (self._sent, self._trimmed, *self._counted):
            counts[:half] = counts[0::2] + counts[1::2]
            counts[half:] = 0
        self._n_bins = half
        self.look_ps *= 2
        names = ("bin", "ev_at", "sent", "lost", "first_ps", "last_ps")
        rows = _columns(self._lossy, names)
        key = rows["bin"] // 2 * len(self._bad) + rows["ev_at"]
        keys, which = np.unique(key, return_inverse=True)
        sent = np.bincount(which, rows["sent"], len(keys)).astype(np.int64)
        joined = _by_path(which, rows, len(keys)) | {"sent": sent}
        self._lossy = [joined | {"bin": keys // len(self._bad), "ev_at": keys % len(self._bad)}]

    def _across(self, used: IntArray) -> LongArray:
        """By directed port, the packets sent on paths across it so far."""
        active = np.flatnonzero(used)
        active = active[self._qp_of(active) >= 0]
        return self._summed(active, used[active])

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


def can_tell(transport: Any, n_evs: int) -> bool:
    """Whether senders of this transport keep track of their paths."""
    of_mrc = getattr(transport, "paths", "") == "mrc" and getattr(transport, "rules", "") != "peer"
    return of_mrc and n_evs <= EVS_MAX


def _by_path(which: LongArray, rows: dict[str, Array], n: int) -> dict[str, Array]:
    """Losses summed, first and last times, by path."""
    first = np.full(n, np.iinfo(np.int64).max)
    last = np.full(n, -1)
    np.minimum.at(first, which, rows["first_ps"])
    np.maximum.at(last, which, rows["last_ps"])
    lost = np.bincount(which, rows["lost"], n).astype(np.int64)
    return {"lost": np.maximum(lost, 0), "first_ps": first, "last_ps": last}


def _columns(parts: list[dict[str, Array]], names: tuple[str, ...]) -> dict[str, Array]:
    empty = np.zeros(0, np.int64)
    return {name: np.concatenate([empty, *(part[name] for part in parts)]) for name in names}
