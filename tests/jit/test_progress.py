"""The share of a compilation that is done: all of it only when the machine code is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from openmrc.jit import compiled, inner, interpreted, progress

pytestmark = pytest.mark.skipif(interpreted(), reason="nothing is compiled")


@inner
def leaf(n: int) -> Any:
    return n + 1


@inner
def middle(n: int) -> Any:
    return progress_of_itself.leaf(n) + 1


@compiled
def top(n: int) -> Any:
    return middle(n) + leaf(n)


progress_of_itself = sys.modules[__name__]
LEAF, MIDDLE, TOP = (progress.name_of(each.py_func) for each in (leaf, middle, top))


def test_what_an_entry_calls_is_found_by_its_names() -> None:
    """In its own module, or as an attribute of another."""
    assert set(progress.reached(top)) == {TOP, MIDDLE, LEAF}
    assert set(progress.reached(middle)) == {MIDDLE, LEAF}
    assert all(size > 0 for size in progress.reached(top).values())


def test_all_is_done_only_when_the_entry_has_ended() -> None:
    work = progress.Work([top])
    assert work.done == 0
    done = []
    for name in (LEAF, "another", LEAF, MIDDLE, TOP):
        work.ended(name)
        done.append(work.done / work.total)
    assert 0 < done[0] == done[1] == done[2] < done[3]
    assert done[3] < 1 - progress.MACHINE_CODE / (1 + progress.MACHINE_CODE)  # that, and `top`
    assert done[4] == 1


def test_entries_are_compiled_each_for_itself() -> None:
    work = progress.Work([top, middle])
    for name in (LEAF, MIDDLE, TOP, LEAF):
        work.ended(name)
    assert 0 < work.done < work.total
    work.ended(MIDDLE)
    assert work.done == work.total


COMPILE = """
from openmrc.jit import progress
from tests.jit import test_progress as t

told = []
with progress.reported(lambda *row: told.append(row), [t.top]):
    t.top(1)
for what, step, steps in told:
    print(what, round(100 * step / steps))
"""


def test_what_is_told_while_a_function_is_compiled(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        cwd=Path(__file__).resolve().parents[2],
        env=os.environ | {"OPENMRC_CACHE": str(tmp_path), "NUMBA_DISABLE_JIT": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.rsplit(" ", 1) for line in done.stdout.splitlines()]
    assert [name.rpartition(".")[2] for name, _ in rows] == [
        *("", "top", "middle", "leaf", "middle", "top", "top", "done")
    ]
    shares = [int(share) for _, share in rows]
    assert shares == sorted(shares)
    assert shares[0] == shares[3] == 0 < shares[4] < shares[5] < shares[6] == 100


def test_without_entries_no_share_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    with progress.reported(lambda *row: told.append(row)) as tell:
        tell("", "a")
        tell("a", "b")
    assert told == [("", 0, 0), ("a", 0, 0), ("b", 0, 0), ("done", 0, 0)]
