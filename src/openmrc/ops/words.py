"""What `mrc why` says below its headline: what happened, where, and what is no damage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from openmrc.ops.columns import number
from openmrc.ops.finding import Finding, Window
from openmrc.ops.headline import FLAPS
from openmrc.ops.records import Record
from openmrc.say import counted
from openmrc.units import US, fmt_time

if TYPE_CHECKING:
    import polars as pl

SURE = 0.85  # an answer that is less probable says so
OTHERS_MAX = 3  # of "one of these" in a sentence
TOLD_MAX = 4  # places in the paragraph; --json has all
LATE = 1.02  # a step that takes longer than this multiple of the median is late


def opening(record: Record, flows: pl.DataFrame, job: str | None, step: int | None) -> str:
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
    said = f"{who} took {time(took)}"
    slowdown = record.summary.get("slowdown_p100")
    if job is None and slowdown is not None:
        said += f", {slowdown:.2f} times as long as a perfect network would"
    return f"{said}.{_late_steps(record.steps) if job is None else ''}"


def _of_step(steps: pl.DataFrame, step: int) -> str:
    took = steps["step_us"].to_list()[step - 1]
    if took is None:
        return f"Step {step} never ended."
    usual = number(steps["step_us"].median())
    if took <= LATE * usual:
        return f"Step {step} took {time(took)}, as long as others."
    return f"Step {step} took {time(took)}, {time(took - usual)} longer than the median."


def _late_steps(steps: pl.DataFrame | None) -> str:
    """How many steps of a training run were late, and what that cost."""
    took = None if steps is None else steps["step_us"].drop_nulls()
    if took is None or len(took) < 2:  # one has no others to be late beside
        return ""
    usual = number(took.median())
    late = took.filter(took > LATE * usual)
    if not len(late):
        return f" Each of its {len(took)} steps took as long as the others."
    cost = time(number(late.sum()) - len(late) * usual)
    return f" {len(late)} of {counted(len(took), 'step')} were late, by {cost} in all."


def unknown(record: Record) -> str:
    """Return the sentence of a run of which neither senders nor ports were recorded."""
    again = record.summary["packets"]["retransmitted"]
    if again is None:
        return "It has no packets; mrc run --level packet tells what they met."
    sent = f"{counted(again, 'packet was', 'packets were')} sent again."
    if narrow := _too_narrow(record):
        return f"{sent} {narrow} Of other losses senders keep no account here; probes could."
    return (
        f"{sent} What senders knew and ports counted was not recorded, so nobody can say where; run"
        " it packet by packet (mrc run --out), or have the fabric probed (mrc ops agent)."
    )


def _too_narrow(record: Record) -> str:
    """Where the senders of a lab believe the MTU to be too small."""
    return " ".join(f"Across {line}" for line in record.summary.get("narrow_paths") or ())


def told(record: Record, window: Window, findings: Sequence[Finding], flows: pl.DataFrame) -> str:
    """Return the sentences on what broke, and on what did not."""
    parts = [_sentence(record, finding) for finding in findings[:TOLD_MAX]]
    if len(findings) > TOLD_MAX:
        parts.append(_rest(findings[TOLD_MAX:]))
    if record.account is None:
        parts.append(_counted(record, bool(findings)))
    elif (narrow := _too_narrow(record)) and not any(it.narrow_bytes for it in findings):
        parts.append(narrow)
    elif not findings:
        parts.append(_trifles(record, window))
    congestion = _congestion(record, flows) if record.trims else _drops(record)
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
    place = record.spoken(it.where)
    if it.one_of:
        others = [record.spoken(name) for name in it.one_of[:OTHERS_MAX]]
        more = f" or {len(it.one_of) - OTHERS_MAX} more" if len(it.one_of) > OTHERS_MAX else ""
        place = f"One of {place}, {', '.join(others)}{more}"
    place = place[0].upper() + place[1:]
    ends = f" Its ends: {' and '.join(it.ends)}." if it.ends else ""
    cost = _cost(it) if record.account is not None else _count(it)
    sure = f" ({it.probability:.0%} sure)" if it.probability < SURE else ""
    return f"{place} {_what(record, it)}{sure}; {cost}.{ends}"


def _what(record: Record, it: Finding) -> str:
    """What a place did to packets, and when."""
    span = f"from {time(it.since_us)} " + (f"to {time(it.until_us)}" if it.over else "on")
    often = f"{it.times} times " * (it.times > 1)
    flaps = "flapped: it " * (max(it.times, it.downs) >= FLAPS)
    return flaps + _how(record, it, often, span)


def _how(record: Record, it: Finding, often: str, span: str) -> str:
    if it.downs:
        return f"was down {f'{it.downs} times ' * (it.downs > 1)}{span}, as its ports saw"
    if it.narrow_bytes:
        sizes = f"passes {record.probe_bytes} B and loses {it.narrow_bytes:,} B of data (MTU?)"
        return f"{sizes} {often}{span}"
    if it.dead:
        return f"let nothing through {often}{span}"
    return f"lost {_percent(it.rate)} of packets {often}{span}"


def _cost(it: Finding) -> str:
    """What was lost at a place, and which paths were avoided."""
    lost = counted(it.lost, "packet or probe was lost", "packets and probes were lost")
    if not it.paths:
        return f"{lost}, and no path was avoided"
    paths = f"{counted(it.paths, 'path')} of {counted(it.queue_pairs, 'queue pair')}"
    were = "were" if it.paths != 1 else "was"
    if it.back == 0:
        after = "none is back" if it.paths != 1 else "it is not back"
    elif it.back < it.paths:
        after = f"{it.back} of them are back, the last since {time(it.back_us or 0)}"
    else:
        after = f"{'all are' if it.paths != 1 else 'it is'} back since {time(it.back_us or 0)}"
    return f"{lost}, {paths} {were} avoided, and {after}"


def _count(it: Finding) -> str:
    """What ports counted at a place of whose paths nobody keeps an account."""
    return f"{counted(it.lost, 'packet is', 'packets are')} missing there or arrived damaged"


def _counted(record: Record, found: bool) -> str:
    """What is known where senders keep no account of paths."""
    again = counted(record.summary["packets"]["retransmitted"], "packet was", "packets were")
    nothing = "No port was down, and no link lost packets. " * (not found)
    return (
        f"{nothing}{again} sent again. Senders of this transport keep no account of paths: this is"
        " what ports counted, and what they do not count is not known."
    )


def _rest(findings: Sequence[Finding]) -> str:
    sure = sum(not it.one_of for it in findings)
    lost = counted(sum(it.lost for it in findings), "packet or probe", "packets or probes")
    unsure = len(findings) - sure
    places_ = [f"{sure} more place{'s' * (sure != 1)}"] * bool(sure)
    places_ += [f"{unsure} that cannot be told from others"] * bool(unsure)
    return f"{' and '.join(places_).capitalize()} lost {lost} (--json)."


def _trifles(record: Record, window: Window) -> str:
    """The sentence on events that are not damage."""
    import polars as pl

    assert record.events is not None
    kinds = record.events["event"]
    paths = record.paths.filter(
        (pl.col("last_us") >= window.from_us) & (pl.col("first_us") <= window.until_us)
    )
    lost = int(paths["lost"].sum())
    late = int((kinds == "false alarm").sum())
    marked = int((kinds == "congested").sum())
    parts = []
    if lost:
        aside = len(record.events.filter(pl.col("event") == "avoided").select("qp", "ev").unique())
        parts.append(
            f"{lost} packet{'s' * (lost != 1)} on {max(aside, 1)} path{'s' * (aside > 1)} count as"
            f" lost, {'too few to blame a place' if record.trims else 'maybe to full queues'}"
        )
    if late:
        parts.append(f"{counted(late, 'packet')} came late and counted as lost")
    if marked:
        parts.append(f"{counted(marked, 'path was', 'paths were')} left for marks")
    return f"{'; '.join(parts)}." if parts else "No path lost a packet."


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

    assert record.port_counts is not None
    if not len(record.port_counts):
        return ""
    by_port = (
        record.port_counts.group_by("port").agg(pl.col("dropped").sum()).sort("dropped", "port")
    )
    dropped, most = int(by_port["dropped"].sum()), int(by_port["dropped"][-1])
    where = record.fabric.port_name(int(by_port["port"][-1]))
    at = f", most of them at {record.spoken(where)}" * (2 * most >= dropped)
    said = f"As switches counted, full queues dropped {dropped:,} packets{at}"
    return f"{said}: congestion and no damage." if dropped else ""


def time(us: float) -> str:
    """Return a time to four significant figures."""
    ps = round(us * US)
    keep = 10 ** max(0, len(str(ps)) - 4)
    return fmt_time(round(ps / keep) * keep)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "all"
