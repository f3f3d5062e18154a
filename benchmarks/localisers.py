"""openmrc's localiser beside Flock, NetBouncer and 007, on the same traces.

    .venv/bin/python benchmarks/localisers.py [--baselines PROGRAM] [--traces DIR] [--case NAME]
        [--trials N] [--seed N] [--out FILE]

Without PROGRAM only ours answers. With `--traces` the traces stay in DIR, to be read by whom you
like. `--out docs/operators/localisers.json` is what the page's table is made of.

A fabric of 128 NICs on 4 planes, 2,048 directed links; four queue pairs for each NIC, each over all
64 paths, 400 packets a path. Only links that packets cross both ways break, and NICs with such
links. What is lost is drawn packet by packet from what each link, switch or NIC loses. Senders
leave a dead path after one to three losses. Everybody gets the same: for each path what was sent
and what was lost, and nothing of when.

The baselines read the format of netarch/FaultLocalization, the harness of Flock's authors, with
all paths known (which they call INT; 007 votes with paths that lost packets alone). It knows hosts
of one rack: each port of a NIC is a host. PROGRAM is to be made of that harness: called as `PROGRAM
ALGORITHM TRACE TOPOLOGY END_MS`, with a line of parameters on its standard input for each answer,
it prints a line `ANSWER A>B C>D ...`: the links that the algorithm (`flock`, `netbouncer`, `007`)
names; a device is A>A. The harness' own programs have algorithm and parameters compiled in.

Scored is as that harness does: precision is the share of named links that are bad or at a bad
device; recall the share of bad links and devices that are named, where links of a bad device count
by their share of its links. A verdict "one of these" names nothing. For each baseline, the answer
with the highest F1 over all trials of a case counts, among the parameters that its authors
published.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from openmrc.fabric import Fabric, multiplane
from openmrc.fabric.ways import routes
from openmrc.ops import causes, evidence
from openmrc.ops.localise import Rules, localise

# Some thousand links: a probability of 10^-9 each is enough.
RULES = Rules(alarm=20.0, margin=5.0)
NICS, PLANES, T0_DOWN = 128, 4, 16
QPS, PACKETS = 4, 400
RATE_BPS = 100 * 10**9
FIRST_HOST = 10_000  # the harness counts hosts from there
END_MS = 1000.0
OURS = "openmrc"

# As in the harness' sources: what its authors chose for their figures.
PARAMETERS: dict[str, tuple[tuple[float, ...], ...]] = {
    "flock": (  # 1 - loss of a bad link, loss of a good one, logarithm of the prior
        (1 - 0.003, 2e-4, -15),
        (1 - 0.002, 3e-4, -15),
        (1 - 0.006, 3e-4, -5),
        (1 - 0.0005, 1.75e-4, -4),
        (1 - 0.007, 3e-4, -35),
        (1 - 0.005, 2e-4, -25),
        (1 - 0.01, 8e-4, -100),
        (1 - 0.002, 4.5e-4, -10),
        (1 - 0.003, 2e-4, -20),
        (1 - 0.005, 1.5e-4, -10),
        (1 - 0.001, 1e-4, -20),
    ),
    "netbouncer": (  # weight of the regularisation, loss of a bad link, share of bad paths
        (0.011, 0.002, 0.075),
        (0.001, 0.007, 0.125),
        (0.51, 0.0205, 0.41),
        (0.3, 0.003, 0.41),
        (0.06, 0.00225, 0.06),
        (0.31, 0.005, 0.125),
        (0.21, 0.001, 0.075),
        (0.01, 0.001, 0.2),
    ),
    "007": ((0.0001,), (0.0019,), (0.0023,), (0.0025,), (0.003,), (0.0083,)),  # share of the votes
}

Link = tuple[int, int]  # from, to; a device is (itself, itself)


class Fault(NamedTuple):
    """A cause and the share of packets that it loses; 1 is dead."""

    cause: int
    rate: float


@dataclass(frozen=True, eq=False)
class Place:
    """The fabric, and the paths of its traffic."""

    fabric: Fabric
    paths: np.ndarray  # [paths, hops]
    crossed: np.ndarray  # [2 hops + 1, paths] causes

    @classmethod
    def of(cls, seed: int, nics: int = NICS, planes: int = PLANES, down: int = T0_DOWN) -> Place:
        fabric = multiplane(nics, planes, RATE_BPS, down, down, 0, 0)
        rng = np.random.default_rng(seed)
        src = np.repeat(np.arange(nics), QPS)
        # Across T0s: what stays below one names no path that the harness could read.
        far = rng.integers(0, nics - down, len(src))
        dst = (src // down * down + down + far) % nics
        plane, uplink = np.divmod(np.arange(planes * down), down)
        evs = fabric.ev_base | plane << fabric.ev_plane_shift | uplink << fabric.ev_up0_shift
        each = (len(src), len(evs))
        ends = (np.broadcast_to(end[:, None], each).ravel() for end in (src, dst))
        paths = routes(fabric, *ends, np.broadcast_to(evs, each).ravel())
        return cls(fabric, paths, causes.of_routes(fabric, paths))

    @property
    def busy(self) -> np.ndarray:
        """The directed links that packets cross in both directions: nobody sees a fault of an idle
        link.
        """
        used = np.zeros(self.fabric.n_ports, np.bool_)
        used[self.paths[self.paths >= 0]] = True
        return np.flatnonzero(used & used[self.fabric.port_reverse])


class Trace(NamedTuple):
    """What was seen, and what was broken."""

    sent: np.ndarray  # [paths]
    lost: np.ndarray
    faults: list[Fault]


# --- what breaks


def links(place: Place, rng: Any, n: int = 1, tier: str = "any") -> list[int]:
    """So many directed links."""
    fabric, ports = place.fabric, place.busy
    of_nic = (fabric.port_nic[ports] >= 0) | (fabric.port_peer_nic[ports] >= 0)
    chosen = {"any": ports, "nic": ports[of_nic], "t1": ports[~of_nic]}[tier]
    return [int(port) for port in rng.choice(chosen, n, replace=False)]


def switch(place: Place, rng: Any, tier: int) -> int:
    return place.fabric.n_ports + int(rng.choice(np.flatnonzero(place.fabric.sw_tier == tier)))


def nic(place: Place, rng: Any) -> int:
    fabric = place.fabric
    sender = fabric.port_nic[place.busy]
    return fabric.n_ports + fabric.n_switches + int(rng.choice(np.unique(sender[sender >= 0])))


def cable(place: Place, rng: Any) -> list[int]:
    (port,) = links(place, rng)
    return [port, int(place.fabric.port_reverse[port])]


def lossy(*rates: float, tier: str = "any") -> Callable[[Place, Any], list[Fault]]:
    def draw(place: Place, rng: Any) -> list[Fault]:
        ports = links(place, rng, len(rates), tier)
        return [Fault(port, rate) for port, rate in zip(ports, rates, strict=True)]

    return draw


def many(rate: float) -> Callable[[Place, Any], list[Fault]]:
    return lambda place, rng: lossy(*[rate] * int(rng.integers(1, 21)))(place, rng)


def gray_switch_and_links(place: Place, rng: Any) -> list[Fault]:
    return [Fault(switch(place, rng, 1), 1.0), *lossy(0.005, 0.002)(place, rng)]


class Case(NamedTuple):
    """What breaks, and how many packets are lost everywhere though nothing is broken there."""

    faults: Callable[[Place, Any], list[Fault]]
    chance: float = 1e-6
    packets: int = PACKETS


CASES = {
    "healthy": Case(lambda place, rng: []),
    "healthy, 0.01 % lost everywhere": Case(lambda place, rng: [], 1e-4 / 4),
    "one direction dead": Case(lambda place, rng: [Fault(links(place, rng)[0], 1.0)]),
    "NIC's link dead, one direction": Case(
        lambda place, rng: [Fault(links(place, rng, 1, "nic")[0], 1.0)]
    ),
    "cable cut": Case(lambda place, rng: [Fault(port, 1.0) for port in cable(place, rng)]),
    "T1 silent": Case(lambda place, rng: [Fault(switch(place, rng, 1), 1.0)]),
    "T0 silent": Case(lambda place, rng: [Fault(switch(place, rng, 0), 1.0)]),
    "NIC dead": Case(lambda place, rng: [Fault(nic(place, rng), 1.0)]),
    "0.1 % on one link": Case(lossy(0.001)),
    "0.2 % on one link, 100 packets a path": Case(lossy(0.002), packets=100),
    "0.5 % on one link": Case(lossy(0.005)),
    "0.5 % on a NIC's link": Case(lossy(0.005, tier="nic")),
    "2 % on one link": Case(lossy(0.02)),
    "0.1 % on 1 to 20 links": Case(many(0.001)),
    "0.5 % on 1 to 20 links": Case(many(0.005)),
    "0.1 to 5 % on eight links": Case(
        lossy(0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05)
    ),
    "T1 loses 0.5 %": Case(lambda place, rng: [Fault(switch(place, rng, 1), 0.005)]),
    "T1 silent, two gray links": Case(gray_switch_and_links),
    "0.5 % on one link, 0.01 % everywhere": Case(lossy(0.005), 1e-4 / 4),
}  # fmt: skip


def drawn(place: Place, case: Case, rng: Any) -> Trace:
    """What senders see; a path's chance of losing a packet though nothing is broken is four times
    a link's.
    """
    faults = case.faults(place, rng)
    through = np.zeros(causes.count(place.fabric) + 1)
    dead = np.zeros(len(through), np.bool_)
    for fault in faults:
        dead[fault.cause] = fault.rate == 1.0
        through[fault.cause] = 0.0 if fault.rate == 1.0 else np.log1p(-fault.rate)
    hops = np.minimum((place.paths >= 0).sum(axis=1), 4)
    total = hops * np.log1p(-case.chance)
    silent = np.zeros(len(place.paths), np.bool_)
    for column in place.crossed:
        total += through[column]
        silent |= dead[column]
    n = len(total)
    sent = np.full(n, case.packets)
    # What was dead from some moment on: until then a path carried packets.
    sent[silent] = (rng.random() * case.packets * np.ones(n)).astype(np.int64)[silent]
    lost = rng.binomial(sent, -np.expm1(total))
    last = np.where(silent, rng.integers(1, 4, n), 0)
    return Trace(sent + last, lost + last, faults)


# --- the harness' format


def node(fabric: Fabric, port: int) -> int:
    """The device that sends through a directed port, as the harness numbers it."""
    sender = int(fabric.port_switch[port])
    return sender if sender >= 0 else FIRST_HOST + port


def link(fabric: Fabric, port: int) -> Link:
    return node(fabric, port), node(fabric, int(fabric.port_reverse[port]))


def named(fabric: Fabric, cause: int) -> list[Link]:
    """A cause as links: a switch is one with itself, a NIC all of its ports' links."""
    what = causes.kind(fabric, cause)
    if what == causes.SWITCH:
        device = cause - fabric.n_ports
        return [(device, device)]
    return [link(fabric, port) for port in causes.links_of(fabric, cause).tolist()]


