"""The loop on other threads than the endpoint's: who posts sends at once, who waits goes round."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from typing import Any

import pytest

from openmrc.engine.state import NEVER
from openmrc.live.endpoint import host, state
from openmrc.live.endpoint.loop import CAME, ELSEWHERE, NOTHING, OTHER
from tests.live.endpoint.stage import HEALTHY_BYTES, HIDDEN, KNOWN, Stage

LONG_NS = 20_000_000_000  # an unlucky machine; what is waited for comes in microseconds


@pytest.fixture
def stage() -> Iterator[Stage]:
    one = Stage()
    one.step()  # what the connections posted is taken
    for at in one.hosts:
        at.ep.ctl[0].attention = 0
    yield one
    one.close()


def sent(one: host.Host) -> int:
    return int(one.ep.port.tx_packets.sum())


def readable(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


def woken(one: host.Host) -> bool:
    return readable(int(one.ep.ctl[0].wake_fd))


def alarmed(one: host.Host) -> bool:
    return readable(int(one.ep.ctl[0].alarm_fd))


def asleep(one: host.Host, until: Any) -> Any:
    """As if the endpoint's thread slept until then."""
    ctl = one.ep.ctl[0]
    ctl.sleeping, ctl.wakes_at = 1, until
    return ctl


def test_what_is_posted_leaves_on_the_callers_thread_and_who_waits_takes_what_comes(
    stage: Stage,
) -> None:
    a, b = stage.hosts
    before, loops = sent(a), int(a.ep.ctl[0].loops)
    stage._post(0, HIDDEN, state.POST_WRITE, 7, 100)
    assert sent(a) - before == 1
    assert a.ep.ctl[0].loops - loops == 1
    done = a.ep.cq[HIDDEN]
    while done.written == done.read:
        assert b.look(HIDDEN, 0, 0) == NOTHING  # nothing completes at this end
        assert a.look(HIDDEN, 0, 0) in (NOTHING, CAME)
    assert a.look(HIDDEN, 0, LONG_NS) == CAME
    assert a.ep.cqe[int(done.cqe0)].wr_id == 7
    assert done.told == done.written  # nobody was woken for it


def test_who_posts_sends_a_few_packets_and_the_thread_sends_more_at_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "PUSHED_PACKETS", 4)  # half of the message
    a = stage.hosts[0]
    before = sent(a)
    asleep(a, NEVER - 1)
    stage._post(0, HIDDEN, state.POST_WRITE, 1, HEALTHY_BYTES)
    assert sent(a) - before == host.PUSHED_PACKETS
    assert a.ep.ctl[0].due == a.ep.ctl[0].now == a.ep.ctl[0].wakes_at
    assert alarmed(a)


def test_the_alarm_is_set_for_the_timer_of_what_was_sent(stage: Stage) -> None:
    a = stage.hosts[0]
    ctl = asleep(a, NEVER - 1)
    stage._post(0, HIDDEN, state.POST_WRITE, 1, 100)
    q = a.st.qp[HIDDEN]
    first = min(int(q.rto_at), int(q.overdue_at), int(q.finish_at))
    assert ctl.now < ctl.wakes_at == ctl.due == first < NEVER - 1
    ctl.wakes_at = first - 1  # it wakes sooner: no need
    stage._post(0, HIDDEN, state.POST_WRITE, 2, 100)
    assert ctl.wakes_at == first - 1
    assert not woken(a)


def test_the_thread_is_woken_for_a_port_that_has_failed(stage: Stage) -> None:
    a = stage.hosts[0]
    asleep(a, 0)
    a.ep.port[1].failed = 19
    stage._post(0, HIDDEN, state.POST_WRITE, 1, 100)
    assert woken(a)


def test_while_somebody_goes_round_others_leave_it_to_him(stage: Stage) -> None:
    a = stage.hosts[0]
    before = sent(a)
    a._enter.call()
    stage._post(0, HIDDEN, state.POST_WRITE, 1, 100)
    assert a.look(HIDDEN, 0, 0) == NOTHING
    assert sent(a) == before
    a._leave.call()
    assert a.look(HIDDEN, 0, 0) == NOTHING
    assert sent(a) == before + 1


def test_who_waits_leaves_the_lock_to_the_thread_that_was_called(stage: Stage) -> None:
    a = stage.hosts[0]
    loops = int(a.ep.ctl[0].loops)
    a.ep.ctl[0].attention = 1
    stage._post(0, HIDDEN, state.POST_WRITE, 1, 100)
    assert a.look(HIDDEN, 0, 0) == NOTHING
    assert a.ep.ctl[0].loops == loops


def test_one_thread_at_a_time_waits_on_the_ports(stage: Stage) -> None:
    a = stage.hosts[0]
    a.ep.ctl[0].looked = 1
    assert a.look(HIDDEN, 0, LONG_NS) == ELSEWHERE
    a.ep.ctl[0].looked = 0
    assert a.look(HIDDEN, 0, 0) == NOTHING
    a.ep.ctl[0].spin = 1  # the thread never sleeps
    assert a.look(HIDDEN, 0, LONG_NS) == ELSEWHERE


def test_another_descriptor_ends_the_wait(stage: Stage) -> None:
    a = stage.hosts[0]
    fd = os.eventfd(1)
    a.ep.waits[state.OTHERS + 1].fd = fd
    assert a.look(HIDDEN, 0, LONG_NS) == OTHER
    os.close(fd)


def test_the_thread_hears_the_ports_whenever_nobody_waits_on_them(stage: Stage) -> None:
    b = stage.hosts[1]
    gate = int(b.ep.ctl[0].gate_fd)
    assert b.look(KNOWN, 0, 0) == NOTHING
    assert not readable(gate)
    stage._post(0, HIDDEN, state.POST_WRITE, 1, 100)
    assert readable(gate)
    assert b.look(KNOWN, 0, 0) == NOTHING  # took it
    assert not readable(gate)
    assert sent(b) > 0


def test_a_receive_waits_for_the_next_round(stage: Stage) -> None:
    ctl = stage.hosts[0].ep.ctl[0]
    loops = int(ctl.loops)
    stage._post(0, HIDDEN, state.POST_RECV, 1)
    assert (ctl.posted - ctl.taken, ctl.loops) == (1, loops)
    stage._post(0, HIDDEN, state.POST_WRITE, 2, 100)
    assert (ctl.posted - ctl.taken, ctl.loops) == (0, loops + 1)
