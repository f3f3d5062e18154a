"""What is kept of messages that nobody asked for and nobody wants yet: a bounded amount."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

import torch

from openmrc.torch.call import P2P, Call
from openmrc.torch.matching import KEPT_MAX
from openmrc.torch.operation import Operation
from openmrc.torch.pair import DATA, EAGER, HOLD, OFFER, READY, Header, Key
from openmrc.torch.progress import Progress

CALL = Call(P2P, torch.uint8, n=EAGER).packed()
FITS = KEPT_MAX // EAGER  # messages


class Peer:
    """A pair to rank 0, which the test is; it keeps what is sent."""

    behind, full, eager = False, False, EAGER

    def __init__(self) -> None:
        self.sent: list[Header] = []
        self.written: list[int] = []

    def send(self, header: Header, *_: Any) -> bool:
        self.sent.append(header)
        return True

    def write(self, wr_id: int, data: Any, to: Header) -> None:
        self.written.append(to.number)

    def kinds(self) -> list[tuple[int, int]]:
        """What was sent since the last look: kinds and numbers."""
        found = [(h.kind, h.number) for h in self.sent]
        self.sent.clear()
        return found


@pytest.fixture
def ends() -> Iterator[tuple[Progress, Peer]]:
    """Rank 1 of two, and its peer."""
    progress, peer = Progress(1, range(2)), Peer()
    progress.pairs[0] = peer  # type: ignore[assignment]  # what it uses of one
    yield progress, peer
    progress.stop()


def _key(number: int) -> Key:
    return Key(9, 1, number, 0)


def _op() -> Operation:
    return Operation("one", range(2), 60.0, CALL, 9, None)


def test_who_keeps_much_holds_its_peer_back_until_half_is_gone(ends: tuple[Progress, Peer]) -> None:
    progress, peer = ends
    data = np.ones(EAGER, np.uint8)
    for number in range(FITS):
        progress.matching.on_header(0, Header(DATA, _key(number), EAGER, call=CALL), data)
    assert peer.kinds() == []
    progress.matching.on_header(0, Header(DATA, _key(FITS), EAGER, call=CALL), data)
    assert peer.kinds() == [(HOLD, 1)]
    for number in reversed(range(FITS + 1)):  # in any order
        into = np.zeros(EAGER, np.uint8)
        assert progress.matching.receive(_op(), 0, _key(number), into).done
        assert into.all()
        assert peer.kinds() == ([(HOLD, 0)] if number == FITS // 2 else [])
    assert progress.matching._kept[0] == 0


def test_who_is_held_back_or_finds_no_room_asks_first(ends: tuple[Progress, Peer]) -> None:
    progress, peer = ends
    data, matching = np.ones(100, np.uint8), progress.matching
    assert matching.send(_op(), 0, _key(0), data).done
    matching.on_header(0, Header(HOLD, Key(0, 0, 0, 0), 0, number=1), data[:0])
    sent = matching.send(_op(), 0, _key(1), data)
    assert not sent.done
    assert matching.send(_op(), 0, _key(2), data[:0]).done  # nothing would be kept of it
    assert peer.kinds() == [(DATA, 0), (OFFER, 0), (DATA, 0)]
    matching.on_header(0, Header(READY, _key(1), 100, number=7, call=CALL), data[:0])
    assert peer.written == [7]
    matching.on_header(0, Header(HOLD, Key(0, 0, 0, 0), 0, number=0), data[:0])
    assert matching.send(_op(), 0, _key(3), data).done
    assert peer.kinds() == [(DATA, 0)]
    peer.full = True
    assert not matching.send(_op(), 0, _key(4), data).done
    assert peer.kinds() == [(OFFER, 0)]
