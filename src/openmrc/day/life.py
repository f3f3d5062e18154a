"""The life of one job on one fabric through all failures of a period.

A failure that leaves a NIC without a port, or takes a host, ends the job: what was done since the
last checkpoint is lost, and it starts again, on spare hosts for those that failed. Any other stalls
it for a moment, and makes its steps longer while it lasts. A job also starts without hosts that
lack ports, if enough spares are left. Hosts come back as spares when they are repaired.

Every second of the period is in one account, so they sum to it.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from openmrc.day.failures import NOTHING, Failures, hitting
from openmrc.day.held import Held
from openmrc.day.stalls import Stalls
from openmrc.day.steps import Missing, Steps
from openmrc.fabric.model import LongArray
from openmrc.jit.interrupts import held_back
from openmrc.planning.reliability import ALL, PORT, Kind
from openmrc.planning.sizing import Design

SEED_STALLS = 2  # the purpose of a random stream
CAUSES = ("stall", "bandwidth", "collisions", "rollback", "checkpoint", "restart", "spare")
EPSILON = 1e-9


class Job(NamedTuple):
    """A job's NICs, and its own times, s."""

    nics: LongArray  # of the fabric, one for each GPU
    checkpoint_s: float  # of work between two
    checkpoint_time_s: float  # to write one
    restart_s: float


DID = ("nothing", "stalled", "slower", "interrupted")  # in the order of what they cost
NONE, STALLED, SLOWER, INTERRUPTED = range(len(DID))


class Done(NamedTuple):
    """What the failures so far did to the job: a column has an entry for each."""

    did: list[int]  # index into `DID`
    stall_s: list[float]
    step_s: list[float]  # of a step from then on


