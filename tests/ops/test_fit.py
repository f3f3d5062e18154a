"""The likelihood: probabilities by expectation and maximisation, and what chance explains."""

from __future__ import annotations

import math

import numpy as np
import pytest

from openmrc.ops import fit


def model(pattern: list[list[int]], lost: list[int], crossed: list[int], b: float = 1e-7):  # type: ignore[no-untyped-def]
    return fit.model(
        np.array(pattern, np.int32),
        np.array(lost, np.float64),
        np.full(len(lost), b),
        np.array(crossed, np.float64),
    )


def test_a_suspect_alone_lost_what_was_lost_of_what_crossed_it() -> None:
    found = model([[0], [0]], [3, 7], [1000])
    assert found.pattern.tolist() == [[0]]  # the two rows are one
    assert found.solve() == pytest.approx([0.01], rel=1e-4)
    assert model([[0]], [50], [50]).solve() == pytest.approx([1.0])


def test_what_two_suspects_share_goes_to_the_one_that_the_rest_speaks_against() -> None:
    # 10 losses cross both; suspect 0 alone lost 90 of its other 900, suspect 1 none of 99,990.
    p = model([[0, 1], [0, -1]], [10, 90], [1000, 100_000]).solve()
    assert p[0] == pytest.approx(0.1, rel=0.01)
    assert p[1] < 1e-5


def test_without_the_only_suspect_everything_is_chance() -> None:
    found = model([[0]], [10], [1000])
    p = found.solve()
    nats = 10 * math.log(0.01 / 1e-7) + 990 * math.log(0.99)
    assert found.without(0, p) == pytest.approx(nats, abs=0.01)


def test_who_is_not_needed_costs_nothing_to_let_go() -> None:
    found = model([[0, 1]], [10], [1000, 1000])  # nothing tells these two apart
    p = found.solve()
    assert found.without(0, p) == pytest.approx(0, abs=0.1)
    assert found.neighbours(np.array([0, 1])) == {0: [1], 1: [0]}


def test_rows_with_several_suspects_are_merged_in_any_order() -> None:
    found = model([[0, 1], [1, 0], [1, -1], [-1, -1]], [1, 2, 4, 8], [100, 100])
    rows = {
        tuple(row): n for row, n in zip(found.pattern.tolist(), found.lost.tolist(), strict=True)
    }
    assert rows == {(1, 0): 3, (1, -1): 4, (-1, -1): 8}


def test_rows_of_different_background_stay_apart() -> None:
    found = fit.model(
        np.array([[0], [0], [0]], np.int32),
        np.array([1.0, 2, 4]),
        np.array([1e-7, 1e-3, 1e-7]),
        np.array([100.0]),
    )
    assert sorted(zip(found.background.tolist(), found.lost.tolist(), strict=True)) == [
        (1e-7, 5),
        (1e-3, 2),
    ]


def test_evidence_against_a_place_is_the_divergence_from_chance() -> None:
    lost, crossed, b = np.array([0.0, 1, 10, 100]), np.full(4, 100.0), 0.1
    found = fit.evidence_against(lost, lost * math.log(b), crossed)
    assert found[:3].tolist() == [0, 0, 0]  # as much as by chance, or less
    assert found[3] == pytest.approx(100 * math.log(10))
    (half,) = fit.evidence_against(np.array([50.0]), np.array([50 * math.log(b)]), crossed[:1])
    assert half == pytest.approx(100 * (0.5 * math.log(0.5 / 0.1) + 0.5 * math.log(0.5 / 0.9)))
