"""Balls into bins: the exact cost of hashing flows onto paths.

`flows` flows are placed independently and uniformly on `paths` paths, each as fast as a NIC. The
loads are multinomial:

    P(most loaded <= m) = flows! / paths^flows * [x^flows] (sum_{j<=m} x^j/j!)^paths

computed as a product of truncated Poisson distributions conditioned on their sum, by one Fourier
transform: exact except for rounding, whose error is under 1e-9.

**A ring across T0s.** Every NIC of a T0 sends to a NIC of the next T0, in `qps` equal parts, each
hashed onto one of the uplinks. The parts that meet on an uplink meet again on the one path down to
the next T0, and nowhere else, so one draw for each T0 decides everything: a part on an uplink with
L parts gets 1/L of it, and the slowest takes max(1, L/qps) times as long as alone. In three tiers
there are more places to meet: there the figures are bounds, and hashing does worse.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError

FloatArray = npt.NDArray[np.float64]

# Transforms of 2^24 numbers take a second; larger ones show nothing new about hashing.
FLOWS_MAX, PATHS_MAX = 1_000_000, 65_536
# Smaller probabilities are left out: the rounding of a transform is not far below.
NEGLIGIBLE = 1e-12


class Slowest(NamedTuple):
    """The slowest part of a ring across T0s."""

    time: float  # mean of its time, relative to a NIC alone
    share: float  # mean of its fraction of a NIC's rate
    used: float  # mean fraction of the usable uplinks that carry anything


def busy_paths(flows: int, paths: int) -> float:
    """Return the mean number of paths that carry any flow: n (1 - (1 - 1/n)^k)."""
    _check(flows, paths)
    return paths * -math.expm1(flows * math.log1p(-1 / paths)) if paths > 1 else 1.0


def used_share(flows: int, paths: int) -> float:
    """Return the mean fraction of bandwidth that hashed flows get together, each wanting one path.

    Relative to what they would have without collisions: busy paths over min(flows, paths).
    """
    return busy_paths(flows, paths) / min(flows, paths)


@lru_cache(maxsize=256)
def _cumulative(flows: int, paths: int) -> tuple[int, tuple[float, ...]]:
    """Return the least possible maximum, and P(most loaded <= m) from there upwards."""
    _check(flows, paths)
    least = -(-flows // paths)
    sums = [_at_most(flows, paths, m) for m in range(least, _largest_load(flows, paths))]
    return least, (*sums, 1.0)


def _largest_load(flows: int, paths: int) -> int:
    """Return a load that some path exceeds with a probability under `NEGLIGIBLE`: Chernoff's bound
    on one path, times the paths.
    """
    mean = flows / paths
    enough = math.log(paths) - mean - math.log(NEGLIGIBLE)
    m = -(-flows // paths) + 1
    while m < flows and m * (math.log(m / mean) - 1) < enough:
        m += 1
    return min(m, flows)


def most_loaded(flows: int, paths: int, throws: int = 1) -> dict[int, float]:
    """Return P(the most loaded path carries m flows) by m, the largest of `throws` throws.

    Values of m whose probability is under `NEGLIGIBLE` are left out.
    """
    if throws < 1:
        raise InputError(f"throws: {throws}: 1 or more is accepted")
    least, sums = _cumulative(flows, paths)
    steps = np.diff(np.asarray(sums) ** throws, prepend=0.0)
    return {least + i: float(p) for i, p in enumerate(steps) if p > NEGLIGIBLE}


def slowest_of_ring(nics_per_t0: int, uplinks: int, qps: int, t0s: int) -> Slowest:
    """Return the slowest part of a ring across `t0s` T0s, every NIC with `qps` hashed parts."""
    for name, value in (("nics_per_t0", nics_per_t0), ("qps", qps), ("t0s", t0s)):
        if value < 1:
            raise InputError(f"{name}: {value}: 1 or more is accepted")
    flows = nics_per_t0 * qps
    loads = most_loaded(flows, uplinks, t0s)
    return Slowest(
        time=sum(max(1.0, m / qps) * p for m, p in loads.items()),
        share=sum(min(1.0, qps / m) * p for m, p in loads.items()),
        used=used_share(flows, uplinks),
    )


def _at_most(flows: int, paths: int, m: int) -> float:
    """Return P(no path carries more than `m`)."""
    mean = flows / paths
    load = _poisson(mean, m)
    # The product of all paths' polynomials has this many terms; with less room they would wrap.
    terms = m * paths + 1
    transform = np.fft.rfft(load, 1 << (terms - 1).bit_length())
    together = np.fft.irfft(transform**paths)[flows]
    all_sums = math.exp(flows * math.log(flows) - flows - math.lgamma(flows + 1))
    return float(min(1.0, max(0.0, together / all_sums)))


def _poisson(mean: float, m: int) -> FloatArray:
    """Return the Poisson probabilities of 0 to `m`."""
    logs: FloatArray = np.arange(m + 1, dtype=np.float64) * math.log(mean) - mean
    logs[1:] -= np.cumsum(np.log(np.arange(1, m + 1)))
    probabilities: FloatArray = np.exp(logs)
    return probabilities


def _check(flows: int, paths: int) -> None:
    for name, value, most in (("flows", flows, FLOWS_MAX), ("paths", paths, PATHS_MAX)):
        if not 1 <= value <= most:
            raise InputError(f"{name}: {value}: 1 to {most:,} is accepted")
