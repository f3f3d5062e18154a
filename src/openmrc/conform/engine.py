"""The project's own engine as a target, in process and in virtual time.

One endpoint, NIC 0, with one queue pair to NIC 1, which is the kit. Data leaves at the rate of a
port of 100 Gb/s, control packets at once. What the kit sends arrives when it is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from openmrc.conform import events
from openmrc.conform.events import Event
from openmrc.conform.model.between import AGED_BYTES, AGED_MESSAGES
from openmrc.conform.run import rto_ps
from openmrc.engine import bits, endpoint, observe, parameters, setup, verdict
from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.errors import InputError
from openmrc.jit import records
from openmrc.units import US

RATE_BPS = 100 * 10**9
OVERHEAD, WIRE_OVERHEAD = 88, 166  # nominal, and on the wire, in addition to the payload
QPN, REGION_VA, REGION_BYTES = 16, (1 << 32) - (1 << 15), 1 << 20  # 32 bits of it wrap soon
FIRST_PSN, PEER_PSN = 0xFF_FFF8, 0xFF_FFFC  # both wrap within a few packets
MESSAGES = 64
# Settings of `with:` in addition to parameters.
_ROOMS = {
    "planes": 2, "evs": 4, "mpr": 512, "receives": MESSAGES, "trimming": 1, "rtt_us": 8, "aged": 0,
}  # fmt: skip
AGED_ID = 0xFFFC  # of the last probe, and of the last request
PARAMETERS = {field.name for field in fields(parameters.Variants)}


class EngineTarget:
    """The engine as a `run.Target`."""

    name = "openmrc's engine, in process, plain Python"
    patience_ps = settle_ps = 0
    blind: frozenset[str] = frozenset({events.FRAME})
    rate_bps = RATE_BPS

    def __init__(self, settings: Mapping[str, int]) -> None:
        for name in settings:
            if name not in PARAMETERS and name not in _ROOMS:
                raise InputError(f"with: the engine has no {name}")
        own: dict[str, Any] = {
            n: v for n, v in settings.items() if n in PARAMETERS and n not in _ROOMS
        }
        rooms = _ROOMS | {n: v for n, v in settings.items() if n in _ROOMS}
        self.planes, self.evs, self.mpr = rooms["planes"], rooms["evs"], rooms["mpr"]
        self.pmtu = int(own.setdefault("pmtu", 1024))
        self.st = _state(parameters.Variants(**{"linear_cnt": 2, "exp_cnt": 1, **own}), rooms)
        self._rtt_ps = rooms["rtt_us"] * US
        self.now_ps = 0
        self.log: list[Event] = []
        self.flow_psn = {"requester": FIRST_PSN, "responder": PEER_PSN}
        memory = (REGION_VA, int(self.st.region[0].rkey), REGION_BYTES)
        self.region = {"requester": memory, "responder": memory}
        self._free_at = [0] * self.planes
        self._scratch, self._arriving = records(1, pk.PACKET)[0], records(1, pk.PACKET)
        self._posted = self._received = 0
        self._failed = False

    @property
    def heard_ps(self) -> int:
        """All that came until then is in `log`."""
        return self.now_ps

    @property
    def rtt_ps(self) -> int:
        """The base round trip, ps."""
        return self._rtt_ps

    @property
    def rto_ps(self) -> int:
        """The retransmission timeout, ps."""
        return rto_ps(observe.rto_ps(self.st.qp[0]), self._rtt_ps)

    def send(self, kind: str, given: Mapping[str, int]) -> None:
        """A packet of the kit arrives now."""
        self._arriving.view(np.uint8)[:] = 0
        p = self._arriving[0]
        events.write_record(p, kind, given)
        p.src, p.dst = 1, 0
        own = kind in ("request", "response")
        p.dst_qpn = pk.ENDPOINT_QPN if own else QPN
        endpoint_or_qp = endpoint.NOBODY if own else 0
        said = endpoint.on_packet(self.st, 0, endpoint_or_qp, p, self.now_ps)
        placed = int(self.st.count[es.PLACED_LENGTH])
        if said == verdict.PLACED and placed == p.payload_len:  # all of it, and nothing beyond
            at = int(self.st.count[es.PLACED_OFFSET]) + REGION_VA
            self._note(events.DELIVERED, {"psn": int(p.psn), "va": at})
        self._after()

    def post(self, length: int, imm: int | None) -> None:
        """The application writes `length` bytes to the kit's memory."""
        value = endpoint.NO_IMM if imm is None else imm
        va, rkey, _ = self.region["requester"]
        endpoint.post_write(self.st, 0, self._posted, length, va, rkey, value)
        self._posted += 1
        self._after()

    def receives(self, n: int) -> None:
        """The application has this many receives posted."""
        setup.set_receives(self.st, 0, n)

    def port(self, number: int, up: bool) -> None:
        """A port goes down or comes up."""
        endpoint.set_port(self.st, 0, number, int(up), self.now_ps)
        self._after()

    def advance(self, until_ps: int) -> None:
        """Let time pass until the next event, at most until `until_ps`."""
        nic = self.st.nic[0]
        due = [int(endpoint.next_deadline(self.st, 0)), int(nic.deadline)]
        due += [at for at in self._free_at if at > self.now_ps]
        at = max(min(due), self.now_ps)
        if at > until_ps:
            self.now_ps = until_ps
            return
        self.now_ps = at
        if int(endpoint.next_deadline(self.st, 0)) <= at:
            endpoint.on_deadline(self.st, 0, at)
        if int(nic.deadline) <= at:
            endpoint.on_nic_deadline(self.st, 0, at)
        self._after()

    def _after(self) -> None:
        """Record what the last call of the engine emitted and completed, then fill free ports."""
        self._drain()
        while free := sum(1 << k for k, at in enumerate(self._free_at) if at <= self.now_ps):
            q = self.st.qp[0]
            plane = endpoint.next_packet(self.st, q, free, self.now_ps, self._scratch)
            if plane < 0:
                break
            wire_bytes = int(self._scratch.payload_len) + WIRE_OVERHEAD
            self._free_at[plane] = self.now_ps + wire_bytes * 8 * 10**12 // RATE_BPS
            self._hear(self._scratch)
            self._drain()

    def _drain(self) -> None:
        count = self.st.count
        for i in range(int(count[es.OUT])):
            self._hear(self.st.out[i])
        for i in range(int(count[es.DONE])):
            done = self.st.done[i]
            if done.kind == es.DONE_DELIVERED:
                continue  # of a message; `delivered` is of packets
            if done.kind == es.DONE_SEND:
                self._note(events.DONE, {"id": int(done.id)})
            else:
                self._note(events.RECEIVED, {"id": self._received, "imm": int(done.imm)})
                self._received += 1
        count[es.OUT] = count[es.DONE] = 0
        q = self.st.qp[0]
        if q.state == es.ERROR and not self._failed:
            self._failed = True
            text = observe.error_text(q).replace(" ", "-")
            self._note(events.FAILED, {"reason": text})

    def _hear(self, p: Any) -> None:
        """A packet leaves: the kit hears it if it has the right addresses."""
        own = p.opcode in (pk.ENDPOINT_REQUEST, pk.ENDPOINT_RESPONSE)
        if (p.src, p.dst, p.dst_qpn) == (0, 1, pk.ENDPOINT_QPN if own else QPN):
            self.log.append(events.of_record(p, self.now_ps))

    def _note(self, kind: str, fields: dict[str, Any]) -> None:
        self.log.append(Event(self.now_ps, kind, fields))


