"""Scenarios that nobody chose, for `p100.py --drawn`: fabric, traffic, size and fault are drawn.

A scenario is a function of its number alone, so two checkouts run the same ones.
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

# The others: both that spray, and RoCEv2 whose routing is told of each fault in the same instant.
TOLD = "roce 8 converged"
TRANSPORTS = f"""
    [[transport]]
    name = "mrc"
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
    return f"{kind} of {size:,} B", _table("workload", keys)


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


def summary(rows: list[dict[str, float]]) -> str:
    """How often MRC's p100 is the least or nearly so, of all and of those that nobody tells where
    the faults are; `rows` are p100 by transport.
    """
    lines = []
    for words, left_out in (("all", ()), ("those that are not told", (TOLD,))):
        ratios = [
            row["mrc"] / min(us for name, us in row.items() if name not in left_out) for row in rows
        ]
        like = sum(ratio <= LIKE_THE_BEST for ratio in ratios)
        far = sum(ratio > FAR for ratio in ratios)
        lines.append(
            f"Of {words}, MRC's p100 is the least or within {LIKE_THE_BEST - 1:.0%} of it in "
            f"{like} of {len(ratios)}, more than {FAR} times it in {far}; at most "
            f"{max(ratios):.2f} times"
        )
    return "\n".join(lines)
