"""Quantities with their units: text in, integers out, and back.

Inside openmrc time is picoseconds, rates are bit/s and sizes are bytes, always integers. What a
user writes always carries its unit: "100Gbps", "4KiB", "12us". A bare number is refused, because
nobody can tell which unit was meant. Conversion is exact (`Fraction`): "1.5ns" is 1500 ps, and a
quantity finer than the integer unit is refused rather than rounded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from openmrc.errors import InputError
from openmrc.say import written

NS = 1_000
US = 1_000_000
MS = 1_000_000_000
S = 1_000_000_000_000
PS_BITS = 8 * S  # bits per byte x picoseconds per second

TIME_PS: Mapping[str, int] = {"ps": 1, "ns": NS, "us": US, "ms": MS, "s": S}
RATE_BPS: Mapping[str, int] = {
    "bps": 1,
    "kbps": 10**3,
    "Mbps": 10**6,
    "Gbps": 10**9,
    "Tbps": 10**12,
}
_POWERS = {prefix: 1000**n for n, prefix in enumerate(("", "k", "M", "G", "T", "P"))}
RATE_OPS: Mapping[str, int] = {
    f"{prefix}{unit}": scale for unit in ("OPS", "FLOPS") for prefix, scale in _POWERS.items()
}
SIZE_BYTES: Mapping[str, int] = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}

# Every quantity is stored in an int64 somewhere; this is the limit of all three kinds.
QUANTITY_MAX = 2**63 - 1

DIGITS_MAX = 60  # more than any number of use has; Python refuses 4,301
_QUANTITY = re.compile(
    rf"\s*([+-]?[0-9]{{1,{DIGITS_MAX}}}(?:\.[0-9]{{1,{DIGITS_MAX}}})?)\s*([A-Za-zµ]*)\s*", re.ASCII
)


def integer(digits: str) -> int:
    """Return the number that these digits state; for too many of them, one above every limit."""
    return int(digits) if len(digits) <= DIGITS_MAX else 10**DIGITS_MAX


def parse_time(text: str) -> int:
    """Return picoseconds for "100ns", "12us", "1.5ms" or "3s"; raise `InputError` otherwise."""
    return _parse(text, "time", TIME_PS, '"100ns", "12us" or "1.5ms"')


def parse_rate(text: str) -> int:
    """Return bit/s for "100Gbps" or "1.6Tbps"; raise `InputError` otherwise."""
    return _parse(text, "rate", RATE_BPS, '"100Gbps" or "1.6Tbps"')


def parse_ops_rate(text: str) -> int:
    """Return operations a second for "400TOPS" or "1PFLOPS"; raise `InputError` otherwise."""
    return _parse(text, "rate of operations", RATE_OPS, '"400TOPS" or "1PFLOPS"')


def parse_size(text: str) -> int:
    """Return bytes for "4096B", "4KiB" (1024) or "2MB" (1000); raise `InputError` otherwise."""
    return _parse(text, "size", SIZE_BYTES, '"4096B", "4KiB" or "2MB"')


def fmt_time(ps: int) -> str:
    """Return `ps` picoseconds in the largest unit that keeps the number at 1 or more: "12.5us"."""
    return _fmt(ps, TIME_PS)


def fmt_rate(bps: int) -> str:
    """Return `bps` bit/s in the largest unit that keeps the number at 1 or more: "100Gbps"."""
    return _fmt(bps, RATE_BPS)


def fmt_ops_rate(ops: int) -> str:
    """Return `ops` operations a second in the largest unit that keeps 1 or more: "400TOPS"."""
    return _fmt(ops, {f"{prefix}OPS": scale for prefix, scale in _POWERS.items()})


def fmt_size(size_bytes: int) -> str:
    """Return `size_bytes` in whole binary units if it divides by 1024, else in decimal ones."""
    if size_bytes == 0 or size_bytes % 1024:
        return _fmt(size_bytes, {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12})
    binary = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
    unit = max((u for u in binary if size_bytes % binary[u] == 0), key=binary.__getitem__)
    return f"{size_bytes // binary[unit]}{unit}"


def _parse(text: str, kind: str, units: Mapping[str, int], examples: str) -> int:
    accepted = f"a {kind} with its unit is accepted, such as {examples}"
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        raise InputError(f"{written(text)} is not a {kind}; {accepted}")
    number, unit = found.groups()
    if Fraction(number) < 0:
        raise InputError(f"{text!r} is negative; {accepted}")
    if not unit:
        raise InputError(f"{text!r} has no unit; {accepted}")
    scale = units.get(unit)
    if scale is None:
        raise InputError(f"{text!r}: {unit!r} is not a unit of {kind} ({', '.join(units)})")
    value = Fraction(number) * scale
    smallest = next(iter(units))
    if value.denominator != 1:
        raise InputError(f"{text!r} is finer than 1{smallest}; {accepted}")
    if value > QUANTITY_MAX:
        raise InputError(f"{text!r} is above the limit of {QUANTITY_MAX}{smallest}; {accepted}")
    return int(value)


def _fmt(value: int, units: Mapping[str, int]) -> str:
    """Exact decimal text in powers of ten: what `_parse` reads back as the same integer."""
    unit, scale = max(
        ((u, n) for u, n in units.items() if n <= max(abs(value), 1)), key=lambda item: item[1]
    )
    whole, rest = divmod(abs(value), scale)
    sign = "-" if value < 0 else ""
    digits = f"{rest:0{len(str(scale)) - 1}d}".rstrip("0") if rest else ""
    return f"{sign}{whole}{'.' if digits else ''}{digits}{unit}"
