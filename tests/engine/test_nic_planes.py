"""What the QPs of a NIC learn of a plane together (row 12)."""

from __future__ import annotations

from typing import Any

import pytest

from openmrc.engine import nic_planes, ports, rotation
from tests.engine.cases import long
from tests.engine.pair import Pair
from tests.exposed import exposed

note_loss = exposed(nic_planes.note_loss)
note_delivery = exposed(nic_planes.note_delivery)
control_planes = exposed(rotation.control_planes)

ALL = 0b1111


def nic_of_four() -> Pair:
    """Four QPs of NIC 0, each to a peer of its own as far as this is about."""
    pair = Pair(planes=4, qps=4, checked=False)
    pair.advance(us=100)
    for i in range(4):
        pair.st.qp[i].peer_nic = 10 + i
    return pair


def lose(pair: Pair, plane: int, qps: list[int]) -> None:
    for i in qps:
        note_loss(pair.st, pair.st.qp[i], plane, pair.now, pair.now)


def turns(pair: Pair) -> list[int]:
    return [int(pair.st.qp[i].planes_ok) for i in range(4)]


@pytest.mark.parametrize(("n", "silent"), [(nic_planes.LOSSES, 1), (nic_planes.LOSSES - 1, 0)])
def test_row_12_a_plane_that_delivers_to_no_peer_is_left_by_all_queue_pairs(
    n: int, silent: int
) -> None:
    pair = nic_of_four()
    lose(pair, 2, ([0, 1] * n)[:n])
    assert pair.st.nic[0].silent_mask == silent << 2
    assert turns(pair) == [ALL & ~(silent << 2)] * 4
    assert control_planes(pair.st, pair.st.qp[3]) == ALL & ~(silent << 2)


def test_row_12_losses_to_a_single_peer_say_nothing_of_the_plane() -> None:
    pair = nic_of_four()
    lose(pair, 2, [1] * 100)
    assert pair.st.nic[0].silent_mask == 0
    lose(pair, 2, [2])
    assert pair.st.nic[0].silent_mask == 1 << 2


def test_row_12_a_delivery_between_starts_anew() -> None:
    pair = nic_of_four()
    lose(pair, 2, [0, 1] * 3)
    note_delivery(pair.st, pair.st.qp[3], 2, pair.now)
    pair.advance(us=1)
    lose(pair, 2, [0, 1] * 3)
    assert pair.st.nic[0].silent_mask == 0


def test_row_12_a_loss_of_what_was_sent_before_the_last_delivery_does_not_count() -> None:
    pair = nic_of_four()
    note_delivery(pair.st, pair.st.qp[3], 2, pair.now)
    lose(pair, 2, [0, 1] * 10)
    assert pair.st.nic[0].losses[2] == 0


def test_row_12_where_all_planes_are_silent_all_serve() -> None:
    pair = nic_of_four()
    for plane in range(4):
        lose(pair, plane, [0, 1] * 4)
    assert pair.st.nic[0].silent_mask == ALL
    assert turns(pair) == [ALL] * 4
    assert control_planes(pair.st, pair.st.qp[0]) == ALL


def test_row_12_a_silent_plane_is_tried_after_an_rto_then_after_twice_as_long() -> None:
    pair = nic_of_four()
    nic: Any = pair.st.nic[0]
    for spacing in (pair.rto, 2 * pair.rto, 4 * pair.rto):
        lose(pair, 2, [0, 1] * 4)
        assert nic.silent_until == pair.now + spacing
        assert nic.deadline <= nic.silent_until
        ports.on_deadline(pair.st, 0, int(nic.silent_until) - 1)
        assert nic.silent_mask == 1 << 2
        assert nic.deadline == nic.silent_until
        pair.now = int(nic.silent_until)
        ports.on_deadline(pair.st, 0, pair.now)
        assert nic.silent_mask == 0
        assert turns(pair) == [ALL] * 4


@long
def test_row_12_the_first_answer_brings_the_plane_back_to_all() -> None:
    """Three peers lose all that goes over plane 0 until it is healed; QP 3 sends nothing before."""
    pair = nic_of_four()
    for i in range(4):
        pair.st.qp[i].peer_nic = 1  # where the packets go
    cut = pair.cut(plane=0)
    for i in range(3):
        pair.post(200 * 4096, qp=i)
    pair.until(lambda: pair.st.nic[0].losses[0] >= nic_planes.LOSSES)
    pair.st.nic[0].loser[0] = nic_planes.SEVERAL
    pair.until(lambda: pair.st.nic[0].silent_mask)
    assert turns(pair) == [0b1110] * 4
    pair.heal(cut)
    pair.until(lambda: not pair.st.nic[0].silent_mask)
    assert turns(pair)[3] == ALL
    assert pair.now < int(pair.st.nic[0].silent_until)  # not because time was up
    pair.drive()
    pair.assert_intact()
