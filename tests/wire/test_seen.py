"""Which numbers were seen: runs of integers do as a plain set does."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.engine import packet as pk
from openmrc.wire.seen import Seen, unwrap

REPEATABLE = settings(derandomize=True, database=None, deadline=None)
NUMBERS = st.lists(st.integers(-30, 30), max_size=60)


def of(numbers: list[int]) -> Seen:
    seen = Seen()
    for x in numbers:
        seen.add(x)
    return seen


@REPEATABLE
@given(st.lists(st.integers(-40, 40)))
def test_runs_are_a_set_of_integers(numbers: list[int]) -> None:
    seen, plain = Seen(), set[int]()
    for x in numbers:
        assert seen.add(x) == (x not in plain)
        plain.add(x)
    assert seen.total == len(plain)
    holes = [x for first, last in seen.holes(-40, 40) for x in range(first, last + 1)]
    assert holes == [x for x in range(-40, 41) if x not in plain]


@REPEATABLE
@given(NUMBERS, NUMBERS, st.integers(-20, 20), st.integers(-40, 40), st.integers(0, 40))
def test_two_sets_are_joined(
    here: list[int], there: list[int], ahead: int, first: int, n: int
) -> None:
    a, b, both = of(here), of(there), set(here) & {x + ahead for x in there}
    assert a.within(first, first + n) == len(set(here) & set(range(first, first + n)))
    assert a.common(b, ahead) == len(both)
    assert a.join(b, ahead) == len(both)
    every = set(here) | {x + ahead for x in there}
    assert a.total == len(every)
    assert {x for x in range(-60, 60) if x in a} == every
    assert (a.lowest, a.end) == ((min(every), max(every) + 1) if every else (0, 0))


@REPEATABLE
@given(near=st.integers(-(10**12), 10**12), step=st.integers(-(2**23), 2**23 - 1))
def test_unwrapping_finds_the_nearest_integer(near: int, step: int) -> None:
    assert unwrap((near + step) & pk.PSN_MASK, near, 24) == near + step
