"""Which path is not the next that a plane takes."""

from __future__ import annotations

from openmrc.conform.model.skips import Skips


def test_what_was_marked_is_not_the_next_while_there_are_others() -> None:
    s = Skips(evs=4)
    s.marks(1)
    assert s.takes(1, again=False, bad=0) == {"marked": 1}
    assert s.takes(1, again=False, bad=0) == {"marked": 0}
    s.marks(1)
    s.marks(0x1_0001)
    assert s.takes(2, again=False, bad=0) == {"marked": 0}
    assert s.takes(0x1_0001, again=False, bad=0) == {"marked": 1}  # the other plane's own


def test_where_all_others_may_be_marked_or_bad_any_may_be_taken() -> None:
    s = Skips(evs=4)
    s.marks(1)
    assert s.takes(1, again=False, bad=3) == {}
    for ev in range(1, 5):
        s.marks(ev)
    assert s.takes(1, again=False, bad=0) == {}
    s.marks(1)
    assert s.takes(1, again=True, bad=0) == {}
