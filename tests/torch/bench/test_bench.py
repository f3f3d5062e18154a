"""`mrc bench torch`: every collective is right in both backends, figures are as nccl-tests'."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

from openmrc.errors import InputError
from openmrc.torch.bench import command, measure, table
from openmrc.torch.bench.cases import CASES, count_of
from tests.torch.ranks import run


def test_the_command_offers_what_there_is() -> None:
    assert set(command.COLLECTIVES) == set(CASES)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ranks": 1}, "--ranks 1: 2 to 8"),
        ({"ranks": 9}, "--ranks 9: 2 to 8"),
        ({"collectives": "all_reduce,sum"}, "--collectives sum: all_reduce,"),
        ({"sizes": "1KiB,many"}, "many"),
    ],
)
def test_what_cannot_be_measured_is_refused(given: dict[str, Any], words: str) -> None:
    asked = {"ranks": None, "collectives": None, "sizes": None, "json": False, **given}
    with pytest.raises(InputError, match=words):
        command.run(argparse.Namespace(**asked))


def test_options_of_torch_are_refused_elsewhere() -> None:
    with pytest.raises(InputError, match="--sizes: only mrc bench torch"):
        command.refuse_options(argparse.Namespace(ranks=None, collectives=None, sizes="1KiB"))


def test_a_size_is_as_many_elements_as_ranks_can_share() -> None:
    assert [count_of(size, 3) for size in (1, 12, 24, 1024)] == [3, 3, 6, 255]


def test_busbw_is_what_a_link_carries() -> None:
    four = {name: case.links(4) for name, case in CASES.items()}
    assert four["all_reduce"] == 1.5
    assert {four[name] for name in ("all_gather", "reduce_scatter", "all_to_all")} == {0.75}
    assert {four[name] for name in ("broadcast", "reduce", "send_recv")} == {1.0}


def rows(rank: int, n: int) -> list[measure.Row]:
    measure.WARM, measure.ROUNDS, measure.CALLS = 0, 1, (1, 1)
    return measure.measure(command.COLLECTIVES, [36], measure.groups())


def test_every_collective_is_right_in_both_backends() -> None:
    found = run(3, rows)
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == len(CASES)
    for row in found[0]:
        assert (row["in_place"] is not None) == CASES[row["collective"]].in_place
        for place in filter(None, (row["out_of_place"], row["in_place"])):
            for backend in (measure.OURS, measure.GLOO):
                one = place[backend]
                assert one["wrong"] == 0
                links = CASES[row["collective"]].links(3)
                assert one["busbw_gbytes_per_s"] == pytest.approx(links * one["algbw_gbytes_per_s"])
                assert one["algbw_gbytes_per_s"] == pytest.approx(
                    row["size_bytes"] / one["time_us"] / 1e3
                )
        assert len(table.cells(row)) == len(table.columns())
