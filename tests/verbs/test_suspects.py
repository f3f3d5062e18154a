"""A link that swallows everything is named by the metrics of one NIC, and cleared once whole."""

from __future__ import annotations

import time

import numpy as np

from openmrc.fabric.clos import multiplane
from openmrc.verbs import metrics
from openmrc.verbs.inside import Inside

RATE_BPS = 50_000_000
SIZE = 100_000
PATIENCE_S = 60.0


def test_a_silent_link_is_the_suspect_while_it_is_silent() -> None:
    """NIC 0 sends to a NIC of either other T0, so its own uplink is told from the ways down."""
    dead = "plane 0 t0 0 > t1 1"
    with Inside(multiplane(6, 2, RATE_BPS, 2, 2, 0, 0)) as fabric:
        a = fabric.device(0)
        source = a.reg_mr(np.ones(SIZE, np.uint8))
        pairs = []
        for nic in (2, 4):
            b = fabric.device(nic)
            qa, _ = fabric.connect(a, b)
            pairs.append((qa, b.reg_mr(bytearray(SIZE))))
        shown = metrics.Collector([a])

        def becomes(expected: set[str]) -> bool:
            """Whether these are the suspects before long, while both queue pairs write."""
            until = time.monotonic() + PATIENCE_S
            while time.monotonic() < until:
                for qa, sink in pairs:
                    qa.post_write(1, source, remote_addr=sink.addr, rkey=sink.rkey)
                for qa, _ in pairs:
                    assert qa.send_cq.wait(timeout=PATIENCE_S)
                if suspects(shown) == expected:
                    return True
            return False

        assert becomes(set())
        fabric.lose(dead, 1.0)
        assert becomes({dead})
        fabric.heal(dead)
        assert becomes(set())


def suspects(shown: metrics.Collector) -> set[str]:
    """The links that the metrics suspect."""
    (family,) = (one for one in shown.families() if one.name == "openmrc_link_suspect")
    return {str(labels["link"]) for labels, value in family.samples if value}
