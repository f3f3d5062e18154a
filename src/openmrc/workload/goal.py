"""GOAL schedules as text: what LogGOPSim and ATLAHS read.

    num_ranks 2
    rank 0 {
    l1: calc 1000 cpu 1
    l2: send 4096b to 1 tag 5 cpu 0 nic 0
    l2 requires l1
    }
    rank 1 {
    l1: recv 4096b from 0 tag 5
    }

A `calc` takes so many nanoseconds on its cpu, which does one at a time. `a requires b`: a begins
when b is over; `a irequires b`: when b has begun. "//" begins a comment, "/*" one that ends with
"*/". The grammar is that of LogGOPSim's `txt2bin`; `goal_binary` reads what that writes. Refused by
name: receives from any source or with any tag (-1), sends of a rank to itself, and a label of two
operations that others wait for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO

import numpy as np

from openmrc.errors import InputError, remark
from openmrc.fabric.words import NUMBER_MAX
from openmrc.reading import TEXT, opened
from openmrc.traffic.traffic import LongArray, Traffic
from openmrc.units import integer
from openmrc.workload import goal_binary
from openmrc.workload import operations as ops
from openmrc.workload.schedule import ANY, Schedule, out_of_range, within

_OPERATION = re.compile(
    r"(?:([a-zA-Z][a-zA-Z0-9_]*)\s*:\s*)?"
    r"(?:calc\s+([0-9]+)(?:\s+cpu\s+([0-9]+))?"
    r"|(send|recv)\s+([0-9]+)\s*b\s+(to|from)\s+(-1|[0-9]+)"
    r"(?:\s+tag\s+(-1|[0-9]+))?(?:\s+cpu\s+([0-9]+))?(?:\s+nic\s+([0-9]+))?)",
    re.ASCII,
)
_WAIT = re.compile(r"([a-zA-Z]\w*)\s+(i?)requires\s+([a-zA-Z]\w*)", re.ASCII)
_NUM_RANKS = re.compile(r"num_ranks\s+([0-9]+)", re.ASCII)
_RANK = re.compile(r"rank\s+([0-9]+)\s*\{", re.ASCII)
_ACCEPTED = (
    "accepted: [LABEL:] calc NS [cpu C], [LABEL:] send BYTESb to RANK [tag T] [cpu C] [nic N],"
    " [LABEL:] recv BYTESb from RANK ..., LABEL requires LABEL, LABEL irequires LABEL, }"
)


def load_goal(
    path: str | Path,
    n_nics: int,
    nics: LongArray | None = None,
    compute_scale: float = 1.0,
    rank_nics: int = 1,
) -> Traffic:
    """Return the workload of a GOAL file, text or binary, for a fabric of `n_nics` NICs.

    NIC i of rank r is NIC `nics[r * rank_nics + i]` of the fabric, in order without `nics`. Every
    computation takes `compute_scale` times what the file says. Message i is the i-th send, rank by
    rank. `InputError` names file and line, or rank and operation; a `Remark` what is odd.
    """
    nics = np.arange(n_nics) if nics is None else nics
    with opened(path, "a GOAL file, text or LogGOPSim's binary") as file:
        kind = goal_binary.Reader if goal_binary.is_binary(file) else _Reader
        reader = kind(Schedule(str(path), len(nics), compute_scale, rank_nics))
        reader.read(file)
    return ops.to_traffic("goal", n_nics, nics, reader.goal.ops, str(path))


class _Reader:
    """Reads a text line by line; labels are kept for one rank at a time."""

    def __init__(self, goal: Schedule) -> None:
        self.goal = goal
        self.path = goal.path
        self.rank = -1
        self.seen: set[int] = set()
        self.labels: dict[str, int] = {}
        self.twice: dict[str, int] = {}  # the line of a label's second definition
        self.waits: list[tuple[int, str, bool, str]] = []  # line, later, irequires, earlier
        self.lines: list[int] = []  # of each operation
        goal.ops.place = lambda operation: f"{self.path}:{self.lines[operation]}"

    def read(self, file: BinaryIO) -> None:
        """Read all ranks."""
        text = TextIOWrapper(file, encoding=TEXT)
        try:
            self._read(text)
        finally:
            text.detach()  # the file is its owner's to close

    def _read(self, text: Iterator[str]) -> None:
        number = 0
        for number, line in _without_comments(text, self.path):
            if self.rank < 0:
                self._outside(number, line)
            elif operation := _OPERATION.fullmatch(line):
                self._operation(number, operation)
            elif wait := _WAIT.fullmatch(line):
                self.waits.append((number, wait[1], bool(wait[2]), wait[3]))
            elif line == "}":
                self._end_of_rank()
            else:
                raise self._refused(number, line)
        if self.rank >= 0:
            raise InputError(f"{self.path}:{number}: the file ends within rank {self.rank}; add }}")
        if self.goal.n_ranks < 0:
            raise InputError(f"{self.path}: no num_ranks; name a GOAL file")
        missing = [rank for rank in range(self.goal.n_ranks) if rank not in self.seen]
        if missing:
            raise InputError(
                f"{self.path}: num_ranks {self.goal.n_ranks}, but rank {missing[0]} is missing;"
                " add it"
            )

    def _refused(self, number: int, line: str) -> InputError:
        return InputError(f"{self.path}:{number}: {line[:80]!r}; {_ACCEPTED}")

    def _outside(self, number: int, line: str) -> None:
        """Outside of any rank: num_ranks, then the beginnings of ranks."""
        at = f"{self.path}:{number}"
        if (header := _NUM_RANKS.fullmatch(line)) and self.goal.n_ranks < 0:
            self.goal.ranks(at, _integer(at, "num_ranks", header[1]))
        elif (begin := _RANK.fullmatch(line)) and self.goal.n_ranks >= 0:
            self.rank = within(at, "rank", _integer(at, "rank", begin[1]), self.goal.n_ranks - 1)
            if self.rank in self.seen:
                raise InputError(f"{at}: rank {self.rank} is defined twice; join the two")
            self.seen.add(self.rank)
        else:
            expected = "'rank R {'" if self.goal.n_ranks >= 0 else "'num_ranks N' first"
            raise InputError(f"{at}: {line[:80]!r}; accepted here: {expected}")

    def _operation(self, number: int, found: re.Match[str]) -> None:
        label, ns, calc_cpu, *transfer = found.groups()
        at = f"{self.path}:{number}"
        self.lines.append(number)
        if ns is not None:
            core = _integer(at, "cpu", calc_cpu or "0")
            operation = self.goal.calc(at, self.rank, _integer(at, "calc", ns), core)
        else:
            operation = self._transfer(at, transfer)
        if label is not None:
            if label in self.labels:
                self.twice.setdefault(label, number)
            else:
                self.labels[label] = operation

    def _transfer(self, at: str, words: list[str | None]) -> int:
        word, size, way, peer, tag, cpu, nic = words
        if (word == "send") != (way == "to"):
            raise InputError(f"{at}: {word} {way}; 'send ... to' and 'recv ... from' are accepted")
        return self.goal.transfer(
            at,
            self.rank,
            ops.SEND if word == "send" else ops.RECV,
            _integer(at, "size", str(size)),
            ANY if peer == "-1" else _integer(at, "rank", str(peer)),
            ANY if tag == "-1" else _integer(at, "tag", tag or "0"),
            _integer(at, "cpu", cpu or "0"),
            _integer(at, "nic", nic or "0"),
        )

    def _end_of_rank(self) -> None:
        for number, later, by_begin, earlier in self.waits:
            for label in (later, earlier):
                if label not in self.labels:
                    raise InputError(
                        f"{self.path}:{number}: no label {label} in rank {self.rank}; add it"
                    )
                if label in self.twice:
                    raise InputError(
                        f"{self.path}:{number}: label {label} is given to lines"
                        f" {self.lines[self.labels[label]]} and {self.twice[label]}; rename one"
                    )
            self.goal.wait(self.labels[later], self.labels[earlier], by_begin)
        for label, number in self.twice.items():
            remark(
                f"{self.path}:{number}: label {label} is that of line"
                f" {self.lines[self.labels[label]]}, too; nothing refers to it"
            )
        self.waits.clear()
        self.labels.clear()
        self.twice.clear()
        self.rank = -1


def _integer(at: str, name: str, word: str) -> int:
    number = integer(word)
    if number > NUMBER_MAX:
        raise out_of_range(at, name, word, NUMBER_MAX)
    return number


def _without_comments(lines: Iterator[str], path: str) -> Iterator[tuple[int, str]]:
    """Yield each line that holds more than comments, with its number from 1."""
    begun = 0  # the line in which a comment began
    for number, line in enumerate(lines, start=1):
        if begun or "/" in line:
            text, rest = "", line
            while rest:
                if begun:
                    _, end, rest = rest.partition("*/")
                    begun = 0 if end else begun
                    continue
                mark = re.search(r"//|/\*", rest)
                text += rest if mark is None else rest[: mark.start()]
                begun = number if mark is not None and mark[0] == "/*" else 0
                rest = rest[mark.end() :] if begun and mark is not None else ""
            line = text
        line = line.strip()
        if line:
            yield number, line
    if begun:
        raise InputError(f"{path}:{begun}: a comment begins here and never ends; add */")
