"""EV profiles: the meaning of an EV's bits, the EVs given to a QP, and those that it must not use.

A controller creates these, once; nothing here runs per packet (MRC 2.11, 2.12, 3.1).

* `Form`: an EV of fields, and `generate`: the EVs of a profile in GENERATED mode.
* `Masked`: a NIC's template, its mask, and the bits of the EV that fill it.
* `Format`: the same in the specification's terms, a list of fields with masks.
* `deny` and `denied`: a denylist by plane or switch, as values and masks over the bits of an EV.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.fabric.model import BoolArray, Fabric
from openmrc.fabric.places import switches
from openmrc.fabric.usid import ADDRESS_BITS, expand, extract

EV_BITS = 32  # in every field of a header that holds one (MRC 2.11)
WIDTH_MAX = {"ecmp": 16, "structured": 32, "srv6": 128, "srv6+srh": 256}  # MRC 2.12, by mode
ADDRESSED = ("srv6", "srv6+srh")
FIELD_BITS_MAX = 32  # a field names one hop, and that has a uSID of 16 bits at most
EVS_MAX = 2**16  # the number of hashed EVs; profiles have 128 to 256 (MRC 3.1)

_PLANE = re.compile(r"\s*plane\s+(\d+|\*)\s*", re.ASCII)


@dataclass(frozen=True)
class Form:
    """An EV of fields, packed most significant first (MRC 2.11).

    `widths` are bits; field `i` takes the values 0 <= value < `choices[i]`. In every mode but
    "ecmp", whose EVs are hashed, the first field is the plane. Below the fields are `low_bits` bits
    that are the same in every EV, with the value `low`. Raises `InputError`.
    """

    mode: str  # a key of WIDTH_MAX
    widths: tuple[int, ...]
    choices: tuple[int, ...]
    low_bits: int = 0
    low: int = 0

    def __post_init__(self) -> None:
        _check_mode(self.mode, self.bits)
        _check_bits("profile.low", self.low, self.low_bits)
        if not self.widths or min(self.widths) < 0 or max(self.widths) > FIELD_BITS_MAX:
            raise InputError(
                f"profile.widths: {self.widths}; one or more fields of 0 to {FIELD_BITS_MAX} bits"
                " are accepted"
            )
        if len(self.choices) != len(self.widths):
            raise InputError(
                f"profile.choices: {len(self.choices)} for {len(self.widths)} fields; name one each"
            )
        for choices, width in zip(self.choices, self.widths, strict=True):
            if not 1 <= choices <= 1 << width:
                raise InputError(
                    f"profile.choices: {choices} do not fit {width} bits; 1 to {1 << width} do"
                )

    @staticmethod
    def of(fabric: Fabric) -> Form:
        """Return the form of a fabric's EVs: plane, uplink of the T0, uplink of a T1."""
        tiers = [np.flatnonzero(fabric.sw_tier == tier)[0] for tier in range(fabric.n_tiers - 1)]
        uplinks = [int(fabric.sw_n_up[switch]) for switch in tiers]
        widths = (fabric.ev_plane_bits, fabric.ev_up0_bits, fabric.ev_up1_bits)
        n = 1 + len(uplinks)
        low_bits = fabric.ev_up1_shift
        choices = (fabric.n_planes, *uplinks)
        return Form("structured", widths[:n], choices, low_bits, fabric.ev_base)

    @property
    def bits(self) -> int:
        """The width of an EV in bits."""
        return sum(self.widths) + self.low_bits

    def pack(self, *values: int) -> int:
        """Return the EV of these values, one per field; each must be one of its field's choices."""
        if len(values) != len(self.widths):
            raise InputError(
                f"EV: {len(values)} values for {len(self.widths)} fields; name one each"
            )
        ev = 0
        for value, width, choices in zip(values, self.widths, self.choices, strict=True):
            if not 0 <= value < choices:
                raise InputError(f"EV: {value} is no choice; 0 to {choices - 1} are")
            ev = ev << width | value
        return ev << self.low_bits | self.low

    def unpack(self, ev: int) -> tuple[int, ...]:
        """Return the value of each field: the inverse of `pack`."""
        values = []
        ev >>= self.low_bits
        for width in reversed(self.widths):
            values.append(ev & (1 << width) - 1)
            ev >>= width
        return tuple(reversed(values))