def _state(given: parameters.Variants, rooms: Mapping[str, int]) -> es.State:
    planes, evs = rooms["planes"], rooms["evs"]
    st = setup.new_state(
        given,
        setup.Rooms(1, planes, rooms["mpr"], MESSAGES, MESSAGES, planes * evs, evs),
        nics=1,
        peers=1,
        regions=1,
        port_rate_bps=RATE_BPS,
        base_rtt_ps=rooms["rtt_us"] * US,
        nominal_overhead=OVERHEAD,
        trimming=rooms["trimming"],
        must_post_receives=1,
        guarded=1,
    )
    setup.identify(
        st.qp, nic=0, peer_nic=1, peer=0, qpn=QPN, peer_qpn=QPN, first_psn=FIRST_PSN,
        peer_psn=PEER_PSN,
    )  # fmt: skip
    setup.set_receives(st, 0, rooms["receives"])
    one = np.zeros(1, np.int64)
    for plane in range(planes):
        values = ((plane << 16) + 1 + np.arange(evs, dtype=np.int64))[None, :]
        setup.set_paths(st, one, plane, values, evs)
    st.stream[:] = bits.seed_streams(1, 0, 1)
    setup.set_nics(st, planes, given.pmtu + WIRE_OVERHEAD)
    setup.set_peers(st.peer, [1], [0], planes)
    st.nic.qp0, st.nic.n_qps, st.nic.peer0, st.nic.n_peers = 0, 1, 0, 1
    st.region.nic, st.region.va, st.region.length = 0, REGION_VA, REGION_BYTES
    st.region.rkey = 77 << es.REGION_INDEX_BITS
    setup.open_qp(st, 0)
    if rooms["aged"]:
        setup.age(st, 0, AGED_MESSAGES, AGED_BYTES, AGED_ID)
    return st
