"""What each rule of the engine buys: every rule is switched off by itself, and all rows are rerun.

    .venv/bin/python benchmarks/ablate.py [--rule WORD ...] [--row ROW ...] [--seeds 1 2 3]
                                          [--keep FILE] [--markdown]

A rule is switched off in a copy of the source, by an edit of one place: the engine that runs has no
switches. A rule whose text has changed is refused by name (`tests/test_ablate.py`). The rows are
those of `p100.py` that take seconds, and others (`scenarios`). Each figure is a ratio to the engine
as it is: p50, p100 (of an incast over the ideal), packets sent again. Compiling takes a minute for
each rule. `--keep` writes results as they come, and reads what is there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkouts import Checkout

ROOT = Path(__file__).resolve().parent.parent
ENGINE = Path("src/openmrc/engine")
P50, P100, AGAIN = "p50", "p100", "sent again"
NOTABLE = 0.02  # of a figure: smaller effects are those of other draws


@dataclass(frozen=True)
class Rule:
    """One rule, the row of docs/protocol.md that states it, and what its absence is: in a file of
    the engine this text, and what stands there without the rule.
    """

    words: str
    row: str
    file: str
    text: str
    instead: str


RULES = {
    "evidence of its class": Rule(
        "a retransmission is no evidence against an original", "7",
        "loss.py", "    if fate.again(s):\n        return max(q.evidence_at,", "    if True:\n"
        "        return max(q.evidence_at,",
    ),
    "round trips of two kinds": Rule(
        "retransmissions and originals have round trips of their own", "7",
        "loss.py", "    q.rtt_largest[again] = max(q.rtt_largest[again], rtt)",
        "    for k in range(2):\n        q.rtt_largest[k] = max(q.rtt_largest[k], rtt)",
    ),
    "forgotten in time": Rule(
        "what waits is judged when long round trips are forgotten", "7",
        "loss.py", "    if q.overdue_at != es.NEVER:  # long", "    if False:  # long",
    ),
    "forgotten sooner": Rule(
        "four other round trips halve the memory of a long one", "7",
        "loss.py", "    early = period // 2 if q.rtt_samples >= RTT_TURN_SAMPLES else 0",
        "    early = 0",
    ),
    "trims as round trips": Rule(
        "a trim at the last hop says how long answers may take", "7",
        "loss.py", "    note_rtt(q, 0, q.base_rtt + int(q.qa_threshold))", "    return",
    ),
    "false alarms undone": Rule(
        "a late arrival returns the path and the window", "7",
        "loss.py", "    if cut:\n        nscc.undo_loss(q)\n", "    return\n",
    ),
    "plane's own loss": Rule(
        "a plane that loses alone cuts no window", "7",
        "nscc.py", "    if again and several(q.planes_ok):", "    if again and q.planes_ok < 0:",
    ),
    "half at most": Rule(
        "all losses of a round trip take at most half the window", "7",
        "nscc.py", "q.cut_floor, q.pkt)", "q.pkt, q.pkt)",
    ),
    "another plane": Rule(
        "a retransmission avoids the plane of the loss", "7",
        "requester.py", "        free_ports &= rotation.planes_without(st, q, avoid)",
        "        free_ports &= q.planes_ok",
    ),
    "proven path": Rule(
        "a retransmission takes the path that delivered last", "7",
        "requester.py", "            ev = rotation.proven(st, q, plane_no)", "            ev = -1",
    ),
    "copies at the end": Rule(
        "overdue packets at the end are sent again with the probe", "8",
        "loss.py", "    return q.nxt == q.seq_end and rotation.several(q.planes_ok) and quiet",
        "    return q.nxt < 0 and rotation.several(q.planes_ok) and quiet",
    ),
    "companions": Rule(
        "what took a path that is found dead goes again with it", "8",
        "loss.py", "    if found and q.nxt == q.seq_end:", "    if found and q.nxt < 0:",
    ),
    "one question where heard": Rule(
        "one probe where something is heard, not eight", "8",
        "loss.py", "    wanted = 1 if heard else 1 << min(q.queries, QUERY_DOUBLINGS)",
        "    wanted = 1 << min(q.queries, QUERY_DOUBLINGS)",
    ),
    "questions spaced": Rule(
        "questions in silence are spaced further each time", "8",
        "loss.py", "        wait = min(patience(q, 0, now) << again, half_epoch)",
        "        wait = min(patience(q, 0, now), half_epoch)",
    ),
    "silent planes": Rule(
        "a plane that loses many packets in a row is silent", "12",
        "beliefs.py", "    if plane.n_good == 0 or _is_silent(st, q, plane, k):",
        "    if plane.n_good == 0:",
    ),
    "silent beside others": Rule(
        "a plane is silent only if no other one loses as much", "12",
        "beliefs.py", "    return (1.0 - best / evs.WHOLE) ** plane.losses <= CHANCE",
        "    return True",
    ),
    "silent for the NIC": Rule(
        "the queue pairs of a NIC learn together that a plane is silent", "12",
        "nic_planes.py", "    if n.losses[k] < LOSSES or", "    if n.losses[k] >= 0 or",
    ),
    "paths kept": Rule(
        "a plane that delivers keeps a part of its paths", "12",
        "beliefs.py", "    if 100 * plane.n_good < plane.keep * plane.n_evs and",
        "    if plane.n_good < 0 and",
    ),
    "likeliest first": Rule(
        "where all paths are bad the likeliest serves", "12",
        "rotation.py",
        "        if b.delivers > most or (b.delivers == most and b.demoted_at < since):\n",
        "        if b.demoted_at < since:\n",
    ),
    "turns of a round trip": Rule(
        "a marked path loses the turns of a round trip", "13",
        "rotation.py", "    return max(min(rounds, plane.share // EVS_PER_TURN), 1)",
        "    return 1",
    ),
    "begin anywhere": Rule(
        "a message shorter than a round of planes begins with a random one", "13",
        "requester.py", "        if m.n_packets < q.n_planes:", "        if m.n_packets < 0:",
    ),
    "planes that arrive": Rule(
        "answers leave planes on which nothing arrives", "14",
        "rotation.py", "    return came if came != 0 else heard", "    return heard",
    ),
    "answers as they came": Rule(
        "until a path is known, answers take the one of what came", "14",
        "rotation.py", "            return\n    plane.reverse_ev = value", "            return\n",
    ),
    "overtaking": Rule(
        "after two round trips retransmissions pass a window full of originals", "15",
        "requester.py", "    return waits and q.lost > 0", "    return waits and q.lost < 0",
    ),
    "no sample beyond a queue": Rule(
        "a wait longer than a full queue is no sample", "15",
        "nscc.py", "    if rtt_ps > FULL_RTTS * q.t_config and", "    if rtt_ps < -1 and",
    ),
    "always marked": Rule(
        "a path that is always marked is left", "23",
        "beliefs.py", "    if e.marks == MARKS_TO_LEAVE:", "    if e.marks < 0:",
    ),
    "quarter increase": Rule(
        "a quarter of the fair increase after a trim at the last hop", "-",
        "nscc.py", "    return FI_TRIMMED * q.fi if", "    return q.fi if",
    ),
    "held growth": Rule(
        "growth is held after a trim at the last hop", "-",
        "nscc.py", "    held = _is_held(q, c, now)", "    held = False",
    ),
    "headers delivered": Rule(
        "headers of trimmed packets count as delivered", "-",
        "nscc.py", "        q.achieved += c.nominal_overhead", "        q.achieved += 0.0",
    ),
    "delay as a mark": Rule(
        "a long delay replaces a mark", "-",
        "nscc.py", "    ecn = ce or (c.marks_on_last_hop == 0 and delay > q.t_config)",
        "    ecn = ce",
    ),
    "half a packet": Rule(
        "a window nearer to one packet than to two sends one", "-",
        "requester.py", "    spare = 0.5 * q.pkt if q.cwnd < 1.5 * q.pkt else 0.0",
        "    spare = 0.0",
    ),
}  # fmt: skip


def stands(one: Rule) -> bool:
    """Whether a rule's text stands once in its file, so that this program knows it."""
    return (ROOT / ENGINE / one.file).read_text(encoding="utf-8").count(one.text) == 1


