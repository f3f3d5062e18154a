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
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc.cli.decoded import show_summary
from openmrc.errors import InputError
from openmrc.reading import CLOSED, STANDARD_INPUT
from openmrc.say import say

if TYPE_CHECKING:
    from openmrc.fabric.dscp import Dscps
    from openmrc.wire.pcap import Captured, Reader
    from openmrc.wire.readers import Found, Readers, Unread
    from openmrc.wire.roce.summary import RoceSummary
    from openmrc.wire.summary import Summary

    Summaries = tuple[Summary, RoceSummary]

QPN_MAX = 0xFF_FFFF
PROGRESS_PACKETS = 1000  # between two updates of the progress bar


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `decode`, which has a --json of its own."""
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
    words = "addresses of one host, such as those of its planes: one row; may be repeated"
    add("--host", metavar="ADDRESS,...", action="append", default=[], help=words)
    parser.set_defaults(run=_run)
    return []


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

    if arguments.file != STANDARD_INPUT:
        _refuse_missing(Path(arguments.file))
    elif sys.stdin is None:
        raise InputError(CLOSED)
    summaries = Summary(), RoceSummary()
    with read(arguments.file) as reader:
        try:
            _show_packets(reader, summaries, arguments)
        except InputError:
            if summaries[0].packets:
                show_summary(reader, summaries, arguments.qp, arguments.json)
            raise
        show_summary(reader, summaries, arguments.qp, arguments.json)
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
    show: Any = _line
    show_bad: Any = _bad_line
    if arguments.json:
        show, show_bad = partial(_object, readers), partial(_bad_object, readers)
    hosts = _hosts(arguments.host)
    for captured in _watched(reader):
        told = [*readers.packets(captured)]
        summaries[0].add_frame(*_held(told))
        for one, found in told:
            _count(one, found, summaries, hosts)
            if qpn is None or found.qpn == qpn:
                print((show_bad if isinstance(found, Unread) else show)(one, found))


def _held(told: Sequence[tuple[Captured, Found | Unread]]) -> tuple[int, int, bool]:
    """Packets of a frame, those at most that were not captured, and whether it is a cut copy."""
    from openmrc.wire.offload import COPY
    from openmrc.wire.readers import Unread

    last = told[-1][1]
    counted = last.counted if isinstance(last, Unread) else last
    hidden = counted.hidden if counted is not None else 0
    return len(told), hidden, COPY in told[0][0].outside


def _count(
    captured: Captured, found: Found | Unread, summaries: Summaries, hosts: dict[str, str]
) -> None:
    from openmrc.wire.readers import Unread

    summary = summaries[0]
    if not isinstance(found, Unread):
        found.add_to(captured, *summaries, hosts)
    elif found.counted is not None:
        found.counted.add_to(captured, *summaries, hosts)
    elif found.is_cut:
        summary.add_cut()
    elif found.protocol:
        summary.add_damaged(found.reason)
    else:
        summary.add_foreign(found.reason)


def _hosts(given: Sequence[str]) -> dict[str, str]:
    """The first address of each host by all of them."""
    from ipaddress import ip_address

    hosts: dict[str, str] = {}
    for text in given:
        try:
            addresses = [str(ip_address(word.strip())) for word in text.split(",")]
        except ValueError:
            raise InputError(
                f"--host {text}: is no list of addresses, such as 10.1.0.5,10.2.0.5"
            ) from None
        hosts |= dict.fromkeys(addresses, addresses[0])
    return hosts


def _dscps(arguments: argparse.Namespace) -> Dscps:
    from openmrc.fabric.dscp import Dscps

    try:
        return Dscps.parse(arguments.dscp or "")
    except InputError as error:
        raise error.at("--dscp") from None


def _line(captured: Captured, found: Found) -> str:
    return f"{_place(captured)}  {found.line()}"


def _bad_line(captured: Captured, bad: Unread) -> str:
    if bad.protocol is None and not bad.is_cut:
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
    told = readers.fields(captured, found.protocol)
    if found.numbered_0:
        notes = [note for note in told["notes"] if not note.startswith("wrong iCRC")]
        told |= {"icrc_ok": True, "notes": [*notes, "its iCRC counts the identification as 0"]}
    return json.dumps({**_place_object(captured), **told})


def _bad_object(readers: Readers, captured: Captured, bad: Unread) -> str:
    """The object of a bad packet, with the fields of the headers that can be read."""
    from openmrc.wire.meant import MRC

    why = {"offset": bad.offset, "reason": bad.reason, "mrc": bad.protocol == MRC}
    if bad.protocol not in (MRC, None):
        why["protocol"] = bad.protocol
    if bad.is_cut:
        why["cut"] = True
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
        task = progress.add_task("", total=reader.size or None)
        for captured in reader:
            if captured.number % PROGRESS_PACKETS == 0:
                progress.update(task, completed=reader.offset)
            yield captured
