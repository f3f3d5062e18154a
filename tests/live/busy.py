"""A pair of devices that never stops transferring, with a stranger in the path.

One thread writes to the other end without end and looks at every byte; between the devices is a
relay through which a test writes frames of its own. What the stranger offers to write has canaries
around it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from openmrc.engine import packet as pk
from openmrc.fabric.clos import multiplane
from openmrc.live.endpoint.limits import Limits, Port
from openmrc.live.relay import Relay
from openmrc.verbs import Device, QpState, Status
from openmrc.wire import addresses, decode, encode
from tests.live.two import PATIENCE_S

MESSAGE_BYTES = 200_000
CANARY = 0xA5
PAGE = 4096
CHUNK = 50  # frames of a stranger at once: a socket has room for them beside the transfer's


class Busy:
    """Device 0 writes to device 1; NIC 2 is a third port of the fabric, and no peer of either."""

    def __init__(self, planes: int = 2) -> None:
        fabric = multiplane(3, planes, 10 * 10**9, 1, 2, 500_000, 250_000)
        self.relay = Relay(2, planes)
        self.devices = [
            Device(
                fabric,
                nic,
                [Port(one.fileno(), bytes(6)) for one in self.relay.ends[nic]],
                Limits(rto_exponent=14),
                base_rtt_ps=2_000_000_000,
            )
            for nic in range(2)
        ]
        a, b = self.devices
        self.cq = a.create_cq()
        self.qp, self.peer = a.create_qp(self.cq), b.create_qp(b.create_cq())
        self.qp.connect(self.peer.attributes)
        self.peer.connect(self.qp.attributes)
        # a region between canaries, that the transfer does not use
        self.room = np.full(4 * PAGE, CANARY, np.uint8)
        self.target = b.reg_mr(self.room[PAGE : 3 * PAGE])
        self.read_only = b.reg_mr(np.full(PAGE, CANARY, np.uint8), 1)
        self.sample: dict[int, bytes] = {}  # by opcode, a frame of the transfer
        self.relay.tap = self._note
        self.messages = 0
        self.wrong = ""
        self._stop = False
        self._thread = threading.Thread(target=self._transfer, daemon=True)
        self._thread.start()

    def _note(self, nic: int, plane: int, frame: bytes) -> None:
        if plane == 0 and len(self.sample) < 64:
            opcode = frame[14 + 40 + 40 + 8]
            self.sample.setdefault(opcode | nic << 8, frame)

    def _transfer(self) -> None:
        rng = np.random.default_rng(1)
        data = rng.integers(0, 256, MESSAGE_BYTES, dtype=np.uint8)
        room = np.zeros(MESSAGE_BYTES, np.uint8)
        source, sink = self.devices[0].reg_mr(data), self.devices[1].reg_mr(room)
        while not self._stop:
            data[:] = np.roll(data, 1)
            self.qp.post_write(1, source, remote_addr=sink.addr, rkey=sink.rkey)
            done = self.cq.wait(timeout=PATIENCE_S)
            if [c.status for c in done] != [Status.SUCCESS]:
                self.wrong = f"completions: {done}"
                return
            if not (room == data).all():
                self.wrong = "a byte is wrong"
                return
            self.messages += 1

    def close(self) -> None:
        self._stop = True
        self._thread.join()
        for device in self.devices:
            device.close()
        self.relay.close()

    # --- what a stranger can know, and send ----------------------------------------------------

    def wait_for(self, what: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not what():
            assert time.monotonic() < until, self.wrong
            time.sleep(0.002)

    def forge(
        self, opcode: int = pk.WRITE_ONLY, src: int = 0, dst: int = 1, **fields: Any
    ) -> bytes:
        """A frame of the fabric on plane 0, as correct as can be but for `fields`: those of a
        packet record, `payload`, or of an envelope.
        """
        self.wait_for(lambda: pk.WRITE_FIRST in self.sample)
        found = decode(self.sample[pk.WRITE_FIRST])
        p, e = found.record, found.envelope
        for name in p.dtype.names:
            p[name] = 0
        p.opcode, p.dst_qpn, p.klass = opcode, self.peer.qp_num, pk.CLASS_DATA
        p.ev = found.ev
        payload = fields.pop("payload", b"")
        if opcode <= pk.LAST_DATA:
            p.rkey, p.va = self.target.rkey, self.target.addr
            payload = payload or b"\xee" * 64
            p.payload_len = p.dma_len = len(payload)
        else:
            p.klass = pk.CLASS_CONTROL
            e.tseth = 0
        e.inner_src[:] = list(addresses.ipv6(src, fields.pop("src_plane", 0)).packed)
        e.inner_dst[:] = list(addresses.ipv6(dst, fields.pop("dst_plane", 0)).packed)
        for name, value in fields.items():
            (p if name in p.dtype.names else e)[name] = value
        return encode(p, e, payload)

    def psn(self, ahead: int) -> int:
        """The PSN `ahead` of the next one that device 1 waits for, or is likely to by then."""
        q = self.devices[1]._host.st.qp[self.peer.index]
        return int(q.peer_psn + q.cack + 1 + ahead) & 0xFF_FFFF

    def refused(self, nic: int = 1) -> dict[str, int]:
        ports = self.devices[nic].counters()["ports"]
        total: dict[str, int] = {}
        for port in ports:
            for reason, n in port["refused"].items():
                total[reason] = total.get(reason, 0) + n
        return total

    def received(self, nic: int = 1) -> int:
        return sum(port["rx_packets"] for port in self.devices[nic].counters()["ports"])

    @contextmanager
    def unharmed(self) -> Iterator[None]:
        """What happens here touches no memory and ends nothing, and the transfer goes on."""
        yield
        seen = self.messages
        self.wait_for(lambda: self.messages > seen + 2 or bool(self.wrong))
        assert self.wrong == ""
        assert self.qp.state == self.peer.state == QpState.RTS
        assert (self.room == CANARY).all()
        assert (self.read_only.buffer == CANARY).all()
        for device in self.devices:
            assert not [e for e in device.events() if e.error]

    def send(self, frames: list[bytes], nic: int = 1, plane: int = 0) -> None:
        for i, frame in enumerate(frames):
            self.relay.send(nic, plane, frame)
            if i % CHUNK == CHUNK - 1:
                time.sleep(0.002)
