"""Faults drawn at random, runs of small fabrics, and whether `mrc why` names them: blind.

    .venv/bin/python benchmarks/blind.py [--runs N] [--seed N] [--first N] [--json]

A seed draws fabric, traffic, and what breaks, where and when: nothing, a link in one direction or
both, for good, for a while or again and again, a gray or corrupting link, a slow one, a
transceiver, a port, a NIC, a silent or dead switch, a denied one, and two faults at once. `mrc why`
gets the results directory with the faults cut out of its scenario. Then each answer is compared:

    right     the place by its name, and it broke when `mrc why` says it did
    one of    among others that the same traffic crosses
    one way   one direction of the broken link, which alone carried packets
    part      links of the broken thing, and no others
    unseen    nothing was lost, or too little: at most `FEW` packets
    missed    more than that was lost, and the place is not named
    wrong     a place that is not broken is named, or the time is wrong

Where nothing is broken, or nothing that loses packets, "nothing broke" is right.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from openmrc.fabric import Fabric, places
from openmrc.fabric.kinds import LINKS_DEFAULT
from openmrc.ops import causes
from openmrc.ops.records import Record, read
from openmrc.ops.together import Finding
from openmrc.ops.why import Answer, why
from openmrc.report.result import Result, simulate
from openmrc.scenario.scenario import make_scenario

FEW = 4  # losses: with fewer chance is as good an explanation
LATE_US = 300.0  # until what is dead has been judged lost: an RTO
SLACK_US = 0.5

FABRICS: tuple[dict[str, Any], ...] = (
    {"nics": 32, "planes": 4, "t0_down": 8, "port_rate": "100Gbps"},
    {"nics": 48, "planes": 2, "t0_down": 8, "port_rate": "200Gbps"},
    {"nics": 64, "planes": 2, "t0_down": 16, "port_rate": "100Gbps"},
)
WORKLOADS: tuple[dict[str, Any], ...] = (
    {"kind": "permutation", "size": "4MB"},
    {"kind": "all-to-all", "size": "4MB"},
    {"kind": "ring-all-reduce", "size": "8MB"},
    {"kind": "incast", "n": 24, "size": "1MB"},
)
HEALTHY = ("nothing", "deny", "link-slow")
KINDS = (
    *HEALTHY,
    "link-down",
    "one way",
    "for a while",
    "flapping",
    "link-loss",
    "link-corrupt",
    "transceiver-down",
    "port-down",
    "nic",
    "switch-silent",
    "switch-down",
    "two links",
    "link and switch",
)


class Truth(NamedTuple):
    """A fault: where, and between which times it was bad, us."""

    where: str
    since_us: float
    until_us: float
    gray: bool


class Draw:
    """What one seed draws."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.kind = KINDS[seed % len(KINDS)]
        self.tables: dict[str, Any] = {
            "seed": seed,
            "fabric": self._pick(FABRICS),
            "workload": self._pick(WORKLOADS),
        }
        self.fabric = make_scenario(self.tables).fabric.build()
        self.truths: list[Truth] = []
        self.tables["fault"] = self._faults()

    def _pick(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def _faults(self) -> list[dict[str, Any]]:
        simple = {
            "two links": ("one way", "link-loss"),
            "link and switch": ("one way", "switch-silent"),
            "nothing": (),
        }
        return [self._fault(kind) for kind in simple.get(self.kind, (self.kind,))]

    def _fault(self, kind: str) -> dict[str, Any]:
        at = float(np.round(self.rng.uniform(5, 60), 1))
        where = self._place(kind)
        fault: dict[str, Any] = {"at": f"{at}us", "where": where, "kind": kind}
        until = float("inf")
        if kind in ("one way", "for a while", "flapping", "nic"):
            fault["kind"] = "port-down" if kind == "nic" else "link-down"
        if kind == "for a while":
            lasts = float(np.round(self.rng.uniform(20, 100), 1))
            fault["for"], until = f"{lasts}us", at + lasts
        if kind == "flapping":
            fault |= {"period": "40us", "duty": 0.4, "until": "2ms"}
        if kind in ("link-loss", "link-corrupt"):
            fault["rate"] = self._pick((0.01, 0.05, 0.2, 0.5))
        if kind == "link-slow":
            fault["factor"] = self._pick((0.5, 0.2))
        if kind not in HEALTHY:
            name = f"nic {where.split()[1]}" if kind == "nic" else where
            self.truths.append(Truth(name, at, until, "rate" in fault))
        return fault

    def _place(self, kind: str) -> str:
        fabric = self.fabric
        link = fabric.link_name(int(self.rng.integers(fabric.n_ports)))
        if link.startswith("nic"):
            link = " ".join(link.split()[:4]) + " - t0"
        if kind in ("one way", "link-loss", "link-corrupt"):
            return link.replace(" - ", self._pick((" > ", " < ")))
        nic = int(self.rng.integers(fabric.n_nics))
        if kind == "port-down":
            return f"nic {nic} plane {int(self.rng.integers(fabric.n_planes))}"
        if kind == "nic":
            return f"nic {nic} plane *"
        switch = fabric.switch_name(int(self.rng.integers(fabric.n_switches)))
        if kind in ("switch-silent", "switch-down", "deny"):
            return switch
        if kind == "transceiver-down":
            n_ports = int((fabric.port_switch == fabric.port_switch.max()).sum())
            return f"{switch} transceiver {int(self.rng.integers(n_ports // LINKS_DEFAULT))}"
        return link


def directed(fabric: Fabric, where: str) -> set[int]:
    """All directed ports of a place, or of several."""
    if ", " in where:
        return set().union(*(directed(fabric, each) for each in places.split(where)))
    kind = places.kind_of(where) if not where.startswith("nic") or "plane" in where else "nic"
    if "transceiver" in where:
        return set(places.transceivers(fabric, where, LINKS_DEFAULT).targets.tolist())
    if where.startswith("nic") and "plane" not in where:
        cause = fabric.n_ports + fabric.n_switches + int(where.split()[1])
        return set(causes.links_of(fabric, cause).tolist())
    if kind == "switch":
        (switch,) = places.switches(fabric, where).tolist()
        return set(causes.links_of(fabric, fabric.n_ports + switch).tolist())
    return set(places.links(fabric, where).tolist())


def judged(draw: Draw, record: Record, answer: Answer, lost: int) -> tuple[list[str], list[str]]:
    """A word for each fault, and one for each finding that is wrong."""
    fabric, words = draw.fabric, []
    broken = [directed(fabric, truth.where) for truth in draw.truths]
    every = set().union(*broken) if broken else set()
    for truth, mine in zip(draw.truths, broken, strict=True):
        words.append(_word(fabric, truth, mine, answer, min(lost, suffered(record, mine))))
    wrong = [
        f"named {finding.where}"
        for finding in answer.findings
        if not finding.one_of and not directed(fabric, finding.where) <= every
    ]
    return words, wrong


def _word(fabric: Fabric, truth: Truth, mine: set[int], answer: Answer, lost: int) -> str:
    word = "unseen" if lost <= FEW else "missed"
    for finding in answer.findings:
        names = [directed(fabric, name) for name in (finding.where, *finding.one_of)]
        if not finding.one_of and names[0] == mine:
            return "right" if _in_time(truth, finding) else "wrong time"
        if finding.one_of and any(name & mine for name in names):
            word = "one of" if word != "part" else word
        elif not finding.one_of and names[0] < mine:
            cut = directed(fabric, truth.where)
            word = "one way" if len(cut) == 2 and len(names[0]) == 1 else "part"
    return word


def _in_time(truth: Truth, finding: Finding) -> bool:
    if finding.since_us < truth.since_us - SLACK_US:
        return False
    if truth.gray:
        return True  # when the first packet is lost is chance
    return finding.since_us <= truth.since_us + LATE_US


def losses(result: Result) -> int:
    """Packets that were lost to faults: what the fabric knows, and endpoints do not."""
    (run,) = result.transports
    return int(run.counters["dropped_fault"] + run.counters["dropped_corrupt"])


def suffered(record: Record, mine: set[int]) -> int:
    """Packets and probes that senders miss on paths across a place."""
    return int(record.paths["lost"].to_numpy()[across(record, mine)].sum())


def across(record: Record, ports: set[int]) -> Any:
    """[rows] Which paths that lost packets cross one of these directed ports, or may cross one."""
    known = sorted(ports)
    if record.outline is not None:
        known = record.outline.port_of[known].tolist()
    return np.isin(record.routes(record.paths), known).any(axis=1)


def hidden(directory: Path) -> None:
    """Cut the faults out of a results directory."""
    plan = directory / "scenario.toml"
    text = plan.read_text(encoding="utf-8")
    plan.write_text(text.partition("[[fault]]")[0], encoding="utf-8")


def run(seed: int) -> dict[str, Any]:
    """Draw, simulate, ask, and only then compare."""
    draw = Draw(seed)
    result = simulate(draw.tables, sampled=True)
    with tempfile.TemporaryDirectory() as directory:
        result.save(Path(directory))
        hidden(Path(directory))
        (record,) = read(Path(directory))
        answer = why(record)
    words, wrong = judged(draw, record, answer, losses(result))
    good = all(word in ("right", "one way", "one of", "unseen") for word in words) and not wrong
    return {
        "seed": seed,
        "kind": draw.kind,
        "workload": draw.tables["workload"]["kind"],
        "good": good,
        "faults": [
            {"where": t.where, "at_us": t.since_us, "word": w}
            for t, w in zip(draw.truths, words, strict=True)
        ],
        "wrong": wrong,
        "text": answer.text,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=160, help="how many (default: 160)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    arguments = parser.parse_args()
    rows = []
    for seed in range(arguments.first, arguments.first + arguments.runs):
        row = run(seed)
        rows.append(row)
        if not arguments.json and not row["good"]:
            print(f"{row['seed']} {row['kind']}, {row['workload']}: {row['faults']} {row['wrong']}")
            print(f"    {row['text']}", flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    words = Counter(fault["word"] for row in rows for fault in row["faults"])
    quiet = [row for row in rows if not row["faults"]]
    print(f"{sum(row['good'] for row in rows)} of {len(rows)} runs answered rightly")
    print(f"faults: {dict(words)}")
    print(f"nothing broken: {sum(row['good'] for row in quiet)} of {len(quiet)} right")


if __name__ == "__main__":
    main()
