"""1F1B: the order of a stage's work."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from openmrc.workload.pipeline import BACKWARD, FORWARD, one_forward_one_backward


def words(stages: int, stage: int, microbatches: int) -> str:
    order = one_forward_one_backward(stages, stage, microbatches)
    return " ".join(f"{way[0].upper()}{i}" for way, i in order)


def test_four_stages_and_their_microbatches() -> None:
    assert words(4, 0, 5) == "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4"
    assert words(4, 1, 5) == "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4"
    assert words(4, 3, 3) == "F0 B0 F1 B1 F2 B2"
    assert words(4, 0, 2) == "F0 F1 B0 B1"
    assert words(1, 0, 2) == "F0 B0 F1 B1"


@given(st.integers(1, 8), st.integers(0, 7), st.integers(1, 12))
def test_each_pass_is_there_once_and_no_more_activations_are_held_than_stages_follow(
    stages: int, stage: int, microbatches: int
) -> None:
    stage %= stages
    order = one_forward_one_backward(stages, stage, microbatches)
    for way in (FORWARD, BACKWARD):
        assert [i for w, i in order if w == way] == list(range(microbatches))
    held = 0
    for way, _ in order:
        held += 1 if way == FORWARD else -1
        assert 0 <= held <= stages - stage
