"""How well the conformance kit finds what is broken in an endpoint that is not this project's.

The endpoint of `examples/c` is compiled with one thing broken each time, drawn by machine from its
transport: an operator, a number, a condition or a statement. Each is held against all rules over
loopback, in real time. What its compiler cannot tell from the original is set aside.

    .venv/bin/python benchmarks/c_mutants.py --n 20 --seed 1       # half an hour
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from openmrc.verbs import secret as secrets

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "transport.c"
SECRET = secrets.new().hex()
THERE, HERE = "127.0.21.1,127.0.21.2", "127.0.22.1,127.0.22.2"
SWAPS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
    "+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "&": "|", "|": "&", "<<": ">>", ">>": "<<",
}  # fmt: skip
_SILENT = re.compile(r'"(?:\\.|[^"\\])*"|/\*.*?\*/', re.DOTALL)  # strings and comments
_OPERATOR = re.compile(r"(?<= )(<<|>>|[<>=!]=|&&|\|\||[-<>+*/%&|])(?= )")
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_CONDITION = re.compile(r"(?<=\bif \()[^;{}]*(?=\)(?: \{)?$)")
_STATEMENT = re.compile(
    r"^\t+(?!return|break|continue|goto)[^\s;]+(?:\([^;]*\)| [-+|&]?= [^;]*|\+\+)(?=;$)"
)


class Edit(NamedTuple):
    """What stands in a line, and what would stand there instead."""

    line: int  # from 0
    start: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"line {self.line + 1}: {self.old.strip()} -> {self.new or 'nothing'}"

    def applied(self, text: str) -> str:
        """The source with this edit."""
        lines = text.split("\n")
        whole = lines[self.line]
        lines[self.line] = whole[: self.start] + self.new + whole[self.start + len(self.old) :]
        return "\n".join(lines)


def every(text: str) -> Iterator[Edit]:
    """Every edit of the functions of a C source: their lines begin with a tab."""
    shown = _SILENT.sub(lambda m: re.sub(r"[^\n]", "_", m[0]), text)
    for number, line in enumerate(shown.split("\n")):
        if not line.startswith("\t"):
            continue
        for m in _OPERATOR.finditer(line):
            yield Edit(number, m.start(), m[0], SWAPS[m[0]])
        for m in _NUMBER.finditer(line):
            yield Edit(number, m.start(), m[0], str(int(m[0]) + 1))
        for m in _CONDITION.finditer(line):
            yield Edit(number, m.start(), m[0], "0")
            yield Edit(number, m.start(), m[0], "1")
        for m in _STATEMENT.finditer(line):
            yield Edit(number, m.start(), m[0], "")


def compiled(text: str, folder: Path) -> bytes | None:
    """The endpoint with this source in `folder`, and its code; None if it does not compile."""
    for file in (ROOT / "examples/c").glob("*.[ch]"):
        (folder / file.name).write_text(text if file.name == SOURCE else file.read_text())
    words = ["cc", "-O1", "-w", "-I", str(ROOT / "conformance"), "-o", str(folder / "endpoint")]
    done = subprocess.run(
        [*words, *map(str, sorted(folder.glob("*.c")))], capture_output=True, check=False
    )
    return None if done.returncode else (folder / "endpoint").read_bytes()


def failing(folder: Path) -> set[str]:
    """The rules that the endpoint in a folder fails."""
    own = ["serve", "--port", "0", "--planes", THERE]
    env = {**os.environ, secrets.VARIABLE: SECRET}
    with subprocess.Popen(
        [folder / "endpoint", *own],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # what it refuses is not applicable
        text=True,
        env=env,
    ) as endpoint:
        assert endpoint.stdout is not None
        port = endpoint.stdout.readline().split()[-1]
        kit = ["-m", "openmrc.cli", "conformance", "--json"]
        where = ["--address", f"127.0.0.1:{port}", "--interface", HERE]
        done = subprocess.run(
            [sys.executable, *kit, *where], capture_output=True, text=True, check=False, env=env
        )
        endpoint.terminate()
    if done.returncode not in (0, 1):
        return {f"the kit could not go on: {done.stderr.strip().splitlines()[-1:]}"}
    rules = json.loads(done.stdout)["rules"]
    return {rule["rule"] for rule in rules if rule["outcome"] == "fail"}


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", maxsplit=1)[0])
    parser.add_argument("--n", type=int, default=20, help="mutants to judge (20)")
    parser.add_argument("--seed", type=int, default=1, help="another sample (1)")
    args = parser.parse_args()
    text = (ROOT / "examples/c" / SOURCE).read_text()
    edits = list(every(text))
    random.Random(args.seed).shuffle(edits)
    with tempfile.TemporaryDirectory() as folder:
        same = compiled(text, Path(folder))
        always = failing(Path(folder))  # this host is too busy for these
    print(
        f"{len(edits)} edits; as it is, the endpoint fails {sorted(always) or 'none'}", flush=True
    )
    judged = found = aside = 0
    for edit in edits:
        if judged == args.n:
            break
        with tempfile.TemporaryDirectory() as folder:
            code = compiled(edit.applied(text), Path(folder))
            if code in (None, same):
                aside += 1
                continue
            failed = failing(Path(folder)) - always
        judged += 1
        found += bool(failed)
        shown = ", ".join(sorted(failed)[:3]) + (" ..." if len(failed) > 3 else "")
        print(f"{edit!s:70.70} {len(failed):3}  {shown}", flush=True)
    print(f"{aside} do not compile, or to the same code; of {judged} others {found} are found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
