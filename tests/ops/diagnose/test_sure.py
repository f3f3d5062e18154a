"""How sure an answer is."""

from __future__ import annotations

import pytest

from openmrc.ops.diagnose.sure import ASIDE, probability


def test_of_two_that_explain_the_same_each_is_as_probable() -> None:
    assert probability(0.0) == pytest.approx((1 - ASIDE) / 2)


def test_no_lead_is_surer_than_the_share_of_runs_in_which_none_is_right() -> None:
    assert probability(10.0) < probability(20.0) < 1 - ASIDE
    assert probability(1000.0) == pytest.approx(1 - ASIDE)
