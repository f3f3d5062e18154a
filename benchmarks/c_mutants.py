"""How well the conformance kit finds what is broken in an endpoint that is not this project's.

The endpoint of `examples/c` is compiled with one thing broken each time, and held against all rules
over loopback, in real time: which rules fail? Exit status 1 if one breaks nothing that a rule sees.

    .venv/bin/python benchmarks/c_mutants.py                  # eight minutes
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from openmrc.verbs import secret as secrets

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "transport.c"
SECRET = secrets.new().hex()
THERE, HERE = "127.0.21.1,127.0.21.2", "127.0.22.1,127.0.22.2"


class Mutant(NamedTuple):
    """What is broken, and which lines say what instead."""

    name: str
    changes: tuple[tuple[str, str], ...]


def _one(name: str, old: str, new: str) -> Mutant:
    return Mutant(name, ((old, new),))


MUTANTS = (
    _one("SACK base off by one", "(uint16_t)(base - q->cack)", "(uint16_t)(base - q->cack + 1)"),
    _one("SACK without entropy", "mrc_put(seth, MRC_SETH_ENTROPY, p->ev);", ""),
    _one("AckReq ignored", "|| p->marked || asks ||", "|| p->marked ||"),
    _one("no NACK above the window", "send_nack(ep, qi, p, MRC_NACK_PSN_OOR_WINDOW);", ""),
    _one(
        "a duplicate placed again",
        "if (is_received(q, seq)) {\n",
        "if (is_received(q, seq)) {\n\t\tuint8_t *again = place_of(ep, va, rkey, p->length);\n"
        "\t\tif (again)\n\t\t\tmemcpy(again, p->payload, p->length);\n",
    ),
    Mutant(
        "complete with the first packet",
        (
            ("a->here && a->here == a->total;", "a->here;"),
            ("ahead == 0 && a->here == a->total", "ahead == 0"),
        ),
    ),
    _one("the last packet does not ask", "again || last || asks", "again"),
    _one("retransmissions unmarked", "mrc_put(bth, MRC_BTH_RTX, again);", ""),
    _one("window ignored", "q->una + mpr && q->fresh", "q->una + WINDOW && q->fresh"),
    _one("SKIP_ONCE ignored", "\t\tep->path[path].skip = 1;", "\t\t;"),
    _one("a path never comes back", "\t\t\tway->bad = 0;\n", ""),
    _one("UNEXP_EVENT ignored", 'fail(ep, qi, "remote-operation-error");', ""),
    _one("retries without end", "++q->epochs >=", "0 >="),
    _one("time stamps of 64 ns", "return now / 128;", "return now / 64;"),
)  # fmt: skip


def failing(mutant: Mutant, folder: Path) -> list[str]:
    """The rules that a broken endpoint fails."""
    for file in (ROOT / "examples/c").glob("*.[ch]"):
        text = file.read_text()
        for old, new in mutant.changes if file.name == SOURCE else ():
            if old not in text:
                raise SystemExit(f"{mutant.name}: {SOURCE} has no {old!r}")
            text = text.replace(old, new)
        (folder / file.name).write_text(text)
    program = folder / "endpoint"
    words = ["cc", "-O1", "-I", str(ROOT / "conformance"), "-o", str(program)]
    subprocess.run([*words, *map(str, sorted(folder.glob("*.c")))], check=True)
    own = ["serve", "--port", "0", "--planes", THERE]
    env = {**os.environ, secrets.VARIABLE: SECRET}
    with subprocess.Popen([program, *own], stdout=subprocess.PIPE, text=True, env=env) as endpoint:
        assert endpoint.stdout is not None
        port = endpoint.stdout.readline().split()[-1]
        kit = ["-m", "openmrc.cli", "conformance", "--json"]
        where = ["--address", f"127.0.0.1:{port}", "--interface", HERE]
        done = subprocess.run(
            [sys.executable, *kit, *where], capture_output=True, text=True, check=False, env=env
        )
        endpoint.terminate()
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    rules = json.loads(done.stdout)["rules"]
    return [rule["rule"] for rule in rules if rule["outcome"] == "fail"]


def main() -> int:
    missed = 0
    for mutant in MUTANTS:
        with tempfile.TemporaryDirectory() as folder:
            found = failing(mutant, Path(folder))
        missed += not found
        shown = ", ".join(found[:3]) + (" ..." if len(found) > 3 else "")
        print(f"{mutant.name:32} {len(found):3}  {shown}", flush=True)
    print(f"{len(MUTANTS) - missed} of {len(MUTANTS)} found")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
