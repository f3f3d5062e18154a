"""The kinds of faults of `stalls.py`, and how a lab carries them out.

`flapping` takes a NIC's link down and up again at a rate between 1 and 1,000 Hz (even on a
logarithmic scale), as far as the lab follows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from openmrc.live.lab import Lab

PLANES, SRC, DST = 4, 0, 7  # of the lab, and the NICs that send and receive
AFTER_S = 0.25  # from a fault to its healing


class Kind(NamedTuple):
    """A kind of fault: how it is carried out, and how many planes it leaves whole."""

    begin: Callable[[Lab, np.random.Generator, int], str]  # returns what to heal
    whole: int
    faults: int  # that are drawn by default
    lasts: bool = False  # it is carried out for as long as it is measured


def middle(plane: int) -> str:
    """All links between the switches of a plane."""
    return f"plane {plane} t0 * - t1 *"


def own_link(rng: np.random.Generator, plane: int) -> str:
    """The link of one of the two NICs to a plane."""
    return f"nic {(SRC, DST)[rng.integers(2)]} plane {plane}"


def lose_in(lab: Lab, where: str, rate: float) -> str:
    lab.fail(where, "link-loss", rate=rate)
    return where


def nothing(lab: Lab, rng: np.random.Generator, plane: int) -> str:
    return ""


def silent_plane(lab: Lab, rng: np.random.Generator, plane: int) -> str:
    return lose_in(lab, middle(plane), 1.0)


def silent_t1(lab: Lab, rng: np.random.Generator, plane: int) -> str:
    where = f"plane {plane} t1 {rng.integers(2)}"
    lab.fail(where, "switch-silent")
    return where


def one_way(lab: Lab, rng: np.random.Generator, plane: int) -> str:
    where = f"plane {plane} t0 {rng.integers(2)} {'<>'[rng.integers(2)]} t1 *"
    return lose_in(lab, where, 1.0).replace("<", "-").replace(">", "-")


def nic_link(lab: Lab, rng: np.random.Generator, plane: int) -> str:
    where = own_link(rng, plane)
    lab.fail(where, "link-down")
    return where


def flapping(lab: Lab, rng: np.random.Generator, plane: int) -> str:
    where = own_link(rng, plane)
    half_s = 0.5 / 10 ** rng.uniform(0, 3)
    began = time.monotonic()
    changes = 0
    while (left_s := began + AFTER_S - time.monotonic()) > 0:
        if changes % 2:
            lab.heal(where)
        else:
            lab.fail(where, "link-down")
        changes += 1
        time.sleep(max(0.0, min(left_s, began + changes * half_s - time.monotonic())))
    return where


def lossy_plane(lab: Lab, rng: np.random.Generator, plane: int) -> str:
    return lose_in(lab, middle(plane), float(0.01 * 30 ** rng.uniform()))


def all_but_one(lab: Lab, rng: np.random.Generator, plane: int) -> str:
    for other in range(PLANES):
        if other != plane:
            lose_in(lab, middle(other), 1.0)
    return "everywhere"


KINDS = {
    "nothing": Kind(nothing, PLANES, 100),
    "silent plane": Kind(silent_plane, PLANES - 1, 1000),
    "silent T1": Kind(silent_t1, PLANES - 1, 100),
    "one way": Kind(one_way, PLANES - 1, 100),
    "NIC link down": Kind(nic_link, PLANES - 1, 100),
    "flapping": Kind(flapping, PLANES - 1, 100, lasts=True),
    "1 to 30 % loss": Kind(lossy_plane, PLANES - 1, 100),
    "all but one": Kind(all_but_one, 1, 100),
}
