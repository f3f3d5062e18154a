"""Sizes that are worked out from a model, by hand."""

from __future__ import annotations

import pytest

from openmrc.errors import InputError
from openmrc.workload.layout import make_layout
from openmrc.workload.model import Model, Sizes

SMALL = Model(hidden=512, sequence=256, microbatch=2, element=2, gradient=4, experts=8, top_k=2)


def test_a_dense_model() -> None:
    activation = 256 * 2 * 512 * 2
    assert SMALL.sizes(make_layout(16, tp=4, pp=2)) == Sizes(
        tp=activation, pp=activation, ep=2 * activation // 4, dp=12 * 512**2 * 4 // 4, expert=0
    )


def test_with_experts_the_feed_forward_part_is_divided_among_them() -> None:
    sizes = SMALL.sizes(make_layout(16, tp=2, pp=1, ep=4))
    assert sizes.ep == 256 * 2 * 512 * 2 * 2 // 2
    assert sizes.dp == 4 * 512**2 * 4 // 2
    assert sizes.expert == 2 * 8 * 512**2 * 4 // 2  # two of the eight experts on a rank


def test_the_parameters_of_gpt3_s_layers_are_twelve_h_squared() -> None:
    # 96 layers of hidden size 12,288: 174 of its 175 billion parameters
    gpt3 = Model(
        hidden=12_288, sequence=2048, microbatch=1, element=2, gradient=2, experts=1, top_k=1
    )
    sizes = gpt3.sizes(make_layout(64, tp=8, pp=8))
    assert round(96 * sizes.dp * 8 / 2 / 1e9) == 174


def test_experts_that_cannot_be_divided_are_refused() -> None:
    with pytest.raises(InputError) as refused:
        SMALL.sizes(make_layout(16, tp=1, pp=1, ep=16))
    assert str(refused.value) == "workload.experts: 8 cannot be divided among ep = 16 ranks"
