"""Pieces of a world are compiled in processes of their own, which end with who waits for them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from openmrc.jit import beside, cache, warmup


def first() -> None:
    print("first")


def second() -> None:
    print("second")


def broken() -> None:
    print("broken")
    sys.exit("on purpose")


def endless() -> None:
    print(os.getpid(), flush=True)
    time.sleep(600)


@pytest.mark.parametrize("at_once", [1, 3])
def test_each_piece_is_called_and_one_that_fails_is_left_to_the_caller(at_once: int) -> None:
    told: list[tuple[str, str]] = []
    beside.side_by_side([first, broken, second], lambda *row: told.append(row), at_once)
    assert sorted(told) == [("", "broken"), ("", "first"), ("", "second")]


def test_none_outlives_a_ctrl_c() -> None:
    pids: list[int] = []

    def tell(ended: str, now: str) -> None:
        pids.append(int(now))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        beside.side_by_side([endless], tell, 1)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


@pytest.mark.parametrize(
    ("cores", "writable", "divided"), [(1, True, False), (2, True, True), (2, False, False)]
)
def test_a_world_is_divided_where_that_helps(
    cores: int, writable: bool, divided: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two worlds: all their pieces side by side, then each is used, which loads what they left."""
    monkeypatch.setenv("OPENMRC_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "DIRECTORY", tmp_path / "mine")
    monkeypatch.setattr(warmup, "interpreted", lambda: False)
    monkeypatch.setattr(warmup, "cores", lambda: cores)
    monkeypatch.setattr(cache, "trouble", lambda: "" if writable else "it cannot be written")
    done: list[object] = []

    def side_by_side(pieces: list[beside.Piece], tell: object, at_once: int) -> None:
        done.extend([*pieces, at_once])

    def use_both() -> None:
        done.append("both")

    def use_other() -> None:
        done.append("other")

    monkeypatch.setattr(warmup, "side_by_side", side_by_side)
    both = warmup.once("both", first, second)(use_both)
    other = warmup.once("other")(use_other)
    for _ in range(2):
        warmup.warm_up(both, other)
    assert done == [*([first, second, use_other, 2] if divided else []), "both", "other"]
    assert warmup.is_cached("both")
    assert warmup.is_cached("other")


def test_the_cores_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 5})
    assert beside.cores() == 3
