"""Faults drawn at random, of every kind and in every form, for tests that run long.

The drawn faults always compile, and are a function of the fabric's shape, the seed and the counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from openmrc.fabric.kinds import BEGINS, LIFTED_TOGETHER, Fault
from openmrc.fabric.model import Fabric

T = TypeVar("T")

HORIZON_MIN_PS = 10_000  # a shorter time has no room for faults that repeat
TURNS_MIN, TURNS_MAX = 2, 50  # how often a repeating fault repeats
SHORTEST = 1000  # a fault lasts from this fraction of the remaining time up to all of it
SHARE_MIN = 0.51  # a share of one thing that still rounds to one


def draw_faults(
    fabric: Fabric, seed: int, n: int, horizon_ps: int, lasting: bool = False
) -> list[Fault]:
    """Return `n` random faults, and the faults that end those that need one.

    All are over at `horizon_ps`; with `lasting` some never end. Every run of `len(BEGINS)` faults
    has all kinds.
    """
    draw = _Draw(fabric, np.random.default_rng([seed, n]), max(horizon_ps, HORIZON_MIN_PS))
    faults: list[Fault] = []
    kinds: list[str] = []
    for _ in range(n):
        kinds = kinds or draw.rng.permutation(list(BEGINS)).tolist()
        faults += draw.when(draw.what(kinds.pop()), lasting)
    return faults


class _Draw:
    """Draws for one fabric from one stream of random numbers."""

    def __init__(self, fabric: Fabric, rng: np.random.Generator, horizon_ps: int) -> None:
        self.rng = rng
        self._fabric = fabric
        self._horizon_ps = horizon_ps
        self._lifted: set[tuple[int, ...]] = (
            set()
        )  # one fault of each group: an end might end several

    def what(self, kind: str) -> Fault:
        """Return a fault of this kind at a random place and time, without an end."""
        values: dict[str, Any] = {}
        if kind in ("link-loss", "link-corrupt"):
            values["rate"] = self._pick((0.001, 0.01, 0.1, 0.5, 1.0))
        if kind == "link-loss" and values["rate"] < 1 and self._pick((True, False)):
            least = max(1.0, values["rate"] / (1 - values["rate"]))
            values["burst"] = least * self.rng.uniform(1, 8)
        if kind == "link-slow":
            values["factor"] = self._pick((0.5, 0.25, 0.1, 0.01))
        if kind == "mtu":
            values["mtu"] = self._pick((1500, 2000, 4000))
        if kind == "deny" and self._pick((True, False)):
            values["nics"] = self._pick(("0", f"0-{self._fabric.n_nics // 2}"))
        if kind == "transceiver-down":
            where = self._transceiver()
            if any("transceiver" in place for place in where):
                values["links"] = self._pick((2, 4))
        else:
            places = {
                "links": self._link,
                "NIC ports": self._nic_port,
                "switches": self._switch,
                "paths": self._path,
            }[BEGINS[kind].places]
            where = tuple(places() for _ in range(self._pick((1, 1, 1, 2))))
        if any("*" in place for place in where) and self._pick((True, False)):
            values["share"] = self.rng.uniform(SHARE_MIN, 1)
        at_ps = int(self.rng.integers(0, self._horizon_ps * 4 // 5))
        return Fault(at_ps, kind, where if len(where) > 1 else where[0], **values)

    def when(self, fault: Fault, lasting: bool) -> list[Fault]:
        """Return the fault with an end: a duration, a period, or a second fault that ends it."""
        left = self._horizon_ps - fault.at_ps
        forms = ["once", "once", "period", "random"]
        forms += ["lasting"] if lasting else []
        effects = next((all_ for all_ in LIFTED_TOGETHER if fault.what.effect in all_), ())
        if effects and effects not in self._lifted:
            forms.append("lifted")
        form = "random" if fault.kind == "link-construction" else self._pick(forms)
        if form == "once":
            return [replace(fault, for_ps=self._length(left // SHORTEST + 1, left))]
        if form == "lifted":
            self._lifted.add(effects)
            end = fault.at_ps + self._length(left // SHORTEST + 1, left)
            return [fault, replace(fault, at_ps=end, kind=fault.what.end, share=None)]
        if form == "lasting":
            return [fault]
        turn = left // int(self.rng.integers(TURNS_MIN, TURNS_MAX + 1))
        until = fault.at_ps + self._length(turn, left)
        duty = self.rng.uniform(0.1, 0.9)
        if form == "period":
            return [replace(fault, period_ps=turn, duty=duty, until_ps=until)]
        down = max(int(duty * turn), 1)
        return [replace(fault, mtbf_ps=max(turn - down, 1), mttr_ps=down, until_ps=until)]

    def _pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.rng.integers(len(choices)))]

    def _length(self, least: int, most: int) -> int:
        """Return a time in this range, uniform in its logarithm."""
        length = int(np.exp(self.rng.uniform(np.log(least), np.log(most))))
        return min(max(length, least), most)

    def _link(self) -> str:
        name = self._fabric.link_name(int(self.rng.integers(self._fabric.n_ports)))
        if name.startswith("nic"):
            nic = int(name.split()[1])
            return self._pick((name, f"{name} > t0", f"{name} < t0", f"nic {nic} plane *"))
        lower, upper = name.split(" - ")
        tier = upper.split()[0]
        arrows = [f"{lower} {arrow} {upper}" for arrow in "<>"]
        return self._pick((name, *arrows, f"{lower} - {tier} *"))

    def _nic_port(self) -> str:
        nic = int(self.rng.integers(self._fabric.n_nics))
        plane = int(self.rng.integers(self._fabric.n_planes))
        return self._pick((f"nic {nic} plane {plane}", f"nic {nic} plane *"))

    def _switch(self) -> str:
        name = self._fabric.switch_name(int(self.rng.integers(self._fabric.n_switches)))
        return self._pick((name, name, f"{name.rpartition(' ')[0]} *"))

    def _path(self) -> str:
        plane = f"plane {int(self.rng.integers(self._fabric.n_planes))}"
        return self._pick((plane, self._switch(), self._link()))

    def _transceiver(self) -> tuple[str, ...]:
        nic = f"nic {int(self.rng.integers(self._fabric.n_nics))}"
        number = self._pick(("0", "*"))
        named = self._pick((nic, self._switch()))
        if self._pick((True, False)):
            return (f"{named} transceiver {number}",)
        return tuple(self._link() for _ in range(self._pick((2, 3, 4))))
