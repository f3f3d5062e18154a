"""What samples show of loads, losses, faults and paths; and that taking them changes nothing."""

from __future__ import annotations

import signal
from dataclasses import replace

import numpy as np
import pytest

from openmrc.fabric.actions import MTU_WHOLE, PORT_LOSS, PORT_MTU, PORT_RATE
from openmrc.fabric.faults import Fault
from openmrc.fabric.queues import Queues
from openmrc.jit import interpreted
from openmrc.sim.watch import samples as sp
from openmrc.sim.watch.intervals import INTERVAL_PS
from openmrc.sim.watch.sampler import LINKS_MAX, PORT_CELLS_MAX, Sampler, _harms
from openmrc.sim.watch.samples import Samples
from openmrc.sim.world import World
from openmrc.workload.patterns import incast, permutation, stream
from tests.sim import plain
from tests.sim.lab import MS, US, clos, tree, world_of
from tests.sim.worlds import eventful

FULL = 4262  # bytes of a full frame, reference 2.1


def sampled(world: World, qp: int | None = None, columns: int = 500) -> Samples:
    """Run to the end and look back."""
    world.sample(qp, columns)
    world.run()
    found = world.samples()
    assert found is not None
    return found


def same(first: Samples, again: Samples | None) -> None:
    """Two runs looked the same."""
    assert again is not None
    for a, b in ((first.edges, again.edges), (first.links, again.links), (first.qp, again.qp)):
        assert a.interval_ps == b.interval_ps
        for name, values in a.values.items():
            assert (values == b.values[name]).all(), name


# --- nothing changes --------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [20, 500])
def test_a_sampled_run_is_the_run_without_samples(columns: int) -> None:
    bare, watched = eventful(), eventful()
    bare.run()
    sampled(watched, columns=columns)
    assert bare.samples() is None
    for part in ("flows", "counters", "timeline", "errors", "verified", "engine"):
        assert plain.outcome(watched)[part] == plain.outcome(bare)[part], part
    for array in ("port", "health", "tally", "switch", "qp", "nic", "message", "stream"):
        assert plain.digests(watched.net)[array] == plain.digests(bare.net)[array], array
    assert watched.now_ps == bare.now_ps


def test_looking_in_between_leaves_no_trace() -> None:
    once, often = eventful(), eventful()
    often.sample(0, 100)
    until = 0
    while not often.run(until_ps=until):
        often.samples()
        until += 7 * US + 1
    same(sampled(once, 0, 100), often.samples())


