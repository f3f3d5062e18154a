"""What `mrc decode` prints at the end: tables of queue pairs, and everything else in sentences."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from openmrc.say import counted, say

if TYPE_CHECKING:
    from openmrc.wire.pcap import Reader
    from openmrc.wire.roce.summary import RoceQp, RoceSummary
    from openmrc.wire.summary import QpSummary, Summary

    Summaries = tuple[Summary, RoceSummary]
    Row = QpSummary | RoceQp

TABLE_WIDTH = 160
ROWS_SHOWN = 200  # of a table for people; --json has all
RANGES_SHOWN = 8
QPNS_SHOWN = 8

# The columns of the tables: the field of a row that each shows, and its heading.
HEADINGS = {
    "packets": "packets",
    "payload_bytes": "payload, bytes",
    "messages": "messages",
    "psn_first": "first PSN",
    "psn_last": "last PSN",
    "psns_missing": "PSNs missing",
    "retransmitted": "packets sent again",
    "duplicates": "packets seen twice",
    "trimmed": "packets trimmed",
    "trimmed_lasthop": "trimmed at the last hop",
    "ecn_marked": "packets with CE marks",
    "evs_seen": "EVs seen",
    "sacks": "SACKs",
    "skip_once": "SKIP_ONCE",
    "cack_psn": "highest cack PSN",
    "nacks": "NACKs, by reason",
    "acks": "ACKs",
    "naks": "NAKs",
    "probes": "probes",
    "unstamped": "without time stamp",
    "endpoint_requests": "endpoint requests",
    "endpoint_responses": "endpoint responses",
    "again": "PSNs seen again",
    "source_ports": "source ports",
    "cnps": "CNPs",
    "responses": "READ responses",
    "response_bytes": "read, bytes",
}
SEEN = ("packets", "payload_bytes", "messages", "psn_first", "psn_last", "psns_missing")
LOSSES = ("retransmitted", "duplicates", "trimmed", "trimmed_lasthop")
DATA = (*SEEN, *LOSSES, "ecn_marked", "evs_seen")
ACKNOWLEDGED = ("sacks", "skip_once", "cack_psn", "nacks", "acks", "naks")
CONTROL = (*ACKNOWLEDGED, "probes", "endpoint_requests", "endpoint_responses", "unstamped")
ROCE_DATA = (*SEEN, "again", "ecn_marked", "source_ports")
ROCE_CONTROL = ("acks", "naks", "cnps")
ROCE_READS = ("responses", "response_bytes")


def _cell(row: Row, name: str) -> str:
    value = getattr(row, name)
    if isinstance(value, Counter):
        return _counts(value)
    if name.startswith("psn_") or name == "cack_psn":  # a packet's number, not a count
        return "-" if value is None else f"{value}"
    return f"{len(value) if name == 'source_ports' else value:,}"


def show_summary(reader: Reader, summaries: Summaries, qpn: int | None, as_json: bool) -> None:
    """Print the summary, and print unexpected findings on standard error."""
    summary, roce = summaries
    summary.settle()
    for row in (*summary.rows(), *roce.rows()):
        row.unlooked = summary.unlooked(reader.dropped)
    if as_json:
        told = summary.as_dict(qpn) | ({"roce": roce.as_dict(qpn)} if roce.packets else {})
        of_file = {"cut_at": reader.cut_at, "dropped": reader.dropped}
        print(json.dumps({"summary": {**told, **of_file}}))
    else:
        _print_tables(summary, roce, qpn)
        if reader.dropped:
            lost = _of(reader.dropped, "frame", "frames")
            print(f"{lost} more, which the program that captured lost: it was too slow")
    sys.stdout.flush()
    if reader.cut_at is not None:
        say(f"{reader.name}: is cut off: what begins at byte {reader.cut_at} is left out")
    if qpn is not None and not summary.rows(qpn) and not roce.rows(qpn):
        say(_who_is_there([*summary.rows(), *roce.rows()], qpn))


def _print_tables(summary: Summary, roce: RoceSummary, qpn: int | None) -> None:
    """Print a table of data, a table of control, and everything else in sentences."""
    rows = summary.rows(qpn)
    _print_table("Data, by destination", DATA, [row for row in rows if row.packets])
    _print_table("Control, by destination", CONTROL, [row for row in rows if row.control])
    of_roce = roce.rows(qpn)
    title = "RoCEv2: {}, by destination"
    _print_table(title.format("data"), ROCE_DATA, [row for row in of_roce if row.packets])
    reads = ROCE_READS if any(row.responses for row in of_roce) else ()
    answered = [row for row in of_roce if row.control]
    _print_table(title.format("control"), (*ROCE_CONTROL, *reads), answered)
    all_rows: list[Row] = [*rows[:ROWS_SHOWN], *of_roce[:ROWS_SHOWN]]
    for row in all_rows:
        if row.psns_missing:
            print(_missing(row))
    for row in all_rows:
        if row.psns_hidden:
            print(_hidden(row))
    for addresses in summary.hosts.all()[:ROWS_SHOWN]:
        print(f"{' and '.join(addresses)} are one host: PSNs of its queue pairs are dealt to them")
    for words in _planes(rows):
        print(words)
    if qpn is None:
        _print_pauses(roce)
    print(_what_there_was(summary, summary.unlisted + roce.unlisted))


def _print_pauses(roce: RoceSummary) -> None:
    """Print the pause frames, one line per interface."""
    links = roce.links()
    for link in links[:ROWS_SHOWN]:
        where = f" at {link.interface}" if link.interface else ""
        print(f"PFC{where}: {link.pauses:,} frames that pause, {link.resumes:,} that let go on")
    if len(links) > ROWS_SHOWN:
        print(f"and {len(links) - ROWS_SHOWN:,} more; --json shows all")


def _print_table(title: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    from openmrc.tabular import Column, print_table

    if not rows:
        return
    headings = [Column("destination", words=True), Column("QP")]
    headings += [Column(HEADINGS[name]) for name in columns]
    cells = [
        [row.destination, f"{row.qpn:#x}", *(_cell(row, name) for name in columns)]
        for row in rows[:ROWS_SHOWN]
    ]
    print_table(title, headings, cells, sys.stdout, keys=2, pipe_width=TABLE_WIDTH)
    if len(rows) > ROWS_SHOWN:
        print(f"and {len(rows) - ROWS_SHOWN:,} more; --qp N shows one, --json shows all")


def _hidden(row: Row) -> str:
    psns = _of(row.psns_hidden, "PSN is", "PSNs are")
    return (
        f"At {row.destination} QP {row.qpn:#x} {psns} not called missing:"
        " the capture does not show whether they came, or READs took them"
    )


def _planes(rows: Sequence[QpSummary]) -> Iterator[str]:
    """Say which rows may be planes of one host: the same QP number, and PSNs missing."""
    by_qpn: dict[int, list[QpSummary]] = {}
    for row in rows:
        if row.psns_missing:
            by_qpn.setdefault(row.qpn, []).append(row)
    for qpn, same in [*by_qpn.items()][:QPNS_SHOWN]:
        if len(same) > 1:
            where = [row.destination for row in same[:QPNS_SHOWN]]
            yield (
                f"QP {qpn:#x} is at {' and '.join(where)}: if these are planes of one host,"
                f" --host {','.join(where)} makes them one row"
            )


def _missing(row: Row) -> str:
    from openmrc.wire.lines import span

    ranges = [span(*ends) for ends in islice(row.missing(), RANGES_SHOWN + 1)]
    more = ", ..." if len(ranges) > RANGES_SHOWN else ""
    listed = ", ".join(ranges[:RANGES_SHOWN])
    some = f"{row.psns_missing:,} of " if row.unlooked else ""
    return f"Missing at {row.destination} QP {row.qpn:#x}: {some}PSN {listed}{more}"


def _what_there_was(summary: Summary, unlisted: int) -> str:
    """Return the number of packets, and why some of them are in no table."""
    parts = [counted(summary.packets, "packet")]
    if summary.frames:
        parts.append(f"{_of(summary.frames, 'frame', 'frames')} held several of them")
    if summary.hidden:
        parts.append(f"up to {summary.hidden:,} more in parts of frames that were not captured")
    if summary.copies:
        parts.append(_of(summary.copies, "cut copy", "cut copies"))
    if summary.cut:
        parts.append(f"{summary.cut:,} cut before they say what they are")
    if summary.damaged:
        parts.append(f"{summary.damaged.total():,} damaged ({_counts(summary.damaged)})")
    if summary.foreign:
        parts.append(f"{summary.foreign.total():,} not MRC ({_counts(summary.foreign)})")
    if unlisted:
        parts.append(f"{unlisted:,} for more QPs than are listed")
    return ", ".join(parts)


def _of(n: int, one: str, many: str) -> str:
    return f"{n:,} {one if n == 1 else many}"


def _who_is_there(rows: Sequence[Row], qpn: int) -> str:
    qpns = sorted({row.qpn for row in rows})
    listed = ", ".join(f"{other:#x}" for other in qpns[:QPNS_SHOWN])
    more = ", ..." if len(qpns) > QPNS_SHOWN else ""
    there = f"there are packets for {listed}{more}" if qpns else "there are no packets for any QP"
    return f"No packet for QP {qpn:#x}; {there}"


def _counts(counts: Counter[str]) -> str:
    """Return "TRIMMED 3, NO_BITMAP 1", the most frequent first."""
    return ", ".join(f"{name} {n:,}" for name, n in counts.most_common()) or "0"