def without(one: Rule | None, place: Path) -> Checkout:
    """A copy of the source in this directory, without a rule, and a cache of its own."""
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "benchmarks", place / "benchmarks")
    if one is not None:
        path = place / ENGINE / one.file
        whole = path.read_text(encoding="utf-8")
        path.write_text(whole.replace(one.text, one.instead), encoding="utf-8")
    return Checkout(place, place / "cache")


Figures = dict[str, dict[str, float]]  # of rows: their figures


def measured(one: Rule | None, rows: Iterable[str], seeds: Iterable[int]) -> Figures:
    """The figures of rows without a rule, or with all."""
    with tempfile.TemporaryDirectory(prefix="ablate-") as directory:
        words = ["--seeds", *map(str, seeds), "--row", *rows, "--worker"]
        told = without(one, Path(directory)).must("benchmarks/ablate.py", *words)
    found: Figures = json.loads(told)
    return found


def work(rows: Iterable[str], seeds: Iterable[int]) -> Figures:
    """Run the rows with the package that Python finds."""
    from p100 import figures

    from openmrc.run.simulation import simulate
    from openmrc.scenario.scenario import parse_scenario

    found: Figures = {}
    every = scenarios()
    for name in rows:
        runs = [
            simulate(parse_scenario(every[name], [f"seed={seed}"], name=name)).transports[0]
            for seed in seeds
        ]
        all_of = figures(runs)
        slowest = all_of["/ideal"] if name.startswith("incast") else all_of[P100]
        found[name] = {P50: all_of[P50], P100: slowest, AGAIN: all_of[AGAIN]}
        if all_of["open"]:
            found[name][P100] = float("inf")  # a message was never completed
    return found


