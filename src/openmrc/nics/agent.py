"""The agent of a NIC: it gives it its EVs, hears what becomes of them, probes, and denies.

It knows the NIC by the C API alone (`nic.Nic`), and has no clock: `round` is one period of the
schedule. Its reports are those of the mapper's agents, so that the mapper's controller judges them.

**When is a probe lost?** A NIC's answer may be late as a host stands still, ours or the other. What
is not answered is asked again, and waited for longer, together with what was answered. Only if that
is answered again, what is missing both times is lost. A NIC that never answered has nobody who
would: its probes say nothing of the fabric.

**An event is a reason to look, and no evidence.** It may be old, out of order, or one of many that
were dropped: the EV that it names is probed at once. If events were dropped, all EVs are.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from openmrc.capi.control import formats
from openmrc.capi.control.formats import UNPOPULATED, Ev
from openmrc.capi.control.profiles import ASSUMED_BAD, DENIED, EXPLICIT, GOOD, STEV, State
from openmrc.capi.places import Refused
from openmrc.fabric.model import Fabric, IntArray, LongArray
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
)
from openmrc.ops.evs import EvSchedule
from openmrc.ops.mapper.agent import BurstReport, Loss, Report
from openmrc.ops.schedule import BURST_MAX, TURNS
from openmrc.units import MS, NS

T = TypeVar("T")
PROFILE, FORMAT = 1, 13  # numbers that this controller chooses
TIMEOUT_PS, AGAIN_PS = 10 * MS, 25 * MS  # of probes, and of those that are asked again
WITNESSES = 8  # that are asked again with them
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


class NicAgent:
    """The agent of the NIC `number`; `gids` are those of all NICs.

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
        profile: int = PROFILE,
    ) -> None:
        self.api, self.schedule, self.nic, self.profile = api, schedule, number, profile
        self._gids, self._tell, self._told = gids, tell, set[str]()
        self.evs: list[Ev] = []
        self.denied: frozenset[Ev] = frozenset()
        self._there: set[int] = set()  # NICs that have answered
        self._asked: deque[tuple[int, int, int]] = deque()
        self._suspects: dict[Ev, None] = {}
        self._turns = [self._turn(turn) for turn in range(TURNS)]
        self.device: Device | None = None
        self._hears = self._probes = False

    @property
    def fabric(self) -> Fabric:
        """The fabric of its paths."""
        return self.schedule.fabric

    def totals(self) -> dict[str, int]:
        """Counters of a job: a controller sends nothing for any."""
        return {}

    # --- the NIC's profile

    def start(self) -> None:
        """Configure the NIC, as far as it can be."""
        device = self._try("the device says nothing of itself", self.api.query_device)
        self.device = device
        options = device.options if device else 0
        if device is not None and self.profile:
            self._does("its EVs stay its own", partial(self._give, device))
        elif device is not None:
            self.evs = plan.planned(self.fabric, self.nic, EVERY)
            mask = {"event_mask": GOOD | ASSUMED_BAD}
            self._does("no events", partial(self.api.modify_ev_profile, 0, attributes=mask))
        self._probes = bool(options & HAS_PROBES)
        if not self._probes:
            self._say("without EV probes: nothing is known of its paths")
        self._hears = bool(options & HAS_EVENTS) and self._does(
            "without events: EVs are probed in turn alone",
            partial(self.api.create_ev_event_cq, QUEUE),
        )
        if not options & HAS_EVENTS:
            self._say("without EV events: EVs are probed in turn alone")

    def _give(self, device: Device) -> None:
        """Give the NIC the EVs that are planned for it: a format of one field, and a profile."""
        evs = plan.planned(self.fabric, self.nic, min(device.evs_max, EVERY))
        api = self.api
        api.modify_ev_fmt_profile(FORMAT, State.OFFLINE, STEV, [plan.WIDTH])
        api.modify_ev_fmt_profile(FORMAT, State.ONLINE)
        attributes = {"mode": EXPLICIT, "fmt_profile_id": FORMAT, "count": len(evs)}
        attributes |= {"min_active": len(evs) // PART_ACTIVE, "event_mask": GOOD | ASSUMED_BAD}
        api.modify_ev_profile(self.profile, State.OFFLINE, attributes=attributes)
        self._each(REPLACE, [Entry(UNPOPULATED, ev) for ev in evs])
        api.modify_ev_profile(self.profile, State.ONLINE)
        self.evs = evs

    def replace(self, evs: Sequence[Ev]) -> None:
        """Give the NIC other EVs, port by port as many, while queue pairs use the profile."""
        if self.device is None or not self.device.options & MODIFIES_ONLINE:
            raise Refused(errno.ENOTSUP, "EVs in use cannot be replaced: it lacks the capability")
        new = sorted(set(evs) - set(self.evs), key=lambda ev: ev.port)
        old = sorted(set(self.evs) - set(evs), key=lambda ev: ev.port)
        if [ev.port for ev in new] != [ev.port for ev in old]:
            raise Refused(errno.EINVAL, "each port keeps as many EVs as it has")
        self._each(REPLACE, [Entry(*pair) for pair in zip(old, new, strict=True)])
        self.evs = list(evs)

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
        if self.profile:
            wanted &= set(self.evs)
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
        while events := self._try("events", partial(self.api.poll_ev_event, EVENTS_MAX)) or []:
            for one in events:
                if one.dropped:
                    self._suspects |= dict.fromkeys(self.evs)
                if one.profile == self.profile and one.state != GOOD:
                    self._suspects[one.ev] = None
            if len(events) < EVENTS_MAX:
                break
        return bool(self._suspects)

    def round(self, now_ps: int, period: int) -> Report:
        """Probe what is due in a period, what events named, and what the controller asked for."""
        report = Report(now_ps, 0, [], [], [])
        if not self._probes:
            return report
        turn = self._turns[period % TURNS]
        found = self._probe(turn.routes)
        if found is not None:
            report.periods = 1
            report.lost += self._losses(turn, found, now_ps)
        suspects, self._suspects = list(self._suspects)[:SUSPECTS_MAX], {}
        if suspects and (of := self._of(suspects)) is not None:
            found = self._probe(of.routes)
            if found is not None:
                report.lost += self._losses(of, found, now_ps)
        while self._asked:
            report.bursts.append(self._burst(*self._asked.popleft()))
        return report

    def down(self) -> list[int]:
        """The planes whose ports are disabled."""
        ports = self.device.ports if self.device else ()
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

    def _of(self, suspects: Iterable[Ev]) -> Turn | None:
        """The probes of all turns that take one of these EVs."""
        numbers, turns, routes = zip(*self._turns, strict=True)
        every = Turn(np.concatenate(numbers), np.concatenate(turns), np.concatenate(routes))
        asked = self.schedule.asked(every.routes)
        named = {(int.from_bytes(ev.value[:4], "big"), ev.port - 1) for ev in suspects}
        pairs = zip(asked.ev.tolist(), asked.plane.tolist(), strict=True)
        mine = np.array([pair in named for pair in pairs], np.bool_)
        # routes in one T0 cross no T1, whatever their EV
        mine &= every.routes[:, 3] >= 0
        if not mine.any():
            return None
        return Turn(every.numbers[mine], every.turns[mine], every.routes[mine])

    def _losses(self, turn: Turn, lost: np.ndarray, at_ps: int) -> list[Loss]:
        rows = np.flatnonzero(lost)
        return [Loss(int(turn.numbers[i]), int(turn.turns[i]), at_ps) for i in rows]

    def _burst(self, burst: int, port: int, n: int) -> BurstReport:
        routes = self.schedule.burst(port, n, burst % TURNS)
        mine = np.flatnonzero(self.fabric.port_nic[routes[:, 0]] == self.nic)
        found = self._probe(routes[mine]) if len(mine) else None
        lost = () if found is None else tuple(mine[found].tolist())
        return BurstReport(burst, lost, ())

    def _probe(self, routes: IntArray) -> np.ndarray | None:
        """Whether each of these probes was lost, [n]; None if nothing can be said."""
        asked = self.schedule.asked(routes)
        requests = [
            Request(i, self._gids[to], formats.packed(ev, plan.WIDTH, plane + 1))
            for i, (to, plane, ev) in enumerate(zip(*(c.tolist() for c in asked), strict=True))
        ]
        first = self._answered(requests, TIMEOUT_PS)
        if not first:
            return None
        self._there |= {int(asked.nic[i]) for i in first}
        missing = [one for one in requests if one.number not in first]
        missing = [one for one in missing if int(asked.nic[one.number]) in self._there]
        lost = np.zeros(len(requests), np.bool_)
        if not missing:
            return lost
        witnesses = [requests[i] for i in list(first)[:WITNESSES]]
        again = self._answered([*missing, *witnesses], AGAIN_PS)
        if any(one.number not in again for one in witnesses):
            return None  # what answers a moment ago does not: hosts stand still
        lost[[one.number for one in missing if one.number not in again]] = True
        return lost

    def _answered(self, requests: Sequence[Request], timeout_ps: int) -> dict[int, int]:
        """The numbers of the probes that were answered, and after how many ns."""
        found: dict[int, int] = {}
        for first in range(0, len(requests), BATCH_MAX):
            part = requests[first : first + BATCH_MAX]
            answers = self._try(
                "probes", partial(self.api.ep_batch_send_wait, part, timeout_ps // NS)
            )
            found |= {one.number: one.rtt_ns for one in answers or ()}
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
