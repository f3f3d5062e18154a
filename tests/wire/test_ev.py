"""The two halves of an EV, in both orders, against the sentence of row 2."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.jit import compiled
from openmrc.wire import ev as wire_ev

EVS = st.integers(0, 2**32 - 1)


# `inlined` functions can be called from compiled code only; in plain Python these are plain too.
@compiled
def there(evs: Any, swapped: int) -> Any:
    both = wire_ev.to_wire(evs[0], swapped)
    return both >> 16, both & 0xFFFF


@compiled
def back(source_port: int, flow_label: int, swapped: int) -> Any:
    return wire_ev.from_wire(source_port, flow_label, swapped)


def halves(ev: int, swapped: int) -> tuple[int, int]:
    """As compiled code has an EV: in an unsigned field."""
    source_port, flow_label = there(np.array([ev], np.uint32), swapped)
    return source_port, flow_label


@pytest.mark.parametrize(("swapped", "expected"), [(0, (0x5678, 0x9234)), (1, (0x9234, 0x5678))])
def test_row_2_the_low_half_is_the_source_port_unless_swapped(
    swapped: int, expected: tuple[int, int]
) -> None:
    assert halves(0x9234_5678, swapped) == expected
    assert back(*expected, swapped) == 0x9234_5678


@settings(derandomize=True, database=None, deadline=None)
@given(EVS, st.booleans(), st.integers(0, 15))
def test_every_ev_comes_back_whatever_the_top_of_the_flow_label(
    ev: int, swapped: bool, top: int
) -> None:
    source_port, flow_label = halves(ev, int(swapped))
    assert 0 <= source_port <= 0xFFFF
    assert 0 <= flow_label <= 0xFFFF
    assert back(source_port, top << 16 | flow_label, int(swapped)) == ev


@pytest.mark.parametrize(("swapped", "carried"), [(0, 0x5678), (1, 0x9234_0000)])
def test_ipv4_carries_the_half_in_the_source_port(swapped: int, carried: int) -> None:
    source_port, _ = halves(0x9234_5678, swapped)
    assert back(source_port, 0, swapped) == carried
