"""`mrc decode`: a capture as one line per packet, and statistics of each queue pair.

The compiled codec judges each packet and provides the values of its line; with `--json` the plain
view adds every header's fields. Wireshark numbers packets in the same way.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc.errors import InputError
from openmrc.reading import STANDARD_INPUT
from openmrc.say import say

if TYPE_CHECKING:
    from openmrc.fabric.dscp import Dscps
    from openmrc.wire.pcap import Captured, Reader
    from openmrc.wire.readers import Found, Readers, Unread
    from openmrc.wire.roce.summary import RoceQp, RoceSummary
    from openmrc.wire.summary import QpSummary, Summary

    Summaries = tuple[Summary, RoceSummary]
    Row = QpSummary | RoceQp

QPN_MAX = 0xFF_FFFF
TABLE_WIDTH = 160
ROWS_SHOWN = 200  # of a table for people; --json has all
RANGES_SHOWN = 8
QPNS_SHOWN = 8
PROGRESS_PACKETS = 1000  # between two updates of the progress bar


def add_command(commands: Any) -> argparse.ArgumentParser:
    """Add `decode` to the subparsers of `mrc`, and return its parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "decode",
        help="show the packets of a capture, and a summary by queue pair",
        description="Show FILE, pcap or pcapng: one line per packet, then a summary by queue pair.",
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="a capture, pcap or pcapng; - is standard input")
    words = "print JSON and nothing else: a line with an object for each packet, then the summary"
    add("--json", action="store_true", help=words)
    add("--qp", metavar="N", type=_qpn, help="only packets for this QP, such as 17 or 0x11")
    words = "the EV's low half is in the flow label, its high half in the source port"
    add("--ev-swapped", action="store_true", help=words)
    words = "bit p of a port status mask is port p - 1"
    add("--ports-from-1", action="store_true", help=words)
    words = "DSCPs of the fabric if not the defaults, such as trimmed=11,trimmed_lasthop=21"
    add("--dscp", metavar="CLASS=N,...", help=words)
    words = "exit status 1 if a packet is damaged"
    add("--strict", action="store_true", help=words)
    add("--no-icrc", action="store_true", help="do not check iCRCs")
    parser.set_defaults(run=_run)
    return parser


def _qpn(text: str) -> int:
    try:
        qpn = int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        qpn = -1
    if not 0 <= qpn <= QPN_MAX:
        raise InputError(f"--qp {text}: is no QP number; 0 to {QPN_MAX:#x}, such as 17 or 0x11")
    return qpn


def _run(arguments: argparse.Namespace) -> int:
    """Show the capture, and summarise what precedes the place from which it cannot be read."""
    from openmrc.wire.pcap import read
    from openmrc.wire.roce.summary import RoceSummary
    from openmrc.wire.summary import Summary

    if arguments.file == STANDARD_INPUT:
        arguments.file = "/dev/stdin"
    _refuse_missing(Path(arguments.file))
    summaries = Summary(), RoceSummary()
    with read(arguments.file) as reader:
        try:
            _show_packets(reader, summaries, arguments)
        except InputError:
            if summaries[0].packets:
                _show_summary(reader, summaries, arguments.qp, arguments.json)
            raise
        _show_summary(reader, summaries, arguments.qp, arguments.json)
    if arguments.strict and (damaged := summaries[0].damaged.total()):
        say(f"{damaged:,} damaged packets, which --strict does not allow")
        return 1
    return 0


def _refuse_missing(file: Path) -> None:
    """Name the captures of single transports if that of all of them is requested."""
    if os.path.lexists(file) or not file.name:
        return
    pattern = f"{glob.escape(file.stem)}-*{glob.escape(file.suffix)}"
    near = sorted(str(other) for other in file.parent.glob(pattern))
    if near:
        raise InputError(f"{file}: there is no such file; there is {', '.join(near)}")


def _show_packets(reader: Reader, summaries: Summaries, arguments: argparse.Namespace) -> None:
    """Print every packet, or those of one QP, and count all of them."""
    from openmrc.jit.warmup import announcement, is_cached
    from openmrc.wire.readers import Readers, Unread

    def compiles(world: str = "sim") -> None:
        if not is_cached(world):
            say(announcement("the decoder", "some seconds"))

    compiles()
    qpn = arguments.qp
    on_roce = partial(compiles, "sim.roce")
    readers = Readers(
        arguments.ev_swapped,
        on_roce,
        arguments.ports_from_1,
        not arguments.no_icrc,
        _dscps(arguments),
    )
    show, show_bad = (_line, _bad_line)
    if arguments.json:
        show, show_bad = partial(_object, readers), partial(_bad_object, readers)
    for captured in _watched(reader):
        found = readers.read(captured)
        if isinstance(found, Unread):
            add = summaries[0].add_damaged if found.protocol else summaries[0].add_foreign
            add(found.reason)
            if qpn is None:
                print(show_bad(captured, found))
            continue
        found.add_to(captured, *summaries)
        if qpn is None or found.qpn == qpn:
            print(show(captured, found))


def _dscps(arguments: argparse.Namespace) -> Dscps:
    from openmrc.fabric.dscp import Dscps

    try:
        return Dscps.parse(arguments.dscp or "")
    except InputError as error:
        raise error.at("--dscp") from None


def _line(captured: Captured, found: Found) -> str:
    return f"{_place(captured)}  {found.line()}"


def _bad_line(captured: Captured, bad: Unread) -> str:
    if bad.protocol is None:
        return f"{_place(captured)}  not MRC: {bad.reason}"
    kept, length = len(captured.data), captured.original_length
    is_cut = kept < length and not bad.is_shown
    cut = f" ({kept} of {length} bytes were captured)" if is_cut else ""
    return f"{_place(captured)}  {bad.line()}{cut}"


