"""`mrc bench torch`: every collective is right in both backends, figures are as nccl-tests'."""

from __future__ import annotations

import argparse
import json
import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

import torch.distributed as dist

from openmrc.errors import InputError
from openmrc.torch.bench import command, congestion, measure, picture, table
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
        (
            {"sizes": "2KiB..1KiB"},
            r"--sizes 2KiB\.\.1KiB: the first is more than 0",
        ),
        ({"planes": 9}, "--planes 9: 1 to 8"),
        ({"steps": Path("steps.gif")}, "--steps steps.gif: name a file that ends in"),
        ({"steps": Path("steps.svg"), "cut": True}, "--cut does not go with --steps"),
    ],
)
def test_what_cannot_be_measured_is_refused(given: dict[str, Any], words: str) -> None:
    options = ("ranks", "collectives", "sizes", "planes", "cut", "steps")
    asked = {**dict.fromkeys(options), "json": False, **given}
    with pytest.raises(InputError, match=words):
        command.run(argparse.Namespace(**asked))


def test_sizes_are_named_or_every_power_of_two_between_two() -> None:
    assert command.sizes_of("1KiB,3B") == [1024, 3]
    assert command.sizes_of("1KiB..5KiB,1MiB") == [1024, 2048, 4096, 1 << 20]
    assert len(command.sizes_of(command.SIZES)) == 17


def test_a_size_is_as_many_elements_as_ranks_can_share() -> None:
    assert [count_of(size, 3) for size in (1, 12, 24, 1024)] == [3, 3, 6, 255]


def test_busbw_is_what_a_link_carries() -> None:
    four = {name: case.links(4) for name, case in CASES.items()}
    assert four["all_reduce"] == 1.5
    assert {four[name] for name in ("all_gather", "reduce_scatter", "all_to_all")} == {0.75}
    assert {four[name] for name in ("broadcast", "reduce", "send_recv")} == {1.0}


CUT_AT = "all_reduce"


def rows(rank: int, n: int) -> list[measure.Row]:
    measure.WARM, measure.ROUNDS, measure.CALLS = 0, 1, (1, 1)
    measure.THROUGH, measure.REST_S = (2, 2), 0.0
    asked = []

    def cut() -> Any:
        asked.append("cut")
        return lambda: asked.append("whole")

    groups = measure.groups()
    found = measure.measure(command.COLLECTIVES, [36], groups)
    found += measure.measure([CUT_AT], [36], groups, cut=cut)
    assert asked == ["cut", "whole"] * len(groups) * 2  # out of place, and in place
    return found


def test_every_collective_is_right_in_both_backends() -> None:
    found = run(3, rows)
    assert found[0] == found[1] == found[2]
    *healthy, through = found[0]
    assert [row["collective"] for row in healthy] == list(CASES)
    for row in found[0]:
        assert (row["in_place"] is not None) == CASES[row["collective"]].in_place
        for place in filter(None, (row["out_of_place"], row["in_place"])):
            assert list(place)[:2] == [measure.OURS, measure.GLOO]
            for one in place.values():
                assert one["wrong"] == 0
                links = CASES[row["collective"]].links(3)
                assert one["busbw_gbytes_per_s"] == pytest.approx(links * one["algbw_gbytes_per_s"])
                assert one["algbw_gbytes_per_s"] == pytest.approx(
                    row["size_bytes"] / one["time_us"] / 1e3
                )
        assert len(table.cells(row)) == len(table.columns(row))
    for place in (through["cut"]["out_of_place"], through["cut"]["in_place"]):
        for one in place.values():
            assert one["wrong"] == 0
            assert one["longest_us"] >= one["time_us"] / 2 > 0  # of two calls
    assert len(table.cells(through, cut=True)) == len(table.columns(through, cut=True))


def test_a_named_congestion_control_is_that_of_gloos_connections() -> None:
    if refused := congestion.refusal("reno"):
        pytest.skip(f"reno may not be chosen: {refused}")
    assert run(2, controls) == [{"reno"}, {"reno"}]


def controls(rank: int, n: int) -> set[str]:
    """Of the connections that a group made."""
    before = congestion.connections()
    group = congestion.gloo_group("reno")
    made = {fd for inode, fd in congestion.connections().items() if inode not in before}
    dist.barrier(group=group)
    return {control_of(fd) for fd in made}


def control_of(fd: int) -> str:
    with socket.socket(fileno=os.dup(fd)) as one:
        name = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.rstrip(b"\0").decode()


def test_a_control_that_is_not_there_is_refused_with_what_to_type() -> None:
    assert "tcp_allowed_congestion_control" in congestion.refusal("none-such")


def test_a_run_that_is_ended_prints_what_it_has_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ranks(n: int, asked: Any, network: Any, hear: Any) -> None:
        hear({"collective": "reduce", "size_bytes": 1024}, print)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_ranks", ranks)
    with pytest.raises(KeyboardInterrupt):
        command._table(2, None, {}, as_json=True)
    assert json.loads(capsys.readouterr().out)["rows"][0]["collective"] == "reduce"


def test_the_picture_shows_each_backend_and_each_cut() -> None:
    steps = {"MRC": [(0.1, 0.1), (0.3, 0.2)], "Gloo": [(0.1, 0.1), (3.1, 3.0)]}
    drawn = picture.draw(steps, [(0.2, 1.0, "plane 0 silent")], "DDP")
    axes = drawn.axes[0]
    heights: Any = [line.get_ydata() for line in axes.lines]
    assert np.array_equal(heights, [[100, 200], [100, 3000]])
    assert [line.get_label() for line in axes.lines] == list(steps)
    assert [text.get_text() for text in axes.texts] == ["plane 0 silent"]
    assert len(axes.patches) == 1
