"""The table at the end of a run, and the sentences under it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any, NamedTuple

from openmrc import tabular
from openmrc.fabric.model import CUT_THROUGH_BYTES
from openmrc.fabric.queues import QUEUE_PACKETS_MIN
from openmrc.printable import printable
from openmrc.report import steps, times
from openmrc.report.steps import rounded
from openmrc.run.figures import ROCE
from openmrc.run.outcome import TransportResult
from openmrc.run.results import Result
from openmrc.say import counted, number
from openmrc.scenario.fabric import Multiplane
from openmrc.scenario.transports import AnyTransport
from openmrc.tabular import Column
from openmrc.units import PS_BITS, fmt_rate, fmt_size, fmt_time

LOST = ("packets lost to faults", "")
SLOW_GBPS = 10
AS_LONG = 1.005  # another's time over MRC's, below which MRC gained nothing
UNLIMITED_BYTES = (1 << 31) - 2  # the meaning of `fabric.queues.UNLIMITED` and of one below it
UNITS = {"ps": fmt_time, "bps": fmt_rate, "bytes": fmt_size}


class _Line(NamedTuple):
    """A row of the table: the whole first, which is what a workload's users wait for; times in us.

    A job has a time and flows of its own; the rest is its transport's.
    """

    name: str
    whole_us: float | None
    never: str  # what stands for a whole that did not end
    slowdown: float | None
    fct_us: dict[str, float | None]
    rest: tuple[str, str, str]


def table(result: Result) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """Return the heading and unit of each column, and the cells: a row for each transport, and one
    below it for each of its jobs.
    """
    lines = [line for run in result.transports for line in _lines(run)]
    unit, wholes = times.column([line.whole_us for line in lines])
    said = zip(wholes, lines, strict=True)
    columns: list[tuple[str, str, list[str]]] = [
        ("transport", "", [line.name for line in lines]),
        (
            result.scenario.workload.whole,
            unit,
            [line.never if line.whole_us is None else cell for cell, line in said],
        ),
        ("time over ideal time", "", [_figure(line.slowdown, 2) for line in lines]),
    ]
    for key in ("p50", "p99", "p100"):
        column = times.column([line.fct_us[key] for line in lines])
        columns.append((f"flow completion time, {key}", *column))
    headings = (("goodput of all flows", "Gb/s"), ("packets sent again", ""), LOST)
    for place, (heading, unit) in enumerate(headings):
        columns.append((heading, unit, [line.rest[place] for line in lines]))
    rows = [list(row) for row in zip(*(cells for *_, cells in columns), strict=True)]
    return [(heading, unit) for heading, unit, _ in columns], rows


def _lines(run: TransportResult) -> list[_Line]:
    summary = run.summary()
    packets, whole_us = summary["packets"], summary["whole_us"]
    jobs = summary.get("jobs", {})
    rest = (
        _goodput(summary["goodput_gbps"]["total"]),
        _count(packets["retransmitted"]),
        _count(packets["dropped_fault"], packets["dropped_corrupt"]),
    )
    # early figures of a run say nothing of the whole
    slowdown = None if run.finish_ps is None else summary["slowdown_p100"]
    first = _Line(run.name, whole_us, "never", slowdown, summary["flows"]["fct_us"], rest)
    return [first, *(_of_job(f"{run.name}: {name}", job) for name, job in jobs.items())]


def _of_job(name: str, job: dict[str, Any]) -> _Line:
    never = "never" if job["flows"]["total"] else "-"
    return _Line(name, job["time_us"], never, None, job["flows"]["fct_us"], ("", "", ""))


def print_table(result: Result, out: IO[str]) -> None:
    """Print the table and the sentences below it to `out`."""
    columns, cells = table(result)
    tabular.print_table(result.title, _headed(columns), cells, out)
    if trained := steps.rows(result):
        tabular.print_table(None, _headed(steps.COLUMNS), trained, out)
    for sentence in sentences(result):
        print(printable(sentence), file=out)


def _headed(columns: Sequence[tuple[str, str]]) -> list[Column]:
    first, *others = (f"{heading}, {unit}" if unit else heading for heading, unit in columns)
    return [Column(first, words=True), *map(Column, others)]


def print_derived(result: Result, out: IO[str]) -> None:
    """Print the values that were derived at start: a row for each, a column for each transport."""
    derivations = [derived(run) for run in result.transports]
    keys = dict.fromkeys(key for each in derivations for key in each)
    cells = [[key, *(each.get(key, "-") for each in derivations)] for key in keys]
    names = [Column(run.name) for run in result.transports]
    tabular.print_table("Derived at start", [Column("value", words=True), *names], cells, out)


def warnings(result: Result, run: TransportResult) -> list[str]:
    """Return notes on the queues of a run, a line each."""
    derived, stated = run.derived, result.scenario.fabric.control_queue is not None
    packet, needed = derived["data_packet_wire_bytes"], derived.get("start_headers_bytes", 0)
    said = []
    for key in ("queue", "queue_last_hop"):
        holds = derived[f"{key}_bytes"]
        if holds < QUEUE_PACKETS_MIN * packet:
            said.append(
                f"WARNING: fabric.{key}: {holds} B hold {holds // packet} packets of {packet} B:"
                f" nearly everything that waits is cut or lost; state"
                f" {QUEUE_PACKETS_MIN * packet} B or more"
            )
    holds = derived["control_queue_bytes"]
    if stated and holds < needed:
        said.append(
            f"WARNING: fabric.control_queue: {holds} B: senders that start at line rate need"
            f" {needed} B for their trimmed headers, and a header that is dropped is a loss that"
            f' nobody is told of; state {needed} B or more, or "auto"'
        )
    return said


def sentences(result: Result) -> list[str]:
    """Return what MRC gained over the other transports, and what did not finish."""
    said = ["INTERRUPTED: these are partial results."] if result.partial else []
    planned = result.scenario.stop.time is not None and not result.partial
    for run in result.transports:
        total = len(run.completed)
        if run.n_failed:
            said.append(f"FAILED: {run.n_failed:,} of {total:,} flows of {run.name}: {_why(run)}")
        if run.n_unfinished and not run.died:
            word = "Not finished at the stated end" if planned else "UNFINISHED"
            said.append(f"{word}: {run.n_unfinished:,} of {total:,} flows of {run.name}.")
        said += steps.sentences(run)
    said += [of_roce(run) for run in result.transports if "roce.acks" in run.counters]
    if len(result.transports) > 1 and not result.partial:
        said.append(what_it_gained(result))
        if result.fault_marks:
            said += filter(None, map(rests_on_convergence, result.scenario.transports))
    if not result.partial and (stored := what_storing_costs(result)):
        said.append(stored)
    return said


def what_storing_costs(result: Result) -> str:
    """Return what it costs several planes that switches store whole packets, beside one plane of
    their rates together; "" if switches cut through, or there is one plane.
    """
    fabric, each = result.scenario.fabric, result.transports[0].derived
    if not isinstance(fabric, Multiplane) or fabric.planes == 1 or "measured_rtt_ps" in each:
        return ""  # a lab, which measures that, has switches of its own
    if fabric.switching != "store-and-forward":
        return ""
    planes, rate_bps = fabric.planes, int(fabric.port_rate)
    head = CUT_THROUGH_BYTES * PS_BITS // rate_bps
    stored = each["data_packet_wire_bytes"] * PS_BITS // rate_bps
    return (
        f"Switches store whole packets: {rounded(stored)} each at {fmt_rate(rate_bps)},"
        f" {rounded(stored // planes)} on one plane of {fmt_rate(rate_bps * planes)}. Compare the"
        f' two with fabric.switching = "cut-through" ({rounded(head)}).'
    )


def rests_on_convergence(section: AnyTransport) -> str:
    """Return the assumption on which the times of hashed paths rest if links fail; "" for
    others.
    """
    transport = section.build()
    if isinstance(transport.convergence_ps, tuple):
        low, high = transport.convergence_ps
    elif transport.paths == "single":
        low = high = transport.convergence_ps
    else:
        return ""
    takes = fmt_time(high) if low == high else f"{fmt_time(low)} to {fmt_time(high)}"
    takes = takes if high else "at once"
    return (
        f"{section.name}: its times assume that routing converges {takes} after a fault;"
        " transport.convergence sets another time."
    )


def of_roce(run: TransportResult) -> str:
    """Return the additional results of RoCEv2, as one sentence."""
    c = {key: run.counters[f"roce.{key}"] for key in ROCE}
    said = (
        f"{run.name}: {counted(c['naks'], 'NAK')}, {counted(c['timeouts'], 'timeout')},"
        f" {counted(c['discarded'], 'packet')} discarded out of sequence,"
        f" {counted(c['cnps'], 'CNP')}"
    )
    if not c["pauses"]:
        return f"{said}, no pauses."
    most = f", longest {run.pauses[0]['port']}" if run.pauses else ""
    return (
        f"{said}; {counted(c['paused_ports'], 'port')} paused {counted(c['pauses'], 'time')} for"
        f" {c['pause_us']:,} us in all{most} ({c['pause_us_max']:,} us),"
        f" {counted(c['pause_storms'], 'storm')}."
    )


def what_it_gained(result: Result) -> str:
    """Return one sentence that compares the finishing times with that of MRC, which is the first
    transport that avoids failed paths, else the first; also where it gained nothing.
    """
    avoids = [getattr(section, "paths", "") == "mrc" for section in result.scenario.transports]
    ours = result.transports[avoids.index(True) if True in avoids else 0]
    others = [run for run in result.transports if run is not ours]
    never = [run.name for run in others if run.ended_ps is None]
    times = sorted((run.ended_ps, run.name) for run in others if run.ended_ps is not None)
    if ours.ended_ps is None:
        if not times:
            return f"None finished: {_listed([ours.name, *never])}."
        names = _listed([ours.name, *never])
        return (
            f"{names} did not finish; {times[0][1]} finished first, after {rounded(times[0][0])}."
        )
    took = [
        f"{name} took {_times(ps / ours.ended_ps)} as long ({rounded(ps)})" for ps, name in times
    ]
    took += [f"{_listed(never)} did not finish"] if never else []
    said = f"{ours.name} finished after {rounded(ours.ended_ps)}: {', '.join(took)}."
    equal = [name for ps, name in times if ps < AS_LONG * ours.ended_ps]
    return f"{said} It gained nothing over {_listed(equal)} here." if equal else said


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times" if ratio < 10 else f"{number(round(ratio))} times"


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def derived(run: TransportResult) -> dict[str, str]:
    """Return the values derived at start, as text; the unit moves from the key to the value."""
    values: dict[str, str] = {}
    for key, value in run.derived.items():
        name, _, unit = key.rpartition("_")
        if unit == "bytes" and value >= UNLIMITED_BYTES:
            values[name] = "unlimited"
        elif unit in UNITS:
            values[name] = UNITS[unit](int(value))
        else:
            values[key] = f"{value:.6g}" if isinstance(value, float) else f"{value}"
    return values


def _why(run: TransportResult) -> str:
    if not run.qp_errors:
        return "no QP error says why."
    more = f" (and {len(run.qp_errors) - 1:,} more)" if len(run.qp_errors) > 1 else ""
    return f"{run.qp_errors[0]}{more}"


def _count(*counts: int | None) -> str:
    """A sum of what is counted; "-" where nothing is, as at the flow level."""
    return "-" if None in counts else f"{sum(filter(None, counts)):,}"


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _goodput(gbps: float | None) -> str:
    """Whole Gb/s; for slow links, as in a lab, also thousandths."""
    return _figure(gbps, 3 if gbps is not None and gbps < SLOW_GBPS else 0)
