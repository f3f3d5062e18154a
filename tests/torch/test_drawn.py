"""Calls that are drawn give the same values over MRC as over Gloo (`drawn` draws as many as asked
for).
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

import torch
import torch.distributed as dist

from openmrc.errors import InputError
from tests.torch import drawn
from tests.torch.ranks import run

SEEDS = range(2000, 2060)


def calls(rank: int, n: int) -> tuple[dict[str, int], list[str]]:
    told: list[str] = []
    return drawn.made(SEEDS, told.append), told


@pytest.mark.parametrize("shared", ["0", "1"])
def test_drawn_calls_give_what_gloo_gives(shared: str) -> None:
    (counts, told), _, _ = run(3, calls, OPENMRC_SHARED_MEMORY=shared)
    assert not told, "\n".join(told)
    assert counts["same"] > len(SEEDS) // 3


def outcomes(mrc: str, gloo: str) -> list[tuple[str, drawn.Outcome, drawn.Outcome]]:
    """What two ranks had: "!" is an error, anything else are bits."""

    def one(said: str) -> drawn.Outcome:
        return drawn.Outcome("no", ()) if said == "!" else drawn.Outcome("", (said.encode(),))

    return [("", one(a), one(b)) for a, b in zip(mrc, gloo, strict=True)]


def test_a_call_is_judged_by_the_outcomes_of_all_ranks() -> None:
    assert drawn.judged(outcomes("ab", "ab")) == "same"
    assert drawn.judged(outcomes("ab", "ac")) == "wrong"
    assert drawn.judged(outcomes("a!", "ab")) == "wrong"
    assert drawn.judged(outcomes("!!", "ab")) == "MRC refuses"
    assert drawn.judged(outcomes("ab", "!b")) == "MRC alone"
    assert drawn.judged(outcomes("a!", "!b")) == "both refuse"


def parts(rank: int, n: int) -> None:
    group: Any = dist.group.WORLD
    part = group.split_group([2, 0])
    assert (part is None) == (rank == 1)
    if part is not None:
        x = torch.tensor([float(rank)])
        part.allreduce([x]).wait()
        assert (x.item(), part.rank(), part.size()) == (2.0, rank // 2, 2)
        part.shutdown()
    with pytest.raises(InputError, match="merge_remote_group: this backend cannot; create one"):
        group.merge_remote_group(None, 4)


def test_a_group_is_split_and_none_is_merged() -> None:
    run(3, parts)