def topology(fabric: Fabric) -> Iterable[str]:
    for port in range(fabric.n_ports):
        sender, receiver = link(fabric, port)
        if sender >= FIRST_HOST:
            yield f"{sender}->{receiver}"
        elif receiver < FIRST_HOST and sender < receiver:
            yield f"{sender} {receiver}"


def trace_lines(place: Place, trace: Trace) -> Iterable[str]:
    """What failed, all paths between racks, then each path with what was sent and lost on it."""
    fabric = place.fabric
    for fault in trace.faults:
        for sender, receiver in named(fabric, fault.cause):
            yield f"Failing_link {sender} {receiver} {fault.rate}"
    ends = np.array([link(fabric, port) for port in range(fabric.n_ports)])
    racks = np.stack([ends[place.paths[:, hop], 1] for hop in range(3)], axis=1)
    for path in np.unique(racks, axis=0).tolist():
        yield "FP " + " ".join(map(str, path))
    first, last = ends[place.paths[:, 0], 0], ends[place.paths[:, 3], 1]
    columns = (first, last, racks, trace.sent, trace.lost)
    for src, dst, path, sent, lost in zip(*(each.tolist() for each in columns), strict=True):
        yield f"FID {src} {dst} {path[0]} {path[-1]} {sent * 4096} 1.0"
        yield "FPT " + " ".join(map(str, path))
        yield f"SS {END_MS / 2} {sent} {lost} 0"


