"""How many probes crossed each cause: what was lost is judged against it.

Agents of the mapper send by the clock, and say only what was lost: the schedule says what else
crossed (`Expected`). Agents of NICs wait for answers, so how many probes they send depends on what
is lost and on who else wants the processor: each of their rounds is told (`Told`), and what nobody
told is no evidence. Else a NIC whose agent was not scheduled would seem to lose nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import LongArray
from openmrc.ops import causes
from openmrc.ops.mapper.agent import Round
from openmrc.ops.schedule import TURNS, Schedule

FloatArray = npt.NDArray[np.float64]


class Crossings(Protocol):
    """How many probes crossed each cause of `ops.causes`."""

    def hear(self, nic: int, rounds: Sequence[Round]) -> None:
        """Process what an agent has asked, in the time of the collector."""

    def between(self, from_ps: int, until_ps: int, silent: frozenset[int]) -> LongArray:
        """Return how many crossed each cause in a time in which these NICs' agents were silent."""

    def total(self, cause: int, until_ps: int) -> float:
        """Return how many crossed one cause until a time, counted from some origin."""

    def forget(self, until_ps: int) -> None:
        """What was before is not asked for any more."""


def of(schedule: Schedule) -> Crossings:
    """Return those of the agents of a schedule."""
    return Told(schedule) if schedule.rounds_are_told else Expected(schedule)


class Expected:
    """Those of agents that send what the schedule says, when it says it."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._of_period = np.concatenate(schedule.crossed)
        self._of_missing: tuple[frozenset[int], FloatArray] = (
            frozenset(),
            np.zeros(len(self._of_period)),
        )

    def hear(self, nic: int, rounds: Sequence[Round]) -> None:
        """Such agents tell no rounds."""

    def between(self, from_ps: int, until_ps: int, silent: frozenset[int]) -> LongArray:
        """See `Crossings.between`."""
        periods = (until_ps - from_ps) / self._schedule.period_ps
        found: LongArray = np.ceil(
            np.maximum(self._of_period - self._missing(silent), 0) * periods
        ).astype(np.int64)
        return found

    def total(self, cause: int, until_ps: int) -> float:
        """See `Crossings.total`."""
        return until_ps / self._schedule.period_ps * float(self._of_period[cause])

    def forget(self, until_ps: int) -> None:
        """Nothing is kept."""

    def _missing(self, silent: frozenset[int]) -> FloatArray:
        """[causes] crossings of a period that silent agents do not send or do not count."""
        if self._of_missing[0] != silent:
            self._of_missing = (silent, self._crossings_of(silent))
        return self._of_missing[1]

    def _crossings_of(self, nics: Iterable[int]) -> FloatArray:
        schedule = self._schedule
        found = np.zeros(len(self._of_period))
        gone = sorted(nics)
        if not gone:
            return found
        numbers = np.arange(schedule.n_probes)
        sender = numbers // (schedule.per_port * schedule.fabric.n_planes)
        own = np.isin(sender, gone)
        for turn in range(TURNS):
            deaf = np.isin(schedule.judges(turn, numbers), gone)
            _add(found, causes.of_routes(schedule.fabric, schedule.routes(turn)[own | deaf]))
        return found / TURNS


class _Heard(NamedTuple):
    at_ps: int
    ids: LongArray  # causes ...
    n: LongArray  # ... and how many probes crossed each


class Told:
    """Those of agents that tell each round. What was told is kept by the time at which it was
    asked, to the picosecond: a round from just before a fault would speak for what is broken.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._total = np.zeros(causes.count(schedule.fabric), np.int64)
        self._bins: dict[int, tuple[list[_Heard], LongArray]] = {}  # by period: each, and the sum
        self._whole: dict[tuple[int, int], tuple[LongArray, LongArray]] = {}  # by NIC and turn

    def hear(self, nic: int, rounds: Sequence[Round]) -> None:
        """See `Crossings.hear`."""
        for one in rounds:
            heard = _Heard(one.at_ps, *self._crossed(nic, one))
            number = one.at_ps // self._schedule.period_ps
            if number not in self._bins:
                self._bins[number] = [], np.zeros_like(self._total)
            each, sums = self._bins[number]
            each.append(heard)
            for into in (sums, self._total):
                into[heard.ids] += heard.n

    def between(self, from_ps: int, until_ps: int, silent: frozenset[int]) -> LongArray:
        """See `Crossings.between`; a silent agent has told nothing."""
        found, first = np.zeros_like(self._total), from_ps // self._schedule.period_ps
        for number, (each, sums) in self._bins.items():
            if number > first:
                found += sums
            elif number == first:
                for heard in each:
                    if heard.at_ps >= from_ps:
                        found[heard.ids] += heard.n
        return found

    def total(self, cause: int, until_ps: int) -> float:
        """See `Crossings.total`; to the period."""
        last = until_ps // self._schedule.period_ps
        later = sum(int(sums[cause]) for number, (_, sums) in self._bins.items() if number > last)
        return float(self._total[cause]) - later

    def forget(self, until_ps: int) -> None:
        """See `Crossings.forget`."""
        last = until_ps // self._schedule.period_ps
        for number in [number for number in self._bins if number < last]:
            del self._bins[number]

    def _crossed(self, nic: int, one: Round) -> tuple[LongArray, LongArray]:
        if one.numbers is not None:
            return self._of(one.turn, np.array(one.numbers, np.int64))
        if (nic, one.turn) not in self._whole:
            per_nic = self._schedule.per_port * self._schedule.fabric.n_planes
            every = np.arange(nic * per_nic, (nic + 1) * per_nic)
            self._whole[nic, one.turn] = self._of(one.turn, every)
        return self._whole[nic, one.turn]

    def _of(self, turn: int, numbers: LongArray) -> tuple[LongArray, LongArray]:
        columns = causes.of_routes(self._schedule.fabric, self._schedule.routes(turn, numbers))
        ids, n = np.unique(columns[columns >= 0], return_counts=True)
        return ids.astype(np.int64), n.astype(np.int64)


def _add(found: FloatArray, columns: npt.NDArray[np.int32]) -> None:
    """Count the rows that cross each cause."""
    for column in columns:
        found += np.bincount(column[column >= 0], minlength=len(found))
