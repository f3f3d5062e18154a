"""What goes over a queue pair between two ranks arrives in order and whole, whatever its size."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

from openmrc.torch import pair
from openmrc.torch.pair import DATA, EAGER, HEADER_BYTES, RECEIVES, SLOT, SLOTS, Header, Key, Pair
from tests.live.two import PATIENCE_S, cabled

SIZES = (0, 1, SLOT - HEADER_BYTES, SLOT - HEADER_BYTES + 1, 40_000, EAGER)


def test_both_ends_place_messages_alike_and_none_is_in_two_pieces() -> None:
    draw, number = random.Random(1), 0
    for _ in range(1000):
        n = HEADER_BYTES + draw.choice(SIZES)
        first, slots = pair._place(number, n)
        assert (slots - 1) * SLOT < n <= slots * SLOT
        assert first % SLOTS + slots <= SLOTS
        assert number <= first < number + slots
        number = first + slots


@contextlib.contextmanager
def _two() -> Iterator[list[Pair]]:
    with cabled(cq_depth=4 * RECEIVES, send_depth=RECEIVES, receive_depth=RECEIVES) as devices:
        ends = [Pair(device, device.create_cq(), 1 - i) for i, device in enumerate(devices)]
        told = [one.told for one in ends]
        for i, one in enumerate(ends):
            one.connect(told[1 - i])
        yield ends


def test_small_messages_of_all_sizes_arrive_in_order_through_many_rounds_of_the_ring() -> None:
    draw = random.Random(2)
    sizes = [draw.choice(SIZES) for _ in range(300)]
    assert sum(-(-(HEADER_BYTES + n) // SLOT) for n in sizes) > 10 * SLOTS
    with _two() as (out, into):
        for number, n in enumerate(sizes):
            out.send(Header(DATA, Key(1, 0, number, 0), n), np.full(n, number % 251, np.uint8))
        assert out.behind  # the ring is full
        number, until = 0, time.monotonic() + PATIENCE_S
        while number < len(sizes):
            assert time.monotonic() < until
            for done in out.cq.poll():
                out.on_receive(done)  # slots that are free again
            for done in into.cq.poll():
                header, data, _ = into.on_receive(done)
                assert header is not None
                assert data is not None
                assert (header.key.seq, header.n, len(data)) == (
                    number,
                    sizes[number],
                    sizes[number],
                )
                assert bytes(data) == bytes([number % 251]) * header.n
                into.emptied()
                number += 1
        assert not out.behind


def _heard(end: Pair, n: int) -> list[int]:
    """The kinds of the next `n` immediates at an end; what they bring is used at once."""
    kinds = []
    for done in end.cq.wait(n, PATIENCE_S):
        assert done.imm_data is not None
        kinds.append(done.imm_data & pair.KIND)
        if end.on_receive(done)[0] is not None:
            end.emptied()
    return kinds


def test_who_answers_says_what_it_has_emptied_and_sends_no_message_for_it() -> None:
    data = np.zeros(EAGER, np.uint8)
    with _two() as ends:
        for number in range(40):  # five times what the ring holds
            for one in ends:
                assert one.send(Header(DATA, Key(1, 0, number, 0), EAGER), data)
            for one in ends:
                assert _heard(one, 1) == [0]


def test_a_message_that_finds_no_room_leaves_later_with_the_bytes_that_it_had() -> None:
    data = np.zeros(EAGER, np.uint8)
    left: list[int] = []
    with _two() as (out, into):
        sent = 0
        while out.send(Header(DATA, Key(1, 0, sent, 0), EAGER), data, partial(left.append, sent)):
            sent += 1
        data[:] = 1
        assert (sent, left, out.behind) == (SLOTS * SLOT // (HEADER_BYTES + EAGER), [], True)
        _heard(into, sent)
        while not left:
            _heard(out, 1)
        assert (left, out.behind) == ([sent], False)
        [done] = into.cq.wait(1, PATIENCE_S)
        _, came, _ = into.on_receive(done)
        assert came is not None
        assert bytes(came) == bytes(EAGER)
