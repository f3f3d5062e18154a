"""The cost of failures for a job on all GPUs: restarts, compared with the losses under MRC.

**Restarts.** With M between events that end the job, a checkpoint every t, and r to restart, the
fraction of time that is useful is t / (M e^(r/M) (e^(t/M) - 1)) (J. T. Daly, 2006: errors come at
random, also during a restart). If they are rare, the loss is their rate times (t/2 + r): half of a
checkpoint's work is rolled back.

**With MRC** a failure ends the job only if a NIC has no port left (`reliability`). Any other one
stalls all ranks for `stall_s`, because the step is synchronous, and then its bandwidth is missing
for as long as it lasts: the part of a step that waits for the network, `exposed_share`, takes 1/(1
- s) times as long, where s is the missing share. Of simultaneous failures the worst counts: the
others wait for the NIC that has least.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from openmrc.planning.reliability import FLAP, SECONDS_PER_DAY, Failure, interruptions_per_day

SECONDS_PER_HOUR = 3600
EXPONENT_MAX = 700.0  # e to more is no double; nothing is useful then


class Lost(NamedTuple):
    """Fractions of a job's time, and failures per day."""

    failures_per_day: float  # of all kinds
    # ... times the cost of one that ends the job: half a checkpoint's work, and a restart
    hours_per_day: float
    if_each_ended_the_job: float
    if_each_but_flaps_did: float
    restarts: float  # of failures that end it with MRC
    stalls: float  # until MRC has left the path
    bandwidth: float  # while it is missing

    @property
    def with_mrc(self) -> float:
        """Return the total loss of all three kinds."""
        return 1 - (1 - self.restarts) * (1 - self.stalls) * (1 - self.bandwidth)


def lost(found: Sequence[Failure], values: Mapping[str, float]) -> Lost:
    """Return what the failures of a design cost a job on all of its GPUs."""
    every = sum(failure.per_day for failure in found)
    lasting = sum(failure.per_day for failure in found if not failure.kind.endswith(FLAP))
    survived = every - interruptions_per_day(list(found))
    stalled = survived * values["stall_s"] / SECONDS_PER_DAY
    slower = _slower(found, values["exposed_share"])
    return Lost(
        every,
        every * (values["checkpoint_s"] / 2 + values["restart_s"]) / SECONDS_PER_HOUR,
        _by_restarts(every, values),
        _by_restarts(lasting, values),
        _by_restarts(interruptions_per_day(list(found)), values),
        stalled / (1 + stalled),
        slower / (1 + slower),
    )


def _by_restarts(per_day: float, values: Mapping[str, float]) -> float:
    """The fraction of time that events of this rate cost by restarts."""
    rate = per_day / SECONDS_PER_DAY
    work, start = values["checkpoint_s"] * rate, values["restart_s"] * rate
    if work == 0:
        return 0.0
    if work + start > EXPONENT_MAX:
        return 1.0
    return 1 - work / (math.exp(start) * math.expm1(work))


def _slower(found: Sequence[Failure], exposed: float) -> float:
    """The mean relative extension of a step by missing bandwidth."""
    longer, none_worse = 0.0, 1.0
    for failure in sorted(found, key=lambda failure: -failure.share):
        there = failure.per_day * (1 - failure.interrupts) * failure.lasts_days
        if failure.share < 1:  # otherwise the job is not running
            longer += none_worse * -math.expm1(-there) * exposed * _missing(failure.share)
            none_worse *= math.exp(-there)
    return longer


def _missing(share: float) -> float:
    return share / (1 - share)
