"""The steps of a training job as a function of the fabric's state, without a message per rank.

Each phase of the job (`workload.phases`) takes what its groups take, alone. Phases that are under
way at once at a stage, gradients beside the rest of a backward pass, share its ports: while both
last, each is slowed by the part of the time for which the other sends.

`Ranks` has a time for each rank. `Lockstep` has a time for each stage: its ranks begin a phase
together, and the phase takes what its slowest group takes. Groups in equal state are equal, so few
are computed; and where some NICs have less than before, only groups that they are in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import LongArray
from openmrc.flow import groups
from openmrc.flow.capacity import Capacity, Messages
from openmrc.flow.health import Floats
from openmrc.flow.rates import TINY
from openmrc.workload.layout import Layout
from openmrc.workload.phases import (
    ALL_REDUCE,
    ALL_TO_ALL,
    GROUPS,
    Collective,
    Compute,
    Message,
    Phase,
    Post,
    Work,
    phases,
)
from openmrc.workload.pipeline import BACKWARD, FORWARD

ASIDE_MAX = 64  # phases of a stage that are under way at once; more do not share
WAYS = (FORWARD, BACKWARD)
Key = tuple[Any, ...]


class Taken(NamedTuple):
    """What a phase takes, alone: each rank, or each stage."""

    ps: Any
    work_ps: Any  # of that, for how long a NIC sends
    at_once: int = 1  # messages of a NIC at the same time


class UnderWay(NamedTuple):
    """A phase that is under way: its groups of NICs, and from when until when it lasts, ps from
    now.
    """

    phase: Collective | Message
    size: int  # of a rank's share, bytes
    nics: LongArray  # [groups, members]
    begin_ps: float
    end_ps: float


class _Job:
    """The phases of a job in an order in which each stands behind all that it waits for."""

    def __init__(
        self, layout: Layout, work: Work, messages: Messages, nics: LongArray, seed: int = 1
    ) -> None:
        self._layout, self.work, self._messages = layout, work, messages
        self._made = list(phases(layout, work, seed))
        self._poster = {p.message: p.after for p in self._made if isinstance(p, Post)}
        self._order = list(_order(self._made, layout.size("pp")))
        stages = range(layout.size("pp"))
        self._nics = [nics[layout.stage(stage)] for stage in stages]
        self._groups = {
            (stage, name): layout.groups_of_stage(stage, *which)
            for stage in stages
            for name, which in GROUPS.items()
        }

    def _after(self, number: int) -> tuple[int, ...]:
        """The phases that one waits for."""
        phase = self._made[number]
        if isinstance(phase, Compute):
            return phase.after
        return (phase.after if isinstance(phase, Collective) else self._poster[number],)

    def _size(self, phase: Collective | Message) -> int:
        return self.work.sizes.pp if isinstance(phase, Message) else phase.size

    def _members(self, phase: Collective | Message) -> LongArray:
        """The NICs of each group of a phase, [groups, members]; of a message its two ends."""
        if isinstance(phase, Message):
            return np.stack([self._nics[stage] for stage in _stages(phase)], axis=1)
        return self._nics[phase.stage][self._groups[phase.stage, phase.group]]

    def _links(
        self, has: Capacity, src: LongArray, dst: LongArray, size: float
    ) -> tuple[Floats, Floats]:
        """How long each of these NICs sends such a message, and how long it is under way then."""
        send_ps, way_ps = np.empty(src.shape), np.empty(src.shape)
        wire, after = self._messages.wire_bytes(size), self._messages.after_ps(int(size))
        found = send_ps.reshape(-1), way_ps.reshape(-1)
        groups.links(has, src.ravel(), dst.ravel(), wire, after, *found)
        return send_ps, way_ps

    def _alone(
        self, has: Capacity, phase: Collective | Message, nics: LongArray, start_ps: Floats
    ) -> Taken:
        """What the members of groups of NICs take, [groups, members], who begin at these times; of
        a message its senders, [groups].
        """
        if isinstance(phase, Message):
            send_ps, way_ps = self._links(has, nics[:, 0], nics[:, 1], self.work.sizes.pp)
            return Taken(send_ps + way_ps, send_ps)
        members = nics.shape[1]
        ready_ps = start_ps.copy()
        if phase.kind == ALL_TO_ALL:
            wire = self._messages.wire_bytes(phase.size / members)
            after = self._messages.after_ps(phase.size // members)
            groups.exchange(has, nics, start_ps, wire, after, ready_ps)
            work_ps = wire * (members - 1) / np.maximum(has.out[nics].sum(axis=2), TINY)
            return Taken(ready_ps - start_ps, work_ps, members - 1)
        links = self._links(has, nics, np.roll(nics, -1, axis=1), phase.size / members)
        steps = ring_steps(phase.kind, members)
        groups.ring(start_ps, *links, steps, start_ps.copy(), ready_ps)
        return Taken(ready_ps - start_ps, steps * links[0])


class Ranks(_Job):
    """A job with a time for each rank."""

    def step_ends_ps(self, has: Capacity) -> Floats:
        """When each step ends, ps from the start of the job, in a fabric that does not change."""
        found: dict[int, _Lasts] = {}
        aside: list[list[int]] = [[] for _ in self._nics]  # phases under way, by stage
        ends = np.zeros(self.work.steps)
        for number in self._order:
            phase = self._made[number]
            assert not isinstance(phase, Post)
            waits = [found[each].end for each in self._after(number)]
            begin = np.max([np.zeros(len(self._nics[0])), *waits], axis=0)
            if isinstance(phase, Compute):
                found[number] = _Lasts(begin, begin + phase.ps, 0 * begin)
                if phase.step is not None:
                    ends[phase.step] = max(ends[phase.step], found[number].end.max())
                continue
            taken = self._taken(has, phase, begin)
            found[number] = _Lasts(begin, begin + taken.ps, taken.work_ps, taken.at_once)
            for stage in _stages(phase):
                under_way = [each for each in aside[stage] if (found[each].end > begin).any()]
                aside[stage] = [number]
                for other in under_way:
                    if _series(self._made[other]) == _series(phase):
                        found[number] = found[number].behind(found[other], begin)
                        continue
                    aside[stage].append(other)
                    if _one_way(phase, self._made[other]):
                        both = found[number].beside(found[other])
                        longer = [self._of_groups(each, both) for each in (number, other)]
                        found[number], found[other] = (
                            found[number].longer(longer[0], found[other].at_once),
                            found[other].longer(longer[1], found[number].at_once),
                        )
        return ends

    def _taken(self, has: Capacity, phase: Collective | Message, begun: Floats) -> Taken:
        nics = self._members(phase)
        if isinstance(phase, Message):
            return self._alone(has, phase, nics, begun)
        members = self._groups[phase.stage, phase.group]
        found = self._alone(has, phase, nics, begun[members])
        ps, work_ps = np.empty(len(begun)), np.empty(len(begun))
        ps[members], work_ps[members] = found.ps, found.work_ps
        return Taken(ps, work_ps, found.at_once)

    def _of_groups(self, number: int, ps: Floats) -> Floats:
        """By rank, the most of its group: a collective waits for its slowest member."""
        phase = self._made[number]
        if not isinstance(phase, Collective):
            return ps
        members = self._groups[phase.stage, phase.group]
        most = np.empty_like(ps)
        most[members] = ps[members].max(axis=1, keepdims=True)
        return most


class _Lasts(NamedTuple):
    """From when until when a phase lasts, and for how long it sends in that time, by rank; ps."""

    begin: Floats
    end: Floats
    work: Floats
    at_once: int = 1

    def behind(self, other: _Lasts, begin: Floats) -> _Lasts:
        """The same behind another one on its queue pairs: together they are one that is longer."""
        meets = other.end > begin
        end = np.where(meets, np.maximum(self.end, other.end + self.work), self.end)
        work = np.where(meets, self.work + other.work, self.work)
        return _Lasts(np.where(meets, other.begin, begin), end, work, self.at_once)

    def beside(self, other: _Lasts) -> Floats:
        """For how long both would send at once."""
        both = np.minimum(self.end, other.end) - np.maximum(self.begin, other.begin)
        for each in (self, other):
            both = both * np.minimum(each.work / np.maximum(each.end - each.begin, TINY), 1)
        found: Floats = np.maximum(both, 0)
        return found

    def longer(self, both: Floats, at_once: int) -> _Lasts:
        """The same beside another one with so many messages at once."""
        return self._replace(end=self.end + both * min(at_once / self.at_once, 1))


class Lockstep(_Job):
    """A job with a time for each stage; its computations have their mean."""

    def __init__(self, layout: Layout, work: Work, messages: Messages, nics: LongArray) -> None:
        super().__init__(layout, work, messages, nics)
        keys: dict[Key, int] = {}
        place = {number: i for i, number in enumerate(self._order)}
        costs, waits, stages = [], [], np.full((len(self._order), 2), -1)
        series: dict[Key, int] = {}
        series_of = np.zeros((len(self._order), 2), np.int64)  # and which way it sends
        self._ends = np.zeros((work.steps, layout.size("pp")), np.int64)
        self._like: dict[Key, Phase] = {}
        for i, number in enumerate(self._order):
            phase = self._made[number]
            key = _key(phase)
            self._like[key] = phase
            costs.append(keys.setdefault(key, len(keys)))
            waits.append([place[each] for each in self._after(number)])
            if isinstance(phase, Collective | Message):
                stages[i, : len(_stages(phase))] = _stages(phase)
                way = WAYS.index(phase.way) if isinstance(phase, Message) else len(WAYS)
                series_of[i] = series.setdefault(_series(phase), len(series)), way
            elif isinstance(phase, Compute) and phase.step is not None:
                self._ends[phase.step, phase.stage] = i
        first = np.cumsum([0, *map(len, waits)])
        flat = np.array([each for row in waits for each in row], np.int64)
        self._program = (np.array(costs, np.int64), first, flat, stages, series_of)
        self._aside = np.zeros((layout.size("pp"), ASIDE_MAX + 1), np.int64)
        self._step_ps: dict[bytes, float] = {}

    def step_ps(self, taken: Floats) -> float:
        """How long one of many steps takes if phases take this, ps."""
        known = taken.tobytes()
        if known not in self._step_ps:
            begin_ps, end_ps = self._last_step(self._lasts(taken))
            self._step_ps[known] = end_ps - begin_ps
        return self._step_ps[known]

    def _lasts(self, taken: Floats) -> Floats:
        """From when until when each phase lasts, in their order; columns as of `_Lasts`."""
        lasts = np.zeros((len(self._order), 3))
        self._aside[:] = 0
        groups.pass_time(taken, *self._program, self._aside, lasts)
        return lasts

    def _last_step(self, lasts: Floats) -> tuple[float, float]:
        """From when until when the last step lasts."""
        ends = lasts[self._ends, 1].max(axis=1)
        return float(ends[-2]) if len(ends) > 1 else 0.0, float(ends[-1])

    def under_way(self, taken: Floats, share: float) -> list[UnderWay]:
        """What is under way at this share of one of many steps, or when ranks send next."""
        lasts = self._lasts(taken)
        begin_ps, end_ps = self._last_step(lasts)
        at_ps = begin_ps + share * (end_ps - begin_ps)
        sends = [
            (phase, *lasts[i, :2].tolist())
            for i, phase in enumerate(self._made[number] for number in self._order)
            if isinstance(phase, Collective | Message)
        ]
        if not any(begin <= at_ps < end for _, begin, end in sends):
            at_ps = min((begin for _, begin, _ in sends if begin > at_ps), default=at_ps)
        return [
            UnderWay(phase, self._size(phase), self._members(phase), begin - at_ps, end - at_ps)
            for phase, begin, end in sends
            if begin <= at_ps < end
        ]

    def taken(self, has: Capacity) -> Floats:
        """What each kind of phase takes in this state, alone, if all its ranks begin together: that
        of its slowest group; columns as of `Taken`.
        """
        return np.array([self._slowest(has, phase) for phase in self._like.values()])

    def worse(self, taken: Floats, has: Capacity, nics: LongArray) -> Floats:
        """The same where these NICs have less than in the state in which phases took `taken`: only
        groups that they are in can be slower.
        """
        weak = np.zeros(len(has.out), np.bool_)
        weak[nics] = True
        found = taken.copy()
        for i, phase in enumerate(self._like.values()):
            slowest = self._slowest(has, phase, weak)
            if slowest[0] > taken[i, 0]:
                found[i] = slowest
        return found

    def _slowest(
        self, has: Capacity, phase: Phase, weak: npt.NDArray[np.bool_] | None = None
    ) -> Taken:
        """What the slowest group of a phase takes, of those that have a weak NIC if these are
        given.
        """
        if isinstance(phase, Compute):
            return Taken(float(phase.ps.mean()), 0.0)
        assert isinstance(phase, Collective | Message)
        members = self._members(phase)
        if weak is not None:
            members = members[weak[members].any(axis=1)]
        if not len(members):
            return Taken(0.0, 0.0)
        if isinstance(phase, Collective):
            members = members[_distinct(has, members)]
        found = self._alone(has, phase, members, np.zeros(members.shape))
        worst = np.unravel_index(np.argmax(found.ps), found.ps.shape)
        return Taken(found.ps[worst], found.work_ps[worst], found.at_once)


def ring_steps(kind: str, members: int) -> int:
    """How many messages each member of a ring sends."""
    return (members - 1) * (2 if kind == ALL_REDUCE else 1)


def _stages(phase: Collective | Message) -> tuple[int, ...]:
    """The stages whose NICs a phase uses."""
    if isinstance(phase, Collective):
        return (phase.stage,)
    return phase.stage, phase.stage + (1 if phase.way == FORWARD else -1)


def _series(phase: Phase) -> Key:
    """What phases have in common that use the same queue pairs."""
    assert isinstance(phase, Collective | Message)
    return (phase.way if isinstance(phase, Message) else phase.group), phase.stage


def _one_way(phase: Phase, other: Phase) -> bool:
    """Whether two phases at a stage use a port in one direction: of messages those of one pass."""
    ways = [each.way for each in (phase, other) if isinstance(each, Message)]
    return len(set(ways)) < 2


def _key(phase: Phase) -> Key:
    """What phases that always take the same have in common."""
    if isinstance(phase, Compute):
        return (float(phase.ps.mean()),)
    assert isinstance(phase, Collective | Message)
    return phase[:2] if isinstance(phase, Message) else phase[:4]


def _distinct(has: Capacity, nics: LongArray) -> LongArray:
    """One of the groups of each state: what its members have, and which of them are neighbours."""
    apart = has.block[:, nics] != has.block[:, np.roll(nics, -1, axis=1)]
    by_block = [np.moveaxis(each, 1, 0) for each in (has.up[:, nics], has.down[:, nics], apart)]
    columns = [has.out[nics], has.into[nics], *by_block]
    table = np.concatenate([each.reshape(len(nics), -1) for each in columns], axis=1)
    rows = np.ascontiguousarray(table).view(np.dtype((np.void, table[0].nbytes)))
    _, one = np.unique(rows.reshape(-1), return_index=True)
    return one


def _order(made: Sequence[Phase], n_stages: int) -> Iterator[int]:
    """The numbers of all phases but posts: those of a stage in their order, each when what it waits
    for is done.
    """
    queues: list[deque[int]] = [deque() for _ in range(n_stages)]
    posted: dict[int, list[int]] = {}
    for number, phase in enumerate(made):
        if isinstance(phase, Compute | Collective):
            queues[phase.stage].append(number)
        elif isinstance(phase, Post):
            posted.setdefault(phase.after, []).append(phase.message)
    done: set[int] = set()
    while any(queues):
        before = len(done)
        for queue in queues:
            while queue:
                phase = made[queue[0]]
                if isinstance(phase, Compute) and not done.issuperset(phase.after):
                    break
                ready = [queue[0], *posted.get(queue.popleft(), ())]
                done.update(ready)
                yield from ready
        assert len(done) > before, "a stage waits for itself"
