"""A world is compiled once, by one process, and old caches go."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from openmrc.jit import cache, interpreted, warmup


def test_the_oldest_caches_are_removed_and_strangers_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENMRC_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "DIRECTORY", tmp_path / "mine")
    monkeypatch.setattr(warmup, "interpreted", lambda: False)
    (tmp_path / "a stranger").mkdir()
    for age in range(6):
        old = tmp_path / f"old{age}"
        old.mkdir()
        (old / "ready").touch()
        os.utime(old / "ready", (1_000_000 - age, 1_000_000 - age))
    assert not warmup.is_cached("sim")
    with (tmp_path / "old5" / "ready").open() as used:  # as a process of another copy holds it
        fcntl.flock(used, fcntl.LOCK_SH)
        warmup.mark_cached("sim")
    assert warmup.is_cached("sim")
    kept = {path.name for path in tmp_path.iterdir()}
    # four caches in all, and what somebody uses
    assert kept == {"mine", "a stranger", "old0", "old1", "old2", "old5"}


def test_a_cache_that_is_used_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the newest from then on, and no other copy removes it as long as the process lives."""
    monkeypatch.setenv("OPENMRC_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "DIRECTORY", tmp_path / "mine")
    monkeypatch.setattr(warmup, "interpreted", lambda: False)
    (tmp_path / "mine").mkdir()
    for mark in ("ready", "ready-sim"):
        (tmp_path / "mine" / mark).touch()
        os.utime(tmp_path / "mine" / mark, (1_000_000, 1_000_000))
    assert warmup.is_cached("sim")
    assert (tmp_path / "mine" / "ready").stat().st_mtime > 1_000_000
    with (tmp_path / "mine" / "ready").open() as used, pytest.raises(BlockingIOError):
        fcntl.flock(used, fcntl.LOCK_EX | fcntl.LOCK_NB)
    (tmp_path / "mine").chmod(0o777)
    assert not warmup.is_cached("sim")


def test_one_compiles_and_the_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight hosts of a lab that start at once do not all compile the same."""
    monkeypatch.setenv("OPENMRC_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "DIRECTORY", tmp_path / "mine")
    monkeypatch.setattr(warmup, "interpreted", lambda: False)
    compiled_by: list[int] = []
    both_are_there = threading.Event()

    @warmup.once("live")
    def warm_up() -> None:
        compiled_by.append(threading.get_ident())
        both_are_there.wait()

    threads = [threading.Thread(target=warm_up) for _ in range(2)]
    for thread in threads:
        thread.start()
    both_are_there.set()
    for thread in threads:
        thread.join()
    assert len(compiled_by) == 1
    assert warmup.is_cached("live")
    assert not warmup.is_cached("other")


def test_what_is_on_disk_is_not_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "DIRECTORY", tmp_path / "mine")
    monkeypatch.setenv("OPENMRC_CACHE", str(tmp_path))
    monkeypatch.setattr(warmup, "interpreted", lambda: False)
    done: list[str] = []
    told: list[str] = []
    warm_up = warmup.once("sim")(lambda: done.append("compiled"))
    for _ in range(2):
        warm_up(lambda what, step, steps: told.append(what))
    assert (done, told) == (["compiled"], ["", "done"])
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {
        "lock-sim",
        "ready",
        "ready-sim",
    }


def test_plain_python_needs_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "DIRECTORY", tmp_path / "none")
    for value, plain in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("NUMBA_DISABLE_JIT", value)
        assert interpreted() == plain
        assert warmup.is_cached("sim") == plain
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    warmup.mark_cached("sim")
    assert not (tmp_path / "none").exists()


def test_what_cannot_be_kept_is_compiled_once_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache whose path is a file: no error, no lock, and the same process compiles once."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("OPENMRC_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(cache, "DIRECTORY", tmp_path / "file" / "mine")
    monkeypatch.setattr(cache, "unsaved", [])
    monkeypatch.setattr(warmup, "interpreted", lambda: False)
    done: list[str] = []
    warm_up = warmup.once("sim")(lambda: done.append("compiled"))
    warm_up()
    warm_up()
    assert done == ["compiled"]
    words = warmup.announcement("the simulator", "two minutes")
    assert words.startswith("Compiling the simulator, for this run alone: two minutes. There is no")


def test_a_cache_with_gaps_is_not_taken_for_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full while one function was to be kept."""
    monkeypatch.setenv("OPENMRC_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "DIRECTORY", tmp_path / "mine")
    monkeypatch.setattr(cache, "unsaved", ["advance"])
    monkeypatch.setattr(warmup, "interpreted", lambda: False)
    warmup.mark_cached("sim")
    assert warmup.is_cached("sim")  # here
    assert not (tmp_path / "mine").exists()
