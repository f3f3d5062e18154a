"""The agent of a NIC: it gives it its EVs, hears what becomes of them, probes, and denies.

It knows the NIC by the C API alone (`nic.Nic`), and gets its clock: `round` is one period of the
schedule. Its reports are those of the mapper's agents, so that the mapper's controller judges them.

**When is a probe lost?** An answer may be late because a host stands still, ours or the other. So
what is not answered is asked again, and after it the same NIC on other EVs, its witnesses. If one
of them is answered with time to spare, both hosts were running, and what is missing both times is
lost. If none is, nothing is known of these probes, unless that NIC has answered nothing at all for
`MUTE_PS`. A NIC that never answered has nobody who would: its probes say nothing of the fabric.

**What was asked is told**, round by round: what was answered, or lost, and when. What is not known
is neither.

**An event is a reason to look, and no evidence.** It may be old, out of order, or one of many that
were dropped: the EV that it names is probed at once. If events were dropped, all EVs are.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from openmrc.capi.control import formats
from openmrc.capi.control.formats import UNPOPULATED, Ev
from openmrc.capi.control.layouts import ASSUMED_BAD, DENIED, GOOD
from openmrc.capi.control.profiles import EXPLICIT, STEV, State
from openmrc.capi.places import Refused
from openmrc.fabric.model import BoolArray, Fabric, IntArray, LongArray
from openmrc.nics import plan
from openmrc.nics.nic import (
    HAS_EVENTS,
    HAS_PROBES,
    MODIFIES_ONLINE,
    MODIFY_STATE,
    REPLACE,
    Device,
    Entry,
    Nic,
    Request,
    Shown,
)
from openmrc.ops.evs import TIMEOUT_PS, EvSchedule
from openmrc.ops.mapper.agent import SILENCE_PS, BurstReport, Loss, Report, Round
from openmrc.ops.schedule import BURST_MAX, TURNS
from openmrc.units import MS, NS

T = TypeVar("T")
PROFILE, FORMAT = 1, 13  # numbers that this controller chooses
AGAIN_PS = 25 * MS  # timeout of probes that are asked again
MUTE_PS = SILENCE_PS  # a host stands still for less
WITNESSES = 4  # of each NIC
EVERY = 1 << 16  # EVs: no fabric of two tiers has more
QUEUE = 1024  # EV events
EVENTS_MAX = 64  # of one call
BATCH_MAX = 256  # probes of one call
SUSPECTS_MAX = 16  # EVs that events named, probed in one round
PART_ACTIVE = 4  # of a profile's EVs one in so many stays in service


class Turn(NamedTuple):
    """Probes of the schedule: their numbers, in which turn each, and their routes."""

    numbers: LongArray
    turns: LongArray
    routes: IntArray


class Found(NamedTuple):
    """What became of probes, and when that was asked; [n] each. Of the others nothing is known."""

    answered: BoolArray
    lost: BoolArray
    at_ps: LongArray

    @property
    def known(self) -> BoolArray:
        """Those of which something is."""
        return self.answered | self.lost


class Rows(NamedTuple):
    """What this NIC sends of a burst."""

    number: int
    rows: LongArray
    routes: IntArray


class NicAgent:
    """The agent of the NIC `number`; `gids` are those of all NICs, `clock` tells the time in ps.

    `profile` is the EV profile that it keeps; 0 is the device's own, which it does not fill. `tell`
    gets each thing that the library lacks, once.
    """

    def __init__(
        self,
        api: Nic,
        schedule: EvSchedule,
        number: int,
        gids: Sequence[bytes],
        tell: Callable[[str], None],
        clock: Callable[[], int],
        profile: int = PROFILE,
    ) -> None:
        self.api, self.schedule, self.nic, self.profile = api, schedule, number, profile
        self._gids, self._tell, self._told = gids, tell, set[str]()
        self.clock = clock
        self.evs: list[Ev] = []
        self.denied: frozenset[Ev] = frozenset()
        self._wanted = self.denied
        self._mute_ps: dict[int, int | None] = {}  # by NIC that ever answered: since when not
        self._asked: deque[tuple[int, int, int]] = deque()
        self._suspects: dict[Ev, None] = {}
        self._turns = [self._turn(turn) for turn in range(TURNS)]
        f = schedule.fabric
        planes = range(f.n_planes)
        ups = range(int(f.sw_n_up[f.port_peer_switch[number * f.n_planes]]))
        # EVs to ask a NIC on, planes in turn: in a T0 all EVs of a plane are one path
        self._ways = [formats.packed(f.ev(k, up), plan.WIDTH, k + 1) for up in ups for k in planes]
        self.device: Device | None = None
        self._hears = self._probes = self._is_whole = False

    @property
    def fabric(self) -> Fabric:
        """The fabric of its paths."""
        return self.schedule.fabric

    def totals(self) -> dict[str, int]:
        """Counters of a job: a controller sends nothing for any."""
        return {}

    # --- the NIC's profile

    def start(self) -> None:
        """Configure the NIC, as far as it can be; what it refuses is tried again later."""
        device = self._try("the device says nothing of itself", self.api.query_device)
        self.device = device
        options = device.options if device else 0
        is_given = False
        if device is not None and self.profile:
            is_given = self._does("its EVs stay its own", partial(self._give, device))
        elif device is not None:
            self.evs = plan.planned(self.fabric, self.nic, EVERY)
            mask = {"event_mask": GOOD | ASSUMED_BAD}
            change = partial(self.api.modify_ev_profile, 0, attributes=mask)
            is_given = self._does("no events", change)
        self._probes = bool(options & HAS_PROBES)
        if not self._probes:
            self._say("without EV probes: nothing is known of its paths")
        if not options & HAS_EVENTS:
            self._say("without EV events: EVs are probed in turn alone")
        elif not self._hears:
            self._hears = self._does(
                "without events: EVs are probed in turn alone",
                partial(self.api.create_ev_event_cq, QUEUE),
            )
        self._is_whole = is_given and self._hears == bool(options & HAS_EVENTS)

    def _give(self, device: Device) -> None:
        """Give the NIC the EVs that are planned for it: a format of one field, and a profile. One
        that is ONLINE, since its controller ended, is kept, and gets them as far as it can.
        """
        if device.evs_max < self.fabric.n_planes:
            raise Refused(errno.ENOTSUP, f"a profile has room for {device.evs_max} EVs")
        evs = plan.planned(self.fabric, self.nic, min(device.evs_max, EVERY))
        evs = evs[: len(evs) - len(evs) % max(device.align, 1)]
        api, known = self.api, self._shown(self.api.query_ev_profile, self.profile)
        if known.state == State.ONLINE:
            self.evs = list(known.evs)
            self.denied = frozenset(ev for ev, state in known.evs.items() if state == DENIED)
            if set(evs) != set(self.evs):
                self.replace(evs)
            return
        if known.state == State.OFFLINE:
            api.modify_ev_profile(self.profile, State.INIT)
        form = self._shown(api.query_ev_fmt_profile, FORMAT).state
        if form == State.INIT:
            api.modify_ev_fmt_profile(FORMAT, State.OFFLINE, STEV, [plan.WIDTH])
        if form != State.ONLINE:
            api.modify_ev_fmt_profile(FORMAT, State.ONLINE)
        attributes = {"mode": EXPLICIT, "fmt_profile_id": FORMAT, "count": len(evs)}
        attributes |= {"min_active": len(evs) // PART_ACTIVE, "event_mask": GOOD | ASSUMED_BAD}
        api.modify_ev_profile(self.profile, State.OFFLINE, attributes=attributes)
        self._each(REPLACE, [Entry(UNPOPULATED, ev) for ev in evs])
        api.modify_ev_profile(self.profile, State.ONLINE)
        self.evs = evs

    def _shown(self, query: Callable[[int], Shown], number: int) -> Shown:
        """A profile; one in INIT if there is none, or nobody to ask."""
        try:
            return query(number)
        except Refused as error:
            if error.code not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
                raise  # it may be ONLINE
            return Shown(State.INIT, {})

    def replace(self, evs: Sequence[Ev]) -> None:
        """Give the NIC other EVs, port by port as many, while queue pairs use the profile."""
        if self.device is None or not self.device.options & MODIFIES_ONLINE:
            raise Refused(errno.ENOTSUP, "EVs in use cannot be replaced: it lacks the capability")
        new = sorted(set(evs) - set(self.evs), key=lambda ev: ev.port)
        old = sorted(set(self.evs) - set(evs), key=lambda ev: ev.port)
        if [ev.port for ev in new] != [ev.port for ev in old]:
            raise Refused(errno.EINVAL, "each port keeps as many EVs as it has")
        self._each(REPLACE, [Entry(*pair) for pair in zip(old, new, strict=True)])
        self.evs, self.denied = list(evs), self.denied & set(evs)

    def keep_off(self, denied: LongArray) -> None:
        """Deny the EVs that cross these directed ports, and allow all others again. If none were
        left on any plane, none is denied.
        """
        bad = plan.crossing(self.fabric, self.nic, denied)
        if bad.all():
            bad[:] = False
            self._say("all EVs cross denied places: none is denied")
        wanted = frozenset(
            formats.packed(self.fabric.ev(plane, up), plan.WIDTH, plane + 1)
            for plane, up in np.argwhere(bad).tolist()
        )
        self._wanted = wanted
        self._deny()

    def _deny(self) -> None:
        """Deny what is wanted; what the NIC refuses now is tried again in the next round."""
        wanted = self._wanted & set(self.evs) if self.profile else self._wanted
        for evs, state in ((wanted - self.denied, DENIED), (self.denied - wanted, GOOD)):
            entries = [Entry(ev, state=state) for ev in sorted(evs)]
            if entries and not self._does(
                "its EVs cannot be denied", partial(self._each, MODIFY_STATE, entries)
            ):
                return
        self.denied = wanted

    def _each(self, kind: int, entries: Sequence[Entry]) -> None:
        assert self.device is not None
        most = self.device.entries_max or max(len(entries), 1)
        for first in range(0, len(entries), most):
            part = entries[first : first + most]
            self.api.modify_ev_profile(self.profile, op=(kind, part))

    # --- rounds

    def ask(self, burst: int, port: int, n: int) -> None:
        """Probe one cable next: the controller suspects it."""
        if 0 <= port < self.fabric.n_ports and 1 <= n <= BURST_MAX:
            self._asked.append((burst, port, n))

    def hear(self) -> bool:
        """Take the events; True if one names an EV that may be bad."""
        if not self._hears:
            return False
        known = set(self._ways)
        for _ in range(QUEUE // EVENTS_MAX):
            events = self._try("events", partial(self.api.poll_ev_event, EVENTS_MAX)) or []
            for one in events:
                if one.dropped:
                    self._suspects |= dict.fromkeys(self.evs)
                if one.profile == self.profile and one.state != GOOD and one.ev in known:
                    self._suspects[one.ev] = None
            if len(events) < EVENTS_MAX:
                break
        return bool(self._suspects)

    def round(self, period: int) -> Report:
        """Probe what is due in a period, what events named, and what the controller asked for: all
        at once, for a call waits as long for one answer as for all.
        """
        report = Report(self.clock(), 0, [], [], [])
        if not self._is_whole and period % TURNS == 0:
            self.start()
        self._deny()
        if not self._probes:
            return report
        turns = [self._turns[period % TURNS], *self._of(list(self._suspects)[:SUSPECTS_MAX])]
        bursts = [self._rows(*one) for one in self._asked]
        self._suspects.clear()
        self._asked.clear()
        parts = [*(one.routes for one in turns), *(one.routes for one in bursts)]
        ends = np.cumsum([len(part) for part in parts])[:-1]
        columns = self._probe(np.concatenate(parts))
        found = [
            Found(*part) for part in zip(*(np.split(one, ends) for one in columns), strict=True)
        ]
        report.periods = int(found[0].known.any())
        for turn, part in zip(turns, found, strict=False):
            self._tell_turn(report, turn, part)
        for burst, part in zip(bursts, found[len(turns) :], strict=True):
            lost, unknown = (burst.rows[which].tolist() for which in (part.lost, ~part.known))
            report.bursts.append(BurstReport(burst.number, tuple(lost), (), tuple(unknown)))
        report.at_ps = self.clock()
        return report

    def _tell_turn(self, report: Report, turn: Turn, found: Found) -> None:
        """Report what is known of probes of the schedule."""
        groups = dict[tuple[int, int], list[int]]()
        for i in np.flatnonzero(found.known).tolist():
            number, of, at_ps = int(turn.numbers[i]), int(turn.turns[i]), int(found.at_ps[i])
            groups.setdefault((of, at_ps), []).append(number)
            if found.lost[i]:
                report.lost.append(Loss(number, of, at_ps))
        for (of, at_ps), mine in groups.items():
            is_whole = len(mine) == len(self._turns[of].numbers)
            report.rounds.append(Round(of, at_ps, None if is_whole else tuple(mine)))

    def down(self) -> list[int]:
        """The planes whose ports are disabled."""
        ports = self.device.ports if self.device else ()
        ports = tuple(port for port in ports if port <= self.fabric.n_planes)
        state = {
            port: self._try("its ports are not told", partial(self.api.query_port, port))
            for port in ports
        }
        return [port - 1 for port in ports if state[port] is False]

    def _turn(self, turn: int) -> Turn:
        per_nic = self.fabric.n_planes * self.schedule.per_port
        numbers = np.arange(self.nic * per_nic, (self.nic + 1) * per_nic)
        routes = self.schedule.routes(turn, numbers)
        return Turn(numbers, np.full(per_nic, turn), routes)

    def _of(self, suspects: Sequence[Ev]) -> list[Turn]:
        """The probes of all turns that take one of these EVs."""
        if not suspects:
            return []
        numbers, turns, routes = zip(*self._turns, strict=True)
        every = Turn(np.concatenate(numbers), np.concatenate(turns), np.concatenate(routes))
        asked = self.schedule.asked(every.routes)
        named = {(int.from_bytes(ev.value[:4], "big"), ev.port - 1) for ev in suspects}
        pairs = zip(asked.ev.tolist(), asked.plane.tolist(), strict=True)
        mine = np.array([pair in named for pair in pairs], np.bool_)
        # routes in one T0 cross no T1, whatever their EV
        mine &= every.routes[:, 3] >= 0
        return [Turn(every.numbers[mine], every.turns[mine], every.routes[mine])]

    def _rows(self, burst: int, port: int, n: int) -> Rows:
        routes = self.schedule.burst(port, n, burst % TURNS)
        mine = np.flatnonzero(self.fabric.port_nic[routes[:, 0]] == self.nic)
        return Rows(burst, mine, routes[mine])

    def _probe(self, routes: IntArray) -> Found:
        asked = self.schedule.asked(routes)
        requests = [
            self._request(i, to, plane, ev)
            for i, (to, plane, ev) in enumerate(zip(*(c.tolist() for c in asked), strict=True))
        ]
        now_ps, first = self.clock(), self._answered(requests, TIMEOUT_PS)
        to = asked.nic
        self._mute_ps |= dict.fromkeys(to[list(first)].tolist())
        answered, lost = np.zeros((2, len(requests)), np.bool_)
        answered[list(first)] = True
        at_ps = np.full(len(requests), now_ps)
        missing = [i for i in np.flatnonzero(~answered).tolist() if int(to[i]) in self._mute_ps]
        if missing:
            at_ps[missing] = self.clock()
            self._ask_again(requests, to, missing, answered, lost)
        return Found(answered, lost, at_ps)

    def _ask_again(
        self,
        requests: Sequence[Request],
        to: LongArray,
        missing: Sequence[int],
        answered: BoolArray,
        lost: BoolArray,
    ) -> None:
        """Ask what is missing again, with its witnesses, and decide what is answered or lost."""
        now_ps, witnesses, number = self.clock(), dict[int, range](), len(requests)
        batch = [requests[i] for i in missing]
        for nic in dict.fromkeys(to[missing].tolist()):
            bad = {requests[i].ev for i in missing if to[i] == nic}
            good = [requests[i].ev for i in np.flatnonzero(answered & (to == nic)).tolist()]
            ways = [ev for ev in dict.fromkeys([*good, *self._ways]) if ev not in bad][:WITNESSES]
            witnesses[nic] = range(number, number + len(ways))
            batch += [Request(number + i, self._gids[nic], ev) for i, ev in enumerate(ways)]
            number += len(ways)
        batch += [requests[i] for i in np.flatnonzero(answered)[:1]]  # whether this host runs
        again = self._answered(batch, AGAIN_PS)
        for nic, own in witnesses.items():
            mine = [i for i in missing if to[i] == nic]
            came = [i for i in mine if i in again]
            answered[came] = True
            left = [i for i in mine if i not in again]
            if came or any(i in again for i in own):
                self._mute_ps[nic] = None
                lost[left] = any(again.get(i, AGAIN_PS) <= AGAIN_PS // 2 for i in own)
            elif again:
                since_ps = self._mute_ps[nic]
                self._mute_ps[nic] = since_ps = now_ps if since_ps is None else since_ps
                lost[left] = now_ps - since_ps >= MUTE_PS

    def _request(self, number: int, to: int, plane: int, ev: int) -> Request:
        return Request(number, self._gids[to], formats.packed(ev, plan.WIDTH, plane + 1))

    def _answered(self, requests: Sequence[Request], timeout_ps: int) -> dict[int, int]:
        """The numbers of the probes that were answered, and after how many ps."""
        found: dict[int, int] = {}
        for first in range(0, len(requests), BATCH_MAX):
            part = requests[first : first + BATCH_MAX]
            answers = self._try(
                "probes", partial(self.api.ep_batch_send_wait, part, timeout_ps // NS)
            )
            found |= {one.number: one.rtt_ns * NS for one in answers or ()}
        return found

    # --- what it lacks

    def _try(self, without: str, call: Callable[[], T]) -> T | None:
        """What a call returns; None, and a word, if it is refused."""
        try:
            return call()
        except Refused as error:
            self._say(f"{without}: {error}")
            return None

    def _does(self, without: str, call: Callable[[], None]) -> bool:
        """Whether a call is done."""

        def done() -> bool:
            call()
            return True

        return self._try(without, done) is not None

    def _say(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            self._tell(words)
