"""Which port a switch takes: divisions that are avoided where they can be give the same."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.jit import compiled, records
from openmrc.sim.net import network, switch
from openmrc.sim.net import state as ss
from tests.sim.lab import clos

FIRST_NIC, FIRST_PORT = 24, 100


@compiled
def _egress(ctl, s, dst, ev):  # type: ignore[no-untyped-def]
    return switch.egress(ctl, s, dst, ev)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("bundle", [1, 2, 3])
def test_any_number_of_ports(n: int, bundle: int) -> None:
    """`n` NICs below each of seven ports, or bundles of them, and `n` uplinks."""
    s = network.switches_of(clos(planes=1), seed=1)[:1]
    s.lo, s.hi, s.stride, s.bundle = FIRST_NIC, FIRST_NIC + 7 * n, n, bundle
    s.stride_shift = network.whole_log2(s.stride)
    s.first_down, s.n_up, s.first_up, s.tier = FIRST_PORT, n, FIRST_PORT + 7 * bundle, 0
    ctl = records(1, ss.CONTROL)
    ctl.up0_mask = 0xFF
    for ev in range(9):
        for place in range(7 * n):
            port = FIRST_PORT + place // n * bundle + ev % bundle
            assert _egress(ctl[0], s[0], FIRST_NIC + place, ev) == port
        for outside in (FIRST_NIC - 1, FIRST_NIC + 7 * n):
            assert _egress(ctl[0], s[0], outside, ev) == FIRST_PORT + 7 * bundle + ev % n


def test_logarithms_that_are_whole() -> None:
    numbers = np.array([1, 2, 3, 4, 5, 64, 96, 1 << 16], np.int32)
    assert network.whole_log2(numbers).tolist() == [0, 1, -1, 2, -1, 6, -1, 16]
