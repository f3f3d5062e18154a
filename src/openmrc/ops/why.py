"""Why a run was slow, or died: places that lost packets, from what its senders know, as text.

Faults come at different times, so each bin of time is analysed by itself, all of them together, and
parts of the run in between. A dead place shows in a bin, one that loses a little only in many. A
place is reported once, and not at all if other reported ones explain most of its losses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.fabric import places
from openmrc.fabric.model import Fabric
from openmrc.ops import causes, doubts, downs, oneway, together
from openmrc.ops.balance import Missing
from openmrc.ops.columns import number
from openmrc.ops.hung import with_hangs
from openmrc.ops.localise import Rules, Verdict, localise
from openmrc.ops.records import JUDGED_US, Record
from openmrc.ops.together import Finding
from openmrc.say import counted
from openmrc.units import US, fmt_time

if TYPE_CHECKING:
    import polars as pl

# A run has some thousand links and a few dozen bins: a probability of 10^-9 each is enough.
RULES = Rules(alarm=20.0, margin=5.0)
DEAD_PART = 0.9  # of what a dead place should have carried: some of it is judged lost later
GONE_RATE = 0.3  # minimum loss rate, of all bins or of all but the first, if no path returned
MOST = 0.9  # of a place's paths: they were set aside before any returned
PROBES_MIN = 40  # a place that lets a tenth through answers one of them, but for a chance of 1.5 %
UNUSED_PART = 0.5  # of losses that were probes of paths that carried no more data
BINS_MAX = 64  # analysed one by one
PARTS_MAX = 128  # of several bins
MANY = 8  # paths: from this many on, the first may be an outlier
FEW_BEFORE = 0.02  # of a place's paths, or losses: those had another cause
OTHERS_MAX = 3  # of "one of these" in a sentence
TOLD_MAX = 4  # places in the paragraph; --json has all
LATE = 1.02  # a step that takes longer than this multiple of the median is late


@dataclass(frozen=True)
class Answer:
    """The answer about one transport."""

    transport: str
    knows: bool  # whether its senders keep track of paths
    findings: tuple[Finding, ...]
    text: str

    def as_json(self) -> dict[str, Any]:
        """Return the object that `mrc why --json` prints."""
        return {
            "transport": self.transport,
            "paths_known": self.knows,
            "nothing_broke": self.knows and not self.findings,
            "findings": [asdict(finding) for finding in self.findings],
            "text": self.text,
        }


class Window(NamedTuple):
    """What is asked for: times in us of the run, and queue pairs, all if that is None."""

    from_us: float
    until_us: float
    qps: set[int] | None


Finder = Callable[[Record, Record, Window], Sequence[Finding]]


def why(
    record: Record,
    job: str | None = None,
    step: int | None = None,
    since_us: float = 0.0,
    find: Finder | None = None,
) -> Answer:
    """Return why a run was slow: as a whole, from a time on, in a step, or for a job.

    `find` determines the places that broke, from the record and from the record with only those
    losses that are asked for.

    Raises `InputError` for a job or step that does not exist.
    """
    from_us, until_us = _window(record, step, since_us)
    flows = _flows_of(record, job)
    opening = _opening(record, flows, job, step)
    if record.events is None:
        return Answer(record.name, False, (), f"{opening} {_unknown(record)}")
    rows = _during(record.paths, "first_us", "last_us", from_us, until_us)
    qps = None if job is None else set(flows["qp"].to_list())
    seen = replace(record, paths=rows)
    found = (find or _by_rules)(record, seen, Window(from_us, until_us, qps))
    findings = tuple(sorted(found, key=_harm))
    return Answer(
        record.name, True, findings, f"{opening} {_words(record, seen, findings, job, flows)}"
    )


def _by_rules(record: Record, seen: Record, window: Window) -> Sequence[Finding]:
    from_us, until_us, qps = window
    down = [
        one for one in downs.spans(record) if from_us <= one.until_us and one.since_us <= until_us
    ]
    told = downs.findings(seen, down)
    known = downs.explained(seen, down)
    seen = replace(seen, paths=seen.paths.filter(~known))
    told += (_told(seen, one, qps) for one in _verdicts(seen))
    # Where switches hash, places of which one lost packets are all that the packets may cross:
    # that several have some of them in common means nothing.
    alone = [it for it in told if record.outline is not None and it.one_of]
    joined = together.joined(record.fabric, (it for it in told if it not in alone))
    joined = oneway.narrowed(seen, joined)
    places_ = doubts.without_drops(record, [*joined, *alone])
    hung = [it for it in record.hung if from_us <= it.until_us and it.since_us <= until_us]
    places_ = with_hangs(record.fabric, places_, hung, JUDGED_US)
    return doubts.without_echoes(record, places_)


# --- where


class _Blamed(NamedTuple):
    """A verdict, and the rows of paths that it concerns."""

    verdict: Verdict
    mine: npt.NDArray[np.bool_]  # [rows]
    beyond: npt.NDArray[np.bool_]  # [rows] those of them that lost more than full queues dropped
    counted: bool  # about as many packets are missing at switches there, or arrived damaged


def _ranked(record: Record, span: list[float]) -> list[tuple[Verdict, list[float], float]]:
    """What is blamed in a span, and by how many nats: of links of one switch that are named beside
    each other by those of all of them, since in another span the switch may be blamed for them.
    Where switches hash a link stands for all those to the next tier.
    """
    verdicts = localise(record.known, record.evidence(span), RULES)
    if record.outline is not None:
        return [(it, span, it.nats) for it in verdicts]
    at_switch: dict[int, float] = defaultdict(float)
    for it in verdicts:
        for switch in _switches_of(record.known, it):
            at_switch[switch] += it.nats
    return [
        (it, span, max([it.nats, *(at_switch[each] for each in _switches_of(record.known, it))]))
        for it in verdicts
    ]


def _switches_of(fabric: Fabric, verdict: Verdict) -> list[int]:
    """The switches at the ends of a link; none for another place, or one of several."""
    if verdict.kind != causes.LINK or not verdict.is_sure:
        return []
    ends = (fabric.port_switch[verdict.cause], fabric.port_peer_switch[verdict.cause])
    return [int(switch) for switch in ends if switch >= 0]


def _verdicts(record: Record) -> list[_Blamed]:
    """What is blamed for losses, each for other ones."""
    import polars as pl

    bins = record.bins()
    if not bins:
        return []
    fabric = record.known
    whole = [begin for begin in record.every_bin() if bins[0] <= begin <= bins[-1]]
    spans = [whole]
    if len(bins) > 1:
        spans += [[begin] for begin in bins[:: -(-len(bins) // BINS_MAX)]]
        spans += [part for part in _parts(whole) if not set(bins).isdisjoint(part)]
    found = [each for span in spans for each in _ranked(record, span)]
    routes = record.routes(record.paths)
    crossed = causes.of_routes(fabric, routes)
    lost = record.paths["lost"].to_numpy()
    data = np.minimum(lost, record.paths["sent"].to_numpy())
    taken = np.zeros(len(lost), np.bool_)
    missing, damaged = record.missing, record.damaged
    told: list[_Blamed] = []
    found.sort(key=lambda each: (not each[0].is_sure, -each[2]))
    whole_switches = _whole_switches(record, [each for each, *_ in found], crossed)
    found = [(_instead(fabric, it, whole_switches), span, nats) for it, span, nats in found]
    for verdict, span, _ in found:
        mine = (crossed == verdict.cause).any(axis=0)
        if 2 * lost[mine & ~taken].sum() <= lost[mine].sum():
            continue
        if record.missing is not None and missing is not None:
            either = missing if not verdict.is_sure else record.missing
            decided = _decided(record, verdict, mine, either)
            if decided is None:
                continue
            verdict, mine = decided, (crossed == decided.cause).any(axis=0)
        if verdict not in whole_switches.values() and doubts.is_one_event(
            record, verdict, span, mine, RULES
        ):
            continue
        left = mine & ~taken
        beyond = left if record.trims else doubts.beyond_drops(record, verdict, span, left, RULES)
        if not beyond.any():
            if verdict.nats < doubts.DROPS_NATS:
                continue
            within = _within(record, [each for one, each, _ in found if one.cause == verdict.cause])
            left = doubts.without_drops_around(record, verdict.cause, left, within)
        rows = beyond if beyond.any() else left
        of_rows, lost_there = routes[rows], data[rows]
        n_lost, sure = int(lost_there.sum()), verdict.is_sure
        gone = sure and missing is not None and missing.accuses(verdict.cause, n_lost)
        hurt = sure and damaged is not None and damaged.accuses(of_rows, lost_there)
        if not gone and not hurt and doubts.is_late(record, verdict.cause, mine):
            continue
        if missing is not None and gone:
            missing = missing.without(verdict.cause, n_lost)
        elif damaged is not None and hurt:
            mine_rows = record.paths.filter(pl.Series(rows))
            during = _while_damaged(record, damaged.span_us(of_rows, mine_rows))
            left, beyond = left & during, beyond & during
            if not left.any():  # counters that contradict each other
                continue
            damaged = damaged.without(of_rows, lost_there)
        told.append(_Blamed(verdict, left, beyond, bool(gone or hurt)))
        taken |= mine
    return told


def _whole_switches(
    record: Record, verdicts: Sequence[Verdict], crossed: npt.NDArray[np.integer[Any]]
) -> dict[int, Verdict]:
    """Switches of which several links are blamed, into them and out of them, although the switch
    lost the packets, as counts show: it is blamed instead. Where full queues drop, the losses of
    some of its links are hidden, and then that of a few explains what is left.
    """
    if record.missing is None or record.trims:
        return {}
    fabric, lost = record.known, record.undropped(record.paths)
    by_switch: dict[int, dict[int, Verdict]] = defaultdict(dict)
    for it in sorted(verdicts, key=lambda each: each.nats):
        for switch in _switches_of(fabric, it):
            by_switch[switch][it.cause] = it
    found = {}
    for switch, links in by_switch.items():
        sends = {int(fabric.port_switch[port]) == switch for port in links}
        there = np.isin(crossed, list(links)).any(axis=0)
        if len(sends) == 2 and record.missing.is_between(links, switch, int(lost[there].sum())):
            cause, nats = fabric.n_ports + switch, sum(it.nats for it in links.values())
            kind, where = causes.kind(fabric, cause), causes.name(fabric, cause)
            surest = max(links.values(), key=lambda each: each.nats)
            found[switch] = replace(surest, cause=cause, kind=kind, where=where, nats=nats)
    return found


def _instead(fabric: Fabric, verdict: Verdict, whole_switches: dict[int, Verdict]) -> Verdict:
    """A verdict, or the switch that is blamed instead of its link."""
    switches = [it for it in _switches_of(fabric, verdict) if it in whole_switches]
    return whole_switches[switches[0]] if switches else verdict


def _within(record: Record, spans: list[list[float]]) -> npt.NDArray[np.bool_]:
    """[rows] Which paths lost packets between the first and the last bin among these spans that is
    a span by itself, or else in the shortest span.
    """
    bins = [span[0] for span in spans if len(span) == 1] or min(spans, key=len)
    return np.asarray(record.paths["from_us"].is_between(min(bins), max(bins)), np.bool_)


def _while_damaged(record: Record, span_us: tuple[float, float] | None) -> npt.NDArray[np.bool_]:
    """[rows] Which paths lost packets while damaged ones arrived, or were judged so later."""
    if span_us is None:
        return np.ones(len(record.paths), np.bool_)
    from_us, first_us = (record.paths[name].to_numpy() for name in ("from_us", "first_us"))
    return np.asarray((from_us >= span_us[0]) & (first_us <= span_us[1] + JUDGED_US), np.bool_)


def _decided(
    record: Record, verdict: Verdict, mine: npt.NDArray[np.bool_], missing: Missing
) -> Verdict | None:
    """The verdict, on those of its places that may be it by what is missing at switches; None if
    they miss too little for any of them. What was damaged is missing nowhere.
    """
    import polars as pl

    fabric, rows = record.known, record.paths.filter(pl.Series(mine))
    lost = rows["lost"].to_numpy() if record.trims else record.undropped(rows)
    data = int(np.minimum(lost, rows["sent"].to_numpy()).sum())
    damaged = 0 if record.damaged is None else record.damaged.behind(record.routes(rows))
    candidates = (verdict.cause, *verdict.one_of)
    if data <= damaged:
        return verdict
    singly = not verdict.is_sure and doubts.lost_one_by_one(record, verdict.cause, rows)
    left = [it for it in candidates if not missing.clears(it, data - damaged, singly)]
    if not left:
        return None
    if singly and not damaged:
        known = missing.one_of(left, data, int(rows["lost"].sum()))
        left = left if known is None else [known]
    cause, *others = left
    kind, where = causes.kind(fabric, cause), causes.name(fabric, cause)
    return replace(verdict, cause=cause, kind=kind, where=where, one_of=tuple(others))


def _parts(whole: list[float]) -> list[list[float]]:
    """Parts of the run of 2, 4, 8 ... bins, each half over the next: what loses a little for a part
    of the run loses too little in a bin, and no more than chance in the whole run.
    """
    sizes = [2**i for i in range(1, len(whole).bit_length()) if 2**i < len(whole)]
    parts = [
        whole[start : start + size]
        for size in sizes
        for start in range(0, len(whole) - size // 2, size // 2)
    ]
    return parts[:: -(-len(parts) // PARTS_MAX) or 1]


def _told(record: Record, blamed: _Blamed, qps: set[int] | None) -> Finding:
    import polars as pl

    verdict, mine, beyond, counted = blamed
    cause = verdict.cause
    every = record.paths.filter(pl.Series(mine))
    rows = record.paths.filter(pl.Series(beyond)) if beyond.any() else every
    rows = doubts.without_stragglers(record, cause, rows, RULES.margin)
    lost = int(rows["lost"].sum())
    rate = record.rate(cause, rows)
    keys, events = _events_of(record, rows, qps)
    aside, back = _aside_and_back(events)
    paths, returned = (one.select("qp", "ev").n_unique() for one in (aside, back))
    over = _reopened(aside, back)
    dead = _was_dead(record, cause, rows, events)
    if not dead and len(rows) < len(every):
        every = doubts.without_stragglers(record, cause, every, RULES.margin)
        dead = _was_dead(record, cause, every, _events_of(record, every, qps)[1])
    began = _first_loss(record, cause, rows)
    first, last = began, _last_loss(rows, over if dead else None)
    if dead and len(aside) and qps is None:
        first = _began(events, aside)
        if first > last:  # paths across it were in use again
            dead, first, last = False, began, _last_loss(rows, None)
    is_link = verdict.kind == causes.LINK
    ends = causes.ends(record.known, cause) if is_link else ()
    where, *others = (name for one in (cause, *verdict.one_of) for name in record.names(one))
    return Finding(
        where=where,
        kind=verdict.kind,
        one_of=tuple(others),
        ends=tuple(f"{end.device} port {end.port}" for end in ends),
        dead=dead,
        rate=rate,
        lost=lost,
        since_us=first,
        until_us=last,
        paths=paths,
        queue_pairs=keys["qp"].n_unique(),
        back=returned,
        back_us=number(back["t_us"].max()) if len(back) else None,
        nats=round(verdict.nats, 1),
        aside_us=round(_aside_us(record, events), 3),
        beyond_drops=bool(beyond.any()),
        counted=counted,
        links=_of_nic(record, cause, rows) if verdict.kind == causes.NIC else (),
        unanswered=_never_used(record, rows),
        narrow_bytes=_narrow_bytes(rows),
        earliest_us=_earliest_us(record, cause, rate, first) if is_link else None,
    )


def _narrow_bytes(rows: pl.DataFrame) -> int:
    """The payload of the smallest packets that these paths lose while they pass smaller ones; 0 if
    not most of them do.
    """
    import polars as pl

    paths = rows.group_by("qp", "ev").agg(pl.col("narrow_bytes").max())["narrow_bytes"]
    narrow = paths.filter(paths > 0)
    return int(number(narrow.min())) if 2 * len(narrow) > len(paths) else 0


def _earliest_us(record: Record, cause: int, rate: float, since_us: float) -> float:
    """From when on a link may have lost this part of its packets, although its first loss came at
    `since_us`: so few crossed it before that none is lost by chance.
    """
    import polars as pl

    before = record.links.filter((pl.col("port") == cause) & (pl.col("from_us") < since_us))
    left, at_us = together.GAPS, since_us
    for begin, end, packets in (
        before.sort("from_us", descending=True).select("from_us", "until_us", "packets").rows()
    ):
        until_us = min(end, since_us)
        expected = rate * packets * (until_us - begin) / (end - begin)
        if expected > left:
            return float(until_us - (until_us - begin) * left / expected)
        left, at_us = left - expected, begin
    return float(at_us)


def _of_nic(record: Record, cause: int, rows: pl.DataFrame) -> tuple[str, ...]:
    """The directed links of a NIC that these paths cross."""
    crossed = np.intersect1d(record.routes(rows), causes.links_of(record.known, cause))
    return tuple(causes.name(record.known, port) for port in crossed.tolist())


def _events_of(
    record: Record, rows: pl.DataFrame, qps: set[int] | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The paths of these rows (None: of all queue pairs), and their events."""
    import polars as pl

    assert record.events is not None
    keys = rows.select("qp", "ev").unique()
    if qps is not None:
        keys = keys.filter(pl.col("qp").is_in(sorted(qps)))
    return keys, record.events.join(keys, on=["qp", "ev"], how="semi")


