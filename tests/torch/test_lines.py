"""Ranks find each other beside strangers that say nothing, something wrong, or something old."""

from __future__ import annotations

import socket
import threading

import pytest

from openmrc.errors import OpenMrcError
from openmrc.torch.lines import Lines
from openmrc.verbs import door
from tests.live.two import PATIENCE_S

SECRET, OTHER = bytes(range(32)), bytes(range(1, 33))


def met(ranks: list[Lines]) -> list[str]:
    """What became of connecting them all."""
    where = {one.rank: (one.address, one.port) for one in ranks}
    said: list[str] = []

    def connect(one: Lines) -> None:
        try:
            one.connect(where, 5.0)
        except OpenMrcError as error:
            said.append(str(error))

    threads = [threading.Thread(target=connect, args=(one,)) for one in ranks]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE_S)
    return said


def test_strangers_delay_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    ranks = [Lines(rank, 3, SECRET) for rank in range(3)]
    strangers = []
    for one in ranks:
        for said in (b"", b"\0\0\0\1" + bytes(32), b'{"openmrc": '):
            strangers.append(socket.create_connection((one.address, one.port)))
            strangers[-1].sendall(said)
    monkeypatch.setattr(door, "PROOF_S", 4 * PATIENCE_S)  # in turn, they would be too late
    assert met(ranks) == []
    assert [sorted(one.to) for one in ranks] == [[1, 2], [0, 2], [0, 1]]
    for one in ranks:
        one.close()
    for stranger in strangers:
        stranger.close()


def test_a_rank_of_another_job_is_no_rank_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    ranks = [Lines(0, 2, SECRET), Lines(1, 2, OTHER)]
    first, second = sorted(met(ranks))
    assert first == "rank 0: the peer refuses: the secrets of both ends differ"
    assert second.startswith("ranks [1] have not connected within 5 s")
    for each in ranks:
        each.close()
