"""What a controller may change of a live endpoint, and ask over its ports (MRC 3.3, 2.10).

Everything here runs on the loop's thread, between two of its rounds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from openmrc.engine import packet as pk
from openmrc.engine import place, setup
from openmrc.fabric.model import BoolArray
from openmrc.live.endpoint import loop

EvKey = tuple[int, int]  # an EV of an endpoint: its value and its plane


class Question(NamedTuple):
    """What another NIC answers at once: a probe of an EV (-1: that of control packets), or, with
    `ports_up`, the status of own ports.
    """

    to: int
    plane: int
    ev: int = -1
    ports_up: int | None = None

    @property
    def op(self) -> int:
        """The operation of the request."""
        return pk.OP_EV_PROBE if self.ports_up is None else pk.OP_PORT_STATUS


@dataclass(frozen=True)
class Paths:
    """The EVs that a controller gives to queue pairs, by plane (none: random ones), those that are
    denied, and the part of a plane's EVs that stays in service (row 12).
    """

    evs: tuple[tuple[int, ...], ...] = ()
    denied: frozenset[EvKey] = frozenset()
    keep_percent: int = setup.KEEP_PERCENT


DRAWN = Paths()


def give_paths(st: Any, qi: int, paths: Paths, active: int) -> None:
    """Give a QP the paths of a controller, at most `active` of a plane in its rotation."""
    for plane, evs in enumerate(paths.evs):
        values = np.array([evs], np.int64)
        setup.set_paths(st, np.array([qi]), plane, values, min(len(evs), active))
    setup.use_no_plane_without_paths(st, qi)


def replace(ep: Any, st: Any, qi: int, evs: Sequence[Sequence[int]]) -> None:
    """A QP has these EVs by plane, as many as it has now, in place of its own; what is the same
    stays as it is. Packets in flight are not lost.
    """
    wanted = [value for own in evs for value in own]
    found = [
        (at, value)
        for at, ((old, _), value) in enumerate(zip(_keys(st, qi), wanted, strict=True))
        if old != value
    ]
    if found:
        at, values = np.array(found, np.int64).T.copy()
        loop.replace(ep, st, qi, at, values)


def among(st: Any, qi: int, keys: Collection[EvKey]) -> BoolArray:
    """Which EVs of a QP are among these."""
    return np.array([key in keys for key in _keys(st, qi)], np.bool_)


def _keys(st: Any, qi: int) -> list[EvKey]:
    """The EVs of a QP, in order."""
    own = st.ev[place.evs(st.qp[qi])]
    return list(zip(own.value.tolist(), own.plane.tolist(), strict=True))
