"""Which components packets met."""

from __future__ import annotations

import numpy as np

from openmrc.ops.diagnose.met import meet
from tests.ops.diagnose.made import TABLE, Bad, component, seen

LOST = seen(Bad(component("plane 1 t1 2").ports, every=9)).lost


def test_each_packet_meets_a_component_once_at_its_first_link() -> None:
    n, none = len(TABLE), np.full(len(TABLE) + 1, -1)
    worth, tells = np.ones(n + 1, np.bool_), np.ones(len(LOST), np.bool_)
    worth[-1], tells[0] = False, False
    nothing, first = np.zeros(0, np.int32), np.zeros(n + 1, np.int64)
    meet(LOST.routes, TABLE.of_port, worth, tells, none.copy(), first, nothing, nothing)
    first = np.append(0, np.cumsum(first[:-1]))
    packet, hop = np.zeros((2, int(first[-1])), np.int32)
    meet(LOST.routes, TABLE.of_port, worth, tells, none.copy(), first.copy(), packet, hop)
    for c, row in enumerate(TABLE.rows):
        on = np.isin(LOST.routes, row.ports) & tells[:, None]
        part = slice(first[c], first[c + 1])
        assert packet[part].tolist() == np.flatnonzero(on.any(axis=1)).tolist()
        assert hop[part].tolist() == on[packet[part]].argmax(axis=1).tolist()
