"""Who moves data to whom: implementations as requester (rows) and as responder (columns), healthy,
with losses, and while a plane goes silent.

Every cell is a transfer whose end is checked: `ok` that it completed, and with the right `bytes`
where the responder compares them. What has no common wire with another is left out (`-`): the
engine alone runs in one process, `native` and `udp` need a fabric that forwards carriers, plain UDP
needs none, and the two ends of libmrc find each other as their application does it.

    .venv/bin/python benchmarks/matrix.py --markdown               # two minutes
    .venv/bin/python benchmarks/matrix.py --other 'NAME=SERVE|WRITE'

`--other` adds a row and a column: two commands that speak `mrc perf write_bw` over plain UDP
(docs/exchange.md), with {planes}, {host}, {n} and {size} in place of their addresses, the peer's,
and the messages.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from openmrc.capi import build, hot
from openmrc.live.lab.isolation import run_isolated
from openmrc.live.lab.namespaces import Batch
from openmrc.torch.bench.network import Network, address
from openmrc.verbs import secret as secrets
from openmrc.verbs.cabled import prepare

ROOT = Path(__file__).resolve().parents[1]
MRC = f"{sys.executable} -m openmrc.cli"
PLANES, SIZE, MESSAGES = 2, 1 << 20, 96
LOSS_PERCENT = 1
CUT_AFTER_S = 0.3
PATIENCE_S = 60
FAULTS = ("healthy", "1 % lost", "a plane silent")
ENV = {**os.environ, "OPENMRC_SECRET": secrets.new().hex()}
FABRIC = """
[fabric]
nics = 2
planes = 2
port_rate = "200Mbps"
t0_down = 1
t0_up = 2
link_delay = "0us"
switch_delay = "0us"
[lab]
mode = "{mode}"
"""


@dataclass(frozen=True)
class Program:
    """Who speaks `mrc perf write_bw` over plain UDP: the commands of both its roles, and what its
    responder says of the bytes.
    """

    name: str
    serve: str
    write: str
    compared: str = ""  # what it prints of bytes that are right

    def words(self, role: str, end: int) -> list[str]:
        planes = ",".join(address(end, k) for k in range(PLANES))
        where = {"planes": planes, "host": address(1, 0), "n": MESSAGES, "size": SIZE}
        return getattr(self, role).format(**where).split()


def programs(folder: Path, others: list[str]) -> list[Program]:
    """Those of this repository, and those that the caller names."""
    endpoint = folder / "mrc_endpoint"
    sources = sorted(map(str, (ROOT / "examples/c").glob("*.c")))
    words = [build.compiler(), "-O2", "-I", str(ROOT / "conformance"), "-o", str(endpoint)]
    subprocess.run([*words, *sources], check=True)
    perf = f"{MRC} perf write_bw --json --planes {{planes}}"
    c, both = str(endpoint), "--pmtu 8192 --planes {planes}"
    found = [
        Program("live, plain UDP", perf, f"{perf} {{host}} -s {{size}} -n {{n}}"),
        Program(
            "C endpoint",
            f"{c} serve --once {both}",
            f"{c} write {{host}} {both} --iters {{n}} --size {{size}}",
            " 0 bytes wrong",
        ),
    ]
    for other in others:
        name, _, commands = other.partition("=")
        serve, _, write = commands.partition("|")
        found.append(Program(name, serve, write))
    return found


def over_udp(requester: Program, responder: Program, fault: str) -> str:
    """A transfer between two namespaces."""
    network = with_fault(fault)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": ENV}
    server = network.start(1, responder.words("serve", 1), **pipes)
    client = network.start(0, requester.words("write", 0), **pipes)
    if fault == FAULTS[2]:
        time.sleep(CUT_AFTER_S)
        network.cut(PLANES - 1)
    return judged(server, client, responder.compared)


def with_fault(fault: str) -> Network:
    """Two namespaces, between which each plane may lose a part of its datagrams."""
    network = Network(2, PLANES)
    if fault == FAULTS[1]:
        lose = f"numgen random mod 100 < {LOSS_PERCENT} drop"
        rules = [
            f"table netdev loss{k} {{ chain c {{ type filter hook ingress device e{k} priority 0;"
            f" policy accept; meta l4proto udp {lose}; }}; }}"
            for k in range(PLANES)
        ]
        network.namespaces.run(Batch(name, "nft", rules) for name in network.hosts)
    return network


def judged(server: subprocess.Popen[str], client: subprocess.Popen[str], compared: str) -> str:
    """What became of a transfer; the bytes, if the responder compares them."""
    try:
        _, errors = client.communicate(timeout=PATIENCE_S)
        said, more = server.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        for process in (client, server):
            process.kill()
        return "never ended"
    if client.returncode or server.returncode:
        return (errors + more).strip().rpartition("\n")[2]
    if not compared:
        return "ok"
    return "ok, bytes" if compared in said else "bytes are wrong"


def in_a_lab(mode: str, fault: str) -> str:
    """`mrc perf` between two hosts of a lab."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "lab.toml"
        file.write_text(FABRIC.format(mode=mode))
        n = ["-s", str(SIZE), "-n", str(MESSAGES)]
        name = f"matrix{os.getpid()}"
        lab = [*MRC.split(), "lab", str(file), "--name", name, "--"]
        command = [*lab, *MRC.split(), "perf", "write_bw", "--ranks", *n]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen(command, **pipes) as running:  # type: ignore[call-overload]  # pipes
            if fault != FAULTS[0]:
                wait_for(name)
                what = ["plane * t0 * - t1 *", "--kind", "link-loss", "--rate", "0.01"]
                what = what if fault == FAULTS[1] else ["plane 1 t0 *"]
                fail = [*MRC.split(), "lab", "fail", *what, "--name", name]
                subprocess.run(fail, check=True, stdout=subprocess.DEVNULL)
            try:
                said, _ = running.communicate(timeout=2 * PATIENCE_S)
            except subprocess.TimeoutExpired:
                running.kill()
                return "never ended"
    return "ok" if running.returncode == 0 else said.strip().rpartition("\n")[2]


