"""Ranks of one host meet in shared memory: rings that wrap, messages in pieces, dead peers."""

from __future__ import annotations

import resource
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

import numpy as np
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.torch import shared, world
from openmrc.torch.shared import UNIT, WORDS_BYTES, Ring
from tests.torch.ranks import run
from tests.torch.test_collectives import each_algorithm, everything
from tests.torch.test_failures import again, killed

HEADER = bytes(48)


def a_ring(n_bytes: int) -> Ring:
    return Ring(memoryview(bytearray(WORDS_BYTES + n_bytes)), threading.Lock())


def taken(ring: Ring, n: int) -> bytes:
    entry = ring.first()
    assert entry is not None
    data = bytes(ring.wrapped(entry[1], n))
    ring.done(n)
    return data


@given(st.lists(st.tuples(st.integers(0, 300), st.booleans()), max_size=60))
def test_what_is_put_is_taken_in_order(steps: list[tuple[int, bool]]) -> None:
    ring, waiting = a_ring(8 * UNIT), []
    for number, (n, take) in enumerate(steps):
        data = bytes((number + i) % 251 for i in range(n))
        if ring.put(HEADER, np.frombuffer(data, np.uint8)):
            waiting.append(data)
        else:  # there is room for any one of them in an empty ring
            assert waiting
        if take and waiting:
            assert taken(ring, len(waiting[0])) == waiting.pop(0)
    while waiting:
        assert taken(ring, len(waiting[0])) == waiting.pop(0)
    assert ring.first() is None


def test_who_finds_a_ring_full_is_told_of_room() -> None:
    ring = a_ring(4 * UNIT)
    assert ring.put(HEADER, bytes(UNIT))
    assert ring.put(HEADER, bytes(UNIT))  # exactly full
    assert not ring.put(HEADER)
    assert ring.done(UNIT)
    assert ring.put(HEADER)
    assert not ring.done(UNIT)


def test_who_looks_away_sees_what_came_before() -> None:
    ring = a_ring(4 * UNIT)
    assert not ring.look_away(True)
    assert ring.away
    ring.put(HEADER)
    assert ring.look_away(True)
    ring.look_away(False)
    assert not ring.away


def test_the_variable_is_1_or_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shared.VARIABLE, "yes")
    with pytest.raises(InputError, match="OPENMRC_SHARED_MEMORY = 'yes': 0 and 1 are accepted"):
        shared.wanted()


def nothing_on_a_wire(rank: int, n: int) -> None:
    core: Any = dist.group.WORLD
    assert core._world.wire is None
    assert sorted(core._world.hall.pairs) == [r for r in range(n) if r != rank]
    everything(rank, n)
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    mapped = [line for line in maps if "/openmrc-" in line]
    assert len(mapped) == n - 1
    assert all(line.endswith("(deleted)") for line in mapped)  # no file, however it ends
    x = torch.arange(3_000_000, dtype=torch.float32) + rank  # many times around the rings
    dist.all_reduce(x)
    assert torch.equal(x, torch.arange(3_000_000.0) * n + n * (n - 1) // 2)


def test_ranks_of_a_host_share_memory() -> None:
    run(3, nothing_on_a_wire, OPENMRC_SHARED_MEMORY="1")


SAID: list[str] = []


def no_room() -> None:
    """No file may be as large as a shared segment; what is said is kept."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    world.say = lambda words, *_: SAID.append(words)  # type: ignore[attr-defined]


def over_the_wire(rank: int, n: int) -> list[str]:
    core: Any = dist.group.WORLD
    core = core.core.world
    assert core.hall.pairs == {}
    assert sorted(core.hall.refused) == [r for r in range(n) if r != rank]
    assert core.wire is not None
    x = torch.arange(100_000.0) + rank
    dist.all_reduce(x)
    assert torch.equal(x, torch.arange(100_000.0) * n + n * (n - 1) // 2)
    return SAID


def test_without_room_for_shared_memory_ranks_speak_over_the_wire() -> None:
    told = run(3, over_the_wire, before=no_room, OPENMRC_SHARED_MEMORY="1")
    assert told[1] == told[2] == []
    assert told[0][0] == (
        "mrc: no room in /dev/shm: ranks 0 and 1, 0 and 2, 1 and 2 of one host reach each other"
        " over the wire; 7 MiB more would do (in a container: --shm-size)"
    )
    assert told[0][1].startswith("mrc: 3 ranks; loopback, 2 planes; ")


def test_of_many_pairs_a_few_are_named() -> None:
    words = shared.refusal([(0, other) for other in range(1, 7)])
    assert "ranks 0 and 1, 0 and 2, 0 and 3, 0 and 4 and 2 more pairs of one host" in words


def test_results_have_the_bits_that_the_wire_gives() -> None:
    told = run(2, each_algorithm, OPENMRC_SHARED_MEMORY="1")
    assert told[0] == told[1] == run(2, each_algorithm)[0]


def test_all_others_know_of_a_killed_process() -> None:
    for took, error in run(3, killed, killed=(2,), OPENMRC_SHARED_MEMORY="1")[:2]:
        assert took < 3.0
        assert "rank 2 (host " in error
        assert "has ended: its process is gone" in error


def test_a_group_that_was_destroyed_leaves_nothing(tmp_path: Path) -> None:
    run(2, again, str(tmp_path), OPENMRC_SHARED_MEMORY="1")
