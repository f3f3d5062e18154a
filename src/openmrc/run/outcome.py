"""The results of one transport: flows, counts, the timeline; its object in `summary.json`.

A flow is one message, or one series of them where a workload is generated. Its completion time
(FCT) runs from its start, the moment it (its first message) was posted, to the sender's last
acknowledgement. Goodput counts payload bytes only, in Gb/s:

* of a flow: its bytes over its FCT; `min` and `mean` are over the completed flows, `p100_flow` is
  the goodput of the flow that took longest;
* `total`: all payload placed, each byte once, over the time from the first start to the last
  completion (to the end of the run if anything is unfinished);
* `delivered`: the same payload over the time from the first start until its last byte was placed. A
  sender that waits for a lost acknowledgement, or a QP that has nothing left but to fail, does not
  count.

`whole_us` is what a workload's users wait for: the time until all of it is done, its computations
as well; of training, the mean of its steps.

`ideal_us` is the least time in which a perfect network could complete the last flow, and
`slowdown_p100` is when the last completed flow did complete over that. Where all flows start
together, as in a permutation, that is the p100 of the FCT over the ideal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from openmrc.run.figures import PACKETS, PATHS, ROCE, distribution_us, us

if TYPE_CHECKING:
    from openmrc.run.ports import Testimony
    from openmrc.run.training import TrainingResult
    from openmrc.sim.watch.samples import Samples


@dataclass(frozen=True, repr=False)
class TransportResult:
    """One transport's run. Arrays have one entry per flow (`flows`) or per bin (`timeline`)."""

    name: str
    flows: dict[str, NDArray[Any]]
    flow_errors: Sequence[str]
    qp_errors: Sequence[str]
    counters: dict[str, int]
    timeline: dict[str, NDArray[Any]]
    bin_ps: int
    derived: dict[str, Any]
    ideal_ps: int
    now_ps: int
    loop_s: float
    bytes_verified: int
    jobs: tuple[str, ...] = ()  # names, if the workload has jobs
    flow_job: NDArray[np.int32] | None = None  # index into `jobs`
    placed_ps: int = -1  # when payload was last placed
    calcs_ps: int = 0  # when the last computation ended; -1 if one never did
    # payload bytes per bin, [bins, n], of each "flow" and each "job", unless these are too many
    placed: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    pauses: Sequence[dict[str, Any]] = ()  # ports that PFC paused the longest, with their times
    samples: Samples | None = None  # the run over time, if it was sampled
    training: TrainingResult | None = None  # the steps, if the workload is training
    testimony: Testimony | None = None  # what ports count and senders know, if they were watched
    narrow_paths: Sequence[str] = ()  # of a lab: planes with paths whose MTU may be too small
    uncut: str = ""  # why the fabric was not cut into shards for threads, if it was not

    def __repr__(self) -> str:
        """One short line, because the arrays are long."""
        done, total = int(self.completed.sum()), len(self.completed)
        return f"<TransportResult {self.name!r}: {done:,} of {total:,} flows completed>"

    @property
    def completed(self) -> NDArray[np.bool_]:
        """Per flow: its sender has the last acknowledgement."""
        done: NDArray[np.bool_] = self.flows["done_ps"] >= 0
        return done

    @property
    def fct_ps(self) -> NDArray[np.int64]:
        """Completion times of the completed flows, ps."""
        fct: NDArray[np.int64] = (self.flows["done_ps"] - self.flows["start_ps"])[self.completed]
        return fct

    @property
    def n_failed(self) -> int:
        """Flows whose QP went to error."""
        return int(self.flows["failed"].sum())

    @property
    def n_unfinished(self) -> int:
        """Flows neither completed nor failed when the run ended."""
        return len(self.completed) - int(self.completed.sum()) - self.n_failed

    @property
    def died(self) -> bool:
        """Whether an error ended the job before its end."""
        return self.training is not None and self.training.died_ps is not None

    @property
    def finish_ps(self) -> int | None:
        """When the last flow completed (without flows: computation); None if one never did."""
        if not len(self.completed):
            return self.now_ps
        return int(self.flows["done_ps"].max(initial=0)) if self.completed.all() else None

    @property
    def whole_ps(self) -> int | None:
        """What the workload took as a whole: of training the mean step; None if it never ended."""
        if self.training is None:
            return self.ended_ps
        steps = self.training.step_ps
        return round(steps.mean()) if len(steps) and not self.died else None

    @property
    def ended_ps(self) -> int | None:
        """When the last flow and the last computation ended; None if one never did."""
        if self.finish_ps is None or self.calcs_ps < 0:
            return None
        return max(self.finish_ps, self.calcs_ps)

    def summary(self) -> dict[str, Any]:
        """This transport's object in `summary.json`."""
        traversals = self.counters["link_traversals"]
        fct_ps = self.fct_ps
        roce: dict[str, Any] = {
            key: self.counters[f"roce.{key}"] for key in ROCE if f"roce.{key}" in self.counters
        }
        if roce:
            roce["paused_most"] = list(self.pauses)
        jobs = {"jobs": {name: self._job(i) for i, name in enumerate(self.jobs)}}
        slowdown = int(self.flows["done_ps"].max()) / self.ideal_ps if len(fct_ps) else None
        return {
            "whole_us": None if self.whole_ps is None else us(self.whole_ps),
            "sim_time_us": us(self.now_ps),
            "loop_s": round(self.loop_s, 4),
            "link_traversals": traversals,
            "link_traversals_per_s": round(traversals / self.loop_s) if self.loop_s else None,
            "flows": self._flows(slice(None)),
            "goodput_gbps": self._goodput_gbps(),
            "ideal_us": us(self.ideal_ps),
            "slowdown_p100": None if slowdown is None else round(slowdown, 4),
            "packets": {key: self.counters.get(key) for key in PACKETS},
            "paths": {key: self.counters.get(key) for key in PATHS},
            **({"roce": roce} if roce else {}),
            "qp_errors": list(self.qp_errors),
            **({"narrow_paths": list(self.narrow_paths)} if self.narrow_paths else {}),
            "bytes_verified": self.bytes_verified,
            **(jobs if self.jobs else {}),
            **({} if self.training is None else {"training": self.training.summary()}),
        }

    def _flows(self, these: Any) -> dict[str, Any]:
        """Count and time some of the flows."""
        flows = {key: self.flows[key][these] for key in ("start_ps", "done_ps", "failed")}
        done, failed = flows["done_ps"] >= 0, int(flows["failed"].sum())
        return {
            "total": len(done),
            "completed": int(done.sum()),
            "failed": failed,
            "unfinished": int((~done).sum()) - failed,
            "fct_us": distribution_us((flows["done_ps"] - flows["start_ps"])[done]),
        }

    def _job(self, index: int) -> dict[str, Any]:
        """Return a job's object: its flows, and the time from its first start to its last end."""
        mine = self.flow_job == index
        start_ps, done_ps = self.flows["start_ps"][mine], self.flows["done_ps"][mine]
        whole = bool(len(done_ps) and (done_ps >= 0).all())
        return {
            "flows": self._flows(mine),
            "time_us": us(done_ps.max() - start_ps.min()) if whole else None,
        }

    def _goodput_gbps(self) -> dict[str, float | None]:
        each = self.flows["bytes"][self.completed] * 8e3 / self.fct_ps  # bit/ps is Tb/s
        placed_bits = 8 * int(self.timeline["goodput_bytes"].sum())
        end_ps = self.now_ps if self.finish_ps is None else self.finish_ps
        started_ps = self.flows["start_ps"][self.flows["start_ps"] >= 0]
        start_ps = int(started_ps.min(initial=end_ps))
        return {
            "min": _gbps(each.min()) if len(each) else None,
            "mean": _gbps(each.mean()) if len(each) else None,
            "p100_flow": _gbps(each[self.fct_ps.argmax()]) if len(each) else None,
            "total": _rate(placed_bits, end_ps - start_ps),
            "delivered": _rate(placed_bits, self.placed_ps - start_ps),
        }


def _rate(bits: int, span_ps: int) -> float | None:
    return _gbps(bits * 1e3 / span_ps) if span_ps > 0 else None


def _gbps(value: float) -> float:
    return round(float(value), 3)