class Entry(NamedTuple):
    """An entry of a profile: the EV, and the plane that the NIC's port leads to."""

    ev: int
    plane: int


def generate(form: Form | Format, planes: int, count: int, seed: int) -> list[Entry]:
    """Return a profile in GENERATED mode: `count` different EVs drawn from all that exist.

    In a `Format` the first field that the EV fills chooses the plane, except in mode "ecmp".
    Equally many per plane, planes in turn, and within a plane a random subset (MRC 3.1). The same
    arguments give the same profile. Raises `InputError` if there are fewer EVs.
    """
    hashed = form.mode == "ecmp"
    if planes < 1 or (not hashed and planes > form.choices[0]):
        most = "any number" if hashed else f"at most {form.choices[0]}"
        raise InputError(f"profile.planes: {planes} planes; 1 or more, {most}, can be named")
    if not 1 <= count <= EVS_MAX or count % planes:
        raise InputError(
            f"profile.count: {count} EVs for {planes} planes;"
            f" a multiple of {planes}, at most {EVS_MAX}, is accepted"
        )
    draw = np.random.default_rng(seed)
    if hashed:
        evs = [form.pack(*way) for way in _different(draw, form.choices, count, "profile.count")]
        return [Entry(ev, number % planes) for number, ev in enumerate(evs)]
    share = count // planes
    ways = [_different(draw, form.choices[1:], share, "profile.count") for _ in range(planes)]
    return [
        Entry(form.pack(plane, *ways[plane][number]), plane)
        for number in range(share)
        for plane in range(planes)
    ]


@dataclass(frozen=True)
class Masked:
    """A template whose mask is filled from the EV's bits under `ps_mask`, in order (MRC 2.12).

    `port_mask` are the bits that name the NIC's port. Raises `InputError` if the masks differ in
    their number of bits, or are wider than an address or an EV.
    """

    template: int
    template_mask: int
    ps_mask: int
    port_mask: int

    def __post_init__(self) -> None:
        for name, bits in (
            ("template", ADDRESS_BITS),
            ("template_mask", ADDRESS_BITS),
            ("ps_mask", EV_BITS),
            ("port_mask", EV_BITS),
        ):
            _check_bits(f"template.{name}", getattr(self, name), bits)
        there, here = self.template_mask.bit_count(), self.ps_mask.bit_count()
        if there != here:
            raise InputError(
                f"template.ps_mask: {here} bits of the EV for {there} bits of the template;"
                " the masks need equally many"
            )

    def address(self, ev: int) -> int:
        """Return the carrier that `ev` names."""
        return expand(self.template, self.template_mask, extract(ev, self.ps_mask))

    def port(self, ev: int) -> int:
        """Return the NIC's port that `ev` names."""
        return extract(ev, self.port_mask)


class FormatField(NamedTuple):
    """A field of a `Format`: its width, its initial value, and the bits that the EV fills.

    Generated EVs fill them with values from `min_val` to `max_val` (None: all that fit the mask).
    `wire_bits` (None: `bits`) is how wide the field is in a packet, zeros in front.
    """

    bits: int
    init_val: int
    mask: int
    min_val: int = 0
    max_val: int | None = None
    wire_bits: int | None = None

    @property
    def width(self) -> int:
        """The width of the field in a packet, bits."""
        return self.bits if self.wire_bits is None else self.wire_bits

    @property
    def values(self) -> range:
        """The values with which generated EVs may fill the mask."""
        most = (1 << self.mask.bit_count()) - 1 if self.max_val is None else self.max_val
        return range(self.min_val, most + 1)

    def check(self, place: str) -> None:
        """Raise `InputError` for values that do not fit; `place` names the field."""
        if self.bits < 1:
            raise InputError(f"{place}: {self.bits} bits; 1 or more are accepted")
        if self.width < self.bits:
            raise InputError(f"{place}.wire_bits: {self.width} for a field of {self.bits} bits")
        _check_bits(f"{place}.init_val", self.init_val, self.bits)
        _check_bits(f"{place}.mask", self.mask, self.bits)
        _check_bits(f"{place}.min_val", self.min_val, self.mask.bit_count())
        _check_bits(f"{place}.max_val", self.max_val or 0, self.mask.bit_count())
        if not self.values:
            raise InputError(f"{place}.max_val: {self.max_val} is below min_val = {self.min_val}")


