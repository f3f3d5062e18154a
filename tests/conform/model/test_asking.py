"""How many probes leave together."""

from __future__ import annotations

from openmrc.conform.model.asking import Asking


def test_each_batch_is_twice_the_one_before_up_to_eight() -> None:
    a = Asking()
    told = [a.asks(at) for at, n in enumerate([1, 2, 4, 8, 8, 1]) for _ in range(n)]
    assert [right for right in told if right] == [
        {"together": n, "wanted": n} for n in (1, 2, 4, 8, 8)
    ]


def test_progress_begins_with_one_and_what_is_heard_without_says_nothing() -> None:
    a = Asking()
    a.asks(0)
    a.hears(advance=True)
    assert a.asks(1) == {}
    assert a.asks(2) == {"together": 1, "wanted": 1}
    a.hears(advance=False)
    assert a.asks(3) == {}
