"""A T1 falls silent, and is named by probes over MRC's C API alone: `mrc ops nic` in a lab.

    .venv/bin/python benchmarks/nics.py [--trials N] [--seed N]

Six hosts on two planes, three T0s for two hosts each, two T1s. On every host `mrc ops nic` over
libmrc, and one `mrc ops controller --nics`: all of them processes of their own, 20 ms a period.
Each trial silences a drawn T1, and heals it once it is named, until the controller says that it
loses nothing any more. The time is from the silence until the name is in the controller's history.
In the end the controller is killed, and a T1 is silenced that nobody hears of: nothing may end.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mapper import COME_S, PERIOD_MS, WAIT_S, Bench

from openmrc.capi import build, hot
from openmrc.live.lab import Lab, run_lab
from openmrc.live.lab.topology import MANAGEMENT_ROUTER
from openmrc.ops.mapper.command import HTTP_PORT, PORT
from openmrc.run.lab.spec import lab_spec
from openmrc.scenario.scenario import load_lab
from openmrc.verbs.cabled import prepare

SCENARIO = """
[fabric]
nics = 6
planes = 2
port_rate = "100Mbps"
t0_down = 2
t0_up = 2
link_delay = "0us"
switch_delay = "0us"

[lab]
switch = "openmrc"
"""
SETTLE_S, AFTER_S = 3.0, 0.4
HEAL_S = 15.0


class Nics(Bench):
    """The lab's agents are those of NICs."""

    controller_words = ("--nics",)

    @staticmethod
    def build(directory: Path) -> None:
        """Build what agents load, beside the scenario."""
        build.build(directory)

    def agent_words(self) -> list[str]:
        library = self.scenario.parent / build.LIBMRC
        words = ["nic", "--library", str(library), "--controller"]
        words += [f"{MANAGEMENT_ROUTER}:{PORT}"]
        return [*words, "--denylist", f"http://{MANAGEMENT_ROUTER}:{HTTP_PORT}"]


def in_lab(kind: type[Nics], work: Callable[[Any], None]) -> int:
    """Do some work in a lab with these agents, once all have joined."""
    prepare()
    hot.warm_up()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        scenario = directory / "lab.toml"
        scenario.write_text(SCENARIO)
        kind.build(directory)

        def inside(lab: Lab) -> int:
            lab.begin()
            bench = kind(lab, directory, scenario)
            try:
                joined = bench.joined(bench.fabric.n_nics)
                print(f"{joined} agents after at most {COME_S:g} s, {PERIOD_MS} ms a period")
                work(bench)
            finally:
                bench.close()
                sys.stderr.write((directory / "log").read_text()[-3000:])
            return 0

        spec: Any = lab_spec(load_lab(str(scenario), []))
        return run_lab(spec, inside)


def trial(
    bench: Nics, where: str, meanwhile: Callable[[], None] = lambda: None
) -> tuple[float | None, list[str]]:
    """How many ms it took until a T1 was named, and what else was. `meanwhile` is called before it
    is healed.
    """
    (before,) = bench.rows("SELECT coalesce(max(id), 0) FROM place")[0]
    broke_us = time.time_ns() // 1000
    bench.lab.fail(where, "switch-silent")
    sql = f"SELECT place, named_us FROM place WHERE id > {before} AND withdrawn = 0"
    bench.wait(f"{sql} AND place = '{where}'", 1, WAIT_S)
    time.sleep(AFTER_S)  # what is wrong may come after what is right
    meanwhile()
    rows = bench.rows(sql)
    bench.lab.heal(where)
    bench.wait(f"{sql} AND until_us IS NOT NULL", len(rows), HEAL_S)
    took = [(named - broke_us) / 1e3 for place, named in rows if place == where]
    return (took[0] if took else None), sorted({place for place, _ in rows} - {where})


def trials(
    bench: Nics, n: int, seed: int, one: Callable[[str], tuple[float | None, list[str]]]
) -> None:
    """Draw T1s that fall silent, and print how soon each was named."""
    rng, took, right = np.random.default_rng(seed), list[float](), 0
    for i in range(n):
        where = f"plane {rng.integers(2)} t1 {rng.integers(2)}"
        time.sleep(float(rng.uniform(0, 2 * PERIOD_MS / 1000)))
        ms, wrong = one(where)
        took += [] if ms is None else [ms]
        right += ms is not None and not wrong
        if ms is None or wrong:
            print(f"  trial {i}: {where}: {'not named' if ms is None else f'{ms:.0f} ms'}, {wrong}")
    took.sort()
    print(f"right {right} of {n}, named {len(took)}", end="")
    if took:
        print(f": median {took[len(took) // 2]:.0f} ms, worst {took[-1]:.0f} ms", end="")
    print(f"; within 100 ms: {sum(one <= 100 for one in took)}")


def measure(bench: Nics, n_trials: int, seed: int) -> None:
    n = bench.fabric.n_nics
    time.sleep(SETTLE_S)
    before, began = bench.cpu_s(), time.monotonic()
    time.sleep(SETTLE_S)
    cost = (bench.cpu_s() - before) / (time.monotonic() - began)
    quiet = bench.rows("SELECT place FROM place")
    print(f"agents and controller take {cost:.1%} of a core; named in quiet: {quiet or 'nothing'}")
    trials(bench, n_trials, seed, partial(trial, bench))
    bench.controller.kill()
    bench.controller.wait()
    bench.lab.fail("plane 0 t1 0", "switch-silent")
    time.sleep(SETTLE_S)
    there = sum(one.poll() is None for one in bench.agents.values())
    print(f"without a controller: {there} of {n} agents go on")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return in_lab(Nics, lambda bench: measure(bench, arguments.trials, arguments.seed))


if __name__ == "__main__":
    raise SystemExit(main())