@dataclass(frozen=True)
class Format:
    """How a controller writes an EV: as the 16 or 32 bits of source port and flow label, as one
    carrier, or as a carrier and an SRH.

    Each bit of a field's mask, highest first, takes the next most significant bit of the EV, and
    the fields are concatenated (MRC 2.12). Raises `InputError`.
    """

    mode: str  # a key of WIDTH_MAX
    fields: tuple[FormatField, ...]

    def __post_init__(self) -> None:
        for number, field in enumerate(self.fields):
            field.check(f"format.fields[{number}]")
        _check_mode(self.mode, self.bits)

    @property
    def bits(self) -> int:
        """The total width of the fields in a packet, bits."""
        return sum(field.width for field in self.fields)

    @property
    def choices(self) -> tuple[int, ...]:
        """How many values a generated EV may have in each field that it fills."""
        return tuple(len(field.values) for field in self._filled)

    @property
    def _filled(self) -> tuple[FormatField, ...]:
        return tuple(field for field in self.fields if field.mask)

    def pack(self, *choices: int) -> int:
        """Return the EV of these choices, one for each field that it fills, counted from 0."""
        ev = 0
        for choice, field in zip(choices, self._filled, strict=True):
            ev = ev << field.mask.bit_count() | field.values[choice]
        return ev

    @property
    def ev_bits(self) -> int:
        """The number of an EV's bits that the masks take."""
        return sum(field.mask.bit_count() for field in self.fields)

    def expand(self, ev: int) -> int:
        """Return the fields of `ev`, `bits` wide; in the modes without addresses this is the EV on
        the wire. Raises `InputError` if it is too wide.
        """
        _check_bits("EV", ev, self.ev_bits)
        value, left = 0, self.ev_bits
        for field in self.fields:
            left -= field.mask.bit_count()
            value = value << field.width | expand(field.init_val, field.mask, ev >> left)
        return value

    def addresses(self, ev: int) -> tuple[int, ...]:
        """Return the carrier and, with an SRH, the segment; zeros follow the last field. Raises
        `InputError` in the other modes.
        """
        if self.mode not in ADDRESSED:
            raise InputError(f'format.mode: {self.mode!r} has no address; "srv6" or "srv6+srh" has')
        n = -(-self.bits // ADDRESS_BITS)
        value = self.expand(ev) << n * ADDRESS_BITS - self.bits
        mask = (1 << ADDRESS_BITS) - 1
        return tuple(value >> ADDRESS_BITS * (n - 1 - i) & mask for i in range(n))


class Denial(NamedTuple):
    """A denylist entry: EVs with `ev & mask == value`, on paths that reach the denied place.

    Those are the paths that go up through at least `uplinks` switches and have one of the NICs `lo`
    <= nic < `hi` as source or destination.
    """

    value: int
    mask: int
    uplinks: int
    lo: int
    hi: int


def deny(fabric: Fabric, where: str) -> list[Denial]:
    """Return the entries that deny a plane or switches: "plane 3", "plane 3 t0 5", "plane 3 t1 2".

    Any number may be "*". Raises `InputError` if the place does not exist.
    """
    whole_plane = _PLANE.fullmatch(where)
    try:
        found = switches(fabric, f"{where} t0 0" if whole_plane else where).tolist()
    except InputError as error:
        raise error.at(f"denylist {where!r}") from None
    if whole_plane:
        every = {"uplinks": 0, "lo": 0, "hi": fabric.n_nics}
        return [_by_switch(fabric, switch)[0]._replace(**every) for switch in found]
    return [entry for switch in found for entry in _by_switch(fabric, switch)]


def denied(
    fabric: Fabric, entries: Sequence[Denial], src: int, dst: int, evs: npt.ArrayLike
) -> BoolArray:
    """Return, for each of `evs`, whether its path from NIC `src` to NIC `dst` is denied."""
    evs = np.asarray(evs, np.int64)
    found = np.zeros(evs.shape, np.bool_)
    uplinks = int(fabric.uplinks(src, dst))
    for entry in entries:
        at_end = entry.lo <= src < entry.hi or entry.lo <= dst < entry.hi
        if at_end and uplinks >= entry.uplinks:
            found |= evs & entry.mask == entry.value
    return found


def _by_switch(fabric: Fabric, switch: int) -> list[Denial]:
    """Return one entry for each path up to a switch; parallel links make several."""
    plane, tier = int(fabric.sw_plane[switch]), int(fabric.sw_tier[switch])
    bits = (fabric.ev_up0_bits, fabric.ev_up1_bits)[:tier]
    mask = fabric.ev((1 << fabric.ev_plane_bits) - 1, *_both([(1 << b) - 1 for b in bits]))
    nics = int(fabric.sw_lo[switch]), int(fabric.sw_hi[switch])
    return [
        Denial(fabric.ev(plane, *_both(way)), mask, tier, *nics) for way in _ways(fabric, switch)
    ]


def _both(way: list[int]) -> list[int]:
    """Return both uplinks of a path upwards, 0 for one that it does not take."""
    return [*way, 0, 0][:2]


def _ways(fabric: Fabric, switch: int) -> list[list[int]]:
    """Return the numbers of the uplinks that lead from a NIC below to a switch, lowest first."""
    if fabric.sw_tier[switch] == 0:
        return [[]]
    below = int(fabric.port_peer_switch[fabric.sw_first_down[switch]])
    first, n_up = int(fabric.sw_first_up[below]), int(fabric.sw_n_up[below])
    ups = np.flatnonzero(fabric.port_peer_switch[first : first + n_up] == switch).tolist()
    return [[*way, up] for way in _ways(fabric, below) for up in ups]


def _different(
    draw: np.random.Generator, choices: Sequence[int], count: int, place: str
) -> list[tuple[int, ...]]:
    """Return `count` different combinations of choices, each as likely as any other."""
    there_are = 1
    for n in choices:
        there_are *= n
    if count > there_are:
        raise InputError(
            f"{place}: {count} EVs of a plane wanted, there are {there_are}; ask for fewer"
        )
    # While less than half of them are taken, repeated draws cost little.
    if 2 * count > there_are:
        numbers = draw.permutation(there_are)[:count].tolist()
        return [_digits(number, choices) for number in numbers]
    found: dict[tuple[int, ...], None] = {}
    while len(found) < count:
        found[tuple(int(draw.integers(n)) for n in choices)] = None
    return list(found)


def _digits(number: int, choices: Sequence[int]) -> tuple[int, ...]:
    digits = []
    for n in reversed(choices):
        number, digit = divmod(number, n)
        digits.append(digit)
    return tuple(reversed(digits))


def _check_mode(mode: str, bits: int) -> None:
    if mode not in WIDTH_MAX:
        known = ", ".join(f'"{name}"' for name in WIDTH_MAX)
        raise InputError(f"profile.mode: {mode!r} is not known; {known} are")
    if bits > WIDTH_MAX[mode]:
        raise InputError(
            f'profile.widths: {bits} bits; mode "{mode}" has room for {WIDTH_MAX[mode]}'
        )


def _check_bits(place: str, value: int, bits: int) -> None:
    if not 0 <= value < 1 << bits:
        raise InputError(f"{place}: {value:#x} does not fit {bits} bits")
