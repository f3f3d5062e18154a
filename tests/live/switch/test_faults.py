"""Faults of links and switches in the live fabric: each effective at the next frame."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.errors import InputError
from openmrc.fabric import actions
from openmrc.fabric.actions import FaultSchedule
from openmrc.fabric.faults import compile_faults
from openmrc.fabric.kinds import Fault
from openmrc.fabric.queues import Queues
from openmrc.wire import frame
from tests.live.switch.switching import GBPS, MS, US, Rig, decoded, event, on_wire_ps

MANY = Queues(queue_bytes=10**7, queue_last_hop_bytes=10**7)


def _schedule(rig: Rig, *faults: Fault) -> FaultSchedule:
    return compile_faults(faults, rig.fabric)


def test_a_port_that_goes_down_loses_what_is_queued_and_in_flight_and_nothing_else() -> None:
    with Rig() as rig:
        frames = [rig.frame(0, 3, psn=i) for i in range(10)]
        up = rig.fabric.route(0, 3, 0)[1]  # the T0's uplink
        each = on_wire_ps(frames[0], GBPS)
        rig.send(0, 0, *frames)
        # frames 0, 1, 2 are through the uplink and its way, 3 is on it
        rig.run(int(5.5 * each) + 2 * (US + US // 2))
        rig.act(actions.PORT_DOWN, up)
        rig.run()
        got = [int(decoded(data)[1].psn) for data in rig.got(3, 0)]
        assert got == list(range(len(got)))
        assert 3 <= len(got) <= 4
        assert rig.drops() == {"link_down": 10 - len(got)}
        rig.act(actions.PORT_UP, up)
        rig.send(0, 0, frames[0])
        rig.run()
        assert len(rig.got(3, 0)) == 1
        rig.check_conserved()


def test_one_direction_may_be_down_alone() -> None:
    with Rig() as rig:
        rig.act(actions.PORT_DOWN, rig.fabric.nic_port(0, 0))
        rig.send(0, 0, rig.frame(0, 1))
        rig.send(1, 0, rig.frame(1, 0))
        rig.run()
        assert list(rig.all_got()) == [(0, 0)]
        rig.act(actions.PORT_DOWN, int(rig.fabric.port_reverse[rig.fabric.nic_port(0, 0)]))
        rig.send(1, 0, rig.frame(1, 0))
        rig.run()
        assert rig.all_got() == {}
        assert rig.drops() == {"link_down": 2}


@pytest.mark.parametrize("action", [actions.SWITCH_SILENT, actions.SWITCH_DOWN])
def test_a_switch_that_does_not_forward_swallows_what_comes(action: int) -> None:
    with Rig() as rig:
        t1 = int(rig.fabric.port_peer_switch[rig.fabric.route(0, 3, rig.fabric.ev(0, 1))[1]])
        rig.act(action, t1)
        for up in (0, 1):
            rig.send(0, 0, rig.frame(0, 3, rig.fabric.ev(0, up)))
        rig.run()
        assert len(rig.got(3, 0)) == 1
        assert rig.drops() == {"switch_down": 1}
        assert rig.switches.counters().by_switch()[t1]["dropped"]["switch_down"] == 1
        rig.act(actions.SWITCH_UP, t1)
        rig.send(0, 0, rig.frame(0, 3, rig.fabric.ev(0, 1)))
        rig.run()
        assert len(rig.got(3, 0)) == 1


@pytest.mark.parametrize(("burst", "run_length"), [(0.0, 1.11), (4.0, 4.0)])
def test_a_loss_rate_loses_that_share_in_bursts_of_that_length(
    burst: float, run_length: float
) -> None:
    """10 % of 6000: a standard deviation is 23 one by one, and about 60 in bursts of 4."""
    n, rate = 6000, 0.1
    with Rig(rules=MANY) as rig:
        rig.act(actions.PORT_LOSS, rig.fabric.nic_port(0, 0), rate, burst)
        got: list[int] = []
        for first in range(0, n, 200):
            rig.send(0, 0, *[rig.frame(0, 1, psn=i, payload=0) for i in range(first, first + 200)])
            rig.run()
            got += [int(decoded(data)[1].psn) for data in rig.got(1, 0)]
        lost = rig.drops()["loss"]
        assert lost == n - len(got)
        assert 0.07 * n < lost < 0.13 * n
        runs = np.flatnonzero(np.diff([-1, *got, n]) > 1).size
        assert lost / runs == pytest.approx(run_length, rel=0.25)
        rig.act(actions.PORT_LOSS, rig.fabric.nic_port(0, 0), 0.0)
        rig.send(0, 0, *[rig.frame(0, 1)] * 100)
        rig.run()
        assert len(rig.got(1, 0)) == 100


def test_a_loss_rate_of_one_loses_everything() -> None:
    with Rig() as rig:
        rig.act(actions.PORT_LOSS, rig.fabric.nic_port(0, 0), 1.0)
        rig.send(0, 0, *[rig.frame(0, 1)] * 100)
        rig.run()
        assert rig.drops() == {"loss": 100}


def test_an_mtu_loses_what_is_longer_and_counts_it_as_a_loss() -> None:
    """Of an IP packet that is one byte longer than its MTU a link delivers nothing."""
    with Rig() as rig:
        full = rig.frame(0, 1, payload=1024)
        mtu = len(full) - 14
        rig.act(actions.PORT_MTU, rig.fabric.nic_port(0, 0), mtu - 1)
        rig.send(0, 0, full, rig.frame(0, 1, payload=0))
        rig.run()
        assert len(rig.got(1, 0)) == 1
        assert rig.drops() == {"loss": 1}
        rig.act(actions.PORT_MTU, rig.fabric.nic_port(0, 0), mtu)
        rig.send(0, 0, full)
        rig.run()
        assert len(rig.got(1, 0)) == 1
        rig.check_conserved()


def test_damaged_frames_travel_on_with_a_wrong_icrc_and_nothing_else_wrong() -> None:
    with Rig(rules=MANY) as rig:
        rig.act(actions.PORT_CORRUPT, rig.fabric.nic_port(0, 0), 0.3)
        rig.send(0, 0, *[rig.frame(0, 1, psn=i) for i in range(400)])
        rig.run()
        got = rig.got(1, 0)
        codes = [decoded(data)[0] for data in got]
        assert len(got) == 400
        assert set(codes) == {frame.OK, frame.ICRC}
        damaged = codes.count(frame.ICRC)
        assert damaged == rig.switches.counters().damaged.sum()
        assert 80 < damaged < 160
        assert all(decoded(data, check=0)[0] == frame.OK for data in got)


def test_damage_goes_with_the_payload_that_is_cut() -> None:
    with Rig(rules=Queues(queue_bytes=2500)) as rig:
        rig.act(actions.PORT_CORRUPT, rig.fabric.nic_port(0, 0), 1.0)
        for src in (0, 1):
            rig.send(src, 0, *[rig.frame(src, 3, psn=i) for i in range(20)])
        rig.run()
        found = [(len(data), decoded(data)[0]) for data in rig.got(3, 0)]
        assert (14 + 128, frame.OK) in found
        assert not any(n == 14 + 128 and code != frame.OK for n, code in found)
        assert any(code == frame.ICRC for _, code in found)


def test_a_slow_link_serves_at_its_share_from_the_next_frame_on() -> None:
    with Rig(rules=MANY) as rig:
        port = rig.fabric.nic_port(0, 0)
        data = rig.frame(0, 1)
        rig.act(actions.PORT_RATE, port, 0.25)
        rig.send(0, 0, *[data] * 10)
        started, ended = rig.now, rig.run()
        rest = on_wire_ps(data, GBPS) + 2 * US + US // 2
        assert ended - started == 10 * on_wire_ps(data, GBPS // 4) + rest
        rig.act(actions.PORT_RATE, port, 1.0)
        rig.send(0, 0, data)
        started = rig.now
        assert rig.run() - started == on_wire_ps(data, GBPS) + rest


def test_the_loop_carries_out_a_schedule_at_its_times() -> None:
    """The words of a scenario: a link is down from 100 us to 200 us, a T1 silent from 300 us on."""
    with Rig() as rig:
        schedule = _schedule(
            rig,
            Fault(kind="link-down", where="nic 3 plane 0", at_ps=100 * US, for_ps=100 * US),
            Fault(kind="switch-silent", where="plane 0 t1 0", at_ps=300 * US),
        )
        rig.switches.play(schedule)
        arrived = []
        for i in range(40):
            rig.run(i * 10 * US)
            rig.send(0, 0, rig.frame(0, 3, psn=i, payload=0))
            arrived += [int(decoded(data)[1].psn) for data in rig.got(3, 0)]
        # frame i leaves at 10 i us, is at the T1 5.7 us later, at the last port 8.5, there 10.8
        assert arrived == [*range(9), *range(20, 30)]
        assert rig.drops() == {"link_down": 11, "switch_down": 9}
        rig.check_conserved()


def test_what_is_meant_for_endpoints_is_passed_over_and_what_is_not_there_refused() -> None:
    with Rig() as rig:
        for action in (actions.PORT_DENY, actions.REVIEW_PATHS, actions.NIC_PORT_DOWN):
            rig.act(action, 0)
        rig.send(0, 0, rig.frame(0, 1))
        rig.run()
        assert len(rig.got(1, 0)) == 1
        with pytest.raises(InputError, match=r"^target: 8 is not there; 0 to 7 are$"):
            rig.act(actions.SWITCH_DOWN, rig.fabric.n_switches)
        with pytest.raises(InputError, match=r"^target: -1 is not there"):
            rig.act(actions.PORT_DOWN, -1)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_without_a_reason_whatever_happens(seed: int) -> None:
    """Random frames, faults and times; in = out + dropped by reason + in flight, all the time."""
    rng = np.random.default_rng(seed)
    with Rig(
        rules=Queues(queue_bytes=6000, control_queue_bytes=1000), frames=128, seed=seed
    ) as rig:
        fabric = rig.fabric
        delivered = 0
        for _ in range(300):
            for _ in range(int(rng.integers(0, 6))):
                src, dst = rng.permutation(fabric.n_nics)[:2].tolist()
                ev = fabric.ev(int(rng.integers(2)), int(rng.integers(2)))
                data = rig.frame(src, dst, ev, payload=int(rng.integers(0, 3000)))
                rig.send(src, fabric.hops(ev).plane, data)
            if rng.random() < 0.3:
                action = int(rng.integers(0, actions.SWITCH_SILENT + 1))
                of_switch = action >= actions.SWITCH_UP
                n = fabric.n_switches if of_switch else fabric.n_ports
                rate = float(rng.choice([0.0, 0.3, 1.0]))
                rig.act(action, int(rng.integers(n)), max(rate, 0.1), 2.0)
            rig.run(rig.now + int(rng.integers(1, 20)) * US)
            delivered += sum(map(len, rig.all_got().values()))
            rig.check_conserved()
        rig.run(rig.now + 100 * MS)
        delivered += sum(map(len, rig.all_got().values()))
        c = rig.switches.counters()
        assert c.in_flight == 0
        assert delivered == c.delivered.sum() > 50
        assert c.dropped.sum() > 50
        rig.check_conserved()


def test_two_runs_of_one_seed_are_the_same() -> None:
    def once() -> list[bytes]:
        with Rig(rules=Queues(queue_bytes=4000), seed=7) as rig:
            rig.switches.act(event(actions.PORT_LOSS, 0, 0.2))
            for src in (0, 1):
                rig.send(src, 0, *[rig.frame(src, 3, psn=i) for i in range(40)])
            rig.run()
            return rig.got(3, 0)

    assert once() == once()