def baseline(
    program: Path, name: str, trace: Path, network: Path, parameters: Iterable[tuple[float, ...]]
) -> list[set[Link]]:
    """What it names with each set of parameters."""
    asked = "".join(" ".join(map(repr, each)) + "\n" for each in parameters)
    done = subprocess.run(
        [program, name, trace, network, str(2 * END_MS)],
        input=asked, text=True, capture_output=True, check=True,
    )  # fmt: skip
    answers = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    return [
        {(int(a), int(b)) for a, _, b in (each.partition(">") for each in answer)}
        for answer in answers
    ]


def ours(place: Place, trace: Trace) -> set[Link]:
    """What our localiser names, with a bar for some thousand links."""
    seen = evidence.of_paths(place.fabric, place.paths, trace.sent, trace.lost, 0, 1)
    found = [verdict for verdict in localise(place.fabric, seen, RULES) if verdict.is_sure]
    return {each for verdict in found for each in named(place.fabric, verdict.cause)}


# --- who is right


class Score(NamedTuple):
    """Sums over trials: of named links the right ones, of bad ones those found."""

    right: float = 0
    named: float = 0
    found: float = 0
    bad: float = 0

    @property
    def precision(self) -> float:
        return self.right / self.named if self.named else 1.0

    @property
    def recall(self) -> float:
        return self.found / self.bad if self.bad else 1.0

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


