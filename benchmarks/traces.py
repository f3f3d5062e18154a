"""Traces made here: those of `examples/traces`, and long ones, to see how fast they are read.

    .venv/bin/python benchmarks/traces.py                  # nodes per second, and memory
    .venv/bin/python benchmarks/traces.py --examples examples/traces
    .venv/bin/python benchmarks/traces.py --sets CHECKOUT    # every trace below a folder: a table

A long trace is a pipeline: every rank computes, sends to the next, receives, and so on.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from openmrc.errors import OpenMrcError
from openmrc.run.results import peak_rss_mb
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import make_scenario
from openmrc.units import fmt_time
from openmrc.workload.chakra.schema import (
    COLLECTIVES,
    COMM_COLL,
    COMM_RECV,
    COMM_SEND,
    COMP,
    NODE_TYPES,
    schema,
)
from openmrc.workload.chakra.trace import load_chakra
from openmrc.workload.goal import load_goal


def ring_goal(n: int, size: int, compute_ns: int = 0) -> str:
    """Return a ring all-reduce of `size` bytes over n ranks as GOAL; each computes at first."""
    lines = ["// a ring all-reduce: benchmarks/traces.py", f"num_ranks {n}"]
    for rank in range(n):
        lines.append(f"rank {rank} {{")
        if compute_ns:
            lines.append(f"c: calc {compute_ns}")
        for step in range(2 * (n - 1)):
            for what, label, way, other, block in (
                ("send", "s", "to", (rank + 1) % n, rank - step),
                ("recv", "r", "from", (rank - 1) % n, rank - 1 - step),
            ):
                part = size // n + (block % n < size % n)
                lines.append(f"{label}{step}: {what} {part}b {way} {other} tag {step}")
            if step:
                lines.append(f"s{step} requires r{step - 1}")
            if compute_ns:
                lines.append(f"s{step} requires c")
        lines.append("}")
    return "\n".join(lines) + "\n"


def encoded(nodes: Sequence[Mapping[str, Any]], version: str = "1.0.0") -> bytes:
    """Return a Chakra trace. A node is its fields by name; its `attr` are a dict: integers, truth
    values, texts and lists of truth values by name.
    """
    made = schema()
    messages = [made.GlobalMetadata(version=version)]
    for node in nodes:
        attributes = [
            made.AttributeProto(name=name, **_value(value))
            for name, value in node.get("attr", {}).items()
        ]
        messages.append(made.Node(**{**node, "attr": attributes}))
    return b"".join(_delimited(message.SerializeToString()) for message in messages)


def _value(value: Any) -> dict[str, Any]:
    for kind, field in ((bool, "bool_val"), (int, "int64_val"), (str, "string_val")):
        if isinstance(value, kind):
            return {field: value}
    return {"bool_list": schema().BoolList(values=value)}


def _delimited(message: bytes) -> bytes:
    length, head = len(message), bytearray()
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + message


class Trace:
    """The nodes of one rank."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []

    def add(self, kind: int, after: Sequence[int] = (), micros: int = 0, **attr: Any) -> int:
        """Append a node that waits for others; return its id."""
        number = len(self.nodes) + 1
        self.nodes.append(
            {"id": number, "name": NODE_TYPES[kind], "type": kind, "data_deps": list(after)}
            | {"duration_micros": micros, "attr": attr}
        )
        return number


def training_step(rank: int, layers: int = 3) -> Trace:
    """Return one step of 8 ranks: two pipeline stages, 0 to 3 and 4 to 7, of four data-parallel
    ranks each. Gradients are reduced layer by layer beside the backward pass.
    """
    trace, stage = Trace(), rank // 4
    other = rank + 4 if stage == 0 else rank - 4
    transfer = {"comm_size": 500_000, "comm_tag": 0}
    last = -1
    if stage:
        last = trace.add(COMM_RECV, comm_src=other, **transfer)
    for _ in range(layers):
        last = trace.add(COMP, [last] if last > 0 else [], micros=20, stream=7)
    if not stage:
        sent = trace.add(COMM_SEND, [last], comm_dst=other, **transfer)
        last = trace.add(COMM_RECV, [sent], comm_src=other, **transfer | {"comm_tag": 1})
    for layer in range(layers):
        last = trace.add(COMP, [last], micros=40, stream=7)
        trace.add(
            COMM_COLL,
            [last],
            comm_type=COLLECTIVES.index("ALL_REDUCE"),
            comm_size=1_000_000,
            pg_name=f"stage {stage}",
        )
        if stage and layer == layers - 1:
            trace.add(COMM_SEND, [last], comm_dst=other, **transfer | {"comm_tag": 1})
    return trace


