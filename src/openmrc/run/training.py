"""The figures of a training job: how long its steps took, what the network cost, which transports
end the job.

A step ends when the last rank has ended it. Its duration is compared with two bounds: that if
messages took no time at all (`compute`, which includes the pipeline's idle times), and that in an
idle, perfect network (`network`), both computed from the same computations. The share of GPU time
lost to the network is the time beyond `compute`, over all completed steps.

A job ends with the first error of a queue pair. What that costs depends on its checkpoints: with
`M` seconds between two such errors, a checkpoint every `t` seconds of work that takes `c`, and `r`
to restart, the share of time that is useful is

    t / (M e^(r/M) (e^((t + c)/M) - 1))

(J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future
Generation Computer Systems 22, 2006: errors come at random, also during a restart), and without
errors t / (t + c).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from openmrc.run.figures import distribution_us
from openmrc.run.perfect import parts_of, perfect_costs
from openmrc.scenario.training import SECONDS_OF_A_DAY
from openmrc.units import US, S

if TYPE_CHECKING:
    from openmrc.fabric.model import Fabric
    from openmrc.run.perfect import AnyTransport
    from openmrc.scenario.training import Training
    from openmrc.sim.world import World
    from openmrc.traffic.earliest import Cost
    from openmrc.traffic.traffic import Traffic

LongArray = npt.NDArray[np.int64]
EXPONENT_MAX = 700.0  # e to a larger power is no double; nothing is useful then


@dataclass(frozen=True)
class Restarts:
    """What an error costs a job; times in ps."""

    checkpoint_ps: int
    checkpoint_time_ps: int
    restart_ps: int
    faults_per_day: float | None

    def useful(self, errors_per_day: float) -> float:
        """Return the share of time in which the job makes progress that is kept."""
        work, write, start = (
            ps / S for ps in (self.checkpoint_ps, self.checkpoint_time_ps, self.restart_ps)
        )
        rate = errors_per_day / SECONDS_OF_A_DAY
        if rate == 0:
            return work / (work + write)
        if (start + work + write) * rate > EXPONENT_MAX:
            return 0.0
        return work * rate / (exp(start * rate) * expm1((work + write) * rate))

    def lost_ps(self, died_ps: int) -> int:
        """Return what an error at this time of a run costs, ps: the work since the last checkpoint,
        counted from the run's start, and the restart.
        """
        return died_ps % self.checkpoint_ps + self.restart_ps


@dataclass(frozen=True)
class TrainingResult:
    """The steps of one transport's run; arrays by step and rank, times in ps, -1 where never."""

    ends_ps: LongArray  # [steps, ranks]
    compute_ends_ps: LongArray  # [steps]: of the last rank, without any network
    network_ends_ps: LongArray  # [steps]: in a perfect network
    busy_ps: LongArray  # [steps]: computed by all ranks together
    died_ps: int | None  # when the first queue pair went to error
    restarts: Restarts

    @property
    def completed(self) -> int:
        """Steps that every rank has ended."""
        return int((self.ends_ps >= 0).all(axis=1).sum())

    @property
    def step_ps(self) -> LongArray:
        """How long each completed step took, from the end of the one before."""
        steps: LongArray = np.diff(self.ends_ps[: self.completed].max(axis=1), prepend=0)
        return steps

    @property
    def died_in_step(self) -> int | None:
        """The step, counted from 1, in which the job ended with an error."""
        return None if self.died_ps is None else min(self.completed + 1, len(self.ends_ps))

    @property
    def lost_to_network(self) -> float | None:
        """The share of GPU time in completed steps that is not compute, nor waiting for it."""
        n = self.completed
        if n == 0:
            return None
        return 1 - int(self.compute_ends_ps[n - 1]) / int(self.ends_ps[n - 1].max())

    def summary(self) -> dict[str, Any]:
        """Return the `training` object of a transport in `summary.json`."""
        n, ranks = self.completed, self.ends_ps.shape[1]
        end_ps = int(self.ends_ps[n - 1].max()) if n else 0
        lost = self.lost_to_network
        return {
            "steps": {"total": len(self.ends_ps), "completed": n},
            "ranks": ranks,
            "step_us": distribution_us(self.step_ps),
            "ideal_step_us": {
                "compute": self._mean_us(self.compute_ends_ps),
                "network": self._mean_us(self.network_ends_ps),
            },
            "lost_to_network": None if lost is None else round(lost, 6),
            "gpu_busy": round(int(self.busy_ps[:n].sum()) / (ranks * end_ps), 6) if n else None,
            "died": self.died_ps is not None,
            "died_in_step": self.died_in_step,
            "died_us": None if self.died_ps is None else self.died_ps / US,
            "lost_s": None if self.died_ps is None else self.restarts.lost_ps(self.died_ps) / S,
            "a_day": self._a_day(),
        }

    def _a_day(self) -> dict[str, float | None]:
        """The expected values of a day with faults at the run's rate."""
        faults, lost = self.restarts.faults_per_day, self.lost_to_network
        if faults is None:
            return dict.fromkeys(("faults", "deaths", "useful", "goodput"))
        deaths = faults if self.died_ps is not None else 0.0
        useful = self.restarts.useful(deaths)
        return {
            "faults": faults,
            "deaths": deaths,
            "useful": round(useful, 6),
            "goodput": None if lost is None else round(useful * (1 - lost), 6),
        }

    def _mean_us(self, ends_ps: LongArray) -> float:
        """The mean duration of a step, over the whole job."""
        return round(int(ends_ps[-1]) / len(ends_ps) / US, 6)


def trained(
    section: Training, fabric: Fabric, traffic: Traffic, transport: AnyTransport, world: World
) -> TrainingResult:
    """Return the result of the steps of `traffic`, which has `step_ends`."""
    from openmrc.traffic.earliest import no_cost

    ends = traffic.step_ends
    assert ends is not None
    alone = perfect_costs(fabric, traffic, transport, parts_of(transport))
    return TrainingResult(
        ends_ps=world.calcs_ended_ps()[ends],
        compute_ends_ps=_ends_ps(traffic, no_cost(traffic), fabric.n_planes),
        network_ends_ps=_ends_ps(traffic, alone, fabric.n_planes),
        busy_ps=_busy_ps(traffic),
        died_ps=world.died_ps,
        restarts=Restarts(
            section.checkpoint, section.checkpoint_time, section.restart, section.faults_per_day
        ),
    )


def _ends_ps(traffic: Traffic, cost: Cost, n_planes: int) -> LongArray:
    """When the last rank ends each step, at these costs of messages."""
    from openmrc.traffic.earliest import earliest_ps

    begin, _ = earliest_ps(traffic, cost, n_planes)
    ends: LongArray = (begin[traffic.n_msgs :] + traffic.calc_ps)[traffic.step_ends].max(axis=1)
    return ends


def _busy_ps(traffic: Traffic) -> LongArray:
    """The total computation of all ranks in each step; a step's computations are numbered
    together.
    """
    assert traffic.step_ends is not None
    total = np.cumsum(traffic.calc_ps)
    busy: LongArray = np.diff(total[traffic.step_ends.max(axis=1)], prepend=0)
    return busy
