"""Scenarios that nobody chose, for `p100.py --drawn`: fabric, traffic, size and fault are drawn.

A scenario is a function of its number alone, so two checkouts run the same ones. Queue pairs
connect at time 0, and what is broken is broken then; messages begin when all paths can have been
tried. MRC runs twice: it knows of nothing, or it tried its paths when it connected, and so is as
well informed as RoCEv2, whose routing is told.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

NIC_GBPS = 800
PLANES = (1, 2, 4, 8, 16)
SIZE_BYTES = (4_000, 64_000_000)  # drawn by its logarithm, between these
VOLUME_BYTES = 1_000_000_000  # of all messages together, at most
LIKE_THE_BEST, FAR = 1.03, 1.3  # of the least p100 of all transports

# A NIC tries a path in each time of a full packet: some hundred of each queue pair, twice what is
# dead.
TRIED_US, TRIED_US_PER_PEER = 60, 20
# The others: both that spray, and RoCEv2 whose routing is told of each fault in the same instant.
MRC, CHECKED, TOLD = "mrc", "mrc checked", "roce 8 converged"
TRANSPORTS = f"""
    [[transport]]
    name = "{MRC}"
    [[transport]]
    name = "{CHECKED}"
    check_paths = true
    [[transport]]
    paths = "oblivious"
    [[transport]]
    paths = "reps"
    [[transport]]
    kind = "roce"
    name = "{TOLD}"
    qps = 8
    convergence = "instant"
"""


@dataclass(frozen=True)
class Drawn:
    """A scenario, and in words what was drawn."""

    words: str
    text: str


def drawn(number: int) -> Drawn:
    """Return scenario `number`."""
    rng = np.random.default_rng([0x9100, number])
    fabric, where, nics = _fabric(rng)
    traffic, text = _traffic(rng, nics)
    fault, faults = _fault(rng)
    trim = bool(rng.integers(2))
    fabric += f"    trim = {str(trim).lower()}\n"
    words = ", ".join((where, "trims" if trim else "drops", traffic, fault))
    return Drawn(words, fabric + text + faults + TRANSPORTS)


def _fabric(rng: np.random.Generator) -> tuple[str, str, int]:
    if rng.random() < 0.3:
        keys = {"kind": "fat-tree", "nics": 64, "tiers": 3, "t0_down": 4, "t1_down": 4}
        keys |= {"port_rate": f"{NIC_GBPS}Gbps"}
        return _table("fabric", keys), "three tiers", 64
    planes, nics = int(rng.choice(PLANES)), int(rng.choice((64, 128)))
    keys = {"nics": nics, "planes": planes, "port_rate": f"{NIC_GBPS // planes}Gbps"}
    return _table("fabric", keys | {"t0_down": 16}), f"{nics} NICs x {planes} planes", nics


def _traffic(rng: np.random.Generator, nics: int) -> tuple[str, str]:
    kind = str(rng.choice(("permutation", "permutation", "incast", "all-to-all")))
    n = int(rng.integers(4, 33))
    messages = {"permutation": nics, "incast": n, "all-to-all": nics * (nics - 1)}[kind]
    low, high = (math.log(bound) for bound in SIZE_BYTES)
    size = min(int(math.exp(rng.uniform(low, high))), VOLUME_BYTES // messages)
    keys = {"kind": kind, "size": f"{size * (nics if kind == 'all-to-all' else 1)}B"}
    if kind == "incast":
        keys |= {"n": n}
    peers = {"permutation": 2, "incast": n, "all-to-all": nics - 1}[kind]
    keys |= {"start": f"{TRIED_US + TRIED_US_PER_PEER * peers}us"}
    jobs = _table("workload", {"kind": "jobs"})
    return f"{kind} of {size:,} B", jobs + _table("[workload.job]", keys)


def _fault(rng: np.random.Generator) -> tuple[str, str]:
    links = "plane * t0 * - t1 *"
    share = float(rng.choice((0.01, 0.02, 0.05)))
    faults: list[tuple[str, dict[str, object]]] = [
        ("healthy", {}),
        (f"{share:.0%} of links dead", {"kind": "link-down", "where": links, "share": share}),
        (
            f"{share:.0%} of links lose 5 %",
            {"kind": "link-loss", "where": links, "share": share, "rate": 0.05},
        ),
        ("a T1 silent", {"kind": "switch-silent", "where": "plane 0 t1 0"}),
        (
            "half of a T0's uplinks dead",
            {"kind": "link-down", "where": "plane * t0 1 - t1 *", "share": 0.5},
        ),
    ]
    words, keys = faults[int(rng.integers(len(faults)))]
    return words, _table("[fault]", {"at": "0s", **keys}) if keys else ""


def _table(name: str, keys: dict[str, object]) -> str:
    lines = (
        f"    {key} = {value}\n" if isinstance(value, int | float) else f'    {key} = "{value}"\n'
        for key, value in keys.items()
    )
    return f"    [{name}]\n{''.join(lines)}"


def ratios(rows: list[dict[str, float]]) -> dict[str, list[float]]:
    """MRC's p100 in times the least, by what is compared: of those that nobody tells where the
    faults are, and, with paths tried, of all. `rows` are p100 by transport.
    """
    told = (CHECKED, TOLD)
    untold = [{name: us for name, us in row.items() if name not in told} for row in rows]
    return {
        "MRC beside those that are not told": [row[MRC] / min(row.values()) for row in untold],
        "MRC that tried its paths, beside all": [row[CHECKED] / min(row.values()) for row in rows],
    }


def summary(rows: list[dict[str, float]]) -> str:
    """How often MRC's p100 is the least or nearly so; `rows` are p100 by transport."""
    lines = []
    for words, each in ratios(rows).items():
        like = sum(ratio <= LIKE_THE_BEST for ratio in each)
        far = sum(ratio > FAR for ratio in each)
        lines.append(
            f"{words}: the least or within {LIKE_THE_BEST - 1:.0%} of it in {like} of {len(each)}, "
            f"more than {FAR} times it in {far}; at most {max(each):.2f} times"
        )
    return "\n".join(lines)