def write_examples(folder: Path) -> None:
    """Write the traces of the examples."""
    (folder / "step").mkdir(parents=True, exist_ok=True)
    (folder / "ring.goal").write_text(ring_goal(8, 4_000_000, compute_ns=50_000))
    for rank in range(8):
        nodes = training_step(rank).nodes
        (folder / "step" / f"step.{rank}.et").write_bytes(encoded(nodes))


def long_goal(n: int, rounds: int) -> Iterator[str]:
    """Yield the lines of 3n operations a round."""
    yield f"num_ranks {n}\n"
    for rank in range(n):
        yield f"rank {rank} {{\n"
        for k in range(rounds):
            yield f"c{k}: calc 1000\ns{k}: send 4096b to {(rank + 1) % n} tag 1\n"
            yield f"s{k} requires c{k}\nr{k}: recv 4096b from {(rank - 1) % n} tag 1\n"
            if k:
                yield f"c{k} requires r{k - 1}\n"
        yield "}\n"


def long_chakra(folder: Path, n: int, rounds: int) -> list[Path]:
    """Write 3n nodes a round, as `long_goal`; return the files."""
    paths = []
    for rank in range(n):
        trace, last = Trace(), 0
        for _ in range(rounds):
            last = trace.add(COMP, [last] if last else [], micros=1, is_cpu_op=False, stream=7)
            trace.add(COMM_SEND, [last], comm_dst=(rank + 1) % n, comm_size=4096, comm_tag=1)
            last = trace.add(COMM_RECV, comm_src=(rank - 1) % n, comm_size=4096, comm_tag=1)
        paths.append(folder / f"long.{rank}.et")
        paths[-1].write_bytes(encoded(trace.nodes))
    return paths


def sets_below(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each trace below a folder, and the workload that reads it: Chakra files
    that differ in their ranks alone, with a `comm_group.json` beside them, and GOAL schedules.
    """
    chakra: dict[tuple[Path, str], Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".et":
            chakra.setdefault((path.parent, re.sub(r"\d+\.et$", "", path.name)), path)
        elif path.suffix in (".goal", ".bin"):
            yield str(path.relative_to(folder)), {"kind": "goal", "file": str(path.absolute())}
    for place, stem in chakra:
        workload = {"kind": "chakra", "traces": str(place.absolute() / f"{stem}*.et")}
        if (groups := place / "comm_group.json").exists():
            workload["groups"] = str(groups.absolute())
        yield f"{place.relative_to(folder)}/{stem}*.et", workload


def told(workload: dict[str, Any]) -> str:
    """Return what a run of a trace on 128 NICs of 400 Gb/s says: its time, or why it is refused."""
    fabric = {"nics": 128, "planes": 1, "t0_down": 32, "port_rate": "400Gbps"}
    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        try:
            scenario = make_scenario({"fabric": fabric, "workload": workload})
            run = simulate(scenario).transports[0]
        except OpenMrcError as error:
            return f"refused: {str(error).rpartition('/')[2]}"
    took = "never ends" if run.finish_ps is None else fmt_time(run.finish_ps)
    return f"{len(run.completed):,} messages, {took}" + ("; a remark" if remarks else "")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--examples", type=Path, metavar="FOLDER", help="write them there")
    parser.add_argument("--sets", type=Path, metavar="FOLDER", help="run every trace below it")
    parser.add_argument("--nodes", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--ranks", type=int, default=64, metavar="N")
    parser.add_argument("--kind", choices=("goal", "chakra"), action="append")
    arguments = parser.parse_args(argv)
    if arguments.examples:
        write_examples(arguments.examples)
        return
    if arguments.sets:
        for name, workload in sets_below(arguments.sets):
            print(f"| `{name}` | {told(workload)} |", flush=True)
        return
    n = arguments.ranks
    rounds = max(arguments.nodes // (3 * n), 1)
    for kind in arguments.kind or ("goal", "chakra"):
        with tempfile.TemporaryDirectory() as folder:
            if kind == "goal":
                (Path(folder) / "long.goal").write_text("".join(long_goal(n, rounds)))
            else:
                long_chakra(Path(folder), n, rounds)
            before_mb, begun = peak_rss_mb(), time.perf_counter()
            if kind == "goal":
                traffic = load_goal(Path(folder) / "long.goal", n)
            else:
                traffic = load_chakra(sorted(Path(folder).glob("*.et")), n)
            took_s = time.perf_counter() - begun
        nodes = 3 * n * rounds
        print(
            f"{kind}: {nodes} nodes of {n} ranks in {took_s:.1f} s, {nodes / took_s / 1e3:.0f}"
            f" thousand a second; {traffic.n_msgs} messages, {traffic.n_calcs} computations;"
            f" peak {peak_rss_mb():.0f} MB, {before_mb:.0f} MB before"
        )


if __name__ == "__main__":
    main()