class Life:
    """A job from its start on; `run` takes it through its failures."""

    def __init__(
        self,
        job: Job,
        design: Design,
        failures: Failures,
        steps: Steps,
        stalls: Stalls,
        values: Mapping[str, float],
        seed: int,
    ) -> None:
        mine = np.zeros(design.nics, np.bool_)
        mine[job.nics] = True
        failures = hitting(failures, mine)
        self.job, self.design, self.failures, self.steps = job, design, failures, steps
        self._stalls, self._values = stalls, values
        self._draws = np.random.default_rng([seed, SEED_STALLS]).random(len(failures.at_s))
        self.now_s = 0.0
        self.lost_s = dict.fromkeys(CAUSES, 0.0)
        self.steps_done = 0.0
        self.interruptions: Counter[str] = Counter()
        self.done = Done([], [], [])
        self.outages: list[tuple[float, float, str]] = []  # from, until, what for
        self._spells: dict[float, float] = defaultdict(float)  # how many steps took so long
        self._waits: list[tuple[float, str]] = []  # until when the job waits, and what for
        self._run_s = 0.0  # since it last started, checkpoints included
        self._kept = 0.0  # steps at the last checkpoint
        self._ends: list[tuple[float, int]] = []  # of failures: (when, number)
        self._held = Held(failures, design, len(steps.none), mine)
        self._holds = self._held.now()
        self._per_host = int(values["host_gpus"])
        self.spares = int(len(job.nics) // self._per_host * values["spare_share"])
        self._spares = self.spares
        self._back: list[tuple[float, int]] = []  # when hosts come back, and how many
        self._step_s = steps.whole_s

    def run(self, until_s: float, tell: Callable[[float], None] = lambda now_s: None) -> None:
        """Live until this time; `tell` is given the time. Ctrl-C ends it between two failures."""
        with held_back() as let_through:
            self._live(until_s, tell, let_through)

    def _live(
        self, until_s: float, tell: Callable[[float], None], let_through: Callable[[], None]
    ) -> None:
        failures = self.failures
        first, last = np.searchsorted(failures.at_s, (self.now_s, until_s)).tolist()
        columns = failures.at_s, failures.lasts_s, failures.kind, self._draws
        rows = zip(*(column[first:last].tolist() for column in columns), strict=True)
        for number, (at_s, lasts_s, kind, draw) in enumerate(rows, first):
            self._repairs(at_s)
            self._go_on(at_s)
            self._break(number, failures.kinds[kind], lasts_s, draw)
            tell(at_s)
            let_through()
        self._repairs(until_s)
        self._go_on(until_s)
        tell(until_s)

    # ---- time passes

    def _go_on(self, until_s: float) -> None:
        """Nothing changes until then: the job waits, then runs."""
        while self._waits and self.now_s < until_s:
            ready_s, cause = self._waits[0]
            waits_s = max(min(ready_s, until_s) - self.now_s, 0.0)
            self.lost_s[cause] += waits_s
            if cause != "stall" and waits_s:
                self.outages.append((self.now_s, self.now_s + waits_s, cause))
            self.now_s += waits_s
            if ready_s <= self.now_s:
                self._waits.pop(0)
        runs_s = until_s - self.now_s
        if runs_s <= 0:
            return
        period_s = self.job.checkpoint_s + self.job.checkpoint_time_s
        rate = self.job.checkpoint_s / period_s / self._step_s
        last_s = (self._run_s + runs_s) // period_s * period_s
        if last_s > self._run_s:
            self._kept = self.steps_done + (last_s - self._run_s) * rate
        done = runs_s * rate
        self._run_s += runs_s
        self.steps_done += done
        self._spells[self._step_s] += done
        self.lost_s["checkpoint"] += runs_s * self.job.checkpoint_time_s / period_s
        self.lost_s["bandwidth"] += done * (self._step_s - self.steps.whole_s)
        self.lost_s["collisions"] += done * (self.steps.whole_s - self.steps.ideal_s)
        self.now_s = until_s

    def _repairs(self, until_s: float) -> None:
        """Failures end until then."""
        while self._ends and self._ends[0][0] <= until_s:
            at_s, number = heapq.heappop(self._ends)
            self._held.add(number, -1)
            self._changes(max(at_s, self.now_s))

    def _changes(self, at_s: float) -> None:
        """From then on a step takes what it takes with what is missing."""
        holds = self._held.now()
        if holds != self._holds:
            self._go_on(at_s)
            self._holds = holds
            self._step_s = self.steps.step_s(*holds)

    # ---- something fails

    def _break(self, number: int, kind: Kind, lasts_s: float, draw: float) -> None:
        before_s = self._step_s
        stall_s, did = 0.0, NONE
        dies = kind.takes in (ALL, NOTHING)
        failed: Sequence[int] = self._held.nics(number) if kind.takes == ALL else ()
        if not dies:
            self._held.add(number, 1)
            heapq.heappush(self._ends, (self.now_s + lasts_s, number))
            failed = self._held.lost(number) if kind.takes == PORT else ()
            stall_s, dies_of_it = self._stalls(kind.takes, draw)
            dies = bool(failed) or dies_of_it
        if dies:
            did = INTERRUPTED
            self.interruptions[kind.kind] += 1
            self._interrupt(failed, lasts_s)
        else:
            self._changes(self.now_s)
            self._stall(stall_s)
            noticed = self._values["noticed_share"] * self.steps.whole_s
            if self._step_s > before_s + noticed:
                did = SLOWER
            elif stall_s > noticed:
                did = STALLED
        self.done.did.append(did)
        self.done.stall_s.append(stall_s)
        self.done.step_s.append(self._step_s)

    def _stall(self, stall_s: float) -> None:
        """All ranks wait; a job that does not run anyway waits no longer."""
        if not stall_s or any(cause != "stall" for _, cause in self._waits):
            return
        until_s = max([self.now_s + stall_s, *(ready_s for ready_s, _ in self._waits)])
        if not self._waits:
            self._spells[self._step_s + stall_s] += 1
        self._waits = [(until_s, "stall")]

    def _interrupt(self, failed: Sequence[int], lasts_s: float) -> None:
        """The job ends, and starts again without the hosts of these NICs."""
        undone = self.steps_done - self._kept
        self.steps_done = self._kept
        self.lost_s["rollback"] += undone * self.steps.ideal_s
        ready_s = self._replace({nic // self._per_host for nic in failed}, lasts_s)
        for end_s, number in self._ends:
            if self._spares > 0 and self._is_weak(number):
                host = self._held.nics(number)[0] // self._per_host
                self._replace({host}, end_s - self.now_s)
        self._waits = [(ready_s, "spare"), (ready_s + self.job.restart_s, "restart")]
        self._run_s = 0.0
        self._changes(self.now_s)

    def _is_weak(self, number: int) -> bool:
        """Whether a failure leaves one host short of ports, and of more than are admitted."""
        kind, nics = self.failures.kinds[int(self.failures.kind[number])], self._held.nics(number)
        if kind.takes != PORT or len(nics) > self._values["host_gpus"]:
            return False
        lacks = sum((nics[0], plane) in self._held.ports for plane in range(self.design.planes))
        return lacks > self._values["admit_ports"]

    def _replace(self, hosts: set[int], lasts_s: float) -> float:
        """Put spares in the place of hosts; return when enough of them are there."""
        self._held.replace(hosts, self._per_host)
        at_s = self.now_s
        while self._back and self._back[0][0] <= at_s:
            self._spares += heapq.heappop(self._back)[1]
        if hosts:
            heapq.heappush(self._back, (at_s + lasts_s, len(hosts)))
        self._spares -= len(hosts)
        while self._spares < 0 and self._back:
            back_s, n = heapq.heappop(self._back)
            at_s = max(at_s, back_s)
            self._spares += n
        return at_s

    # ---- what came of it

    @property
    def waits_for(self) -> str:
        """Why the job does not run at present; "" if it does."""
        return next((cause for ready_s, cause in self._waits if ready_s > self.now_s), "")

    def holding(self) -> Iterator[int]:
        """The numbers of failures that are not repaired yet."""
        return (number for _, number in self._ends)

    @property
    def ports_missing(self) -> Missing:
        """The ports that the job's NICs lack at present."""
        return self._held.now()[0]

    def step_times_s(self, shares: tuple[float, ...]) -> list[float]:
        """The time of a step that this share of all steps did not exceed; 1: the longest."""
        if not self._spells:
            return [float("nan")] * len(shares)
        time_s, steps = (np.array(column) for column in zip(*self._spells.items(), strict=True))
        order = np.argsort(time_s)
        upto = np.cumsum(steps[order]) / steps.sum()
        places = np.minimum(np.searchsorted(upto, np.array(shares) - EPSILON), len(order) - 1)
        return [float(each) for each in time_s[order][places]]

    def unnoticed(self) -> Counter[str]:
        """How many failures of each kind nobody noticed."""
        kinds = self.failures.kind[: len(self.done.did)][np.array(self.done.did) == NONE]
        counts = np.bincount(kinds, minlength=len(self.failures.kinds)).tolist()
        named = zip(self.failures.kinds, counts, strict=True)
        return Counter({kind.kind: n for kind, n in named if n})

    def accounts_s(self) -> Iterator[tuple[str, float]]:
        """All seconds of the period: of useful work, and lost by cause."""
        yield "useful", self.steps_done * self.steps.ideal_s
        yield from self.lost_s.items()
