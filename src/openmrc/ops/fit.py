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

from openmrc.fabric.model import IntArray, LongArray
from openmrc.ops import blame, weigh
from openmrc.ops.weigh import CERTAIN

FloatArray = npt.NDArray[np.float64]

ROUNDS = 400  # iterations of expectation maximisation; a few are enough if causes do not overlap
SETTLED = 1e-6  # largest relative change of any probability in an iteration


@dataclass(frozen=True, eq=False)
class Model:
    """Suspects, the losses of packets that crossed them, and how many packets crossed each."""

    pattern: IntArray  # [rows, width] indices of suspects, -1 for none
    lost: FloatArray  # [rows]
    background: FloatArray  # [rows] `b`
    crossed: FloatArray  # [suspects]

    def solve(self, start: FloatArray | None = None) -> FloatArray:
        """Return the maximum-likelihood probabilities."""
        n = len(self.crossed)
        p = np.full(n, 1e-3) if start is None else start.copy()
        if not n or not (self.pattern >= 0).any():
            return np.zeros(n)
        blame.settle(
            self.pattern, np.arange(len(self.lost)), self.lost, self._through, self.crossed,
            np.ones(n, np.bool_), p, np.empty(n), np.empty(n), CERTAIN, SETTLED, ROUNDS,
        )  # fmt: skip
        return p

    def loss(self, p: FloatArray) -> FloatArray:
        """Return the probability `q` of each row."""
        return loss(self.pattern, p, self.background)

    @cached_property
    def _through(self) -> FloatArray:
        """[rows] The logarithm of the probability that chance lets a packet through."""
        found: FloatArray = np.log1p(-self.background)
        return found

    @cached_property
    def arrived(self) -> FloatArray:
        """[suspects] Packets that crossed each and were not lost."""
        total = np.zeros(len(self.crossed))
        weigh.total(np.ascontiguousarray(self.pattern.T), self.lost, total)
        return np.maximum(self.crossed - total, 0)

    def likelihood(self, p: FloatArray) -> float:
        """Return the log-likelihood in nats, up to a term that no suspect changes."""
        return float(self.lost @ np.log(self.loss(p)) + self.arrived @ np.log1p(-p))

    def without(self, suspect: int, p: FloatArray) -> float:
        """Return by how many nats the likelihood falls if this suspect is innocent and those that
        share losses with it explain them as well as they can.
        """
        return float(self.needed(p, suspect, suspect + 1)[0])

    def needed(self, p: FloatArray, first: int = 0, last: int | None = None) -> FloatArray:
        """Return the same for each of these suspects."""
        n = len(p)
        last = n if last is None else last
        nats = np.empty(last - first)
        blame.needed(
            self.pattern, self.lost, self._through, self.crossed, self.arrived, p, first, last,
            np.empty(n, np.bool_), np.empty(len(self.lost), np.int64), np.empty(n), np.empty(n),
            np.empty(n), CERTAIN, SETTLED, ROUNDS, nats,
        )  # fmt: skip
        return nats

    def neighbours(self, which: LongArray) -> dict[int, LongArray]:
        """Return for each of these suspects the others that share a row with it."""
        found = {}
        for i in which.tolist():
            near = np.zeros(len(self.crossed) + 1, np.bool_)
            near[self.pattern[(self.pattern == i).any(axis=1)]] = True
            near[-1] = near[i] = False
            found[i] = np.flatnonzero(near[:-1])
        return found


def loss(
    pattern: IntArray, p: FloatArray, background: FloatArray, innocent: int = -1
) -> FloatArray:
    """Return the probability of loss for a packet that crosses these suspects, [rows, width], if
    `innocent` causes none.
    """
    found = np.empty(len(pattern))
    weigh.loss(pattern, p, background, innocent, found)
    return found


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
    return np.ascontiguousarray(pattern[:, :width]), total, background[rows]


def evidence_against(lost: FloatArray, log_chance: FloatArray, crossed: FloatArray) -> FloatArray:
    """Return by how many nats a cause of its own explains losses better than chance does.

    Of `crossed` packets `lost` were lost, and `log_chance` is the sum of the logarithms of the
    probabilities that chance had for each of them; if chance has a single `b`, the result is
    crossed x KL(lost / crossed || b). 0 if no more was lost than by chance.
    """
    nats = np.empty(len(lost))
    weigh.against(lost, log_chance, crossed, nats)
    return nats
