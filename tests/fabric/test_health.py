"""What a faulty port does to packets: how often, and how many in a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openmrc.engine import bits
from openmrc.fabric import health
from openmrc.fabric.actions import MTU_WHOLE, PORT_CORRUPT, PORT_HEALTH, PORT_LOSS, PORT_MTU
from openmrc.fabric.health import DAMAGED, LOST, PASSES
from openmrc.jit import records
from tests.exposed import exposed

HEALTH = np.dtype(PORT_HEALTH, align=True)
N = 4000


change, is_faulty, strike = map(exposed, (health.change, health.is_faulty, health.strike))


def fates(*changes: tuple[int, float, float], has_icrc: bool = True) -> Any:
    """The fates of N packets of a port after these changes."""
    port = records(1, HEALTH)[0]
    for action, rate, burst in changes:
        change(port, action, rate, burst)
    stream = bits.seed_streams(1, 2, 2)
    return np.array([strike(port, stream, 1, 100, has_icrc) for _ in range(N)])


def test_a_rate_of_one_loses_everything_and_a_rate_of_nothing_nothing() -> None:
    assert (fates((PORT_LOSS, 1.0, 0.0)) == LOST).all()
    assert (fates((PORT_LOSS, 1.0, 0.0), (PORT_LOSS, 0.0, 0.0)) == PASSES).all()


def test_losses_one_by_one_and_in_bursts_are_as_many() -> None:
    for burst, in_a_row in ((0.0, 1 / 0.9), (5.0, 5.0)):
        lost = fates((PORT_LOSS, 0.1, burst)) == LOST
        runs = np.diff(np.concatenate([[0], lost.astype(int)])).clip(0).sum()
        assert lost.mean() == pytest.approx(0.1, abs=0.02)
        assert lost.sum() / runs == pytest.approx(in_a_row, rel=0.15)


def test_only_what_an_icrc_covers_is_damaged_and_what_is_lost_is_not_damaged_too() -> None:
    both = ((PORT_LOSS, 0.5, 0.0), (PORT_CORRUPT, 1.0, 0.0))
    assert set(fates(*both)) == {LOST, DAMAGED}
    assert set(fates(*both, has_icrc=False)) == {LOST, PASSES}


def test_a_port_is_faulty_as_long_as_anything_may_happen() -> None:
    port = records(1, HEALTH)[0]
    seen = []
    for action, rate in (
        (PORT_LOSS, 0.1),
        (PORT_CORRUPT, 0.1),
        (PORT_MTU, 1500),
        (PORT_LOSS, 0),
        (PORT_CORRUPT, 0),
        (PORT_MTU, MTU_WHOLE),
    ):
        change(port, action, float(rate), 0.0)
        seen.append(bool(is_faulty(port)))
    assert seen == [True, True, True, True, True, False]


def test_an_mtu_lets_a_packet_of_its_length_pass_and_none_longer() -> None:
    """Around an IP packet there are 38 B on the wire: Ethernet's header and checksum, preamble,
    gap.
    """
    port = records(1, HEALTH)[0]
    stream = bits.seed_streams(1, 2, 2)
    change(port, PORT_MTU, 1500.0, 0.0)
    assert [strike(port, stream, 1, n + 38, True) for n in (1500, 1501)] == [PASSES, LOST]
    change(port, PORT_MTU, float(MTU_WHOLE), 0.0)
    assert strike(port, stream, 1, 9000, True) == PASSES
