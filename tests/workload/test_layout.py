"""Parallel groups: who is in which."""

from __future__ import annotations

from itertools import permutations
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.workload.layout import DIMENSIONS, make_layout

sizes = st.tuples(*[st.integers(1, 5)] * 4)
orders = st.sampled_from(["-".join(order) for order in permutations(DIMENSIONS)])


@given(sizes, orders, st.sets(st.sampled_from(DIMENSIONS), min_size=1))
def test_every_rank_is_in_one_group_of_any_dimensions(
    each: tuple[int, int, int, int], order: str, names: set[str]
) -> None:
    tp, pp, ep, dp = each
    layout = make_layout(prod(each), tp, pp, ep, dp, order)
    groups = layout.groups(*names)
    assert groups.shape == (layout.n_ranks // layout.size(*names), layout.size(*names))
    assert sorted(groups.ravel().tolist()) == list(range(prod(each)))


@given(sizes, orders)
def test_two_ranks_share_one_group_at_most(each: tuple[int, int, int, int], order: str) -> None:
    """Groups of different dimensions meet in one rank: together they are coordinates."""
    tp, pp, ep, dp = each
    layout = make_layout(prod(each), tp, pp, ep, dp, order)
    place = np.zeros((layout.n_ranks, 4), int)
    for d, name in enumerate(DIMENSIONS):
        for group in layout.groups(name):
            place[group, d] = np.arange(len(group))
    assert len(np.unique(place, axis=0)) == layout.n_ranks


@given(sizes, orders)
def test_the_first_of_the_order_turns_fastest(each: tuple[int, int, int, int], order: str) -> None:
    tp, pp, ep, dp = each
    layout = make_layout(prod(each), tp, pp, ep, dp, order)
    apart = 1
    for name in order.split("-"):
        for group in layout.groups(name):
            assert (np.diff(group) == apart).all()
        apart *= layout.size(name)


def test_sixteen_ranks_as_megatron_lays_them_out() -> None:
    layout = make_layout(16, tp=2, pp=4)
    assert layout.size("dp") == 2
    assert layout.groups("tp").tolist() == [[i, i + 1] for i in range(0, 16, 2)]
    assert layout.groups("dp")[:2].tolist() == [[0, 2], [1, 3]]
    assert layout.groups("pp")[:2].tolist() == [[0, 4, 8, 12], [1, 5, 9, 13]]
    assert layout.stage(2).tolist() == [8, 9, 10, 11]
    other = make_layout(16, tp=2, pp=4, order="pp-tp-dp-ep")
    assert other.groups("pp")[0].tolist() == [0, 1, 2, 3]
    assert other.stage(1).tolist() == [1, 5, 9, 13]


def test_dense_weights_are_shared_by_experts_and_replicas_together() -> None:
    layout = make_layout(8, tp=1, pp=1, ep=2, dp=4)
    assert layout.groups("ep", "dp").tolist() == [list(range(8))]
    assert layout.groups("dp").tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"ranks": 12, "tp": 8, "pp": 1},
            "workload.dp: 12 ranks cannot be divided by tp 8 x ep 1 x pp 1 = 8; change one of"
            " them, or ranks",
        ),
        (
            {"ranks": 12, "tp": 2, "pp": 3, "dp": 4},
            "workload.dp: tp 2 x ep 1 x pp 3 x dp 4 = 24, but there are 12 ranks; the sizes must"
            " multiply to them",
        ),
        (
            {"ranks": 12, "tp": 2, "pp": 3, "order": "tp-dp-pp"},
            "workload.layout: 'tp-dp-pp'; accepted: tp, ep, dp and pp, each once, the innermost"
            ' first, such as "tp-ep-dp-pp"',
        ),
    ],
)
def test_what_cannot_be_laid_out_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as refused:
        make_layout(**given)  # type: ignore[arg-type]
    assert str(refused.value) == message