def wait_for(name: str) -> None:
    """Until a lab runs its commands."""
    status = [*MRC.split(), "lab", "status", "--name", name, "--json"]
    for _ in range(int(PATIENCE_S / 0.2)):
        done = subprocess.run(status, capture_output=True, text=True, check=False)
        if done.returncode == 0 and json.loads(done.stdout).get("hosts"):
            return
        time.sleep(0.2)


def in_process(fault: str) -> str:
    """Two engines, in virtual time; every byte is compared."""
    from tests.engine.pair import Pair

    pair = Pair(planes=PLANES, checked=False)
    for _ in range(8):
        pair.post(100_000)
    if fault == FAULTS[1]:
        for seq in range(3, 200, 100 // LOSS_PERCENT // 2):
            pair.drop(seq=seq)
    if fault == FAULTS[2]:
        pair.advance(us=20)
        pair.cut(plane=1)
    pair.drive(20_000)
    pair.assert_intact()
    return "ok, bytes" if len(pair.done()) == 8 else "not complete"


def pair_of(folder: Path) -> str:
    """The program of `tests/capi`, with libmrc."""
    build.build(folder)
    prepare()
    hot.warm_up()
    made = str(folder / "pair")
    words = [
        build.compiler(),
        "-O1",
        "-I",
        str(folder / "include"),
        str(ROOT / "tests/capi/pair.c"),
    ]
    libraries = ["-L", str(folder), "-lmrc", "-libverbs", f"-Wl,-rpath,{folder}"]
    subprocess.run([*words, "-o", made, *libraries], check=True)
    return made


def over_libmrc(program: str, fault: str) -> str:
    """Two programs of C over libmrc, which write to each other; both compare every byte."""
    from tests.capi.lines import hear, tell

    network = with_fault(fault)
    path = os.pathsep.join(filter(None, sys.path))
    env = {**ENV, "OPENMRC_INTERFACES": network.interfaces, "PYTHONPATH": path}
    words = [program, str(SIZE), str(MESSAGES), "8"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": env}
    ends = [network.start(0, words, **pipes), network.start(1, [*words, "second"], **pipes)]
    said = [hear(end) for end in ends]
    for end, other in zip(ends, reversed(said), strict=True):
        tell(end, other)
    ready = [hear(end) for end in ends]
    for end in ends:
        tell(end, "go\n")
    if fault == FAULTS[2]:
        time.sleep(CUT_AFTER_S)
        network.cut(PLANES - 1)
    last = [hear(end) for end in ends]
    for end in ends:
        tell(end, "end\n")
        end.communicate(timeout=PATIENCE_S)
    if ready != ["ready\n"] * 2 or any(end.returncode for end in ends):
        return f"ended with {[end.returncode for end in ends]}"
    return "ok, bytes" if all(" 0 wrong" in line for line in last) else "bytes are wrong"


def rows(folder: Path, others: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Requester, responder, and what became of it under each of `FAULTS`."""
    yield "engine", "engine", [in_process(fault) for fault in FAULTS]
    for mode in ("native", "udp"):
        yield f"live, {mode}", f"live, {mode}", [in_a_lab(mode, fault) for fault in FAULTS]
    known = programs(folder, others)
    for one, other in product(known, known):
        yield one.name, other.name, [over_udp(one, other, fault) for fault in FAULTS]
    program = pair_of(folder)
    yield "libmrc", "libmrc", [over_libmrc(program, fault) for fault in FAULTS]


def table(found: list[tuple[str, str, list[str]]]) -> str:
    """Requesters by responders; a cell has what became of it under each of `FAULTS`, once if it is
    the same.
    """
    names = list(dict.fromkeys(name for row in found for name in row[:2]))
    cells = {row[:2]: row[2] for row in found}
    lines = [f"| requester, responder | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for one in names:
        told = [cells.get((one, other), ["-"]) for other in names]
        texts = [each[0] if len(set(each)) == 1 else "; ".join(each) for each in told]
        lines.append(f"| {one} | {' | '.join(texts)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n\n")[0])
    parser.add_argument("--other", action="append", default=[], metavar="NAME=SERVE|WRITE")
    parser.add_argument(
        "--markdown", action="store_true", help="a table, as docs/conformance.md has it"
    )
    options = parser.parse_args()

    def work() -> int:
        found = []
        with tempfile.TemporaryDirectory() as folder:
            for row in rows(Path(folder), options.other):
                found.append(row)
                print(json.dumps(row), flush=True, file=sys.stderr)
        if options.markdown:
            print(table(found))
        return sum(not text.startswith("ok") for _, _, each in found for text in each)

    return run_isolated(work)


if __name__ == "__main__":
    sys.exit(main())
