from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.units import (
    DIGITS_MAX,
    QUANTITY_MAX,
    fmt_rate,
    fmt_size,
    fmt_time,
    integer,
    parse_rate,
    parse_size,
    parse_time,
)

QUANTITIES = st.integers(min_value=0, max_value=QUANTITY_MAX)


@pytest.mark.parametrize(
    ("text", "ps"),
    [("0s", 0), ("1ps", 1), ("100ns", 100_000), ("12us", 12_000_000), ("1.5ms", 1_500_000_000)],
)
def test_times_are_picoseconds(text: str, ps: int) -> None:
    assert parse_time(text) == ps


@pytest.mark.parametrize(
    ("text", "bps"), [("100Gbps", 10**11), ("1.6Tbps", 16 * 10**11), ("9 Mbps", 9 * 10**6)]
)
def test_rates_are_bits_per_second(text: str, bps: int) -> None:
    assert parse_rate(text) == bps


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("4KiB", 4096), ("4kB", 4000), ("2MB", 2_000_000), ("1.5GiB", 3 << 29)]
)
def test_binary_and_decimal_sizes_differ(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("12", "has no unit"),
        ("12us", "'us' is not a unit of size (B, kB, KB, MB, GB, TB, KiB, MiB, GiB, TiB)"),
        ("-4KiB", "is negative"),
        ("0.5B", "is finer than 1B"),
        ("four", "is not a size"),
        ("", "is not a size"),
        ("1e3B", "is not a size"),
        ("9223372036854775808B", "is above the limit of 9223372036854775807B"),
    ],
)
def test_what_is_not_a_size_is_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(InputError) as refusal:
        parse_size(text)
    assert str(refusal.value).startswith(f"{text!r}")
    assert complaint in str(refusal.value)


def test_a_number_from_a_file_has_no_unit_either() -> None:
    with pytest.raises(InputError, match=r'^100 has no unit; a rate .* such as "100Gbps"'):
        parse_rate(100)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ps", "text"), [(0, "0ps"), (999, "999ps"), (1_500, "1.5ns"), (2_000_000_000_000, "2s")]
)
def test_times_are_written_in_the_largest_unit(ps: int, text: str) -> None:
    assert fmt_time(ps) == text


def test_sizes_are_written_as_people_would() -> None:
    assert [fmt_size(n) for n in (0, 4096, 1_536, 2_000_000, 178_450, 1 << 40)] == [
        "0B",
        "4KiB",
        "1.536kB",
        "2MB",
        "178.45kB",
        "1TiB",
    ]


@given(QUANTITIES)
def test_what_is_written_reads_as_the_same(value: int) -> None:
    assert parse_time(fmt_time(value)) == value
    assert parse_rate(fmt_rate(value)) == value
    assert parse_size(fmt_size(value)) == value


@pytest.mark.parametrize("digits", ["9" * 5000, "0" * 5000, "0." + "1" * 5000])
def test_no_number_has_too_many_digits_to_be_refused(digits: str) -> None:
    for parse in (parse_time, parse_rate, parse_size):
        with pytest.raises(InputError, match=r"\.\.\. .*is accepted"):
            parse(f"{digits}X")
    assert integer("9" * DIGITS_MAX) == 10**DIGITS_MAX - 1
    assert integer("9" * 5000) == 10**DIGITS_MAX
