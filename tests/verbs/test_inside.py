"""A transfer over four planes inside one process, and what breaks under it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from openmrc.errors import InputError
from openmrc.fabric.clos import multiplane
from openmrc.fabric.denylist import entrances
from openmrc.ops import schedule
from openmrc.ops.mapper.history import History
from openmrc.ops.mapper.server import Controller
from openmrc.units import MS
from openmrc.verbs import EventKind, QpState, Status, WorkCompletion
from openmrc.verbs import secret as secrets
from openmrc.verbs.inside import Inside
from openmrc.verbs.qp import QueuePair

MB = 1 << 20
# 4 planes of 50 Mb/s: a transfer of 2 MB takes a tenth of a second, so faults come in its middle;
# a machine that is busy with other tests may take many times as long.
RATE_BPS = 50_000_000
PATIENCE_S = 60.0


@pytest.fixture
def fabric() -> Iterator[Inside]:
    with Inside(multiplane(8, 4, RATE_BPS, 4, 2, 0, 0)) as inside:
        yield inside


def test_far_nics_reach_each_other_on_every_plane(fabric: Inside) -> None:
    a, b = fabric.device(0), fabric.device(7)
    qa, qb = fabric.connect(a, b)
    data, room = np.random.default_rng(1).integers(0, 256, MB, np.uint8), bytearray(MB)
    source, sink = a.reg_mr(data), b.reg_mr(room)
    qb.post_recv(5)
    qa.post_write_imm(1, source, remote_addr=sink.addr, rkey=sink.rkey, imm_data=9)
    assert [c.status for c in qa.send_cq.wait(timeout=PATIENCE_S)] == [Status.SUCCESS]
    assert [c.imm_data for c in qb.recv_cq.wait(timeout=PATIENCE_S)] == [9]
    assert bytes(room) == data.tobytes()
    # two T1s on each of four planes: eight paths, and each carried something
    assert len(qa.evs()) == 8
    assert min(ev["packets"] for ev in qa.evs()) > 0


FAULTS = {
    "far port down": ("nic 7 plane 2", None),
    "a plane down": ("plane 2 t0 *", None),
    "a silent hole in the middle": ("plane 2 t0 * - t1 *", 1.0),
    "one direction only": ("nic 7 plane 2 < t0", 1.0),
    "the way back only": ("nic 7 plane 2 > t0", 1.0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_transfer_survives(fabric: Inside, fault: str) -> None:
    """No completion is lost, doubled or out of order; bytes are right; no QP ends; and the plane
    is used again once it is whole.
    """
    place, loss = FAULTS[fault]
    a, b = fabric.device(0), fabric.device(7)
    qa, qb = fabric.connect(a, b)
    n, size = 40, 50_000
    data = np.random.default_rng(2).integers(0, 256, n * size, np.uint8)
    room = np.zeros(n * size, np.uint8)
    source, sink = a.reg_mr(data), b.reg_mr(room)
    for i in range(n):
        qb.post_recv(i)
    got: list[WorkCompletion] = []
    reader = threading.Thread(target=lambda: got.extend(qb.recv_cq.wait(n, PATIENCE_S)))
    reader.start()
    for i in range(n):
        at = sink.addr + i * size
        qa.post_write_imm(i, source, i * size, size, remote_addr=at, rkey=sink.rkey, imm_data=i)
        if i == n // 4:
            time.sleep(0.02)
            if loss is None:
                fabric.fail(place)
            else:
                fabric.lose(place, loss)
    sent = qa.send_cq.wait(n, PATIENCE_S)
    reader.join()
    assert [c.wr_id for c in sent] == list(range(n))
    assert {c.status for c in sent} == {Status.SUCCESS}
    assert [(c.wr_id, c.imm_data) for c in got] == [(i, i) for i in range(n)]
    assert (room == data).all()
    assert qa.state == qb.state == QpState.RTS

    fabric.heal(place)
    events = []
    until = time.monotonic() + PATIENCE_S
    bad = {ev["ev"] for ev in qa.evs() if ev["state"] == "ASSUMED_BAD"}
    while bad and time.monotonic() < until:  # probes go on by themselves
        events += a.events(0.1)
        bad = {ev["ev"] for ev in qa.evs() if ev["state"] == "ASSUMED_BAD"}
    assert not bad
    before = {ev["ev"]: ev["packets"] for ev in qa.evs()}
    qa.post_write(99, source, remote_addr=sink.addr, rkey=sink.rkey)
    assert qa.send_cq.wait(timeout=PATIENCE_S)[0].status == Status.SUCCESS
    used = {ev["plane"] for ev in qa.evs() if ev["packets"] > before[ev["ev"]]}
    assert used == {0, 1, 2, 3}
    if loss == 1.0 and fault != "the way back only":
        assert EventKind.PATH_BAD in {e.kind for e in a.events(0)} | {e.kind for e in events}


def test_seven_senders_share_one_receiver(fabric: Inside) -> None:
    """An incast: trimmed and marked, never lost; all complete, every byte right."""
    b = fabric.device(0)
    size = 200_000
    room = np.zeros(7 * size, np.uint8)
    sink, cq = b.reg_mr(room), b.create_cq()
    pairs = []
    for nic in range(1, 8):
        device = fabric.device(nic)
        qa, _ = fabric.connect(device, b, (None, cq))
        source = device.reg_mr(np.full(size, nic, np.uint8))
        pairs.append((qa, source))
    # a busy machine may let the senders run one after the other: then no queue fills
    until = time.monotonic() + PATIENCE_S
    while not sum(fabric.switches.counters().trims.values()):
        assert time.monotonic() < until
        room[:] = 0
        for k, (qa, source) in enumerate(pairs):
            qa.post_write(k, source, remote_addr=sink.addr + k * size, rkey=sink.rkey)
        for k, (qa, _) in enumerate(pairs):
            [done] = qa.send_cq.wait(timeout=PATIENCE_S)
            assert (done.wr_id, done.status) == (k, Status.SUCCESS)
        assert (room == np.repeat(np.arange(1, 8), size)).all()


def test_a_silent_plane_costs_no_rounds(fabric: Inside) -> None:
    """A port that stays free because nothing is given to it is nothing to wait for: the loop sleeps
    as often as with four planes.

    A few rounds per packet are what pacing and answers take (1 to 3 here); a loop that does not
    sleep makes hundreds.
    """
    a, b = fabric.device(0), fabric.device(7)
    qa, _ = fabric.connect(a, b)
    source, sink = a.reg_mr(np.zeros(2 * MB, np.uint8)), b.reg_mr(bytearray(2 * MB))
    fabric.lose("plane 2 t0 * - t1 *", 1.0)
    qa.post_write(0, source, remote_addr=sink.addr, rkey=sink.rkey)  # finds out
    assert [c.status for c in qa.send_cq.wait(timeout=PATIENCE_S)] == [Status.SUCCESS]
    before = a.counters()["loops"]
    qa.post_write(1, source, remote_addr=sink.addr, rkey=sink.rkey)
    assert [c.status for c in qa.send_cq.wait(timeout=PATIENCE_S)] == [Status.SUCCESS]
    packets = 2 * MB // 4096
    assert a.counters()["loops"] - before < 20 * packets


def states(qp: QueuePair, plane: int) -> set[str]:
    return {ev["state"] for ev in qp.evs() if ev["plane"] == plane}


def test_paths_across_what_is_denied_carry_nothing_until_it_is_given_back(fabric: Inside) -> None:
    a, b = fabric.device(0), fabric.device(7)
    qa, _ = fabric.connect(a, b)
    source, sink = a.reg_mr(np.zeros(MB, np.uint8)), b.reg_mr(bytearray(MB))
    a.keep_off(entrances(fabric.fabric, "plane 1").targets)
    later, _ = fabric.connect(a, b)
    for qp in (qa, later):  # one that was there, and one that came afterwards
        assert states(qp, 1) == {"DENIED"}
        assert states(qp, 0) == {"GOOD"}
        qp.post_write(1, source, remote_addr=sink.addr, rkey=sink.rkey)
        assert [c.status for c in qp.send_cq.wait(timeout=PATIENCE_S)] == [Status.SUCCESS]
        assert {ev["plane"] for ev in qp.evs() if ev["packets"] > 0} == {0, 2, 3}
    a.keep_off(np.zeros(0, np.int64))
    for qp in (qa, later):
        assert states(qp, 1) == {"GOOD"}
        qp.post_write(2, source, remote_addr=sink.addr, rkey=sink.rkey)
        assert [c.status for c in qp.send_cq.wait(timeout=PATIENCE_S)] == [Status.SUCCESS]
        assert {ev["plane"] for ev in qp.evs() if ev["packets"] > 0} == {0, 1, 2, 3}
    with pytest.raises(InputError, match="ports 0 to 95"):
        a.keep_off(np.array([96]))


def test_a_controller_that_dies_in_the_middle_of_a_transfer_changes_nothing(fabric: Inside) -> None:
    """What it had denied stays so while its advice is fresh; the transfer does not notice."""
    a, b = fabric.device(0), fabric.device(7)
    qa, _ = fabric.connect(a, b)
    n, size = 20, 50_000
    data = np.random.default_rng(3).integers(0, 256, n * size, np.uint8)
    room = np.zeros(n * size, np.uint8)
    source, sink = a.reg_mr(data), b.reg_mr(room)
    probes = schedule.make(fabric.fabric, period_ps=20 * MS, load_max=0.01)
    secret = secrets.new()
    with History(":memory:") as history:
        with Controller(probes, secret, history, host="127.0.0.1") as controller:
            controller.deny("plane 1", "its switches are being repaired", 600)
            a.follow(f"http://127.0.0.1:{controller.http_port}", secret)
            assert states(qa, 1) == {"DENIED"}
            for i in range(n):
                at = i * size
                qa.post_write(i, source, at, size, remote_addr=sink.addr + at, rkey=sink.rkey)
            qa.send_cq.wait(1, PATIENCE_S)
        done = 1 + len(qa.send_cq.wait(n - 1, PATIENCE_S))
    assert done == n
    assert (room == data).all()
    assert qa.state == QpState.RTS
    assert states(qa, 1) == {"DENIED"}
