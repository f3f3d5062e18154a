"""Times in a table: all of a column in the unit that fits the longest, to four figures."""

from __future__ import annotations

from collections.abc import Sequence

from openmrc.units import MS, NS, US, S

UNITS_US = {"s": S / US, "ms": MS / US, "us": 1.0, "ns": NS / US}  # us in each, the longest first
FIGURES = 4


def column(times_us: Sequence[float | None], missing: str = "-") -> tuple[str, list[str]]:
    """Return the unit of a column of times and its cells; `missing` stands for those of None."""
    longest = max((time for time in times_us if time is not None), default=0.0)
    fits = (unit for unit, us in UNITS_US.items() if round(longest / us, 12) >= 1)
    unit = next(fits, "us" if longest == 0 else "ns")
    each = UNITS_US[unit]
    return unit, [missing if time is None else figures(time / each) for time in times_us]


def figures(value: float) -> str:
    """Return a number to four significant figures, whole thousands in full."""
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 1
    digits = max(FIGURES - whole, 0)
    if 0 < abs(value) < 1:
        digits = next(n for n in range(digits, 30) if round(abs(value), n) * 10**n >= 100)
    return f"{value:,.{digits}f}"
