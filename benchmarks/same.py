"""Nothing moved that should not: many scenarios in two checkouts, and whatever comes out compared.

    .venv/bin/python benchmarks/same.py BEFORE AFTER [--keep DIR] [--case WORD ...]

Both are roots of a checkout. Every case (`same_cases.py`) runs in a process of its own: examples
made smaller, every transport on busy and on broken fabrics, every kind of fault, scenarios drawn by
the soak of BEFORE, peers' files, captures byte for byte, tables column by column, test vectors.
Times, the rates made of them and the version may differ; everything else, to the last digit, may
not. Exit status 1 if anything does. With `--keep` what came of BEFORE stays in DIR, under the hash
of its sources, and is not run again; so does the compiled code of both.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import same_cases
from checkouts import Checkout, checkout
from same_cases import Case

# What decides a result: with it results are kept.
STATE = ("src", "examples", "conformance", "benchmarks/own")
TIMES = re.compile(r"(^|\.)(wall_s|loop_s|peak_rss_mb|openmrc|\w+_per_s)$")
PROGRESS = re.compile(r"^(Compiling .*|  \d+ %: .*)\n", re.MULTILINE)
SOAKED = re.compile(r", \d+ s$", re.MULTILINE)  # the end of the soak's last line
LIMIT_S = 180.0  # of a case, once everything is compiled: what takes longer has no end
SHOWN, AROUND = 4, 60  # keys of a difference, characters of a value


def state(root: Path) -> str:
    """Hash of all that a result of this checkout depends on."""
    digest = hashlib.sha256(sys.version.encode())
    for place in STATE:
        for path in sorted((root / place).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                digest.update(f"{path.relative_to(root)} {path.stat().st_size} ".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


def run(one: Checkout, case: Case, files: Path, into: Path) -> None:
    """Run a case and leave in the directory `into` whatever came out; whole or not at all."""
    aside = into.with_name(into.name + ".unfinished")
    shutil.rmtree(aside, ignore_errors=True)
    (aside / "out").mkdir(parents=True)
    places = {"{files}": str(files), "{out}": str(aside / "out")}

    def spelt(text: str) -> str:
        for word, place in places.items():
            text = text.replace(word, place)
        return text

    done = one.python(*map(spelt, case.command), limit_s=LIMIT_S)
    said = done.stderr
    for word, place in (*places.items(), ("{root}", str(one.root))):
        said = said.replace(place, word)
    (aside / "status").write_text(f"{done.returncode}\n")
    (aside / "printed").write_text(done.stdout)
    (aside / "said").write_text(PROGRESS.sub("", said))
    aside.rename(into)


def look(directory: Path) -> dict[str, str]:
    """What a run left, by its place: values of JSON, columns of tables, lines and bytes."""
    found: dict[str, str] = {}
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        name = path.name
        if path.suffix == ".parquet":
            table = pl.read_parquet(path)
            for column in table.columns:
                values = table[column]
                found[f"{name}: {column}"] = f"{values.dtype} {values.to_list()!r}"
            found[f"{name}: columns"] = repr(table.columns)
        elif path.suffix == ".pcapng":
            data = path.read_bytes()
            found[name] = f"{len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}"
        else:
            found |= flat(name, path.read_text())
    return found


def flat(name: str, text: str) -> dict[str, str]:
    """A value of JSON by dotted keys, less its times; any other text as it is."""
    try:
        value = json.loads(text)
    except ValueError:
        return {name: SOAKED.sub("", text)}
    return {f"{name}: {key}": v for key, v in leaves("", value) if not TIMES.search(key)}


def leaves(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every value that holds no others, with its dotted key."""
    if isinstance(value, dict | list) and value:
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for name, each in inner:
            yield from leaves(f"{key}.{name}" if key else str(name), each)
    else:
        yield key, repr(value)


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """One line for each place that is not the same."""
    lines = []
    for key in sorted(before.keys() | after.keys()):
        a, b = before.get(key, "nothing"), after.get(key, "nothing")
        if a != b:
            first = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0)
            lines.append(f"{key}: {around(a, first)} -> {around(b, first)}")
    return lines