def _place(captured: Captured) -> str:
    """Number, time in seconds, the interface if it has a name, and the frame's encapsulations."""
    if captured.time_ns is None:
        time = "-"
    else:
        sign = "-" if captured.time_ns < 0 else ""
        seconds, rest_ns = divmod(abs(captured.time_ns), 10**9)
        time = f"{sign}{seconds}.{rest_ns:09}"
    name = f"  {captured.interface}" if captured.interface else ""
    if captured.outside:
        name += f"  {', '.join(captured.outside)}"
    return f"{captured.number:>6}  {time:>11}{name}"


def _object(readers: Readers, captured: Captured, found: Found) -> str:
    return json.dumps({**_place_object(captured), **readers.fields(captured, found.protocol)})


def _bad_object(readers: Readers, captured: Captured, bad: Unread) -> str:
    """The object of a bad packet, with the fields of the headers that can be read."""
    from openmrc.wire.readers import MRC

    why = {"offset": bad.offset, "reason": bad.reason, "mrc": bad.protocol == MRC}
    if bad.protocol not in (MRC, None):
        why["protocol"] = bad.protocol
    known = {"length": captured.original_length}
    if bad.found is not None and bad.whole is not None:
        known = readers.fields(bad.whole, bad.found.protocol)
    elif bad.part is not None:
        known = readers.part_fields(captured, bad.part)
    return json.dumps({**_place_object(captured), **known, "error": why})


def _place_object(captured: Captured) -> dict[str, Any]:
    return {
        "number": captured.number,
        "time_ns": captured.time_ns,
        "interface": captured.interface,
        "captured": len(captured.data),
        **({"outside": list(captured.outside)} if captured.outside else {}),
    }


def _watched(reader: Reader) -> Iterator[Captured]:
    """Yield the packets of a capture, with a progress bar on a terminal that shows no packets."""
    if sys.stdout.isatty() or not sys.stderr.isatty():
        yield from reader
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    columns = BarColumn(bar_width=30), DownloadColumn(), TimeRemainingColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as progress:
        task = progress.add_task("", total=Path(reader.name).stat().st_size or None)
        for captured in reader:
            if captured.number % PROGRESS_PACKETS == 0:
                progress.update(task, completed=reader.offset)
            yield captured


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
}
SEEN = ("packets", "payload_bytes", "messages", "psn_first", "psn_last", "psns_missing")
LOSSES = ("retransmitted", "duplicates", "trimmed", "trimmed_lasthop")
DATA = (*SEEN, *LOSSES, "ecn_marked", "evs_seen")
ACKNOWLEDGED = ("sacks", "skip_once", "cack_psn", "nacks", "acks", "naks")
CONTROL = (*ACKNOWLEDGED, "probes", "endpoint_requests", "endpoint_responses", "unstamped")
ROCE_DATA = (*SEEN, "again", "ecn_marked", "source_ports")
ROCE_CONTROL = ("acks", "naks", "cnps")


def _cell(row: Row, name: str) -> str:
    value = getattr(row, name)
    if isinstance(value, Counter):
        return _counts(value)
    if name.startswith("psn_") or name == "cack_psn":  # a packet's number, not a count
        return "-" if value is None else f"{value}"
    return f"{len(value) if name == 'source_ports' else value:,}"


def _show_summary(reader: Reader, summaries: Summaries, qpn: int | None, as_json: bool) -> None:
    """Print the summary, and print unexpected findings on standard error."""
    summary, roce = summaries
    if as_json:
        told = summary.as_dict(qpn) | ({"roce": roce.as_dict(qpn)} if roce.packets else {})
        print(json.dumps({"summary": {**told, "cut_at": reader.cut_at}}))
    else:
        _print_tables(summary, roce, qpn)
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
    for row in rows[:ROWS_SHOWN]:
        if row.psns_missing:
            print(_missing(row))
    of_roce = roce.rows(qpn)
    title = "RoCEv2: {}, by destination"
    _print_table(title.format("data"), ROCE_DATA, [row for row in of_roce if row.packets])
    _print_table(title.format("control"), ROCE_CONTROL, [row for row in of_roce if row.control])
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


def _missing(row: QpSummary) -> str:
    from openmrc.wire.lines import span

    ranges = [span(*ends) for ends in islice(row.missing(), RANGES_SHOWN + 1)]
    more = ", ..." if len(ranges) > RANGES_SHOWN else ""
    listed = ", ".join(ranges[:RANGES_SHOWN])
    return f"Missing at {row.destination} QP {row.qpn:#x}: PSN {listed}{more}"


def _what_there_was(summary: Summary, unlisted: int) -> str:
    """Return the number of packets, and why some of them are in no table."""
    parts = [f"{summary.packets:,} packets"]
    if summary.damaged:
        parts.append(f"{summary.damaged.total():,} damaged ({_counts(summary.damaged)})")
    if summary.foreign:
        parts.append(f"{summary.foreign.total():,} not MRC ({_counts(summary.foreign)})")
    if unlisted:
        parts.append(f"{unlisted:,} for more QPs than are listed")
    return ", ".join(parts)


def _who_is_there(rows: Sequence[Row], qpn: int) -> str:
    qpns = sorted({row.qpn for row in rows})
    listed = ", ".join(f"{other:#x}" for other in qpns[:QPNS_SHOWN])
    more = ", ..." if len(qpns) > QPNS_SHOWN else ""
    there = f"there are packets for {listed}{more}" if qpns else "there are no packets for any QP"
    return f"No packet for QP {qpn:#x}; {there}"


def _counts(counts: Counter[str]) -> str:
    """Return "TRIMMED 3, NO_BITMAP 1", the most frequent first."""
    return ", ".join(f"{name} {n:,}" for name, n in counts.most_common()) or "0"