@pytest.mark.skipif(interpreted(), reason="a step takes too long to wait for its end")
def test_ctrl_c_in_the_middle_of_a_reading_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a reading could not be continued: what was interrupted can be looked at and goes on."""
    stopped = eventful()
    stopped.sample(0, 100)
    state = Sampler._state

    def interrupted(self: Sampler, at_ps: int) -> object:
        if at_ps == 4 * INTERVAL_PS:
            signal.raise_signal(signal.SIGINT)
        return state(self, at_ps)

    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    with monkeypatch.context() as patch:
        patch.setattr(Sampler, "_state", interrupted)
        with pytest.raises(KeyboardInterrupt):
            stopped.run()
    signal.signal(signal.SIGINT, usual)
    assert int(stopped.net.ctl[0].now) == 4 * INTERVAL_PS - 1
    assert stopped.samples() is not None
    stopped.run()
    same(sampled(eventful(), 0, 100), stopped.samples())


def test_samples_are_asked_for_before_the_run() -> None:
    world = eventful()
    world.run(until_ps=1 * US)
    with pytest.raises(AssertionError, match="what is past cannot be sampled"):
        world.sample(0, 500)


# --- loads and losses -------------------------------------------------------------------------


def test_every_frame_is_counted_where_it_went_out() -> None:
    world = world_of(clos(nics=8, planes=2), stream(0, 7, 40_960))
    world.run()
    ports = world.net.port
    assert ports.sent_bytes[:2].tolist() == [5 * FULL, 5 * FULL]  # ten packets over two planes
    last = [int(p) for p in world.fabric.port_reverse[14:16]]
    assert ports.sent_bytes[last].tolist() == [5 * FULL, 5 * FULL]
    idle = [int(p) for p in world.fabric.port_reverse[2:4]]
    assert ports.sent_bytes[idle].tolist() == [0, 0]


def test_a_steady_stream_fills_its_own_ports_and_no_others() -> None:
    found = sampled(world_of(clos(nics=8, planes=2), stream(0, 7, 10**7), stop=300 * US))
    links = found.links
    steady = links.values["load"][links.columns // 2 : -1]  # by rows in the order of ports
    name = dict(zip(links.names, steady.T, strict=True))
    assert name["nic 0 plane 0 > t0"].min() > 0.999
    assert name["nic 7 plane 1 < t0"].min() > 0.999
    assert name["nic 1 plane 0 > t0"].max() == 0
    assert 0.005 < name["nic 7 plane 0 > t0"].mean() < 0.02  # SACKs


def test_the_load_of_a_group_is_the_mean_of_its_links() -> None:
    found = sampled(eventful())
    sk, edges, groups = found.sketch, found.edges.values["load"], found.groups
    for g in range(len(groups.plane)):
        mine = (sk.edge_plane == groups.plane[g]) & (sk.edge_row == groups.row[g])
        mine &= sk.edge_down == groups.down[g]
        mean = edges[:, mine].mean(axis=1)
        assert groups.values["load"][:, g] == pytest.approx(mean, abs=1e-5)


def test_no_loss_and_no_trim_is_missing_or_counted_twice() -> None:
    world = eventful()
    found = sampled(world, columns=20)
    c = world.counters()
    for table in (found.groups.values, found.links.values):
        assert table["lost"].sum() == c["dropped_fault"] + c["dropped_queue"]
        assert table["trimmed"].sum() == c["trimmed"]


def test_losses_stand_at_the_link_that_lost() -> None:
    lossy = Fault(0, "link-loss", "plane 1 t0 0 > t1 2", rate=1.0)
    found = sampled(world_of(clos(nics=8, planes=2), stream(0, 7, 10**6), [lossy]))
    lost = dict(zip(found.links.names, found.links.values["lost"].sum(axis=0), strict=True))
    assert lost.pop("plane 1 t0 0 > t1 2") > 0
    assert sum(lost.values()) == 0


def test_a_silent_switch_loses_on_the_links_into_it() -> None:
    silent = Fault(10 * US, "switch-silent", "plane 0 t1 1")
    found = sampled(world_of(clos(nics=8, planes=2), stream(0, 7, 10**6), [silent]))
    lost = dict(zip(found.links.names, found.links.values["lost"].sum(axis=0), strict=True))
    assert {name for name, n in lost.items() if n} <= {
        "plane 0 t0 0 > t1 1",
        "plane 0 t0 1 > t1 1",
    }
    assert lost["plane 0 t0 0 > t1 1"] > 0


def test_a_port_that_goes_down_loses_its_queue_there() -> None:
    traffic = incast(8, 4, 10**6)
    down = Fault(20 * US, "link-down", "nic 0 plane 0 < t0")
    found = sampled(world_of(clos(nics=8, planes=1), traffic, [down], stop=30 * US))
    lost = dict(zip(found.links.names, found.links.values["lost"].sum(axis=0), strict=True))
    trimmed = dict(zip(found.links.names, found.links.values["trimmed"].sum(axis=0), strict=True))
    assert lost["nic 0 plane 0 < t0"] > 5
    assert sum(lost.values()) == lost["nic 0 plane 0 < t0"]
    assert trimmed["nic 0 plane 0 < t0"] == sum(trimmed.values()) > 0


@pytest.mark.parametrize("queues", [Queues(trim=False), Queues(control_queue_bytes=400)])
def test_what_a_full_queue_drops_is_lost_there(queues: Queues) -> None:
    """Whole packets without trimming; headers where the control queue is too small for them."""
    world = world_of(clos(nics=8, planes=1), incast(8, 7, 10**6), queues=queues, stop=60 * US)
    found = sampled(world)
    dropped = world.counters()["dropped_queue"]
    lost = dict(zip(found.links.names, found.links.values["lost"].sum(axis=0), strict=True))
    assert sum(lost.values()) == dropped > 0
    assert lost["nic 0 plane 0 < t0"] > dropped / 2


# --- health -----------------------------------------------------------------------------------


def health(found: Samples, name: str) -> list[int]:
    states: list[int] = found.links.values["health"][:, found.links.names.index(name)].tolist()
    return states


def test_health_begins_and_ends_with_the_fault() -> None:
    """Interval k is from k to k + 1 us, the latter not included."""
    where = "plane 0 t0 0 > t1 2"
    faults = [
        Fault(int(5.5 * US), "link-down", where, for_ps=int(3.5 * US)),
        Fault(12 * US, "link-loss", where, for_ps=3 * US, rate=0.5),
    ]
    found = sampled(world_of(clos(nics=8, planes=2), stream(0, 7, 10**6), faults, stop=20 * US))
    up, down, lossy = [sp.UP], [sp.DOWN], [sp.LOSSY]
    assert health(found, where) == 5 * up + 4 * down + 3 * up + 3 * lossy + 5 * up
    assert health(found, "plane 0 t0 0 < t1 2") == 20 * up


@pytest.mark.parametrize(
    ("kind", "state"),
    [("link-down", sp.DOWN), ("link-loss", sp.LOSSY), ("link-corrupt", sp.LOSSY)],
)
def test_what_lasts_less_than_an_interval_is_seen(kind: str, state: int) -> None:
    where = "plane 0 t0 0 - t1 2"
    rate = None if kind == "link-down" else 0.5
    blink = Fault(int(5.2 * US), kind, where, for_ps=US // 10, rate=rate)
    found = sampled(world_of(clos(nics=8, planes=2), stream(0, 7, 10**6), [blink], stop=9 * US))
    expected = [state if k == 5 else sp.UP for k in range(9)]
    assert health(found, "plane 0 t0 0 < t1 2") == expected


def test_a_slow_link_is_seen() -> None:
    where = "plane 0 t0 0 > t1 2"
    slow = Fault(3 * US, "link-slow", where, for_ps=2 * US, factor=0.1)
    found = sampled(world_of(clos(nics=8, planes=2), stream(0, 7, 10**6), [slow], stop=8 * US))
    assert health(found, where) == 3 * [sp.UP] + 2 * [sp.SLOW] + 3 * [sp.UP]


def test_a_silent_switch_is_seen_at_its_links_and_at_its_node() -> None:
    silent = Fault(3 * US, "switch-silent", "plane 1 t1 2", for_ps=2 * US)
    world = world_of(clos(nics=8, planes=2), stream(0, 7, 10**6), [silent], stop=8 * US)
    found = sampled(world)
    states = health(found, "plane 1 t0 1 < t1 2")
    assert [k for k, state in enumerate(states) if state == sp.SILENT] == [3, 4]
    assert set(health(found, "plane 1 t0 1 < t1 3")) == {sp.UP}
    node = found.sketch.switch_node[world.fabric.n_switches - 8 + 2]  # plane 1, the third T1
    assert np.flatnonzero(found.edges.values["silent"].any(axis=0)).tolist() == [node]


def test_a_line_shows_the_worst_of_its_links_and_how_many_are_not_up() -> None:
    faults = [
        Fault(0, "link-loss", "plane 0 t0 0 > t1 *", rate=0.01),
        Fault(2 * US, "link-down", "plane 0 t0 0 > t1 1"),
    ]
    world = world_of(tree(1024, 8, 8), permutation(1024, 4096, 1), faults, stop=4 * US)
    found = sampled(world)
    edges, sk = found.edges.values, found.sketch
    assert set(sk.row_joined) != {1}
    (both,) = np.flatnonzero(edges["unhealthy"][-1] > 1)[:1]
    assert edges["health"][:, sk.port_edge[world.fabric.sw_first_up[0]]].max() >= sp.LOSSY
    assert edges["unhealthy"][-1].sum() == 8
    assert edges["health"][0].max() == sp.LOSSY
    assert edges["health"][-1].max() == sp.DOWN
    assert sk.edge_row[both] == 1


# --- bounds -----------------------------------------------------------------------------------


def test_ten_simulated_seconds_take_no_more_room() -> None:
    traffic = stream(0, 7, 10**5)
    late = replace(traffic, msg_start_ps=traffic.msg_start_ps + 10_000 * MS)
    found = sampled(world_of(clos(nics=8, planes=2), late))
    assert 250 <= found.edges.columns <= 500
    assert found.edges.interval_ps == 2**15 * INTERVAL_PS
    assert found.edges.interval_ps * found.edges.columns >= 10_000 * MS
    assert found.links.values["load"][:-1].max() == 0
    assert found.links.values["load"][-1].max() > 0


def test_a_large_fabric_keeps_the_links_that_tell_and_the_sum_of_the_rest() -> None:
    lossy = Fault(0, "link-loss", "plane 0 t0 77 > t1 *", rate=0.2)
    world = world_of(tree(1024, 8, 8), permutation(1024, 65_536, 1), [lossy])
    found = sampled(world)
    links = found.links
    assert len(links.names) == LINKS_MAX
    assert links.others == world.fabric.n_ports - LINKS_MAX
    assert links.values["load"].shape == (links.columns, LINKS_MAX + 1)
    assert links.columns <= PORT_CELLS_MAX // world.fabric.n_ports
    lost = dict(zip(links.names, links.values["lost"].sum(axis=0), strict=False))
    hit = {name for name, n in lost.items() if n}
    assert len(hit) == 8
    assert all(name.startswith("plane 0 t0 77 > t1 ") for name in hit)
    c = world.counters()
    assert links.values["lost"].sum() == c["dropped_fault"] + c["dropped_queue"]
    sent = links.values["load"][:, :-1].sum() + links.others * links.values["load"][:, -1].sum()
    edges = (found.edges.values["load"] * found.sketch.edge_ports).sum()
    assert sent / links.columns == pytest.approx(edges / found.edges.columns, rel=0.05)


# --- one QP -----------------------------------------------------------------------------------


def test_by_default_it_is_a_qp_with_the_longest_way() -> None:
    world = world_of(clos(nics=8, down=4), permutation(8, 4096, 3))
    found = sampled(world)
    assert found.qp.src // 4 != found.qp.dst // 4
    earlier = range(found.qp.qp)
    assert all(world.traffic.qp_src[i] // 4 == world.traffic.qp_dst[i] // 4 for i in earlier)
    assert sampled(world_of(clos(nics=8), permutation(8, 4096, 3)), qp=5).qp.qp == 5


def test_a_path_that_is_cut_is_seen_to_be_given_up_and_no_other() -> None:
    cut = Fault(20 * US, "link-down", "plane 0 t0 0 - t1 3")
    found = sampled(world_of(clos(nics=8, planes=2), stream(0, 7, 4 * 10**6), [cut])).qp
    state, used = found.values["state"], found.values["used"]
    over = np.array([found.names[int(ev)] == "over plane 0 t1 3" for ev in found.evs])
    assert over.sum() == 1
    assert (state[:19] == sp.IN_USE).all()
    assert state[-1, over].tolist() == [sp.ASSUMED_BAD]
    assert set(state[-1, ~over].tolist()) <= {sp.IN_USE, sp.SKIP}
    assert used[:20, over].sum() > 0
    assert used[-5:, over].sum() == 0
    first = int((state[:, over] == sp.ASSUMED_BAD).argmax())
    assert 20 <= first < 60  # given up within 40 us


def test_the_packets_of_all_paths_are_the_packets_sent() -> None:
    world = world_of(clos(nics=8, planes=2), stream(0, 7, 10**6))
    found = sampled(world, columns=20).qp
    assert found.values["used"].sum() == world.counters()["data"] == 245
    assert found.values["inflight_bytes"].max() > 0
    assert found.values["inflight_bytes"][-1] == 0
    assert found.values["cwnd_bytes"].min() > 0


def test_a_plane_without_its_port_gets_no_turn() -> None:
    down = Fault(20 * US, "port-down", "nic 0 plane 1", for_ps=20 * US)
    found = sampled(world_of(clos(nics=8, planes=2), stream(0, 7, 4 * 10**6), [down])).qp
    quiet = (found.values["state"] == sp.NO_TURN).any(axis=1)
    assert np.flatnonzero(quiet)[0] == 20
    assert (found.plane[(found.values["state"] == sp.NO_TURN).any(axis=0)] == 1).all()


def test_a_hashed_path_shows_where_it_moved() -> None:
    cut = [Fault(20 * US, "link-down", "plane * t0 0 - t1 0")]
    for seed in range(20):
        world = world_of(
            clos(nics=8, planes=2, up=2),
            stream(0, 7, 10**6),
            cut,
            seed=seed,
            paths="single",
            convergence_ps=30 * US,
        )
        found = sampled(world).qp
        values = found.values["value"][:, 0]
        if len(set(values.tolist())) > 1:
            break
    before, after = found.names[int(values[0])], found.names[int(values[-1])]
    assert before.endswith("t1 0")
    assert after.endswith("t1 1")
    assert int((values != values[0]).argmax()) == 50


def test_hashed_evs_have_no_names() -> None:
    world = world_of(
        clos(nics=4, planes=1), stream(0, 3, 10**5), rules="peer", pmtu=4086, evs_active=4
    )
    assert set(sampled(world).qp.names.values()) == {"hashed by the switches"}


def test_what_ends_a_fault_colours_no_link() -> None:
    action = np.array([PORT_MTU, PORT_MTU, PORT_LOSS, PORT_LOSS, PORT_RATE])
    rate = np.array([1500.0, MTU_WHOLE, 0.1, 0.0, 0.5])
    assert _harms(action, rate).tolist() == [True, False, True, False, False]
