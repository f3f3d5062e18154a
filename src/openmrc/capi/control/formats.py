"""What an EV of a profile is in a packet.

An EV is a string of bits, most significant first from its first byte on. The fields of its profile
take bits of it under their masks, and are packed into the fields of the format (`wire.profile`);
without fields the EV is what stands in the packet. Zeros follow the last field.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from openmrc.capi.control.layouts import EV_BYTES
from openmrc.capi.places import Refused
from openmrc.errors import InputError
from openmrc.wire import profile

EV_BITS = 8 * EV_BYTES
FIELDS_MAX = 32
FIELD_BITS_MAX = 32
TRIES = 64  # draws for each generated EV that differs from all others, where ports are not drawn


class Ev(NamedTuple):
    """An EV of a profile: its 32 bytes, and its port, from 1 on; 0 in an entry that is not
    populated.
    """

    value: bytes
    port: int


UNPOPULATED = Ev(bytes(EV_BYTES), 0)


class Field(NamedTuple):
    """A field of an EV profile, as the API describes it."""

    width: int
    init: int
    least: int
    most: int
    mask: int


def check(widths: Sequence[int], fields: Sequence[Field]) -> None:
    """Refuse fields that do not fit a format of these widths, in bits: EINVAL; E2BIG for more than
    it has room for.
    """
    if len(fields) > len(widths) or sum(one.width for one in fields) > sum(widths):
        raise Refused(
            errno.E2BIG,
            f"{len(fields)} fields of {sum(one.width for one in fields)} bits: the format has"
            f" {len(widths)} of {sum(widths)}",
        )
    for number, (one, room) in enumerate(zip(fields, widths, strict=False)):
        bits = one.mask.bit_count()
        fits = (
            1 <= one.width <= min(room, FIELD_BITS_MAX)
            and one.init < 1 << one.width
            and one.mask < 1 << one.width
            and one.most < 1 << bits
            and one.least <= one.most
        )
        if not fits:
            raise Refused(errno.EINVAL, f"field {number}: {one} in {room} bits of the format")


def expanded(ev: Ev, widths: Sequence[int], fields: Sequence[Field], wire_bits: int) -> int:
    """Return the EV in a packet, `wire_bits` wide; EINVAL if it has bits that no field takes."""
    number = int.from_bytes(ev.value, "big")
    taken = sum(one.mask.bit_count() for one in fields) if fields else sum(widths)
    if number & (1 << EV_BITS - taken) - 1:
        raise Refused(errno.EINVAL, f"EV {ev.value.hex()}: {taken} bits are in use")
    used = number >> EV_BITS - taken
    if fields:
        used = _form(widths, fields).expand(used)
        taken = sum(widths[: len(fields)])
    return used << wire_bits - taken


def packed(number: int, bits: int, port: int) -> Ev:
    """Return the EV of a number so many bits wide."""
    return Ev((number << EV_BITS - bits).to_bytes(EV_BYTES, "big"), port)


def generated(
    widths: Sequence[int], fields: Sequence[Field], count: int, ports: int, seed: int
) -> list[Ev]:
    """Return the EVs of a profile in mode GENERATED: `count` different ones, ports in turn. If the
    first field that is generated has a value for each port, it names the port (MRC 3.1). The same
    arguments give the same EVs; EINVAL if there are fewer.
    """
    form = _form(widths, fields)
    bits = form.ev_bits
    if form.choices and form.choices[0] >= ports:
        try:
            found = profile.generate(form, ports, count, seed)
        except InputError as error:
            raise Refused(errno.EINVAL, str(error)) from None
        return [packed(one.ev, bits, one.plane + 1) for one in found]
    draw, evs = np.random.default_rng(seed), dict[int, None]()
    for _ in range(TRIES * count):
        evs[form.pack(*(int(draw.integers(n)) for n in form.choices))] = None
        if len(evs) == count:
            return [packed(ev, bits, i % ports + 1) for i, ev in enumerate(evs)]
    raise Refused(errno.EINVAL, f"{count} EVs: these fields name {len(evs)}")


def _form(widths: Sequence[int], fields: Sequence[Field]) -> profile.Format:
    rows = tuple(
        profile.FormatField(one.width, one.init, one.mask, one.least, one.most, room)
        for one, room in zip(fields, widths, strict=False)
    )
    return profile.Format("srv6+srh", rows)  # the widest: the widths are checked already