def score(fabric: Fabric, faults: list[Fault], answer: set[Link]) -> Score:
    """As the harness scores an answer."""
    bad = {each for fault in faults for each in named(fabric, fault.cause)}
    devices = {a for a, b in bad if a == b}
    right = {each for each in answer if each in bad or devices & set(each)}
    found = float(len(answer & bad))
    for device in devices - {a for a, b in answer if a == b}:
        near = [each for each in answer if device in each]
        ports = causes.links_of(fabric, fabric.n_ports + device)
        found += len(near) / len(ports)
    return Score(len(right), len(answer), found, len(bad))


def added(scores: Iterable[Score]) -> Score:
    return Score(*(float(sum(column)) for column in zip(*scores, strict=True)))


def compare(
    place: Place, case: Case, number: int, trials: int, seed: int, program: Path | None, keep: Path
) -> dict[str, Any]:
    """Precision, recall and F1 of everybody in a case; of baselines at their best parameters."""
    network = keep / "topology"
    network.write_text("".join(f"{line}\n" for line in topology(place.fabric)))
    scores: dict[str, list[list[Score]]] = {OURS: [[]]}
    for trial in range(trials):
        trace = drawn(place, case, np.random.default_rng([seed, number, trial]))
        scores[OURS][0].append(score(place.fabric, trace.faults, ours(place, trace)))
        file = keep / f"trace_{number}_{trial}"
        file.write_text("".join(f"{line}\n" for line in trace_lines(place, trace)))
        for name, sets in PARAMETERS.items() if program else ():
            assert program is not None
            mine = scores.setdefault(name, [[] for _ in sets])
            for each, answer in zip(
                mine, baseline(program, name, file, network, sets), strict=True
            ):
                each.append(score(place.fabric, trace.faults, answer))
    row: dict[str, Any] = {}
    for name, by_parameters in scores.items():
        sums = [added(each) for each in by_parameters]
        best = max(range(len(sums)), key=lambda i: (sums[i].f1, sums[i].precision, -i))
        it = sums[best]
        row[name] = {
            "precision": round(it.precision, 4),
            "recall": round(it.recall, 4),
            "f1": round(it.f1, 4),
        }
        if name != OURS:
            row[name]["parameters"] = list(PARAMETERS[name][best])
            row[name]["better"] = [  # than ours in one, and not worse in the other
                list(PARAMETERS[name][i])
                for i, s in enumerate(sums)
                if beats(s, added(scores[OURS][0]))
            ]
    return row


def beats(one: Score, other: Score) -> bool:
    """Whether one is better in precision or recall and not worse in the other."""
    more = (one.precision - other.precision, one.recall - other.recall)
    return max(more) > 1e-9 and min(more) > -1e-9


COLUMNS = {OURS: "openmrc", "flock": "Flock", "netbouncer": "NetBouncer", "007": "007"}


def markdown(table: dict[str, Any]) -> str:
    """The table of the page: F1, and precision and recall where they are not both 1."""

    def cell(row: dict[str, Any]) -> str:
        f1, both = f"{row['f1']:.3f}", (row["precision"], row["recall"])
        return f1 if both == (1, 1) else f"{f1} ({both[0]:.3f}, {both[1]:.3f})"

    lines = ["| What breaks | " + " | ".join(COLUMNS.values()) + " |", "|---" * 5 + "|"]
    for name, row in table["cases"].items():
        lines.append(f"| {name} | " + " | ".join(cell(row[who]) for who in COLUMNS) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--baselines", type=Path, help="a program made of the public harness")
    parser.add_argument("--traces", type=Path, help="keep the traces in this directory")
    parser.add_argument("--case", action="append", choices=CASES, help="these cases only")
    parser.add_argument("--trials", type=int, default=10, help="of each case (default: 10)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the results there, as JSON")
    arguments = parser.parse_args()
    place = Place.of(arguments.seed)
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        keep = arguments.traces or Path(directory)
        keep.mkdir(parents=True, exist_ok=True)
        for number, (name, case) in enumerate(CASES.items()):
            if arguments.case and name not in arguments.case:
                continue
            rows[name] = compare(
                place, case, number, arguments.trials, arguments.seed, arguments.baselines, keep
            )
            print(name)
            for who, row in rows[name].items():
                said = "".join(f"{row[key]:8.4f}" for key in ("precision", "recall", "f1"))
                print(f"  {who:12}{said}  {row.get('parameters', '')}", flush=True)
                if row.get("better"):
                    print(f"    better than ours with {row['better']}")
    if arguments.out:
        table = {"trials": arguments.trials, "seed": arguments.seed, "cases": rows}
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(table, indent=1) + "\n")
        if arguments.baselines:
            print(markdown(table))


if __name__ == "__main__":
    main()
