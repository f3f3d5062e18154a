"""What an EV is in a packet, against the words of the API: bit by bit."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from openmrc.capi.control import formats
from openmrc.capi.control.formats import EV_BITS, Ev, Field
from openmrc.capi.places import Refused

WIRE = 32


@contextmanager
def refused(code: int) -> Iterator[None]:
    with pytest.raises(Refused) as found:
        yield
    assert errno.errorcode[found.value.code] == errno.errorcode[code], found.value


def by_bits(value: bytes, widths: Sequence[int], fields: Sequence[Field]) -> int:
    """The expansion as it is described: each field begins with its initial value; for each bit of
    its mask, from the highest, it takes the next most significant bit of the EV.
    """
    bits = iter(f"{int.from_bytes(value, 'big'):0{EV_BITS}b}")
    out = ""
    for field, room in zip(fields, widths, strict=False):
        own = field.init
        for bit in reversed(range(field.width)):
            if field.mask >> bit & 1:
                own = own & ~(1 << bit) | int(next(bits)) << bit
        out += f"{own:0{room}b}"
    return int(out.ljust(WIRE, "0"), 2)


def drawn(draw: random.Random) -> tuple[list[int], list[Field]]:
    """Widths of a format, and fields that fit them."""
    widths: list[int] = []
    while len(widths) < 4 and sum(widths) < WIRE:
        widths.append(draw.randint(1, WIRE - sum(widths)))
    fields = []
    for room in widths[: draw.randint(1, len(widths))]:
        width = draw.randint(1, room)
        mask = draw.getrandbits(width)
        most = draw.getrandbits(mask.bit_count()) if mask else 0
        fields.append(Field(width, draw.getrandbits(width), draw.randint(0, most), most, mask))
    return widths, fields


@pytest.mark.parametrize("seed", range(60))
def test_an_ev_is_expanded_as_the_api_says(seed: int) -> None:
    draw = random.Random(seed)
    widths, fields = drawn(draw)
    formats.check(widths, fields)
    taken = sum(field.mask.bit_count() for field in fields)
    ev = formats.packed(draw.getrandbits(taken) if taken else 0, taken, 1)
    assert len(ev.value) == EV_BITS // 8
    assert formats.expanded(ev, widths, fields, WIRE) == by_bits(ev.value, widths, fields)
    left = 1 << EV_BITS - taken - 1  # the first bit that no field takes
    more = (int.from_bytes(ev.value, "big") | left).to_bytes(EV_BITS // 8, "big")
    with refused(errno.EINVAL):
        formats.expanded(Ev(more, 1), widths, fields, WIRE)


@pytest.mark.parametrize("bits", [1, 16, 31, 32])
def test_without_fields_an_ev_is_what_is_in_the_packet(bits: int) -> None:
    for number in (0, 1, (1 << bits) - 1):
        ev = formats.packed(number, bits, 2)
        assert formats.expanded(ev, [bits], (), WIRE) == number << WIRE - bits
        assert ev.port == 2


@pytest.mark.parametrize(
    ("widths", "fields", "code"),
    [
        ((8, 8), (Field(8, 0, 0, 0, 0),) * 3, errno.E2BIG),  # more than the format has
        ((8, 8), (Field(9, 0, 0, 0, 0), Field(8, 0, 0, 0, 0)), errno.E2BIG),  # more bits in all
        ((8, 8), (Field(9, 0, 0, 0, 0),), errno.EINVAL),  # wider than its own room
        ((8, 8), (Field(0, 0, 0, 0, 0),), errno.EINVAL),
        ((8,), (Field(8, 256, 0, 0, 0),), errno.EINVAL),
        ((8,), (Field(8, 0, 0, 0, 256),), errno.EINVAL),
        ((8,), (Field(8, 0, 0, 4, 3),), errno.EINVAL),  # above what two bits hold
        ((8,), (Field(8, 0, 3, 2, 3),), errno.EINVAL),  # least above most
        ((40,), (Field(33, 0, 0, 0, 0),), errno.EINVAL),  # wider than a word
    ],
)
def test_fields_that_do_not_fit_are_refused(
    widths: Sequence[int], fields: Sequence[Field], code: int
) -> None:
    with refused(code):
        formats.check(widths, fields)


@pytest.mark.parametrize("seed", range(20))
def test_generated_evs_are_different_within_bounds_and_the_same_again(seed: int) -> None:
    draw = random.Random(seed)
    ports = draw.choice((1, 2, 4))
    choices = draw.randint(2, 12)
    fields = (
        Field(8, 0, 0, ports - 1, 7),
        Field(8, 0x80, 3, 3 + choices - 1, 0x1F),
        Field(4, 5, 0, 0, 0),
    )
    count = ports * draw.randint(1, choices)
    made = formats.generated((8, 8, 4), fields, count, ports, seed)
    assert made == formats.generated((8, 8, 4), fields, count, ports, seed)
    assert len(set(made)) == count
    assert [sum(ev.port == port + 1 for ev in made) for port in range(ports)] == (
        [count // ports] * ports
    )
    for ev in made:
        wire = formats.expanded(ev, (8, 8, 4), fields, WIRE)
        assert wire >> 24 < ports
        assert 3 <= wire >> 16 & 0x1F < 3 + choices
        assert wire & 0xFFFF == 5 << 12
    with refused(errno.EINVAL):  # more than there are
        formats.generated((8, 8, 4), fields, ports * choices + ports, ports, seed)
