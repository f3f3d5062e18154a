"""A device of the libraries that is open, and one of everything."""

from __future__ import annotations

import ctypes
import errno
import os
import time
from typing import Any, NamedTuple

import numpy as np

from openmrc.capi import entry, layouts
from openmrc.capi.layouts import NUMBERS, Struct
from openmrc.capi.linked import Api
from openmrc.capi.places import Block
from openmrc.verbs import Device, QueuePair

PATIENCE_S = 20  # for the loop, on a busy machine
NOBODY = 0x00ABCD  # number of a queue pair that is not there
WRITES = NUMBERS["IBV_ACCESS_LOCAL_WRITE"] | NUMBERS["IBV_ACCESS_REMOTE_WRITE"]
TO_INIT = NUMBERS["IBV_QP_STATE"] | NUMBERS["IBV_QP_PKEY_INDEX"] | NUMBERS["IBV_QP_PORT"]
OF_INIT = sum(NUMBERS[f"MRC_QP_{name}"] for name in ("HINT", "EV_PROFILE_ID", "CC_PROFILE_ID"))


class Peer(NamedTuple):
    """Another device, which a GID names."""

    device: Device
    gid: bytes


class Open:
    """A device that is open, and one of everything."""

    def __init__(self, api: Api) -> None:
        self.api = api
        devices = api.must("ibv_get_device_list", 0)
        self.device = ctypes.c_uint64.from_address(devices).value
        api.must("ibv_free_device_list", devices)
        self.context = api.must("ibv_open_device", self.device)
        self.mrc = api.must("mrc_create_context", self.context, 0)
        self.pd = api.must("ibv_alloc_pd", self.context)
        self.cq = api.must("mrc_create_cq", self.mrc, 8, 0, 0, 0)
        self.memory = np.zeros(4096, np.uint8)
        self.at = self.memory.ctypes.data
        self.mr = api.must("ibv_reg_mr", self.pd, self.at, 4096, WRITES)
        self.bad = Block(Struct("", (("uint64_t", "where"),)))

    def init_attr(self) -> Block:
        a = Block(layouts.MRC_QP_INIT_ATTR)
        a.record["send_cq"] = a.record["recv_cq"] = self.cq
        a.record["pd"] = self.pd
        a.record["cap"]["max_send_wr"] = a.record["cap"]["max_recv_wr"] = 4
        return a

    def qp(self) -> int:
        return self.api.must("mrc_create_qp", self.mrc, self.init_attr())

    def step(self, qp: int, state: str, mask: int = 0, **attributes: int) -> tuple[int, int]:
        a = Block(layouts.QP_ATTR)
        a.record["qp_state"] = NUMBERS[f"IBV_QPS_{state}"]
        for name, value in attributes.items():
            a.record[name] = value
        return self.api("mrc_modify_qp", qp, a, mask | NUMBERS["IBV_QP_STATE"], 0, 0)

    def connect(
        self,
        qp: int,
        peer: Peer,
        to: int = NOBODY,
        psn: int = 5,
        own_psn: int = 5,
        hint: int = 0,
        profiles: tuple[int, int] = (0, 0),
    ) -> None:
        """To a queue pair of the peer, through all states; by default to one that is not there.
        `profiles` are of EVs and of congestion control.
        """
        m, v = Block(layouts.MRC_QP_ATTR), Block(layouts.QP_ATTR)
        m.record["qp_hint"] = hint
        m.record["profile"]["ev_profile_id"], m.record["profile"]["cc_profile_id"] = profiles
        v.record["port_num"], v.record["path_mtu"] = 1, NUMBERS["IBV_MTU_1024"]
        v.record["dest_qp_num"], v.record["rq_psn"], v.record["sq_psn"] = to, psn, own_psn
        v.record["ah_attr"]["is_global"] = v.record["ah_attr"]["port_num"] = 1
        v.record["ah_attr"]["grh"]["dgid"]["raw"] = list(peer.gid)
        ready = ("STATE", "AV", "PATH_MTU", "DEST_QPN", "RQ_PSN")
        for state, mask, of_mrc in (
            ("INIT", TO_INIT, OF_INIT),
            ("RTR", sum(NUMBERS[f"IBV_QP_{name}"] for name in ready), 0),
            ("RTS", NUMBERS["IBV_QP_STATE"] | NUMBERS["IBV_QP_SQ_PSN"], 0),
        ):
            v.record["qp_state"] = NUMBERS[f"IBV_QPS_{state}"]
            assert self.api("mrc_modify_qp", qp, v, mask, m, of_mrc) == (0, 0), state

    def meet(
        self, qp: int, theirs: QueuePair, peer: Peer, profiles: tuple[int, int] = (0, 0)
    ) -> None:
        """Connect both ends."""
        number = Block(Struct("", (("uint32_t", "value"),)))
        self.api.must("mrc_get_qpn", qp, number)
        self.connect(qp, peer, theirs.qp_num, int(theirs.attributes.psn), profiles=profiles)
        assert entry.verbs.nic is not None
        own = entry.verbs.nic.device.queue_pairs
        [mine] = [one for one in own if one.qp_num == int(number.record["value"])]
        theirs.connect(mine.attributes)

    def take(self, cq: int = 0) -> Any:
        """The next completion."""
        wc, until = Block(layouts.WC), time.monotonic() + PATIENCE_S
        while not self.api.must("mrc_poll_cq", cq or self.cq, 1, wc):
            assert time.monotonic() < until
            os.sched_yield()
        return wc.record

    def send(
        self,
        qp: int,
        *buffers: tuple[int, int, int],
        flags: int = 0,
        to: tuple[int, int] = (0, 0),
    ) -> tuple[int, int]:
        """A write of these buffers (address, bytes, key) to an address with its key."""
        wr = Block(layouts.SEND_WR)
        listed = np.array([*buffers, (0, 0, 0)], layouts.SGE.dtype)
        wr.record["sg_list"], wr.record["num_sge"] = listed.ctypes.data, len(buffers)
        wr.record["opcode"] = NUMBERS["IBV_WR_RDMA_WRITE"]
        wr.record["wr"]["rdma"]["remote_addr"], wr.record["wr"]["rdma"]["rkey"] = to
        wr.record["send_flags"] = flags | NUMBERS["IBV_SEND_SIGNALED"]
        return self.api("mrc_post_send", qp, wr, self.bad)

    def seen(self, address: int, struct: Struct) -> Any:
        """A structure of the library."""
        room = (ctypes.c_char * struct.dtype.itemsize).from_address(address)
        return np.frombuffer(memoryview(room), struct.dtype)[0]

    def receive(self, qp: int, **fields: int) -> tuple[int, int]:
        wr = Block(layouts.RECV_WR)
        for name, value in fields.items():
            wr.record[name] = value
        return self.api("mrc_post_recv", qp, wr, self.bad)


def refused(answer: tuple[int, int], code: int) -> None:
    returned, said = answer
    assert errno.errorcode.get(said) == errno.errorcode[code]
    assert returned in (0, -1, code)
