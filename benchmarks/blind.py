"""Faults drawn at random, runs of small fabrics, and whether `mrc why` is right of them: blind.

    .venv/bin/python benchmarks/blind.py [--runs N] [--first SEED] [--keep DIR] [--fit] [--json]

A seed draws all that a scenario can say: a fabric of two or three tiers, with trims or without,
that hashes or not; traffic of every kind, of one job or two; and none to three faults, of every
kind, at every place, from a moment to for ever, once or again and again. `mrc why` gets the results
directory with the faults cut out of its scenario. Then `judge.py` compares its answer with them.

With `--keep` results stay in that directory, and are read from there the next time: other code may
be asked about the same runs.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import judge
import numpy as np

from openmrc.fabric.kinds import BEGINS, LINKS_DEFAULT
from openmrc.ops.diagnose.findings import diagnosed
from openmrc.ops.records import Record, read
from openmrc.ops.why import why
from openmrc.report.result import simulate
from openmrc.scenario.scenario import Scenario, load_scenario, make_scenario
from openmrc.units import parse_rate

DONE = "done"
SAID = (0.0, 0.7, 0.85, 1.0)  # probabilities that are said, as ranges
BYTES_MAX = 800e6  # of all NICs, in a run: some seconds of work
N_FAULTS = {0: 0.15, 1: 0.5, 2: 0.25, 3: 0.1}
HALVING = "halving-doubling-all-reduce"
TRAFFIC = (
    *("permutation", "all-to-all", "ring-all-reduce", HALVING),
    *("reduce-scatter", "all-gather", "send-recv", "broadcast", "incast", "training", "jobs"),
)
FAULTS = (
    *("link-down", "link-loss", "link-corrupt", "mtu", "half a transceiver", "transceiver-down"),
    *("port-down", "nic", "switch-down", "switch-silent", "tier", "plane", *judge.HEALTHY),
)
Table = dict[str, Any]


class Draw:
    """What one seed draws: a scenario's tables."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.rate = self._pick(("100Gbps", "200Gbps", "400Gbps"))
        self.tables: Table = {"seed": seed, "fabric": self._fabric()}
        if self._chance(0.15):
            self.tables["transport"] = {"srv6": False}
        workload = {"workload": {"kind": "permutation"}}
        self.fabric = make_scenario(self.tables | workload).fabric.build()
        self.nics, self.planes = self.fabric.n_nics, self.fabric.n_planes
        self.tables["workload"] = self._workload()
        n = int(self.rng.choice(list(N_FAULTS), p=list(N_FAULTS.values())))
        self.tables["fault"] = [self._fault(self._pick(FAULTS)) for _ in range(n)]

    def _pick(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def _chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def _spread(self, low: float, high: float) -> float:
        """Between two numbers, so that each decade is as likely as another."""
        return float(np.exp(self.rng.uniform(math.log(low), math.log(high))))

    # --- fabric and traffic

    def _fabric(self) -> Table:
        down = self._pick((4, 8, 16))
        table: Table = {"port_rate": self.rate, "t0_down": down}
        if self._chance(0.25):
            pods = self._pick((2, 4))
            table |= {"kind": "fat-tree", "tiers": 3, "t0_up": down, "t1_down": 4, "t1_up": 4}
            table["nics"] = 4 * down * pods
        else:
            table["planes"] = self._pick((1, 2, 2, 4, 4, 8, 16))
            table["nics"] = down * self._pick((2, 3, 4, 8, 16 if down < 16 else 8, 32))
            table["t0_up"] = self._pick((down, down, max(down // 2, 2)))
        if self._chance(0.2):
            table["trim"] = False
        if self._chance(0.15):
            table["switching"] = "cut-through"
        elif self._chance(0.15):
            table["jitter"] = self._pick(("200ns", "1us"))
        return table

    def _workload(self) -> Table:
        kind = self._pick(TRAFFIC)
        if kind != "jobs":
            return self._job(kind, self.nics)
        jobs = []
        for name, nics in (("even", "even"), ("odd", "odd")):
            job = self._job(self._pick(TRAFFIC[:-2]), self.nics // 2)
            jobs.append({"name": name, "nics": nics} | job)
        return {"kind": "jobs", "job": jobs}

    def _job(self, kind: str, nics: int) -> Table:
        if kind == HALVING and nics & (nics - 1):
            kind = "ring-all-reduce"  # halving needs a power of two
        table: Table = {"kind": kind}
        if kind == "training":
            dp = nics // 4
            size = min(BYTES_MAX / nics / 4, self._spread(1e6, 16e6))
            return table | {
                "tp": 4, "pp": 1, "dp": dp, "steps": self._pick((2, 4)), "microbatches": 2,
                "layers": 2, "forward": self._pick(("20us", "50us", "100us")),
                "dp_size": f"{int(size)}B",
            }  # fmt: skip
        each = min(BYTES_MAX / nics, self._spread(1e6, 64e6))
        if kind == "incast":
            n = min(nics - 1, self._pick((4, 8, 24)))
            each /= n / 2
            table |= {"n": n, "target": int(self.rng.integers(nics))}
        elif kind == "send-recv":
            steps = self._pick((1, 3))
            each /= steps
            table |= {"steps": steps}
        elif kind == "all-to-all":
            table |= {"at_once": self._pick((1, 4, 16))}
        if kind not in ("permutation", "incast"):
            table |= {"order": self._pick(("nic", "random"))}
        return table | {"size": f"{int(each)}B"}

    def _lasts_us(self) -> float:
        """About how long the run lasts, us."""
        workload = self.tables["workload"]
        jobs = workload.get("job", [workload])
        sizes = [float(job.get("size", "8000000B")[:-1]) for job in jobs]
        most = max(
            size * job.get("n", 1) * job.get("steps", 1) * (2 if "all-reduce" in job["kind"] else 1)
            for size, job in zip(sizes, jobs, strict=True)
        )
        return 20 + most * 8e6 / (parse_rate(self.rate) * self.planes)

    # --- faults

    def _fault(self, what: str) -> Table:
        lasts = self._lasts_us()
        kind = what if what in BEGINS else {"nic": "port-down"}.get(what, "")
        at = self.rng.uniform(0.02, 0.6) * lasts
        where, kind = self._place(what, kind)
        table: Table = {"at": f"{at:.1f}us", "where": where, "kind": kind}
        if kind in ("link-loss", "link-corrupt"):
            table["rate"] = float(f"{self._spread(0.003, 0.5):.2g}")
            if kind == "link-loss" and self._chance(0.2):
                table["burst"] = 8
        elif kind == "link-slow":
            table["factor"] = self._pick((0.5, 0.1))
        elif kind == "mtu":
            table["mtu"] = 1500
        time = self.rng.random()
        if time < 0.4:
            table["for"] = f"{self._spread(20, 20 + lasts):.1f}us"
        elif time < 0.5 and kind not in ("deny", "mtu"):
            period = self._spread(60, 60 + lasts / 3)
            table |= {"period": f"{period:.1f}us", "duty": 0.4, "until": f"{at + lasts:.1f}us"}
        return table

    def _place(self, what: str, kind: str) -> tuple[str | list[str], str]:
        """Where something of this sort is, and as which kind of fault it is run."""
        nic, plane = (int(self.rng.integers(n)) for n in (self.nics, self.planes))
        if kind.startswith("link") or kind == "mtu":
            way = self._pick((" - ", " > ", " < "))
            if self._chance(0.4):
                return f"nic {nic} plane {plane}{way}t0", kind
            links = np.flatnonzero((self.fabric.port_switch >= 0) & ~self.fabric.port_last_hop)
            return self.fabric.link_name(int(self._pick(links.tolist()))).replace(" - ", way), kind
        if what in ("port-down", "nic"):
            return f"nic {nic} plane {plane if what == 'port-down' else '*'}", "port-down"
        if "transceiver" in what:
            return self._transceiver(what, nic)
        if what == "plane":
            return f"plane {plane} t0 *", self._pick(("switch-down", "switch-silent"))
        if what == "tier":
            tier = self.fabric.n_tiers - 1
            return f"plane {plane} t{tier} *", self._pick(("switch-down", "switch-silent"))
        return self.fabric.switch_name(int(self.rng.integers(self.fabric.n_switches))), kind

    def _transceiver(self, what: str, nic: int) -> tuple[str | list[str], str]:
        switch = int(self.rng.integers(self.fabric.n_switches))
        ports = int((self.fabric.port_switch == switch).sum())
        where = f"{self.fabric.switch_name(switch)} transceiver"
        if what == "transceiver-down":
            n = max(int(self.fabric.sw_n_up[switch]), 1) if ports > 4 else 1
            return f"{where} {int(self.rng.integers(max(n // LINKS_DEFAULT, 1)))}", what
        kind = self._pick(("link-down", "link-loss"))
        way = self._pick(("<", ">"))
        last = min(self.planes, LINKS_DEFAULT)
        return [f"nic {nic} plane {it} {way} t0" for it in range(last)], kind


@contextmanager
def kept(scenario: Scenario, directory: Path | None) -> Iterator[Path]:
    """Give the directory of a scenario's results without its faults: what is there, or new ones;
    None: they are deleted afterwards.
    """
    with tempfile.TemporaryDirectory() as scratch:
        where = Path(scratch) if directory is None else directory
        if not (where / DONE).exists():
            simulate(scenario, sampled=True).save(where)
            hidden(where)
            (where / DONE).touch()
        yield where


def hidden(directory: Path) -> None:
    """Cut the faults out of a results directory."""
    plan = directory / "scenario.toml"
    text = plan.read_text(encoding="utf-8")
    plan.write_text(text.partition("[[fault]]")[0], encoding="utf-8")


def ask(scenario: Scenario, name: str, results: Path) -> dict[str, Any]:
    """Ask why of a run of one transport, and only then compare with the faults."""
    (record,) = read(results)
    return asked(scenario, name, record)


def asked(scenario: Scenario, name: str, record: Record) -> dict[str, Any]:
    """Ask why, and only then compare with the faults."""
    answer = why(record)
    claims = [judge.claim(record, it) for it in answer.findings]
    truths = judge.truths(record, [one.build() for one in scenario.faults])
    words, healthy = judge.judged(truths, claims)
    ahead = {(it.where, it.one_of): it.ahead for it in diagnosed(record).places}
    return {
        "name": name,
        "right": all(word in judge.GOOD for word in words) and not healthy,
        "faults": [
            {"where": it.where, "us": [it.since_us, it.until_us], "lost": it.lost, "word": word}
            for it, word in zip(truths, words, strict=True)
        ],
        "healthy": healthy,
        "claims": [
            {
                "ahead_nats": ahead[it.where, it.one_of],
                "probability": it.probability,
                "holds": judge.holds(truths, one),
            }
            for it, one in zip(answer.findings, claims, strict=True)
        ],
        "text": answer.text,
    }


def said(row: dict[str, Any]) -> str:
    """What a reader sees of an answer that is not right."""
    faults = "".join(
        f"\n    {it['word']}: {it['where']} from {it['us'][0]} to {it['us'][1]}, {it['lost']} lost"
        for it in row["faults"]
    )
    healthy = "".join(f"\n    healthy: {where}" for where in row["healthy"])
    return f"{row['name']}{faults}{healthy}\n    {row['text']}"


def total(rows: Sequence[dict[str, Any]]) -> str:
    """The figures of all answers."""
    words = Counter(it["word"] for row in rows for it in row["faults"])
    quiet = [row for row in rows if not row["faults"]]
    faults = ", ".join(f"{n} {word}" for word, n in words.most_common())
    return (
        f"{sum(row['right'] for row in rows)} of {len(rows)} strictly right; faults: {faults};"
        f" runs with a healthy place: {sum(bool(row['healthy']) for row in rows)};"
        f" nothing broken: {sum(row['right'] for row in quiet)} of {len(quiet)} right"
    )


def reliability(rows: Sequence[dict[str, Any]]) -> str:
    """How often what was said holds, the place or one of the set is broken as a whole, by how sure
    the answer was.
    """
    claims = [it for row in rows for it in row["claims"]]
    lines = []
    for low, high in pairwise(SAID):
        some = [it for it in claims if low < it["probability"] <= high]
        if some:
            said, held = (np.mean([it[key] for it in some]) for key in ("probability", "holds"))
            lines.append(f"said with {said:.0%}: {held:.0%} of {len(some)} places hold")
    return "\n".join(lines)


def fitted(rows: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """How many nats count as one, and `ASIDE`, under which what holds of what was said is most
    probable; each run counts once, for its places are right or wrong together.
    """
    claims = [
        (it["ahead_nats"], it["holds"], len(row["claims"])) for row in rows for it in row["claims"]
    ]
    ahead, holds, n = (np.array(each) for each in zip(*claims, strict=True))

    def log_likelihood(dispersion: float, aside: float) -> float:
        p = (1 - aside) / (1 + np.exp(-ahead / dispersion))
        return float((np.log(np.where(holds, p, 1 - p)) / n).sum())

    grid = product(np.arange(1, 15.01, 0.5), np.arange(0.002, 0.2, 0.002))
    return max(
        ((float(one), float(other)) for one, other in grid), key=lambda it: log_likelihood(*it)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=100, help="how many (default: 100)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first (default: 0)")
    parser.add_argument("--files", metavar="FILE", type=Path, nargs="*", help="these scenarios")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="keep the results there")
    parser.add_argument("--fit", action="store_true", help="fit how sure answers are to these runs")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    arguments = parser.parse_args()
    rows = []
    seeds = range(arguments.first, arguments.first + arguments.runs)
    for it in arguments.files or seeds:
        name = it.stem if isinstance(it, Path) else str(it)
        scenario = load_scenario(it) if isinstance(it, Path) else make_scenario(Draw(it).tables)
        with kept(scenario, arguments.keep and arguments.keep / name) as results:
            row = ask(scenario, name, results)
        rows.append(row)
        if not arguments.json and not row["right"]:
            print(said(row), flush=True)
    if arguments.fit:
        dispersion, aside = fitted(rows)
        print(f"{dispersion:.1f} nats count as one; ASIDE = {aside:.3f}")
    print(json.dumps(rows, indent=1) if arguments.json else f"{reliability(rows)}\n{total(rows)}")


if __name__ == "__main__":
    main()
