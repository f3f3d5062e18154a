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

**With switches that balance** (`sim.roce.balance`) the same failures end the job and the same
bandwidth is missing, but nobody learns of a broken path from its losses. What breaks between
switches others learn from routing, `convergence_s` later; until then packets go on into the broken
path, and whoever waits for the network waits longer, as if the share `balance_share` of its
bandwidth were missing. A NIC's lost port stalls all ranks for `balance_port_s`. **With hashed
RoCEv2** all wait for routing, `convergence_s`, whatever breaks: of many flows some cross it. (Of a
failure that no link shows routing never learns: nobody has published how often, and none is
counted.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
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
    stalls_of_balance: float  # the same of switches that balance, and of their NICs
    stalls_of_hashing: float  # until routing has left it

    @property
    def with_mrc(self) -> float:
        """Return the total loss of all three kinds."""
        return self._with(self.stalls)

    @property
    def with_balance(self) -> float:
        """Return the same with switches that balance."""
        return self._with(self.stalls_of_balance)

    @property
    def with_hashing(self) -> float:
        """Return the same with hashed RoCEv2."""
        return self._with(self.stalls_of_hashing)

    def _with(self, stalls: float) -> float:
        return 1 - (1 - self.restarts) * (1 - stalls) * (1 - self.bandwidth)

    def as_dict(self) -> dict[str, float]:
        """Return every figure by its name."""
        totals = ("with_mrc", "with_balance", "with_hashing")
        return {**self._asdict(), **{name: getattr(self, name) for name in totals}}


def lost(found: Sequence[Failure], values: Mapping[str, float]) -> Lost:
    """Return what the failures of a design cost a job on all of its GPUs."""
    every = sum(failure.per_day for failure in found)
    lasting = sum(failure.per_day for failure in found if not failure.kind.endswith(FLAP))
    survived = every - interruptions_per_day(list(found))
    slower = _slower(found, values["exposed_share"])
    return Lost(
        every,
        every * (values["checkpoint_s"] / 2 + values["restart_s"]) / SECONDS_PER_HOUR,
        _by_restarts(every, values),
        _by_restarts(lasting, values),
        _by_restarts(interruptions_per_day(list(found)), values),
        _share(survived * values["stall_s"] / SECONDS_PER_DAY),
        _share(slower),
        _share(sum(map(partial(_stalled_s, values=values), found)) / SECONDS_PER_DAY),
        _share(survived * values["convergence_s"] / SECONDS_PER_DAY),
    )


def _stalled_s(failure: Failure, values: Mapping[str, float]) -> float:
    """Seconds a day for which failures of a kind stall a job over switches that balance."""
    if failure.interrupts == 0:  # between switches: what takes a NIC's port may be its last
        longer = values["exposed_share"] * _missing(values["balance_share"])
        return failure.per_day * values["convergence_s"] * _share(longer)
    return failure.per_day * (1 - failure.interrupts) * values["balance_port_s"]


def _share(longer: float) -> float:
    """What a relative extension of time is of the extended time."""
    return longer / (1 + longer)


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