def scenarios() -> dict[str, str]:
    """The rows and their scenarios: those of `p100.py` of less than a minute, and some of its own:
    losses by chance, jitter, no trims, a plane that loses alone, half of a T0's uplinks dead.
    """
    from p100 import DEAD_LINKS, FABRIC, PERMUTATION, ROWS

    found = {name: row.text(()) for name, row in ROWS.items() if not name.endswith("16MB")}
    mrc = '[[transport]]\nname = "mrc"\n'
    lossy = DEAD_LINKS.replace("link-down", "link-loss").replace("share = 0.005", "rate = {}")
    one_mb = PERMUTATION.format(size="1MB")
    few = FABRIC.format(nics=128)
    all_to_all = few + '[workload]\nkind = "all-to-all"\nsize = "4MiB"\n'
    half = DEAD_LINKS.replace("t0 *", "t0 1").replace("share = 0.005", "share = 0.5")
    found["2 % lost"] = one_mb + lossy.format(0.02) + mrc
    found["a plane loses"] = one_mb + lossy.format(0.3).replace("plane *", "plane 0") + mrc
    found["jitter"] = _with("jitter", '"5us"', one_mb + DEAD_LINKS) + mrc
    found["half a T0"] = all_to_all + half + mrc
    found["untrimmed"] = _with("trim", "false", one_mb + DEAD_LINKS) + mrc
    found["untrimmed half a T0"] = _with("trim", "false", all_to_all + half) + mrc
    untrimmed = _with("trim", "false", ROWS["incast 16"].text(()))
    two = untrimmed.replace("planes = 8", "planes = 2").replace("100Gbps", "400Gbps")
    found["untrimmed incast"], found["the same on two planes"] = untrimmed, two
    return found


def _with(key: str, value: str, scenario: str) -> str:
    """A scenario with one more key of its fabric."""
    return scenario.replace("t0_down = 64\n", f"t0_down = 64\n{key} = {value}\n", 1)


def ratios(found: Figures, base: Figures) -> dict[str, dict[str, float]]:
    """Each figure over that of the engine as it is; packets sent again are compared from 100."""
    return {
        row: {
            key: value / base[row][key] if key != AGAIN else (value + 100) / (base[row][key] + 100)
            for key, value in figures.items()
        }
        for row, figures in found.items()
    }


def extremes(compared: Mapping[str, Mapping[str, float]], key: str) -> list[tuple[str, float]]:
    """The row that a rule's absence costs most, and the one that it serves best, with the ratios;
    of none where that is not notable.
    """
    rows = sorted(compared, key=lambda name: compared[name][key])
    found = [(row, compared[row][key]) for row in (rows[-1], rows[0])]
    return [found[0]] * (found[0][1] > 1 + NOTABLE) + [found[1]] * (found[1][1] < 1 - NOTABLE)


def markdown(found: Mapping[str, Figures]) -> str:
    """A table for a page: a rule a line, and the rows that show it most."""
    base = found[""]
    lines = [
        "| Without the rule that ... | Row | p100 | p50 | sent again |",
        "|---|---|---|---|---|",
    ]
    for name, figures in found.items():
        if name:
            compared = ratios(figures, base)
            cells = [_cell(extremes(compared, key)) for key in (P100, P50, AGAIN)]
            lines.append(f"| {' | '.join([RULES[name].words, RULES[name].row, *cells])} |")
    return "\n".join(lines)


def _cell(rows: Iterable[tuple[str, float]]) -> str:
    return "; ".join(f"{row} {ratio:.2f}" for row, ratio in rows) or "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rule", nargs="+", choices=RULES, default=list(RULES), metavar="RULE",
                        help=", ".join(RULES))  # fmt: skip
    parser.add_argument("--row", nargs="+", metavar="ROW", help="rows; all by default")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], metavar="N")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="results, as JSON")
    parser.add_argument("--markdown", action="store_true", help="print a table for a page")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = options.row or list(scenarios())
    if options.worker:
        print(json.dumps(work(rows, options.seeds)))
        return
    found: dict[str, Figures] = {}
    if options.keep and options.keep.exists():
        found = json.loads(options.keep.read_text(encoding="utf-8"))
    for name in ["", *options.rule]:
        one = RULES[name] if name else None
        if one is not None and not stands(one):
            raise SystemExit(f"ablate: {name}: engine/{one.file} has changed: {one.text}")
        if name not in found:
            print(f"{name or 'the engine as it is'} ...", file=sys.stderr, flush=True)
            found[name] = measured(one, rows, options.seeds)
            if options.keep:
                options.keep.write_text(json.dumps(found, indent=1), encoding="utf-8")
        if name and not options.markdown:
            print(_line(name, ratios(found[name], found[""])), flush=True)
    if options.markdown:
        print(markdown(found))


def _line(name: str, compared: Mapping[str, Mapping[str, Any]]) -> str:
    cells = (f"{row} {of[P50]:.3f} {of[P100]:.3f} {of[AGAIN]:.2f}" for row, of in compared.items()
             if any(abs(ratio - 1.0) > NOTABLE for ratio in of.values()))  # fmt: skip
    return f"{name}: {'; '.join(cells) or 'nothing'}"


if __name__ == "__main__":
    main()
