"""Which link, switch or NIC loses packets: from the paths with losses to the places to blame.

The algorithm seeks the smallest explanation of everything, in rounds. Each cause is scored by how
much better it explains the losses than chance and the suspects of earlier rounds do; those that
explain most of what crosses them become suspects, all at once; then the loss rates of all suspects
are fitted together (`fit`), and suspects that are no longer needed are dropped. So the links of a
dead switch do not compete with it, and a switch that was only near three bad links is cleared when
they are found.

A place is named only under two conditions:

* **It is not chance.** Without the suspect, all observations would be less likely by `alarm` nats.
  A healthy place looks that bad in one window with a probability of at most e^-alarm, however many
  packets crossed it (Chernoff's bound): see `alarms`.
* **It is no other place.** No other place explains the same losses nearly as well (`margin` nats).
  Else the verdict is "one of these", and names no place.

Chance is the fabric's loss rate apart from all suspects, for packets of all paths: no less than
what the evidence says, and no more than the quietest quarter of the links may lose. It is learnt
together with the suspects, from above: as long as they explain little, chance explains much.

Places that the paths cannot distinguish, such as two links that only the same queue pair crosses,
stay "one of these" until there is more evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import BoolArray, Fabric, IntArray, LongArray
from openmrc.ops import causes, fit, weigh
from openmrc.ops.evidence import Evidence

FloatArray = npt.NDArray[np.float64]

ROUNDS_MAX = 12
SUSPICION_NATS = 6.0  # for a burst of probes: the value of one loss in a thousand
SUSPECT_NATS = 12.0  # for a closer analysis
DEVICE_NATS = -3.0  # a switch fails once for twenty failures of links
SUSPECTS_MAX = 512  # new ones in a round: each is compared with all others
WORSE = 0.1  # a cause that lost less than this fraction of a suspect's losses cannot replace it
EXPLAINED = 0.98  # of a row's losses: the row needs no further analysis
QUIET_PART = 0.25  # of the links; chance loses no more than they do
CHANCE_MAX = 1e-3
LEARNT = 0.05  # relative change of chance at which it counts as learnt
LESSONS = 40
ONE_LINK = 0.98  # of a device's losses: the link may as well be the cause
LINKS_AFTER = 3  # rounds in which a device is split into its links
PART_MAX = 0.5  # of what crosses a device: above this it fails as a whole
CABLE_MIN = 0.5  # of the losses of a device: less is not the cable alone
OVER_AFTER = 10.0  # losses that would have been expected since the last one
# A round analyses at most this many rows, evenly sampled: if there are more, their causes are
# plain. What they leave unexplained is analysed in the next round.
ROWS_MAX = 1 << 16
FEW_ROWS = 256
LOOKED_AT = 1024  # rows of a suspect, evenly sampled, to compare it with its rivals


class Rules(NamedTuple):
    """The thresholds for naming a place, in nats (a factor of e in likelihood)."""

    alarm: float = 35.0
    margin: float = 7.0
    learns_chance: bool = True  # probes are too few, and their loss rate by chance is known


@dataclass(frozen=True)
class Verdict:
    """A place that loses packets, or several of which one does."""

    cause: int
    kind: str  # "link" (a direction of one), "switch" or "nic"
    where: str  # as faults name places
    rate: float  # fraction of the packets that it lost while it was bad
    lost: int
    crossed: int  # packets that crossed it in the whole window
    since_ps: int
    until_ps: int | None  # None: still bad at the end
    nats: float  # how much less likely all observations are without it
    margin: float  # how much better it explains them than the next best place
    one_of: tuple[int, ...] = ()  # other causes that may be the right one

    @property
    def is_sure(self) -> bool:
        """Whether it is this place and no other."""
        return not self.one_of


def localise(fabric: Fabric, seen: Evidence, rules: Rules | None = None) -> list[Verdict]:
    """Return the places that lose packets, the surest first; none if nothing is broken."""
    rules = Rules() if rules is None else rules
    if not len(seen.lost):
        return []
    case = _Case(fabric, seen, rules.learns_chance)
    case.search()
    if case.exchange():  # a link explains most of what a device was suspected of: what is left?
        case.search()
    case.take_apart()
    case.suspect(case.suspects, rules.alarm)
    return sorted(case.verdicts(rules), key=lambda verdict: (-verdict.nats, verdict.cause))


def suspected(
    fabric: Fabric,
    seen: Evidence,
    found: Sequence[Verdict] = (),
    nats: float = SUSPICION_NATS,
    most: int = 256,
    rules: Rules | None = None,
) -> LongArray:
    """Return the directed ports that need a burst of probes: too little evidence to name them, too
    much to ignore; the worst first. Losses that the verdicts `found` explain raise no more
    suspicion; but a device that loses only a part may turn out to be some of its links.
    """
    if not len(seen.lost):
        return np.zeros(0, np.int64)
    case = _Case(fabric, seen, (Rules() if rules is None else rules).learns_chance)
    known = {
        verdict.cause
        for verdict in found
        if verdict.is_sure and (verdict.kind == causes.LINK or verdict.rate > PART_MAX)
    }
    if known:
        case.fit(np.array(sorted(known)))
    rows, left = case.unexplained(case.q)
    if not len(rows):
        return np.zeros(0, np.int64)
    view = case.view(rows)
    score = np.where(view.ids < fabric.n_ports, view.scores(left), 0.0)
    order = np.argsort(-score, kind="stable")[:most]
    return view.ids[order[score[order] > nats]]


@dataclass(frozen=True, eq=False)
class _View:
    """Some of the rows, with only the causes that they cross, renumbered."""

    rows: IntArray  # [width, rows] indices into `ids`; -1 for none
    lost: FloatArray
    background: FloatArray
    ids: LongArray
    crossed: FloatArray  # [ids]
    prior: FloatArray  # [ids]

    def sum(self, weights: FloatArray) -> FloatArray:
        """By cause, the sum of the weights of the rows that cross it."""
        total = np.zeros(len(self.ids))
        weigh.total(self.rows, weights, total)
        return total

    def nats(self, left: FloatArray, least: float = 0.0) -> FloatArray:
        """By cause, how well it explains what is `left` of each row's losses, if at least so many
        packets crossed it of which others do not explain the loss.
        """
        found = np.empty(len(self.ids))
        weigh.scores(
            self.rows, self.lost, left, self.background, self.crossed, least,
            np.zeros((3, len(found))), found,
        )  # fmt: skip
        return found

    def scores(self, left: FloatArray) -> FloatArray:
        """The same, and how likely each cause is by itself; 0 for those that explain nothing."""
        found = self.nats(left)
        return np.where(found > 0, found + self.prior, 0.0)

    def instead(self, q: FloatArray) -> FloatArray:
        """By cause, the gain if it had caused all losses of the packets that cross it, where so far
        each row loses `q`.
        """
        found = np.empty(len(self.ids))
        weigh.instead(
            self.rows, self.lost, q, self.crossed, WORSE, np.zeros((2, len(found))), found
        )
        return np.where(found > 0, found + self.prior, 0.0)

    def worst(self, score: FloatArray) -> LongArray:
        """The causes with the best score for most of the losses that cross them."""
        if score.max(initial=0) < SUSPECT_NATS:
            return np.zeros(0, np.int64)
        support, reach = work = np.zeros((2, len(score)))
        weigh.foremost(self.rows, self.lost, score, SUSPECT_NATS, work)
        enough = (score >= SUSPECT_NATS) & (support >= 0.5 * reach)
        enough[score.argmax()] = True
        found = np.flatnonzero(enough)
        if len(found) == 1:
            return self.ids[found]
        return self.ids[found[np.argsort(-score[found], kind="stable")[:SUSPECTS_MAX]]]


@dataclass(eq=False)
class _Case:
    """All observations, and the current suspects."""

    fabric: Fabric
    seen: Evidence
    learns_chance: bool = True
    suspects: LongArray = field(default_factory=lambda: np.zeros(0, np.int64))  # sorted
    p: FloatArray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        self.columns = causes.of_routes(self.fabric, self.seen.routes)
        self.lost = self.seen.lost.astype(np.float64)
        self.n_causes = len(self.seen.crossed)
        self.place = np.full(self.n_causes, -1, np.int32)  # a work array
        self.rows: list[LongArray] = []
        self.rivals: list[tuple[LongArray, FloatArray]] = []
        of_nics = self.fabric.port_nic >= 0  # each packet leaves one NIC
        self.packets = max(int(self.seen.crossed[: self.fabric.n_ports][of_nics].sum()), 1)
        self.background = self.seen.background
        self.chance_max = 0.0
        if self.learns_chance:
            self.chance_max = min(float(self.lost.sum()) / self.packets, self._usual())
        self.background = np.maximum(self.seen.background, self.chance_max)
        self.places = np.full((len(self.lost), 1), -1, np.int32)
        self.model = fit.Model(self.places, self.lost, self.background, np.zeros(0))
        self.q = self.background

    def _usual(self) -> float:
        """The upper limit of loss on the quietest quarter of the links: no fault is that wide."""
        crossed = self.seen.crossed[: self.fabric.n_ports]
        n_links = int((crossed > 0).sum())
        touched = np.zeros(self.fabric.n_ports + 1, np.bool_)
        for column in self.seen.routes.T:
            touched[column] = True
        n_quiet = int(((crossed > 0) & ~touched[:-1]).sum())
        if n_quiet >= QUIET_PART * n_links:
            return CHANCE_MAX
        view = self.view(np.arange(len(self.lost)))
        links = view.ids < self.fabric.n_ports
        lost = view.sum(self.lost)[links]
        # The upper confidence limit for few losses: 3 if there was none.
        shares = (lost + 2 * np.sqrt(lost) + 3) / np.maximum(view.crossed[links], 1)
        return min(float(np.sort(shares)[int(QUIET_PART * n_links) - n_quiet]), CHANCE_MAX)

    def _chance(self, base: fit.Model, p: FloatArray) -> float:
        """The loss rate apart from the suspects, the largest that is consistent with itself."""
        chance = self.chance_max
        for _ in range(LESSONS if chance > 0 else 0):
            background = np.maximum(base.background, chance)
            left = base.lost @ (background / fit.loss(base.pattern, p, background))
            new = min(float(left) / self.packets, self.chance_max)
            if new > (1 - LEARNT) * chance:
                break
            chance = new
        return chance

    def view(self, rows: LongArray) -> _View:
        """These rows, or as many of them as a round analyses."""
        step = -(-len(rows) // ROWS_MAX)
        part = np.ascontiguousarray(rows[::step]) if step > 1 else rows
        into = np.empty((len(self.columns), len(part)), np.int32)
        room = np.empty(min(into.size, self.n_causes), np.int64)
        ids = room[: weigh.renumber(self.columns, part, self.place, into, room)]
        scale = len(part) / max(len(rows), 1)
        crossed = np.maximum(self.seen.crossed[ids] * scale, 1.0)
        prior = np.where(ids < self.fabric.n_ports, 0.0, DEVICE_NATS)
        return _View(into, self.lost[part], self.background[part], ids, crossed, prior)

    def search(self) -> None:
        """Suspect what explains most of the losses until the suspects explain them."""
        for _ in range(ROUNDS_MAX):
            new = self._others(self.worst())
            if not len(new):
                return
            self.suspect(np.concatenate([self.suspects, new]), SUSPECT_NATS)

    def worst(self) -> LongArray:
        """Causes to suspect next: in addition to the suspects, and the alternatives to each of
        them.
        """
        found = [self._beside(self.q)]
        if len(self.suspects):
            every = np.arange(len(self.lost))
            view = self.view(every)
            score = view.instead(self.q[:: -(-len(every) // ROWS_MAX)])
            score[self._are_suspects(view.ids)] = 0
            found.append(view.worst(score))
        return np.unique(np.concatenate([np.zeros(0, np.int64), *found]))

    def _are_suspects(self, which: LongArray) -> BoolArray:
        """Which of these causes are suspects."""
        if not len(self.suspects):
            return np.zeros(len(which), np.bool_)
        at = np.searchsorted(self.suspects, which)
        found: BoolArray = self.suspects[np.minimum(at, len(self.suspects) - 1)] == which
        return found

    def _others(self, which: LongArray) -> LongArray:
        """Those of these causes that are no suspects."""
        return which[~self._are_suspects(which)]

    def unexplained(self, q: FloatArray) -> tuple[LongArray, FloatArray]:
        """The rows, where so far each loses `q`, of which chance would have to explain much; and
        for those of them that a view has, how many losses.
        """
        left = self.lost * self.background / q
        rows = np.flatnonzero(left > (1 - EXPLAINED) * self.lost)
        return rows, left[rows[:: max(1, -(-len(rows) // ROWS_MAX))]]

    def _beside(self, q: FloatArray, other_than: int = -1) -> LongArray:
        """The worst causes, where so far each row loses `q`."""
        rest, left = self.unexplained(q)
        if not len(rest):
            return np.zeros(0, np.int64)
        view = self.view(rest)
        score = view.scores(left)
        score[view.ids == other_than] = 0
        return view.worst(score)

    def take_apart(self) -> None:
        """Replace each device by those of its links that lose more, if that explains more: a device
        with a few bad links looks like one that is slightly bad, and one with a cut cable like one
        that is very bad.
        """
        for device in self.suspects[self.suspects >= self.fabric.n_ports].tolist():
            i = int(np.searchsorted(self.suspects, device))
            if i == len(self.suspects) or self.suspects[i] != device:
                continue
            before = (self.suspects, self._worth())
            instead = self._links_instead(i, device)
            if not len(instead):
                continue
            self.suspect(np.union1d(np.delete(self.suspects, i), instead), SUSPECT_NATS)
            for _ in range(LINKS_AFTER):  # causes hidden by the first of its links
                more = self._others(self._beside(self.q, device))
                if not len(more):
                    break
                self.suspect(np.union1d(self.suspects, more), SUSPECT_NATS)
            if self._worth() <= before[1]:
                self.fit(before[0])

    def _links_instead(self, i: int, device: int) -> LongArray:
        """The links that may have lost what a device is suspected of: of one that loses only a
        part, those that would be suspected without it; of another, the cable by which it lost most,
        if that is more than half.
        """
        if self.p[i] > PART_MAX:
            rows = np.flatnonzero((self.places == i).any(axis=1))
            cable, share = self._cable(i, rows)
            return np.array(cable if share > CABLE_MIN else [], np.int64)
        return self._beside(fit.loss(self.places, self.p, self.background, i), device)

    def _worth(self) -> float:
        """The likelihood of all observations, less the prior of each suspect."""
        return self.model.likelihood(self.p) - SUSPECT_NATS * len(self.suspects)

    def suspect(self, suspects: LongArray, nats: float) -> None:
        """Suspect these causes; drop, one by one, those without which the observations are less
        likely by fewer than `nats`.
        """
        suspects = np.sort(suspects)
        while True:
            if not np.array_equal(suspects, self.suspects):
                self.fit(suspects)
            needed = self._needed()
            out = np.flatnonzero(needed < nats)
            if not len(out):
                return
            # A suspect that is not needed is dropped if one remains that shares losses with it. Of
            # those that can replace each other only the least needed is dropped.
            near, stays = self.model.neighbours(out), needed >= nats
            go = [i for i in out.tolist() if stays[near[i]].any() or _is_least(needed, i, near[i])]
            suspects = np.delete(suspects, go)

    def fit(self, suspects: LongArray) -> None:
        """Suspect these causes, and no others."""
        self.suspects, self.rivals = suspects, []
        self.places = self._places(suspects)
        crossed = np.maximum(self.seen.crossed[suspects], 1).astype(np.float64)
        # Few rows are fitted sooner than merged.
        made = fit.Model if len(self.lost) <= FEW_ROWS else fit.model
        base = made(self.places, self.lost, self.seen.background, crossed)
        self.model, self.p = base, base.solve()
        chance = self._chance(base, self.p)
        if chance > base.background.min(initial=1.0):
            self.model = replace(base, background=np.maximum(base.background, chance))
            self.p = self.model.solve(start=self.p)
        self.background = np.maximum(self.seen.background, chance)
        self.q = fit.loss(self.places, self.p, self.background)

    def _needed(self) -> FloatArray:
        devices = self.suspects >= self.fabric.n_ports
        return self.model.needed(self.p) + np.where(devices, DEVICE_NATS, 0.0)

    def _places(self, suspects: LongArray) -> IntArray:
        """[rows, width] the suspects that each row crosses, -1 after the last."""
        n_ports = self.seen.routes.shape[1]
        first = 0 if len(suspects) and suspects[0] < self.fabric.n_ports else n_ports
        devices = len(suspects) and suspects[-1] >= self.fabric.n_ports
        last = len(self.columns) if devices else n_ports
        self.place[suspects] = np.arange(len(suspects))
        n = np.zeros((2, len(self.lost)), np.int32)
        width = weigh.suspects_met(self.columns, first, last, self.place, n[0])
        found = np.empty((len(self.lost), max(width, 1)), np.int32)
        weigh.meet(self.columns, first, last, self.place, n[1], found)
        self.place[suspects] = -1
        return found

    def exchange(self) -> bool:
        """Replace each suspect by a cause that explains its losses better; return whether there was
        one.
        """
        if not len(self.suspects):
            return False
        better = self.suspects.copy()
        self._weigh_rivals()
        for i, (rivals, ahead) in enumerate(self.rivals):
            if len(rivals) and ahead.min() < 0:
                better[i] = rivals[ahead.argmin()]
        if (better == self.suspects).all():
            return False
        self.suspect(np.unique(better), SUSPECT_NATS)
        return True

    def _rows_of_suspects(self) -> list[LongArray]:
        """The rows that each suspect is on."""
        flat = self.places.T.ravel()
        there = np.flatnonzero(flat >= 0)
        who = flat[there]
        # Two bytes are sorted by counting.
        few = len(self.suspects) <= np.iinfo(np.int16).max
        order = np.argsort(who.astype(np.int16) if few else who, kind="stable")
        ends = np.cumsum(np.bincount(who, minlength=len(self.suspects)))
        return np.split(there[order] % len(self.lost), ends[:-1])

    def _weigh_rivals(self) -> None:
        """For each suspect: its rows, the other causes that may explain their losses, and its lead
        over each.
        """
        self.rows = self._rows_of_suspects()
        self.rivals = [self._rivals_of(i, rows) for i, rows in enumerate(self.rows)]

    def _rivals_of(self, i: int, rows: LongArray) -> tuple[LongArray, FloatArray]:
        """The other causes that may explain the losses of suspect `i`, and its lead over each."""
        step = -(-len(rows) // LOOKED_AT)
        view = self.view(np.ascontiguousarray(rows[::step]))
        mine = rows[::step]
        innocent = fit.loss(self.places[mine], self.p, view.background, i)
        # One row in `step` was sampled, so this fraction of what crossed each cause.
        view = replace(view, crossed=self.seen.crossed[view.ids] / step)
        score = step * view.nats(view.lost * view.background / innocent, 1.0) + view.prior
        own = int(np.searchsorted(view.ids, self.suspects[i]))
        rivals = ~self._are_suspects(view.ids)
        return view.ids[rivals], score[own] - score[rivals]

    def verdicts(self, rules: Rules) -> list[Verdict]:
        """Return the verdict on each suspect."""
        if not len(self.suspects):
            return []
        if not self.rivals:
            self._weigh_rivals()
        found = []
        for i, (rows, (rivals, ahead)) in enumerate(zip(self.rows, self.rivals, strict=True)):
            blame = np.minimum(self.p[i] / self.q[rows], 1)
            mostly = blame > 0.5
            found.append(
                self._verdict(
                    i,
                    float(self.lost[rows] @ blame),
                    rows[mostly] if mostly.any() else rows,
                    float(ahead.min(initial=np.inf)),
                    (*rivals[ahead < rules.margin].tolist(), *self._only_link(i, rows)),
                )
            )
        return found

    def _only_link(self, i: int, rows: LongArray) -> list[int]:
        """Both directions of the one link that nearly all losses of a device crossed, if there is
        one: then nothing distinguishes the device from its cable.
        """
        if self.suspects[i] < self.fabric.n_ports:
            return []
        cable, share = self._cable(i, rows)
        return cable if share >= ONE_LINK else []

    def _cable(self, i: int, rows: LongArray) -> tuple[list[int], float]:
        """Both directions of the link by which most losses of a device came, and their share."""
        reverse = self.fabric.port_reverse
        own = np.zeros(self.fabric.n_ports + 1, np.bool_)
        own[causes.links_of(self.fabric, int(self.suspects[i]))] = True
        ports = self.columns[: self.seen.routes.shape[1], rows]
        links = np.where(own[ports], np.minimum(ports, reverse[ports]), -1)
        lost = self.lost[rows]
        by_link = np.zeros(self.fabric.n_ports)
        for hop, column in enumerate(links):  # a row counts once for a link, however often it is on
            once = (column >= 0) & ~(links[:hop] == column).any(axis=0)
            by_link += np.bincount(column[once], lost[once], len(by_link))
        link = int(by_link.argmax())
        return [link, int(reverse[link])], float(by_link[link] / lost.sum())

    def _verdict(
        self, i: int, lost: float, rows: LongArray, margin: float, one_of: Sequence[int]
    ) -> Verdict:
        seen, cause = self.seen, int(self.suspects[i])
        first, last = int(seen.first_ps[rows].min()), int(seen.last_ps[rows].max())
        window_ps = max(seen.until_ps - seen.from_ps, 1)
        # Between the first loss and the last there is one gap fewer than there are losses.
        bad_ps = min((last - first) * lost / max(lost - 1, 1), seen.until_ps - first)
        crossed = float(self.model.crossed[i])
        rate = min(1.0, lost / max(crossed * bad_ps / window_ps, lost))
        over = crossed * (seen.until_ps - last) / window_ps * rate > OVER_AFTER
        return Verdict(
            cause=cause,
            kind=causes.kind(self.fabric, cause),
            where=causes.name(self.fabric, cause),
            rate=rate,
            lost=round(lost),
            crossed=round(crossed),
            since_ps=first,
            until_ps=last if over else None,
            nats=self.model.without(i, self.p),
            margin=margin,
            one_of=tuple(one_of),
        )


def _is_least(needed: FloatArray, i: int, near: LongArray) -> bool:
    """Whether a suspect is needed less than those near it; of equal ones the last is."""
    rival = needed[near]
    return bool(((rival > needed[i]) | ((rival == needed[i]) & (near < i))).all())
