"""libmrc as a target: a program of MRC's C API, for the upper tester (`tester`).

Requests, completions and the states of queue pairs are the library's functions, as any program
calls them, and the kit is met as libmrc meets a peer: by a GID, at which this program answers for
it. What the API lets no program set, the limits and the round trip, is set on the device behind it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from openmrc.capi import build, entry, hot, layouts, reach
from openmrc.capi.devices import INTERFACES, LIMITS, RIGHTS
from openmrc.capi.layouts import NUMBERS, Struct
from openmrc.capi.linked import Api
from openmrc.capi.places import Block, at
from openmrc.conform.tester import Open
from openmrc.live.endpoint.peers import Reach
from openmrc.verbs import QpState, RemoteRegion, Status, hostfile
from openmrc.verbs.attributes import QpAttributes

DEPTH, CQES = 256, 1024
WORD = Struct("", (("uint32_t", "value"),))
ADDRESS = Struct("", (("uint64_t", "value"),))
# The steps to RTS, with the attributes of ibverbs and of MRC that each sets.
STEPS = (
    ("INIT", "IBV_QP_STATE IBV_QP_PKEY_INDEX IBV_QP_PORT", ""),
    (
        "RTR",
        "IBV_QP_STATE IBV_QP_AV IBV_QP_PATH_MTU IBV_QP_DEST_QPN IBV_QP_RQ_PSN",
        "MRC_QP_MPR_DEST MRC_QP_MAX_WIMM_DEST MRC_QP_CAP",
    ),
    ("RTS", "IBV_QP_STATE IBV_QP_SQ_PSN", "MRC_QP_RETRY_CNT"),
)
# What ends a queue pair, by the status of the request that it ends.
REASONS: dict[int, str] = {
    Status.REM_ACCESS_ERR: "remote access error",
    Status.REM_INV_REQ_ERR: "remote invalid request error",
    Status.REM_OP_ERR: "remote operation error",
    Status.RETRY_EXC_ERR: "retry counter exceeded",
}


@contextlib.contextmanager
def served(planes: Sequence[str]) -> Iterator[Open]:
    """Compile libmrc; devices are on the first of these planes of an ordinary network."""
    with TemporaryDirectory() as folder:
        build.build(Path(folder))
        hot.warm_up()
        api = Api(Path(folder))
        yield lambda n, limits: Device(api, planes[:n], limits)


class Done(NamedTuple):
    """A completion."""

    wr_id: int
    status: int
    opcode: int
    imm_data: int


@dataclass(frozen=True)
class Memory:
    """A registered array, which has to stay."""

    room: Any
    remote: RemoteRegion
    lkey: int


class Device:
    """An open device of libmrc."""

    def __init__(self, api: Api, planes: Sequence[str], limits: Mapping[str, Any]) -> None:
        os.environ[INTERFACES] = ",".join(planes)
        os.environ.pop(hostfile.VARIABLE, None)
        entry.verbs.limits = {**LIMITS, **limits}
        self.api, self.limits = api, limits
        devices = api.must("ibv_get_device_list", 0)
        first = int(at(devices, ADDRESS)["value"])
        api.must("ibv_free_device_list", devices)
        self._context = api.must("ibv_open_device", first)
        assert entry.verbs.nic is not None
        self.behind = entry.verbs.nic.device
        self.mrc = api.must("mrc_create_context", self._context, 0)
        self.pd = api.must("ibv_alloc_pd", self._context)
        self.closing = contextlib.ExitStack()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.close()
        self.api.must("ibv_close_device", self._context)

    @property
    def base_rtt_us(self) -> float:
        """The base round trip, us."""
        return self.behind.base_rtt_us

    def set_port(self, plane: int, up: bool) -> None:
        """A port goes down or comes up."""
        self.behind.set_port(plane, up)

    def create_cq(self) -> CompletionQueue:
        """`mrc_create_cq`."""
        return CompletionQueue(self)

    def create_qp(self, cq: CompletionQueue) -> Qp:
        """`mrc_create_qp`."""
        return Qp(self, cq)

    def reg_mr(self, room: Any) -> Memory:
        """`ibv_reg_mr`."""
        begin = room.ctypes.data
        told = at(self.api.must("ibv_reg_mr", self.pd, begin, room.nbytes, RIGHTS), layouts.MR)
        there = RemoteRegion(begin, room.nbytes, int(told["rkey"]))
        return Memory(room, there, int(told["lkey"]))

    def planes(self) -> tuple[Reach, ...]:
        """How this device is reached, as any peer learns it."""
        gid = Block(layouts.GID)
        self.api.must("ibv_query_gid", self._context, 1, 0, gid)
        return reach.ask(gid.record["raw"].tobytes())


class CompletionQueue:
    """One for requests and receives."""

    def __init__(self, device: Device) -> None:
        self._api = device.api
        self.handle = self._api.must("mrc_create_cq", device.mrc, CQES, 0, 0, 0)
        self.reason = ""  # of the first request that failed by itself
        self.taken = 0
        self._wc = Block(layouts.WC)

    def wait(self, n: int, timeout: float) -> list[Done]:
        """Up to `n` completions; where there is none, after `timeout` seconds."""
        found = list(itertools.islice(iter(self._poll, None), n))
        if not found:
            time.sleep(timeout)
        return found

    def _poll(self) -> Done | None:
        if not self._api.must("mrc_poll_cq", self.handle, 1, self._wc):
            return None
        self.taken += 1
        w = self._wc.record
        self.reason = self.reason or REASONS.get(int(w["status"]), "")
        imm = int.from_bytes(w["imm_data"].tobytes(), "big")
        return Done(int(w["wr_id"]), int(w["status"]), int(w["opcode"]), imm)


class Qp:
    """A queue pair, as `tester.Tester` uses one."""

    def __init__(self, device: Device, cq: CompletionQueue) -> None:
        self._device, self._api, self._cq = device, device.api, cq
        a = Block(layouts.MRC_QP_INIT_ATTR)
        a.record["send_cq"] = a.record["recv_cq"] = cq.handle
        a.record["pd"] = device.pd
        a.record["cap"]["max_send_wr"] = a.record["cap"]["max_recv_wr"] = DEPTH
        self._handle = self._api.must("mrc_create_qp", device.mrc, a)
        number = Block(WORD)
        self._api.must("mrc_get_qpn", self._handle, number)
        pairs = device.behind.queue_pairs
        [self._behind] = [one for one in pairs if one.qp_num == int(number.record["value"])]
        self._q = self._behind._q
        self._bad = Block(ADDRESS)
        self._posted = 0

    @property
    def attributes(self) -> QpAttributes:
        """What the kit must know: the planes are those that any peer is told."""
        return replace(self._behind.attributes, planes=self._device.planes())

    def connect(self, remote: QpAttributes) -> None:
        """All steps to RTS, to a peer whose GID this program answers for."""
        answering = reach.Answering(remote.planes)
        self._device.closing.callback(answering.close)
        limits = self._device.limits
        m, v = Block(layouts.MRC_QP_ATTR), Block(layouts.QP_ATTR)
        m.record["retry"]["linear_cnt"] = limits["linear_cnt"]
        m.record["retry"]["exp_cnt"] = limits["exp_cnt"]
        m.record["mpr"]["mpr_dest"] = remote.mpr // layouts.MPR_UNIT
        m.record["wimm"]["max_wimm_dest"] = remote.max_wimm
        m.record["cap"] = sum(
            NUMBERS[f"MRC_QP_CAP_{name}"]
            for name, told in (
                ("TRIM_NACK_DEST_UNSUPPORTED", not remote.trim_nack),
                ("DYNAMIC_MPR", remote.dynamic_mpr),
            )
            if told
        )
        v.record["port_num"], v.record["path_mtu"] = 1, NUMBERS[f"IBV_MTU_{remote.pmtu}"]
        v.record["dest_qp_num"], v.record["rq_psn"] = remote.qp_num, remote.psn
        v.record["sq_psn"] = self._behind.attributes.psn
        v.record["ah_attr"]["is_global"] = v.record["ah_attr"]["port_num"] = 1
        v.record["ah_attr"]["grh"]["dgid"]["raw"] = list(reach.gid_of(remote.planes[0]))
        for state, verbs, mrc in STEPS:
            v.record["qp_state"] = NUMBERS[f"IBV_QPS_{state}"]
            masks = [sum(NUMBERS[name] for name in names.split()) for names in (verbs, mrc)]
            self._api.must("mrc_modify_qp", self._handle, v, masks[0], m, masks[1])

    def measure_rtt(self) -> None:
        """The round trip of the device behind it."""
        self._behind.measure_rtt()

    @property
    def state(self) -> QpState:
        """`mrc_query_qp`; ERROR once all that was posted has come back, which says why."""
        v = Block(layouts.QP_ATTR)
        mask = NUMBERS["IBV_QP_STATE"]
        self._api.must("mrc_query_qp", self._handle, v, mask, 0, 0, 0)
        found = QpState(int(v.record["qp_state"]))
        ended = self._cq.taken == self._posted
        return found if ended or found != QpState.ERROR else QpState.RTS

    @property
    def error(self) -> str:
        """The status of the request that ended it; a responder is told of nothing but the end."""
        return self._cq.reason or "ended"

    def post_recv(self, wr_id: int) -> None:
        """`mrc_post_recv`."""
        wr = Block(layouts.RECV_WR)
        wr.record["wr_id"] = wr_id
        self._api.must("mrc_post_recv", self._handle, wr, self._bad)
        self._posted += 1

    def post_write(
        self, wr_id: int, mr: Memory, offset: int, length: int, *, remote_addr: int, rkey: int
    ) -> None:
        """`mrc_post_send` of a write."""
        self._send("IBV_WR_RDMA_WRITE", wr_id, mr, offset, length, remote_addr, rkey, 0)

    def post_write_imm(
        self,
        wr_id: int,
        mr: Memory,
        offset: int,
        length: int,
        *,
        remote_addr: int,
        rkey: int,
        imm_data: int,
    ) -> None:
        """`mrc_post_send` of a write with immediate."""
        opcode = "IBV_WR_RDMA_WRITE_WITH_IMM"
        self._send(opcode, wr_id, mr, offset, length, remote_addr, rkey, imm_data)

    def _send(
        self,
        opcode: str,
        wr_id: int,
        mr: Memory,
        offset: int,
        length: int,
        remote_addr: int,
        rkey: int,
        imm: int,
    ) -> None:
        wr, sge = Block(layouts.SEND_WR), Block(layouts.SGE)
        sge.record["addr"], sge.record["length"] = mr.remote.addr + offset, length
        sge.record["lkey"] = mr.lkey
        wr.record["wr_id"], wr.record["opcode"] = wr_id, NUMBERS[opcode]
        wr.record["sg_list"], wr.record["num_sge"] = sge.address, 1
        wr.record["send_flags"] = NUMBERS["IBV_SEND_SIGNALED"]
        wr.record["imm_data"] = int.from_bytes(imm.to_bytes(4, "big"), sys.byteorder)
        wr.record["wr"]["rdma"]["remote_addr"], wr.record["wr"]["rdma"]["rkey"] = remote_addr, rkey
        self._api.must("mrc_post_send", self._handle, wr, self._bad)
        self._posted += 1
