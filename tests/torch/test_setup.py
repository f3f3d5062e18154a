"""A job that cannot be set up says why, and leaves nothing open; where ranks are reached."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

import torch.distributed as dist

from openmrc.errors import InputError, OpenMrcError
from openmrc.torch import lines, register
from openmrc.torch.world import World
from tests.torch.ranks import run

READS_MAX = 16


class Failing:
    """A store that is gone from the k-th read on."""

    def __init__(self, store: Any, reads: int) -> None:
        self._store, self._left = store, reads

    def set(self, key: str, value: str) -> None:
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        if self._left == 0:
            raise OpenMrcError("the store is gone")
        self._left -= 1
        told: bytes = self._store.get(key)
        return told


def _held() -> tuple[int, list[str]]:
    threads = [one.name for one in threading.enumerate() if "mrc" in one.name]
    return len(os.listdir("/proc/self/fd")), threads


def fails_anywhere(rank: int, n: int) -> int:
    store = dist.distributed_c10d._get_default_store()
    dist.barrier()
    before = _held()
    for reads in range(READS_MAX + 1):
        own = dist.PrefixStore(f"try {reads}", store)
        said, world = "", None
        try:
            world = World(Failing(own, reads), rank, list(range(n)), 5.0, told=False)
        except OpenMrcError as error:
            said = str(error)
            # or else the other rank is, which needed one more read
            assert re.search("the store is gone|not connected|refused|reset", said), said
        store.set(f"said {reads} {rank}", said)
        others = [store.get(f"said {reads} {r}") for r in range(n)]
        if world is not None:
            world.close()
        assert _held() == before
        if rank == 0 and own.check(["shared/0/1"]):  # made, and perhaps opened by nobody
            assert not Path(own.get("shared/0/1").decode()).exists()
        if not any(others):
            return reads
    raise AssertionError("more reads than expected")


@pytest.mark.parametrize("shared", ["0", "1"])
def test_a_set_up_that_fails_anywhere_tells_why_and_leaves_nothing(shared: str) -> None:
    told = run(2, fails_anywhere, OPENMRC_SHARED_MEMORY=shared, OPENMRC_PLANES="1")
    assert min(told) > 5


class Prefixed:
    def __init__(self, inner: Any) -> None:
        self.underlying_store = inner


class AtHost:
    def __init__(self, host: str) -> None:
        self.host = host


def test_ranks_are_reached_where_the_store_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = {"store.org": "192.0.2.7", "master.org": "198.51.100.7", "here": "127.0.0.1", "no": ""}
    monkeypatch.setattr(lines, "source_to", ways.__getitem__)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    away = Prefixed(Prefixed(AtHost("store.org")))
    assert lines.own_address(away, ["203.0.113.7"]) == "192.0.2.7"
    # the store is here, or a file: the first plane, which peers must reach anyway
    assert lines.own_address(AtHost("here"), ["203.0.113.7"]) == "203.0.113.7"
    assert lines.own_address(Prefixed(object()), ["203.0.113.7"]) == "203.0.113.7"
    monkeypatch.setenv("MASTER_ADDR", "master.org")
    assert lines.own_address(object(), ["203.0.113.7"]) == "198.51.100.7"
    assert lines.own_address(away, []) == "192.0.2.7"
    monkeypatch.setenv("MASTER_ADDR", "no")
    assert lines.own_address(object(), []) == lines.LOOPBACK


def test_the_way_to_this_host_is_loopback() -> None:
    assert lines.source_to("127.0.0.1") == "127.0.0.1"
    assert lines.source_to("no such host.invalid") == ""


@pytest.mark.skipif(
    hasattr(dist.Backend, "_ensure_backend_registered"), reason="torch 2.14 keeps the map"
)
def test_a_map_of_devices_is_refused_where_torch_would_ignore_it() -> None:
    register.register()
    store = dist.HashStore()
    words = r"backend 'cpu:mrc,cuda:gloo': torch 2\.13\.\d+ would use mrc for all devices; create a"
    with pytest.raises(InputError, match=words):
        dist.init_process_group("cpu:mrc,cuda:gloo", store=store, rank=0, world_size=1)
    assert not dist.is_initialized()
    dist.init_process_group("cpu:mrc,cuda:mrc", store=dist.HashStore(), rank=0, world_size=1)
    dist.destroy_process_group()
