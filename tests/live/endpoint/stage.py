"""Two endpoints on a stage: no threads, one step at a time, and an attacker who knows everything.

Each host has two queue pairs. Of the first the attacker knows whatever is on the wire (addresses,
QPNs, PSNs, keys); of the second, which transfers all the while, nothing. Whatever frame comes,
memory around the offered region keeps its canaries, the second queue pair goes on, and nothing
leaks.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from openmrc.engine import fate
from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.fabric.clos import multiplane
from openmrc.live import overlay, syscalls
from openmrc.live.endpoint import host, loop, state
from openmrc.live.endpoint.limits import Limits, Port
from openmrc.wire import addresses, codec, frame

PLANES = 2
PAGE = 4096
CANARY = 0xA5
OPCODES = (*range(pk.WRITE_FIRST, pk.LAST_DATA + 1), 0xD1, 0xD8, 0xD9, 0xDC, 0xDD, 0xDE)
KNOWN, HIDDEN = 0, 1
HEALTHY_BYTES = 30_000
POSTED = 32  # receives of the first queue pair
PATIENCE_S = 20.0  # an unlucky machine; steps take microseconds
# fields of a forged packet that a byte of input can set: what it is added to is the truth
FIELDS = (
    "psn",
    "msn",
    "va",
    "rkey",
    "dma_len",
    "imm",
    "cack_psn",
    "sack_offset",
    "ack_offset",
    "rcvd_units",
    "bitmap",
    "reason",
    "m",
    "penalty",
    "mpr",
    "entropy",
    "timestamp",
    "dst_qpn",
    "rqmsn",
    "ooo_count",
)
LENGTHS = (0, 1, 3, 64, 4095, 4096, 4097, 8192)
JUMPS = (0, 1, -1, 2, 63, 64, 511, 512, 513, 1 << 15, -(1 << 15), 1 << 23, 1 << 31, (1 << 62) - 1)


class Stage:
    """`receive` gives host 1 (or 0) a frame; `step` lets both go round once; `check` checks all."""

    def __init__(self) -> None:
        fabric = multiplane(3, PLANES, 10 * 10**9, 1, 2, 500_000, 250_000)
        self._pairs = [overlay.pair() for _ in range(PLANES)]
        limits = Limits(qps=2, regions=8, cqs=2, mpr=512)
        self.hosts = [
            host.Host(
                fabric,
                nic,
                [Port(pair[nic].fileno(), bytes(6)) for pair in self._pairs],
                limits,
                500_000_000,
            )
            for nic in range(2)
        ]
        self.rooms = [[np.full(4 * PAGE, CANARY, np.uint8) for _ in range(2)] for _ in range(2)]
        self.data = np.random.default_rng(1).integers(0, 256, HEALTHY_BYTES, dtype=np.uint8)
        self.sink = np.zeros(HEALTHY_BYTES + 2 * PAGE, np.uint8)
        self.sink[:PAGE] = self.sink[-PAGE:] = CANARY
        self.completed = 0
        self.lives = 0  # of the first queue pair: frames of who knows all may end it
        self.frame = np.zeros(66_000, np.uint8)
        self.p = np.zeros(1, pk.PACKET).view(np.recarray)
        self.e = np.zeros(1, frame.ENVELOPE).view(np.recarray)
        for one in self.hosts:
            for cq in range(2):
                ring = one.ep.cq[cq]
                ring.cqe0, ring.mask, ring.fd = cq * 4096, 4095, -1
        self._region(1, 5, self.sink[PAGE:-PAGE], 77)
        for which in (KNOWN, HIDDEN):
            self._connect(which)
        for nic, one in enumerate(self.hosts):
            self._region(nic, 3, self.rooms[nic][0][PAGE : 3 * PAGE], 0)
            assert one.ep.ctl[0].n_qps == 2

    def close(self) -> None:
        import os

        for one in self.hosts:
            ctl = one.ep.ctl[0]
            one._lookout.close()
            one._gate.close()
            one._ports.close()
            for fd in (ctl.wake_fd, ctl.event_fd, ctl.alarm_fd):
                os.close(int(fd))
        for pair in self._pairs:
            for end in pair:
                end.close()

    def _region(self, nic: int, index: int, room: Any, key: int) -> None:
        one = self.hosts[nic]
        r = one.st.region[index]
        r.va = one.ep.region[index] = room.__array_interface__["data"][0]
        r.length, r.nic, r.rkey = room.nbytes, nic, key << es.REGION_INDEX_BITS | index

    def _connect(self, which: int) -> None:
        """Queue pairs from one to the other, in RTS; of the first a receive is always posted."""
        for one in self.hosts:
            one._qpn_free_at[:] = 0
            assert one.new_qp(which, which) == which
        for nic, one in enumerate(self.hosts):
            there = self.hosts[1 - nic].st.qp[which]
            one.open_qp(which, 1 - nic, int(there.qpn), int(there.first_psn), 512, 128)
            for number in range(POSTED):
                self._post(nic, which, state.POST_RECV, number)

    def _post(self, nic: int, which: int, kind: int, number: int, length: int = 0) -> None:
        one = self.hosts[nic]
        to = self.hosts[1 - nic].st.region[5 if which == HIDDEN else 3]
        address = self.data.__array_interface__["data"][0]
        born = int(one.ep.qp[which].born)
        key, va = int(to.rkey), int(to.va)
        one.post((number, address, length, va, key, number, which, born, kind, 1))

    # --- time ----------------------------------------------------------------------------------

    def step(self) -> None:
        """Each endpoint looks once at its posts, ports and clocks."""
        for one in self.hosts:
            one.ep.ctl[0].attention = 1
            one._go(loop.TURN)
            one._leave.call()
        if self.hosts[0].st.qp[KNOWN].state != es.RTS or self.hosts[1].st.qp[KNOWN].state != es.RTS:
            self._revive()

    def _revive(self) -> None:
        self.lives += 1
        for one in self.hosts:
            loop.end_qp(one.ep, one.st, KNOWN)
            assert one.st.qp[KNOWN].state == es.ERROR
            one.drop_qp(KNOWN)
            one.ep.cq.read[:] = one.ep.cq.written
        self._connect(KNOWN)

    def transfer(self) -> None:
        """The second queue pair delivers: every byte, one completion."""
        self.sink[PAGE:-PAGE] = 0
        cq = self.hosts[0].ep.cq[HIDDEN]
        before = int(cq.written)
        self._post(0, HIDDEN, state.POST_WRITE, self.completed, HEALTHY_BYTES)
        self._post(0, KNOWN, state.POST_WRITE, 0, 0)  # something to lie about
        until = time.monotonic() + PATIENCE_S
        while int(cq.written) == before:
            self.step()
            assert time.monotonic() < until, "the healthy transfer stands still"
        assert int(cq.written) == before + 1
        assert (self.sink[PAGE:-PAGE] == self.data).all(), "a byte of the healthy transfer is wrong"
        self.completed += 1
        self.check()

    # --- what an attacker does -----------------------------------------------------------------

    def forge(self, data: bytes) -> tuple[int, int, int, bytes]:
        """Make a frame of fuzzer's input: (NIC, plane, fate, frame).

        Four bytes choose where to, which opcode and what of the envelope is wrong; then triples
        (field, jump, add) change fields from what would be right; what is left damages bytes.
        """
        head, rest = data[:4].ljust(4, b"\0"), data[4:]
        nic, plane, opcode = head[0] & 1, head[0] >> 1 & 1, OPCODES[head[1] % len(OPCODES)]
        self._truth(1 - nic, nic, plane, opcode, head)
        p = self.p[0]
        n_fields = head[3] & 3
        for i in range(min(n_fields, len(rest) // 3)):
            name, jump, add = FIELDS[rest[3 * i] % len(FIELDS)], rest[3 * i + 1], rest[3 * i + 2]
            change = JUMPS[jump % len(JUMPS)] + (add if add < 128 else add - 256)
            kind = pk.PACKET[name]
            bits = 8 * kind.itemsize
            value = int(p[name]) + change & (1 << bits) - 1
            signed = kind.kind == "i" and value >> bits - 1
            p[name] = value - (1 << bits) if signed else value
        n = codec.encode(p, self.e[0], self.data, self.frame, 1)
        if n <= 0:
            return nic, plane, 0, bytes(rest)
        if head[2] & 0x80:
            n = codec.trim(self.frame, n, head[2] >> 6 & 1, 0, 0)
        whole = bytearray(self.frame[:n].tobytes())
        for at, flip in zip(rest[3 * n_fields :: 2], rest[3 * n_fields + 1 :: 2], strict=False):
            whole[12 + at % (n - 12)] ^= flip
        if head[3] & 0x80:
            whole = whole[: n - head[3] // 2]
        return nic, plane, head[3] >> 2 & 1, bytes(whole)

    def _truth(self, src: int, dst: int, plane: int, opcode: int, head: bytes) -> None:
        """What the peer could send now."""
        p, e = self.p[0], self.e[0]
        self.p[:] = 0
        sender = self.hosts[src]
        e_own = sender.ep.envelope[plane]
        for name in frame.ENVELOPE.names or ():
            e[name] = e_own[name]
        q, r = sender.st.qp[KNOWN], self.hosts[dst].st.qp[KNOWN]
        e.carrier[:] = 1  # whatever: the switches have taken what they needed
        e.inner_src[:] = list(addresses.ipv6(2 if head[2] & 3 == 3 else src, plane).packed)
        e.inner_dst[:] = list(addresses.ipv6(dst, plane).packed)
        p.opcode, p.dst_qpn, p.klass = opcode, r.qpn, pk.CLASS_CONTROL
        p.reason = pk.AETH_ACK if opcode == pk.ACKNOWLEDGE else head[2] & 1
        if opcode in (pk.ENDPOINT_REQUEST, pk.ENDPOINT_RESPONSE):
            p.dst_qpn, p.imm = pk.ENDPOINT_QPN, 1 << PLANES - 1
        p.ev = sender.st.ev[int(q.ev0)].value
        e.tseth = int(opcode <= pk.LAST_DATA)
        p.psn = int(r.peer_psn) + int(r.cack) + 1 & pk.PSN_MASK
        p.cack_psn = int(r.first_psn) + int(r.una) - 1 & pk.PSN_MASK
        p.rcvd_units = int(r.rcvd_high) & 0xFF_FFFF
        p.msn = int(r.rx_msn) & 0xFFFF if opcode <= pk.LAST_DATA else int(r.msg_done) & 0xFFFF
        if opcode <= pk.LAST_DATA:
            region = self.hosts[dst].st.region[3]
            p.klass, p.va, p.rkey = pk.CLASS_DATA, region.va, region.rkey
            n = LENGTHS[head[2] >> 2 & 7]
            p.payload_len, p.dma_len = n, n
            if opcode in (pk.WRITE_FIRST, pk.WRITE_MIDDLE):
                p.payload_len, p.dma_len = 4096, 8192
            if head[3] & 8:
                p.flag_bits = pk.RTX | pk.ACK_REQ

    def receive(self, nic: int, plane: int, data: bytes) -> None:
        """The endpoint of `nic` gets a frame."""
        one = self.hosts[nic]
        n = min(len(data), self.frame.size)
        self.frame[:n] = np.frombuffer(data, np.uint8)[:n]
        now = syscalls.time_ps(one.ep.ctl[0].started_ns, one.ep.clock)
        refused, seen = int(one.ep.reason.sum()), int(one.st.qp[KNOWN].rx_bytes)
        qi = loop.take_frame(one.ep, one.st, one.tx, one.headend, self.frame[:n], plane, now)
        assert qi in (-1, KNOWN), "a frame for somebody else was heard"
        assert int(one.ep.reason.sum()) - refused in (0, 1, 2)
        assert int(one.st.qp[KNOWN].rx_bytes) >= seen
        assert one.st.count[es.OUT] == one.st.count[es.DONE] == 0

    def through_socket(self, nic: int, plane: int, data: bytes) -> None:
        """The same by way of the port, with all that the loop does of its own."""
        self._pairs[plane][1 - nic].send(data)
        self.step()

    def check(self) -> None:
        """Canaries, the second queue pair, rings and counts."""
        for nic, one in enumerate(self.hosts):
            room = self.rooms[nic][0]
            assert (room[:PAGE] == CANARY).all(), "memory before the region was written"
            assert (room[3 * PAGE :] == CANARY).all(), "memory behind the region was written"
            assert (self.rooms[nic][1] == CANARY).all()
            assert one.st.qp[HIDDEN].state == es.RTS, "the healthy queue pair ended"
            for port in one.ep.port:
                assert 0 <= port.first <= port.end <= state.TX_SLOTS
            ctl = one.ep.ctl[0]
            assert ctl.events - ctl.events_read <= state.EVENTS
            assert one.ep.qp[KNOWN].recv_tail - one.ep.qp[KNOWN].recv_head <= POSTED
            q = one.st.qp[KNOWN]
            slots = one.st.slot[int(q.slot0) : int(q.slot0) + int(q.slot_mask) + 1]
            live = slots[np.arange(int(q.una), int(q.nxt)) & int(q.slot_mask)]
            sent = live["fate"] == fate.SENT
            assert int(q.inflight) == int(live["bytes_nominal"][sent].sum(dtype=np.int64))
            assert int(q.lost) == int(np.isin(live["fate"], fate.WAITING).sum())
            assert q.una <= q.nxt <= q.una + q.mpr
            assert q.msg_done <= q.msg_cur <= q.msg_end
        assert (self.sink[:PAGE] == CANARY).all()
        assert (self.sink[-PAGE:] == CANARY).all()


class Script:
    """Inputs one after the other: every so often the healthy transfer has to deliver."""

    def __init__(self, stage: Stage, every: int = 64) -> None:
        self.stage, self.every, self.n = stage, every, 0

    def play(self, data: bytes) -> None:
        """One input."""
        nic, plane, by_socket, made = self.stage.forge(data)
        if by_socket:
            self.stage.through_socket(nic, plane, made)
        else:
            self.stage.receive(nic, plane, made)
        self.n += 1
        if self.n % 8 == 0:
            self.stage.step()
            self.stage.check()
        if self.n % self.every == 0:
            self.stage.transfer()
