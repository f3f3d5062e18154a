"""What a program posts through the C API, and what a peer of another API makes of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from openmrc.capi import layouts
from openmrc.capi.layouts import NUMBERS
from openmrc.capi.places import Block
from openmrc.verbs import MemoryRegion, Opcode, QueuePair, Status
from tests.capi.handles import PATIENCE_S, WRITES, Open, Peer

IMM = 0x01020304
ROOM = 1 << 16


class Met(NamedTuple):
    """A queue pair of the library, connected to one of the peer; and memory of both."""

    there: Open
    qp: int
    memory: np.ndarray
    keys: np.void  # of that memory, an ibv_mr
    theirs: QueuePair
    sink: MemoryRegion

    @property
    def to(self) -> tuple[int, int]:
        return self.sink.addr, self.sink.rkey

    def part(self, at: int, n: int) -> tuple[int, int, int]:
        return self.memory.ctypes.data + at, n, int(self.keys["lkey"])


@pytest.fixture
def met(there: Open, peer: Peer) -> Met:
    attr = there.init_attr()
    attr.record["cap"]["max_send_sge"], attr.record["cap"]["max_inline_data"] = 3, 64
    qp = there.api.must("mrc_create_qp", there.mrc, attr)
    theirs = peer.device.create_qp(peer.device.create_cq())
    there.meet(qp, theirs, peer)
    memory = np.random.default_rng(38).integers(0, 256, ROOM, dtype=np.uint8)
    mr = there.api.must("ibv_reg_mr", there.pd, memory.ctypes.data, ROOM, WRITES)
    sink = peer.device.reg_mr(bytearray(ROOM))
    return Met(there, qp, memory, there.seen(mr, layouts.MR), theirs, sink)


@pytest.mark.parametrize(
    ("parts", "inline"),
    [
        ([(0, ROOM)], False),
        ([(0, 1000), (5000, 24), (64, 4000)], False),
        ([(100, 20), (0, 0), (7, 44)], True),
        ([], False),
    ],
)
def test_buffers_arrive_one_after_the_other(
    met: Met, parts: list[tuple[int, int]], inline: bool
) -> None:
    flags = NUMBERS["IBV_SEND_INLINE"] * inline
    given = [met.part(at, n) for at, n in parts]
    assert met.there.send(met.qp, *given, flags=flags, to=met.to) == (0, 0)
    before = b"".join(met.memory[at : at + n].tobytes() for at, n in parts)
    if inline:
        met.memory[:] = 0  # the caller's again, as soon as it is posted
    done = met.there.take()
    assert int(done["status"]) == NUMBERS["IBV_WC_SUCCESS"]
    assert int(done["opcode"]) == NUMBERS["IBV_WC_RDMA_WRITE"]
    assert bytes(met.sink.buffer[: len(before)]) == before
    assert not any(met.sink.buffer[len(before) :])


def test_an_immediate_has_one_value_at_both_ends(met: Met) -> None:
    """In the order of bytes of C's field, which is the network's."""
    met.theirs.post_recv(5)
    wr = Block(layouts.SEND_WR)
    listed = np.array([met.part(0, 100)], layouts.SGE.dtype)
    wr.record["wr_id"], wr.record["sg_list"], wr.record["num_sge"] = 9, listed.ctypes.data, 1
    wr.record["opcode"] = NUMBERS["IBV_WR_RDMA_WRITE_WITH_IMM"]
    wr.record["send_flags"] = NUMBERS["IBV_SEND_SIGNALED"]
    wr.record["imm_data"] = int.from_bytes(IMM.to_bytes(4, "big"), "little")
    wr.record["wr"]["rdma"]["remote_addr"], wr.record["wr"]["rdma"]["rkey"] = met.to
    assert met.there.api("mrc_post_send", met.qp, wr, met.there.bad) == (0, 0)
    [came] = met.theirs.recv_cq.wait(timeout=PATIENCE_S)
    assert (came.wr_id, came.opcode, came.byte_len) == (5, Opcode.RECV_RDMA_WITH_IMM, 100)
    assert came.imm_data == IMM
    assert int(met.there.take()["wr_id"]) == 9

    assert met.there.receive(met.qp, wr_id=77) == (0, 0)
    keys = int(met.keys["addr"]), int(met.keys["rkey"])
    met.theirs.post_write_imm(1, met.sink, 0, 300, remote_addr=keys[0], rkey=keys[1], imm_data=IMM)
    done = met.there.take()
    assert (int(done["wr_id"]), int(done["byte_len"])) == (77, 300)
    assert int(done["imm_data"]) == int.from_bytes(IMM.to_bytes(4, "big"), "little")
    assert int(done["wc_flags"]) == NUMBERS["IBV_WC_WITH_IMM"]
    [sent] = met.theirs.send_cq.wait(timeout=PATIENCE_S)
    assert sent.status == Status.SUCCESS


def test_a_list_of_requests_ends_at_the_first_that_is_wrong(met: Met) -> None:
    listed = np.array([met.part(0, 64)], layouts.SGE.dtype)
    wrong = np.array([(*met.part(0, 64)[:2], 1)], layouts.SGE.dtype)
    requests = [Block(layouts.SEND_WR) for _ in range(3)]
    for number, (wr, after) in enumerate(zip(requests, [*requests[1:], None], strict=True)):
        one = wrong if number == 1 else listed
        wr.record["wr_id"], wr.record["sg_list"], wr.record["num_sge"] = number, one.ctypes.data, 1
        wr.record["next"] = after.address if after is not None else 0
        wr.record["opcode"] = NUMBERS["IBV_WR_RDMA_WRITE"]
        wr.record["send_flags"] = NUMBERS["IBV_SEND_SIGNALED"]
        wr.record["wr"]["rdma"]["remote_addr"], wr.record["wr"]["rdma"]["rkey"] = met.to
    returned, _ = met.there.api("mrc_post_send", met.qp, requests[0], met.there.bad)
    assert returned == 22
    assert int(met.there.bad.record["where"]) == requests[1].address
    assert int(met.there.take()["wr_id"]) == 0  # the first was posted, the last was not
    assert met.there.api.must("mrc_poll_cq", met.there.cq, 1, Block(layouts.WC)) == 0


def test_a_queue_has_room_again_when_its_completions_are_there(met: Met) -> None:
    """Four requests, as the queue pair was created for."""
    for _ in range(3):
        posted = 0
        while (answer := met.there.send(met.qp, met.part(0, 9000), to=met.to)) == (0, 0):
            posted += 1
            assert posted <= 8  # of the completion queue
        assert answer[0] == 12
        for _ in range(posted):
            assert int(met.there.take()["status"]) == NUMBERS["IBV_WC_SUCCESS"]


def test_a_key_of_the_peers_that_is_wrong_ends_both(met: Met) -> None:
    to = met.sink.addr, met.sink.rkey ^ 1 << 20
    assert met.there.send(met.qp, met.part(0, 64), to=to) == (0, 0)
    assert met.there.send(met.qp, met.part(0, 64), to=met.to) == (0, 0)
    statuses = [int(met.there.take()["status"]) for _ in range(2)]
    assert statuses == [NUMBERS["IBV_WC_REM_ACCESS_ERR"], NUMBERS["IBV_WC_WR_FLUSH_ERR"]]
    attr = Block(layouts.QP_ATTR)
    met.there.api.must("mrc_query_qp", met.qp, attr, NUMBERS["IBV_QP_STATE"], 0, 0, 0)
    assert int(attr.record["qp_state"]) == NUMBERS["IBV_QPS_ERR"]


def test_attributes_that_were_set_are_told(met: Met) -> None:
    attr, init = Block(layouts.QP_ATTR), Block(layouts.MRC_QP_INIT_ATTR)
    own = Block(layouts.MRC_QP_ATTR)
    met.there.api.must("mrc_query_qp", met.qp, attr, NUMBERS["IBV_QP_STATE"], own, 0, init)
    told = {name: int(attr.record[name]) for name in ("qp_state", "dest_qp_num", "rq_psn")}
    assert told == {
        "qp_state": NUMBERS["IBV_QPS_RTS"],
        "dest_qp_num": met.theirs.qp_num,
        "rq_psn": int(met.theirs.attributes.psn),
    }
    assert int(init.record["cap"]["max_send_sge"]) == 3
    assert int(own.record["mpr"]["mpr"]) == int(own.record["mpr"]["mpr_dest"]) > 0
