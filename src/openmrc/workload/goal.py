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
"*/". The grammar is that of LogGOPSim's `txt2bin`. Refused by name: receives from any source or
with any tag (-1), and sends of a rank to itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from openmrc.errors import InputError
from openmrc.fabric.words import NUMBER_MAX
from openmrc.traffic.traffic import LongArray, Traffic
from openmrc.workload import operations as ops

PS_PER_NS = 1000
CPUS = 256  # a byte in the binary form, as is the NIC
RANKS_MAX = 1 << 20

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
    """Return the workload of a GOAL file for a fabric of `n_nics` NICs.

    NIC i of rank r is NIC `nics[r * rank_nics + i]` of the fabric, in order without `nics`. Every
    computation takes `compute_scale` times what the file says. Message i is the i-th send, rank by
    rank. `InputError` names file and line.
    """
    nics = np.arange(n_nics) if nics is None else nics
    reader = _Reader(str(path), len(nics), compute_scale, rank_nics)
    try:
        with open(path, encoding="utf-8") as lines:
            reader.read(lines)
    except OSError as error:
        reason = error.strerror or "cannot be read"
        raise InputError(f"{path}: {reason}; name a GOAL file that can be read") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file; name a GOAL file as text, not binary") from None
    return ops.to_traffic("goal", n_nics, nics, reader.ops, str(path))


class _Reader:
    """Reads a file line by line; labels are kept for one rank at a time."""

    def __init__(self, path: str, n_units: int, scale: float, rank_nics: int) -> None:
        self.path = path
        self.n_units = n_units
        self.scale = scale
        self.rank_nics = rank_nics
        self.n_ranks = -1
        self.rank = -1
        self.seen: set[int] = set()
        self.labels: dict[str, int] = {}
        self.waits: list[tuple[int, str, bool, str]] = []  # line, later, irequires, earlier
        self.ops = ops.Operations(0, self.place, rank_nics)
        self.lines: list[int] = []  # of each operation

    def place(self, operation: int) -> str:
        return f"{self.path}:{self.lines[operation]}"

    def read(self, lines: Iterator[str]) -> None:
        number = 0
        for number, line in _without_comments(lines, self.path):
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
        if self.n_ranks < 0:
            raise InputError(f"{self.path}: no num_ranks; name a GOAL file")
        missing = [rank for rank in range(self.n_ranks) if rank not in self.seen]
        if missing:
            raise InputError(
                f"{self.path}: num_ranks {self.n_ranks}, but rank {missing[0]} is missing; add it"
            )

    def _refused(self, number: int, line: str) -> InputError:
        return InputError(f"{self.path}:{number}: {line[:80]!r}; {_ACCEPTED}")

    def _outside(self, number: int, line: str) -> None:
        """Outside of any rank: num_ranks, then the beginnings of ranks."""
        at = f"{self.path}:{number}"
        if (header := _NUM_RANKS.fullmatch(line)) and self.n_ranks < 0:
            self.n_ranks = self._number(at, "num_ranks", header[1], RANKS_MAX)
            if self.n_ranks * self.rank_nics > self.n_units:
                raise InputError(
                    f"{at}: {self.n_ranks} ranks with {self.rank_nics} NICs each on"
                    f" {self.n_units} NICs; take a larger fabric"
                )
            self.ops.n_ranks = self.n_ranks
        elif (begin := _RANK.fullmatch(line)) and self.n_ranks >= 0:
            self.rank = self._number(at, "rank", begin[1], self.n_ranks - 1)
            if self.rank in self.seen:
                raise InputError(f"{at}: rank {self.rank} is defined twice; join the two")
            self.seen.add(self.rank)
        else:
            expected = "'rank R {'" if self.n_ranks >= 0 else "'num_ranks N' first"
            raise InputError(f"{at}: {line[:80]!r}; accepted here: {expected}")

    def _number(self, at: str, name: str, word: str, most: int = NUMBER_MAX) -> int:
        # ordinary numbers are short: longer ones are out of range
        if len(word) > 20 or int(word) > most:
            raise InputError(f"{at}: {name} {word[:30]}; 0 to {most} are accepted")
        return int(word)

    def _operation(self, number: int, found: re.Match[str]) -> None:
        label, ns, calc_cpu, *transfer = found.groups()
        at = f"{self.path}:{number}"
        if len(self.lines) == ops.OPERATIONS_MAX:
            raise InputError(f"{at}: {ops.OPERATIONS_MAX} operations are accepted at most")
        self.lines.append(number)
        if ns is not None:
            ps = ops.picoseconds(at, self._number(at, "calc", ns), PS_PER_NS, self.scale)
            core = self._number(at, "cpu", calc_cpu or "0", CPUS - 1)
            operation = self.ops.add(ops.CALC, ps, self.rank * CPUS + core)
        else:
            operation = self._transfer(at, transfer)
        if label is not None:
            if label in self.labels:
                raise InputError(
                    f"{at}: label {label} is defined twice; see line"
                    f" {self.lines[self.labels[label]]}"
                )
            self.labels[label] = operation

    def _transfer(self, at: str, words: list[str | None]) -> int:
        word, size, way, peer, tag, cpu, nic = words
        if (word == "send") != (way == "to"):
            raise InputError(f"{at}: {word} {way}; 'send ... to' and 'recv ... from' are accepted")
        if "-1" in (peer, tag):
            raise InputError(
                f"{at}: {word} {'from any rank' if peer == '-1' else 'with any tag'} (-1) is not"
                " supported: which message it gets would depend on the run; name it"
            )
        other = self._number(at, "rank", str(peer), self.n_ranks - 1)
        if other == self.rank:
            raise InputError(
                f"{at}: rank {other} {word}s to itself; a calc is as long as that takes"
            )
        if cpu is not None:  # an RDMA NIC needs none to send, but what is named must exist
            self._number(at, "cpu", cpu, CPUS - 1)
        index = self._number(at, "nic", nic or "0")
        if index >= self.rank_nics:
            raise InputError(
                f"{at}: nic {index}, but a rank has {self.rank_nics}; set workload.rank_nics"
            )
        return self.ops.add(
            ops.SEND if word == "send" else ops.RECV,
            self._number(at, "size", str(size)),
            self.rank * self.rank_nics + index,
            other,
            self._number(at, "tag", tag or "0", (1 << 32) - 1),
        )

    def _end_of_rank(self) -> None:
        for number, later, by_begin, earlier in self.waits:
            for label in (later, earlier):
                if label not in self.labels:
                    raise InputError(
                        f"{self.path}:{number}: no label {label} in rank {self.rank}; add it"
                    )
            if by_begin:
                self.ops.started.append(self.labels[earlier])
                self.ops.then.append(self.labels[later])
            else:
                self.ops.wait(self.labels[later], self.labels[earlier])
        self.waits.clear()
        self.labels.clear()
        self.rank = -1


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
