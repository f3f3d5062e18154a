"""How well a set of causes explains the losses, and the loss rate of each cause that does so best.

A packet on a path is lost by chance, with probability `b`, or by one of the causes that it crosses,
each with its own probability and independently of the others:

    q = 1 - (1 - b) x product of (1 - p)

The likelihood of all observations needs only the rows of paths that lost something and the number
of packets that crossed each cause. Rows that cross the same suspects are one row here (`pattern`).
The maximum-likelihood probabilities are found by expectation maximisation: of a row's losses, each
suspect caused the share p / q.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import BoolArray, IntArray, LongArray
from openmrc.ops.blame import settle

FloatArray = npt.NDArray[np.float64]

ROUNDS = 400  # iterations of expectation maximisation; a few are enough if causes do not overlap
SETTLED = 1e-6  # largest relative change of any probability in an iteration
CERTAIN = 1 - 1e-9  # a cause that let nothing through might let the next one
LEAST = 1e-300  # the smallest argument of a logarithm


@dataclass(frozen=True, eq=False)
class Model:
    """Suspects, the losses of packets that crossed them, and how many packets crossed each."""

    pattern: IntArray  # [rows, width] indices of suspects, -1 for none
    lost: FloatArray  # [rows]
    background: FloatArray  # [rows] `b`
    crossed: FloatArray  # [suspects]

    def solve(self, free: BoolArray | None = None, start: FloatArray | None = None) -> FloatArray:
        """Return the maximum-likelihood probabilities. Those not `free` stay at `start`."""
        n = len(self.crossed)
        p = np.full(n, 1e-3) if start is None else start.copy()
        if not n or not (self.pattern >= 0).any():
            return np.zeros(n)
        settle(
            np.ascontiguousarray(self.pattern, np.int32), self.lost, np.log1p(-self.background),
            self.crossed, np.ones(n, np.bool_) if free is None else free, p, np.empty(n),
            np.empty(n), CERTAIN, SETTLED, ROUNDS,
        )  # fmt: skip
        return p

    def loss(self, p: FloatArray) -> FloatArray:
        """Return the probability `q` of each row."""
        return loss(self.pattern, p, self.background)

    @cached_property
    def arrived(self) -> FloatArray:
        """[suspects] Packets that crossed each and were not lost."""
        there = self.pattern >= 0
        lost = np.broadcast_to(self.lost[:, None], there.shape)[there]
        total = np.bincount(self.pattern[there], lost, len(self.crossed))
        return np.maximum(self.crossed - total, 0)

    def likelihood(self, p: FloatArray) -> float:
        """Return the log-likelihood in nats, up to a term that no suspect changes."""
        return float(self.lost @ np.log(self.loss(p)) + self.arrived @ np.log1p(-p))

    def without(self, suspect: int, p: FloatArray) -> float:
        """Return by how many nats the likelihood falls if this suspect is innocent and those that
        share losses with it explain them as well as they can.
        """
        rows = (self.pattern == suspect).any(axis=1)
        near = np.zeros(len(p) + 1, np.bool_)
        near[self.pattern[rows]] = True
        near[-1] = near[suspect] = False
        if near.any():
            rows |= (near[self.pattern] & (self.pattern >= 0)).any(axis=1)
        part = Model(self.pattern[rows], self.lost[rows], self.background[rows], self.crossed)
        innocent = p.copy()
        innocent[suspect] = 0
        if near.any():
            innocent = part.solve(near[:-1], innocent)
        near[suspect] = True
        others = np.flatnonzero(near[:-1])
        fewer = part.lost @ np.log(part.loss(p) / part.loss(innocent))
        more = self.arrived[others] @ (np.log1p(-p[others]) - np.log1p(-innocent[others]))
        return float(fewer + more)

    def neighbours(self, which: LongArray) -> dict[int, LongArray]:
        """Return for each of these suspects the others that share a row with it."""
        found = {}
        for i in which.tolist():
            near = np.zeros(len(self.crossed) + 1, np.bool_)
            near[self.pattern[(self.pattern == i).any(axis=1)]] = True
            near[-1] = near[i] = False
            found[i] = np.flatnonzero(near[:-1])
        return found


def loss(pattern: IntArray, p: FloatArray, background: FloatArray) -> FloatArray:
    """Return the probability of loss for a packet that crosses these suspects, [rows, width]."""
    through = np.log1p(-background)
    if len(p):
        log_through = np.append(np.log1p(-p), 0.0)  # the last for "none", -1
        for column in pattern.T:
            through = through + log_through[column]
    return -np.expm1(through)


def model(places: IntArray, lost: FloatArray, background: FloatArray, crossed: FloatArray) -> Model:
    """Return the model of suspects, given by their `places` in each row that lost something; rows
    that cross the same suspects are merged.
    """
    n = len(crossed)
    how_many = np.zeros(len(places), np.int8)
    for column in places.T:
        how_many += column >= 0
    several = how_many > 1
    if len(background) and (background == background[0]).all():  # mostly: count instead of sorting
        alone = np.full(len(places), -1, np.int32)
        for column in places.T:
            np.maximum(alone, column, out=alone)
        alone[several] = -1
        of_one = np.bincount(alone + 1, np.where(several, 0, lost), n + 1)
        pattern, total, chance = _merged(places[several], lost[several], background[several])
        first = np.full((n + 1, pattern.shape[1]), -1, np.int32)
        first[:, 0] = np.arange(-1, n)
        pattern, total = np.concatenate([first, pattern]), np.concatenate([of_one, total])
        chance = np.concatenate([np.full(n + 1, background[0]), chance])
        used = total > 0
        return Model(pattern[used], total[used], chance[used], crossed)
    return Model(*_merged(places, lost, background), crossed)


def _merged(
    places: IntArray, lost: FloatArray, background: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Merge rows that cross the same suspects and have the same background."""
    if not len(places):
        return np.full((0, 1), -1, np.int32), np.zeros(0), background
    # A random number for each suspect: the sum identifies the suspects of a row, in any order.
    drawn = np.random.default_rng(1).integers(1, 2**62, int(places.max(initial=0)) + 2)
    drawn[-1] = 0
    key = np.zeros(len(places), np.int64)
    for column in places.T:
        key += drawn[column]
    key ^= background.view(np.int64)
    _, rows, which = np.unique(key, return_index=True, return_inverse=True)
    pattern = -np.sort(-places[rows], axis=1)  # suspects first
    width = max(1, int((pattern >= 0).sum(axis=1).max(initial=1)))
    total = np.asarray(np.bincount(which, lost, len(rows)), np.float64)
    return pattern[:, :width], total, background[rows]


def evidence_against(lost: FloatArray, log_chance: FloatArray, crossed: FloatArray) -> FloatArray:
    """Return by how many nats a cause of its own explains losses better than chance does.

    Of `crossed` packets `lost` were lost, and `log_chance` is the sum of the logarithms of the
    probabilities that chance had for each of them; if chance has a single `b`, the result is
    crossed x KL(lost / crossed || b). 0 if no more was lost than by chance.
    """
    crossed = np.maximum(crossed, lost)
    share = np.maximum(lost, LEAST) / np.maximum(crossed, LEAST)
    chance = np.exp(log_chance / np.maximum(lost, LEAST))
    came = crossed - lost
    nats = lost * np.log(share) - log_chance
    nats += came * (np.log1p(-np.minimum(share, CERTAIN)) - np.log1p(-np.minimum(chance, CERTAIN)))
    return np.where((lost > 0) & (share > chance), nats, 0.0)
