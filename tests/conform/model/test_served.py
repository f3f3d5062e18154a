"""How long a path waits for its turn."""

from __future__ import annotations

from openmrc.conform.model.served import ROUNDS, Served

EVS, RTT = 4, 100


def served() -> Served:
    """All four paths have carried a packet."""
    paths = Served(EVS, RTT)
    for ev in range(EVS):
        paths.takes(ev, again=False)
    return paths


def waited(paths: Served, n: int, *evs: int) -> int | None:
    """After `n` more packets on some paths: for how many one that serves has waited."""
    for k in range(n):
        right = paths.takes(evs[k % len(evs)], again=False)
    return right.get("passed_over")


def test_a_path_that_serves_is_not_passed_over_for_long() -> None:
    paths = served()
    assert waited(paths, 40, 0, 1, 2, 3) == 3
    assert waited(paths, ROUNDS * EVS, 1, 2, 3) == 3 + ROUNDS * EVS
    assert paths.takes(0, again=True)["passed_over"] == 2  # a retransmission is a turn, too


def test_a_path_that_lost_is_back_by_a_later_probe_or_as_nothing_was_lost() -> None:
    for asked_ps, late, back in [(5, False, False), (20, False, True), (5, True, True)]:
        paths = served()
        paths.loses(0, sent_ps=0, now_ps=10)
        assert waited(paths, 20, 1, 2, 3) == 2
        paths.asks(0, 7, asked_ps)
        paths.answered(0, 6)
        if late:
            paths.came_late(0)
        else:
            paths.answered(0, 7)
        assert waited(paths, 20, 1, 2, 3) == (20 if back else 2)


def test_what_may_be_out_of_service_is_not_known() -> None:
    paths = served()
    paths.loses(0, sent_ps=0, now_ps=10)
    paths.loses(0, sent_ps=20, now_ps=30)  # a second time: one answer is not enough
    paths.asks(0, 7, 40)
    paths.answered(0, 7)
    assert waited(paths, 20, 1, 2, 3) == 2
    paths = served()
    for now in (0, 50, 90):  # the plane may be silent
        paths.loses(0, 0, now)
    assert waited(paths, 1, 1) is None
    paths = served()
    paths.doubts()
    assert waited(paths, 1, 1) is None