def around(text: str, at: int) -> str:
    """The part of a value in which it differs."""
    begin = max(at - AROUND // 2, 0) if len(text) > AROUND else 0
    part = text[begin : begin + AROUND].replace("\n", "\\n")
    return f"{'...' * (begin > 0)}{part}{'...' * (begin + AROUND < len(text))}"


class Side:
    """One checkout, with the files its cases read and a place for their results."""

    def __init__(self, one: Checkout, results: Path, files: Path, written: dict[str, str]) -> None:
        self.one, self.results, self.files = one, results, files
        self.seconds, self.runs = 0.0, 0
        self._written = written
        self._warm = False
        files.mkdir(parents=True, exist_ok=True)
        for name, text in written.items():
            (files / name).write_text(text)
        shutil.copytree(one.root / "benchmarks/own", files / "own", dirs_exist_ok=True)

    def result(self, case: Case) -> dict[str, str]:
        """What comes of a case, or came of it before."""
        read = [name for name in self._written if any(name in word for word in case.command)]
        text = json.dumps([case.command, {name: self._written[name] for name in read}])
        directory = self.results / hashlib.sha256(text.encode()).hexdigest()[:20]
        if not directory.exists():
            if not self._warm:
                print(f"{self.one.root}: compiling, unless that is done ...", flush=True)
                self.one.warm()
                self._warm = True
            started = time.perf_counter()
            run(self.one, case, self.files, directory)
            self.seconds += time.perf_counter() - started
            self.runs += 1
        return look(directory)


def drawn(before: Checkout, results: Path) -> dict[str, str]:
    """Scenarios as the soak of BEFORE draws them."""
    kept = results / "drawn.json"
    if not kept.exists():
        print(f"{before.root}: drawing scenarios ...", flush=True)
        files = same_cases.drawn(before.must(*same_cases.soak(same_cases.SOAK_DRAWN)))
        kept.write_text(json.dumps(files))
    files = json.loads(kept.read_text())
    if len(files) < same_cases.SOAK_DRAWN:
        raise SystemExit(f"the soak of {before.root} printed {len(files)} scenarios")
    return dict(files)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", metavar="BEFORE", type=Path)
    parser.add_argument("after", metavar="AFTER", type=Path)
    parser.add_argument("--keep", metavar="DIR", type=Path, help="results of BEFORE, compiled code")
    parser.add_argument("--case", metavar="WORD", nargs="+", help="cases with one of these words")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        aside = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        keep = arguments.keep or aside / "kept"
        before = checkout(arguments.before, keep / "compiled-before")
        after = checkout(arguments.after, keep / "compiled-after")
        results = (keep / state(before.root)).resolve()
        results.mkdir(parents=True, exist_ok=True)
        written = same_cases.files() | drawn(before, results)
        sides = [
            Side(before, results, aside / "files-before", written),
            Side(after, aside / "results", aside / "files-after", written),
        ]
        words = arguments.case or [""]
        cases = same_cases.cases(list(written))
        chosen = [case for case in cases if any(word in case.name for word in words)]
        if not chosen:
            parser.error(f"no case has one of {', '.join(words)} in its name")
        return compare(sides, chosen)


def compare(sides: list[Side], cases: list[Case]) -> int:
    """Run what is to run and print a line for each case; the exit status."""
    differing = 0
    for number, case in enumerate(cases, 1):
        earlier = sum(side.seconds for side in sides)
        before, after = (side.result(case) for side in sides)
        lines = differences(before, after)
        took = sum(side.seconds for side in sides) - earlier
        word = "differs" if lines else "same"
        status = before["status: "]
        print(
            f"{number:3}/{len(cases)} {word:8}{case.name:32}{took:6.1f} s, status {status}",
            flush=True,
        )
        for line in lines[:SHOWN]:
            print(f"            {line}")
        if len(lines) > SHOWN:
            print(f"            and {len(lines) - SHOWN} more")
        differing += bool(lines)
    for side in sides:
        print(f"{side.one.root}: {side.runs} runs in {side.seconds:.0f} s")
    print(f"{len(cases) - differing} same, {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