def _aside_and_back(events: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    import polars as pl

    aside = events.filter(pl.col("event").is_in(["set aside", "plane silent"]))
    return aside, events.filter(pl.col("event") == "back")


def _was_dead(record: Record, cause: int, rows: pl.DataFrame, events: pl.DataFrame) -> bool:
    """Whether a place let nothing through, from these rows of paths and their events."""
    import polars as pl

    aside, back = _aside_and_back(events)
    paths, returned = (one.select("qp", "ev").n_unique() for one in (aside, back))
    stay = paths >= MANY and returned <= FEW_BEFORE * paths
    rate = max(record.rate(cause, rows), _rate_later(record, cause, rows)) if stay else 0.0
    if rate >= GONE_RATE or _is_dead(record, cause, rows):
        return True
    events = events.filter(pl.col("t_us") >= rows["first_us"].min())
    aside, back = _aside_and_back(events)
    over = _reopened(aside.filter(pl.col("t_us") <= rows["last_us"].max()), back)
    if over is None or paths < MANY:
        return False
    until_then = rows.filter(pl.col("first_us") <= over)
    return _is_dead(record, cause, until_then, GONE_RATE) or _answered_none(rows, events, over)


def _never_used(record: Record, rows: pl.DataFrame) -> int:
    """How many of the paths of these rows never carried data: queue pairs that check their paths
    use none that has answered no probe.
    """
    import polars as pl

    assert record.events is not None
    unused = rows.group_by("qp", "ev").agg(pl.col("sent").sum()).filter(pl.col("sent") == 0)
    return len(unused.join(record.events, on=["qp", "ev"], how="anti"))


def _rate_later(record: Record, cause: int, rows: pl.DataFrame) -> float:
    """The loss rate from the bin after the one in which a place began to lose, which many packets
    may have passed before; 0 if it lost too few later.
    """
    import polars as pl

    later = rows.filter(pl.col("from_us") > _first_of_most(rows))
    return record.rate(cause, later) if later["lost"].sum() >= PROBES_MIN else 0.0


def _is_dead(record: Record, cause: int, rows: pl.DataFrame, part: float = DEAD_PART) -> bool:
    """Whether a place let nothing through: at least this part is known to be lost. In the bins in
    which it failed and was repaired packets passed as well, so only those in between count; if
    there are none, the losses of paths that carried no more data.
    """
    import polars as pl

    by_time, total = rows.sort("from_us"), int(rows["lost"].sum())
    upto = by_time["lost"].cum_sum()
    most = by_time.filter(
        (upto > FEW_BEFORE * total) & (upto - by_time["lost"] < (1 - FEW_BEFORE) * total)
    )
    inner = record.bins_of(most)[1:]
    inner = inner[:-1] if len(inner) > 1 else inner
    passed = [int(record.evidence([begin]).crossed[cause]) for begin in inner]
    lost = [int(rows.filter(pl.col("from_us") == begin)["lost"].sum()) for begin in inner]
    if sum(passed):
        return sum(lost) >= part * sum(passed)
    unused = rows.filter(pl.col("lost") > pl.col("sent"))["lost"].sum()
    return bool(unused >= UNUSED_PART * total)


def _answered_none(rows: pl.DataFrame, events: pl.DataFrame, over: float) -> bool:
    """Whether a place answered hardly any of many probes until paths returned to it. A fault that
    is shorter than a bin shows in nothing else: packets passed before and after it, in that bin.
    """
    import polars as pl

    known = rows.filter(pl.col("last_us") <= over)
    before = events.filter(pl.col("t_us") < over)
    answered = int((before["event"] == "back").sum())
    # Each path that was set aside because of a loss lost one packet; its other losses are probes.
    aside = before.filter(pl.col("event") == "set aside").join(known, on=["qp", "ev"], how="semi")
    unanswered = int(known["lost"].sum()) - len(aside)
    return unanswered >= max(PROBES_MIN, DEAD_PART * (unanswered + answered))


def _reopened(aside: pl.DataFrame, back: pl.DataFrame) -> float | None:
    """When paths of a place returned for good, if most were set aside before any did: if a part of
    the packets passes, some are back while others are set aside.
    """
    import polars as pl

    again = aside.group_by("qp", "ev").agg(again_us=pl.col("t_us").max())
    known = back.join(again, on=["qp", "ev"], how="left")
    back = known.filter(pl.col("again_us").is_null() | (pl.col("again_us") <= pl.col("t_us")))
    if not len(aside) or not len(back):
        return None
    over = _first(back)
    before = int((aside["t_us"] < over).sum())
    return over if before >= MOST * len(aside) else None


def _aside_us(record: Record, events: pl.DataFrame) -> float:
    """For how long paths were set aside, summed, us: each until it returned, or until the end."""
    total, since = 0.0, dict[tuple[int, int], float]()
    for qp, ev, at_us, event in events.sort("t_us").select("qp", "ev", "t_us", "event").rows():
        if event in ("set aside", "plane silent"):
            since.setdefault((qp, ev), at_us)
        elif event in ("back", "false alarm") and (qp, ev) in since:
            total += at_us - since.pop((qp, ev))
    return total + sum(max(record.end_us - at_us, 0.0) for at_us in since.values())


def _began(events: pl.DataFrame, aside: pl.DataFrame) -> float:
    """When paths began to be set aside because of a place. Those that returned while most others
    did not, or before most others were set aside, had another cause.
    """
    import polars as pl

    if aside.select("qp", "ev").n_unique() < MANY:
        return _first(aside)
    usual = number(aside["t_us"].median())
    over = events.filter(pl.col("event").is_in(["back", "false alarm"]))
    ends = over.group_by("qp", "ev").agg(
        over_us=pl.col("t_us").max(), before_us=pl.col("t_us").filter(pl.col("t_us") < usual).max()
    )
    known = aside.join(ends, on=["qp", "ev"], how="left")
    for end in ("over_us", "before_us"):
        left = known.filter(pl.col(end).is_null() | (pl.col(end) < pl.col("t_us")))
        if 2 * len(left) > len(aside):
            return _first(left)
    return _first(aside)


def _first_loss(record: Record, cause: int, rows: pl.DataFrame) -> float:
    """When a place lost its first packet; of many, without a few outliers before all others that
    may be chance.
    """
    import polars as pl

    most = _first_of_most(rows)
    before = rows.filter(pl.col("first_us") < most)
    if not len(before) or doubts.may_be_chance(record, cause, before, RULES.margin):
        return most
    return number(before["first_us"].min())


def _first_of_most(rows: pl.DataFrame) -> float:
    """When a place lost its first packet; of many, without a few outliers before all others."""
    by_time, total = rows.sort("first_us"), int(rows["lost"].sum())
    after = by_time["lost"].cum_sum() > FEW_BEFORE * total
    return float(by_time["first_us"].filter(after)[0])


def _last_loss(rows: pl.DataFrame, over: float | None) -> float:
    """When a place lost its last packet. Once paths have returned to a place that let nothing
    through, it is not what loses their late probes.
    """
    times = rows["last_us"]
    before = times if over is None else times.filter(times <= over)
    return number((before if len(before) else times).max())


def _first(events: pl.DataFrame) -> float:
    """When the first path was set aside, or returned; of many, without a few early outliers."""
    times = events["t_us"].sort()
    return float(times[int(FEW_BEFORE * len(times))])


# --- times, and jobs


def _window(record: Record, step: int | None, since_us: float) -> tuple[float, float]:
    import polars as pl

    if since_us > record.end_us:
        ended = f"{record.name} ended after {_time(record.end_us)}"
        raise InputError(f"--since {_time(since_us)}: {ended}; name an earlier time")
    if step is None:
        return since_us, float("inf")
    steps = record.steps
    if steps is None or not len(steps):
        raise InputError("--step: the run has no steps; only training has")
    if not 1 <= step <= len(steps):
        raise InputError(f"--step {step}: there are steps 1 to {len(steps)}")
    ends = [0.0, *steps.sort("step").with_columns(pl.col("end_us").fill_null(1e30))["end_us"]]
    return max(since_us, ends[step - 1]), ends[step]


def _during(
    rows: pl.DataFrame, first: str, last: str, from_us: float, until_us: float
) -> pl.DataFrame:
    import polars as pl

    return rows.filter((pl.col(last) >= from_us) & (pl.col(first) <= until_us))


def _flows_of(record: Record, job: str | None) -> pl.DataFrame:
    import polars as pl

    if job is None:
        return record.flows
    jobs = [name for name in record.flows["job"].unique().sort().to_list() if name is not None]
    if job not in jobs:
        there = ", ".join(jobs) if jobs else "none"
        raise InputError(f"--job {job}: is not there; the run's jobs: {there}")
    return record.flows.filter(pl.col("job") == job)


# --- text


def _opening(record: Record, flows: pl.DataFrame, job: str | None, step: int | None) -> str:
    """The sentence on what happened, before why."""
    if step is not None and record.steps is not None:
        return _of_step(record.steps, step)
    whole, failed = len(flows), int(flows["failed"].sum())
    open_ = int(flows["done_us"].is_null().sum()) - failed
    who = record.name if job is None else f"{job} ({record.name})"
    if failed or open_:
        parts = [f"{failed} failed"] * bool(failed) + [f"{open_} never ended"] * bool(open_)
        return f"{who}: of {whole:,} flows {' and '.join(parts)}."
    if not whole:
        return f"{who}: computations alone, no flows."
    took = number(flows["done_us"].max())
    took -= number(flows["start_us"].min()) if job is not None else 0.0
    said = f"{who} took {_time(took)}"
    slowdown = record.summary.get("slowdown_p100")
    if job is None and slowdown is not None:
        said += f", {slowdown:.2f} times as long as a perfect network would"
    return said + "."


def _of_step(steps: pl.DataFrame, step: int) -> str:
    took = steps["step_us"].to_list()[step - 1]
    if took is None:
        return f"Step {step} never ended."
    usual = number(steps["step_us"].median())
    if took <= LATE * usual:
        return f"Step {step} took {_time(took)}, as long as others."
    return f"Step {step} took {_time(took)}, {_time(took - usual)} longer than the median."


def _unknown(record: Record) -> str:
    again = record.summary["packets"]["retransmitted"]
    sent = f"{counted(again, 'packet was', 'packets were')} sent again."
    if narrow := record.summary.get("narrow_paths"):
        places = " ".join(f"Across {line}" for line in narrow)
        return f"{sent} {places} Of other losses senders keep no account here; probes could."
    return (
        f"{sent} Senders of this transport keep no account of paths, so endpoints cannot say where;"
        " probes could (mrc's own paths do)."
    )


def _words(
    record: Record,
    seen: Record,
    findings: Sequence[Finding],
    job: str | None,
    flows: pl.DataFrame,
) -> str:
    parts = [_sentence(record, finding) for finding in findings[:TOLD_MAX]]
    if len(findings) > TOLD_MAX:
        parts.append(_rest(findings[TOLD_MAX:]))
    if not findings:
        parts.append("Nothing broke" + _trifles(seen))
    congestion = _congestion(record, flows) if record.trims else _drops(seen)
    if congestion:
        parts.append(congestion)
    errors = len(record.summary["qp_errors"])
    if errors:
        parts.append(f"{errors} ends of queue pairs went to error.")
    elif findings:
        parts.append("No queue pair failed.")
    return " ".join(parts)


def _sentence(record: Record, it: Finding) -> str:
    """The sentence on one place's losses, and on the senders' reaction."""
    place = _spoken(record.fabric, it.where)
    if it.one_of:
        others = [_spoken(record.fabric, name) for name in it.one_of[:OTHERS_MAX]]
        more = f" or {len(it.one_of) - OTHERS_MAX} more" if len(it.one_of) > OTHERS_MAX else ""
        place = f"One of {place}, {', '.join(others)}{more}"
    span = f"from {_time(it.since_us)} to {_time(it.until_us)}"
    if it.times > 1:
        span = f"{it.times} times {span}"
    if it.downs:
        return _down(it, place, span)
    if it.counted and not it.paths and it.kind == causes.SWITCH:
        swallowed = f"{it.lost:,} packets went in and none came out, as ports counted"
        return f"{place[0].upper()}{place[1:]} let nothing through {span}: {swallowed}."
    if it.narrow_bytes:
        sizes = f"passes {record.probe_bytes} B and loses {it.narrow_bytes:,} B of data (MTU?)"
        what = f"{place} {sizes} from {_time(it.since_us)} on"
    elif it.dead:
        over = 2 * it.back > it.paths
        what = f"{place} let nothing through {span if over else span.partition(' to ')[0] + ' on'}"
    elif it.lost == 1:
        what = f"{place} lost one packet at {_time(it.since_us)}"
    else:
        what = f"{place} lost {_percent(it.rate)} of packets {span}"
    pairs = counted(it.queue_pairs, "queue pair")
    if not it.paths and it.unanswered:
        unused = f"{counted(it.unanswered, 'path')} of {pairs}"
        return f"{what[0].upper()}{what[1:]}: {unused} answered no probe and never carried data."
    if not it.paths:
        lost = counted(it.lost, "packet")
        return f"{what[0].upper()}{what[1:]}: {lost}, sent again on the same paths."
    paths = f"{counted(it.paths, 'path')} of {pairs}"
    were = "were" if it.paths != 1 else "was"
    ends = f" Its ends: {' and '.join(it.ends)}." if it.ends and not it.one_of else ""
    if it.narrow_bytes:  # a probe may have returned them for a while
        return f"{what[0].upper()}{what[1:]}; {paths} {were} set aside.{ends}"
    if it.back == 0:
        after = "none is back" if it.paths != 1 else "it is not back"
    elif it.back < it.paths:
        after = f"{it.back} of them are back, the last since {_time(it.back_us or 0)}"
    else:
        after = f"{'all are' if it.paths != 1 else 'it is'} back since {_time(it.back_us or 0)}"
    return f"{what[0].upper()}{what[1:]}; {paths} {were} set aside, and {after}.{ends}"


def _down(it: Finding, place: str, span: str) -> str:
    """The sentence on one place that its NICs saw go down."""
    often = f" {it.downs} times" if it.downs > 1 else ""
    when = span if it.back_us is not None else f"from {_time(it.since_us)} on"
    lost = counted(it.lost, "packet was", "packets were")
    ends = f" Its ends: {' and '.join(it.ends)}." if it.ends else ""
    said = f"{place[0].upper()}{place[1:]} was down{often} {when}, as its NICs saw"
    return f"{said}; {lost} lost.{ends}"


def _harm(it: Finding) -> tuple[bool, int, int]:
    """The sort key: what is certain first, then by paths set aside, then by losses."""
    return bool(it.one_of), -it.paths, -it.lost


def _rest(findings: Sequence[Finding]) -> str:
    sure = sum(not it.one_of for it in findings)
    lost = counted(sum(it.lost for it in findings), "packet or probe", "packets or probes")
    unsure = len(findings) - sure
    places_ = [f"{sure} more place{'s' * (sure != 1)}"] * bool(sure)
    places_ += [f"{unsure} that cannot be told from others"] * bool(unsure)
    return f"{' and '.join(places_).capitalize()} lost {lost} (--json)."


def _spoken(fabric: Fabric, where: str) -> str:
    """A place for people, the sender first: "plane 3 t0 5 to t1 2"; or places."""
    if ", " in where:
        return ", ".join(_spoken(fabric, each) for each in places.split(where))
    if " > " not in where and " < " not in where:
        return where
    if "*" in where:
        return _spoken_of_many(where)
    sender, receiver = causes.ends(fabric, int(places.links(fabric, where)[0]))
    far = receiver.device
    if sender.device.startswith("plane") and far.startswith("plane"):
        far = " ".join(far.split()[2:])
    return f"{sender.device} to {far}"


def _spoken_of_many(where: str) -> str:
    """The same of links with a star for one end: "plane 3 t1 * to t0 5"."""
    below, arrow, above = where.partition(" > ")
    if arrow:
        return f"{below} to {above}"
    below, _, above = where.partition(" < ")
    if below.startswith("nic"):
        return f"{above} to {below}"
    plane, lower = " ".join(below.split()[:2]), " ".join(below.split()[2:])
    return f"{plane} {above} to {lower}"


def _trifles(record: Record) -> str:
    """The sentences on events that are not damage."""
    import polars as pl

    assert record.events is not None
    kinds = record.events["event"]
    lost = int(record.paths["lost"].sum()) if len(record.paths) else 0
    late = int((kinds == "false alarm").sum())
    marked = int((kinds == "congested").sum())
    if lost == 0 and late == 0 and marked == 0:
        return ": no path lost a packet."
    parts = []
    if lost:
        aside = len(
            record.events.filter(pl.col("event") == "set aside").select("qp", "ev").unique()
        )
        parts.append(
            f"{lost} packet{'s' * (lost != 1)} on {max(aside, 1)} path{'s' * (aside > 1)} count as"
            f" lost, {'too few to blame a place' if record.trims else 'maybe to full queues'}"
        )
    if late:
        parts.append(f"{counted(late, 'packet')} came late and counted as lost")
    if marked:
        parts.append(f"{counted(marked, 'path was', 'paths were')} left for marks")
    return f": {'; '.join(parts)}."


def _congestion(record: Record, flows: pl.DataFrame) -> str:
    """The sentence on trims: those are full queues, not damage."""
    import polars as pl

    packets = record.summary["packets"]
    trimmed = packets["trimmed"]
    if not trimmed:
        return ""
    share = trimmed / max(packets["data"], 1)
    how_much = "nearly all" if share >= 0.995 else f"{_percent(share)} of all"
    said = f"{counted(trimmed, 'packet was', 'packets were')} trimmed, {how_much}"
    again = flows.group_by("dst").agg(pl.col("retransmitted").sum()).sort("retransmitted")
    if len(again):
        dst, most = (again[name].to_list()[-1] for name in ("dst", "retransmitted"))
        total = int(again["retransmitted"].sum())
        if total and most >= 0.5 * total:
            said += f", most of them for nic {dst}"
    return said + ": queues were full there, which is congestion and no damage."


def _drops(record: Record) -> str:
    """The sentence on losses where no trimmed packet tells senders of full queues."""
    import polars as pl

    if not len(record.paths):
        return ""
    by_port = record.links.group_by("port").agg(pl.col("dropped").sum()).sort("dropped", "port")
    dropped, most = int(by_port["dropped"].sum()), int(by_port["dropped"][-1])
    where, *others = record.names(int(by_port["port"][-1]))
    at = f", most of them at {_spoken(record.fabric, where)}"
    at *= 2 * most >= dropped and not others
    said = f"As switches counted, full queues dropped {dropped:,} packets{at}"
    return f"{said}: congestion and no damage." if dropped else ""


def _time(us: float) -> str:
    """A time to four significant figures."""
    ps = round(us * US)
    keep = 10 ** max(0, len(str(ps)) - 4)
    return fmt_time(round(ps / keep) * keep)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "all"
