"""Transfers whose packets tell two endpoints apart that no rule tells apart.

Each is drawn from a seed: a network that loses, trims, marks, repeats and delays. What is told is a
digest of all packets with their times.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from typing import Any

import numpy as np

from openmrc.conform import datagram
from openmrc.conform.tester import LIMITS
from openmrc.units import MS
from openmrc.verbs import CompletionQueue, QueuePair
from tests.conform.kernel import RTT_PS, Datagram, End
from tests.engine.pair import Pair

ADDRESSES = "10.77.3.{}", "10.77.4.{}"
UNTOLD = {"va", "rkey", "payload_crc"}  # what depends on where memory is
LIVE_STEPS_MAX = 4000
CE = 3


def of_engines(seed: int) -> str:
    """Two engines that call each other."""
    dice = random.Random(seed)
    pair = Pair(
        planes=dice.choice([1, 2, 4]),
        evs=dice.choice([1, 4, 8]),
        backup=dice.choice([0, 2]),
        qps=dice.choice([1, 2]),
        trimming=dice.choice([0, 1]),
        checked=False,
    )
    for _ in range(3):
        pair.post(dice.randrange(1, 200_000), imm=dice.choice([None, 7]))
        plane = dice.randrange(pair.planes)
        pair.drop(dice.randrange(6), plane=plane)
        pair.trim(dice.randrange(4))
        pair.mark(dice.randrange(20))
        pair.delay(dice.randrange(30), dice.randrange(4))
        pair.advance(dice.randrange(5, 200))
    if pair.planes > 1 and dice.random() < 0.5:
        pair.cut(plane=0)
        pair.post(100_000)
        pair.advance(300)
        pair.heal()
    pair.drive(20_000, errors=True)
    digest = hashlib.sha256()
    for each in pair.log:
        digest.update(f"{each.at} {each.kind} {each.p}".encode())
    return digest.hexdigest()


class _Live:
    """One of two live endpoints."""

    def __init__(self, side: int, n_planes: int) -> None:
        limits = {**LIMITS, "evs_active": 4 * n_planes, "evs_backup": 0}
        self.end = End([ADDRESSES[side].format(k + 1) for k in range(n_planes)], limits)
        with self.end.kernel.running():
            device = self.end.device
            self.cq: CompletionQueue = device.create_cq()
            self.qp: QueuePair = device.create_qp(self.cq)
            self.room = device.reg_mr(np.zeros(1 << 18, np.uint8))
        self.completed = 0

    def connect(self, other: _Live) -> None:
        """All steps to RTS; receives are posted."""
        self.there = other.room.remote
        with self.end.kernel.running():
            self.qp.connect(other.qp.attributes)
            for number in range(16):
                self.qp.post_recv(number)

    def write(self, length: int, imm: int | None) -> None:
        """Write to the other one."""
        more: dict[str, Any] = {"remote_addr": self.there.addr, "rkey": self.there.rkey}
        with self.end.kernel.running():
            if imm is None:
                self.qp.post_write(0, self.room, 0, length, **more)
            else:
                self.qp.post_write_imm(0, self.room, 0, length, imm_data=imm, **more)

    def runs(self, now_ps: int) -> list[Datagram]:
        """What it sends now, and how much it has completed."""
        kernel = self.end.kernel
        kernel.now_ps = now_ps
        with kernel.running():
            self.end.runs()
            self.completed += len(self.cq.poll())
        sent, kernel.sent = kernel.sent, []
        return sent


def of_live(seed: int) -> str:
    """Two live endpoints in virtual time."""
    dice = random.Random(seed)
    n_planes = dice.choice([1, 2, 4])
    ends = [_Live(side, n_planes) for side in range(2)]
    for one, other in (ends, ends[::-1]):
        one.connect(other)
    for one in ends:
        for _ in range(3):
            one.write(dice.randrange(60_000), dice.choice([None, 7]))
    digest = hashlib.sha256()
    due: list[tuple[int, int, int, Datagram]] = []
    now_ps, number = 0, 0
    for _ in range(LIVE_STEPS_MAX):
        for side, one in enumerate(ends):
            for packet in one.runs(now_ps):
                digest.update(f"{now_ps} {side} {_told(packet)}".encode())
                if dice.random() < 0.04:
                    continue
                marked = packet.traffic_class | CE * (dice.random() < 0.05)
                for _ in range(1 + (dice.random() < 0.04)):
                    late_ps = int(dice.random() < 0.05) * dice.randrange(60) * MS
                    number += 1
                    at_ps = now_ps + RTT_PS // 2 + late_ps
                    heapq.heappush(
                        due, (at_ps, number, side, packet._replace(traffic_class=marked))
                    )
            digest.update(f"{one.completed}".encode())
        if min(one.completed for one in ends) >= 3 and not due:
            break
        now_ps = min(due[0][0] if due else 1 << 62, *(one.end.due_ps for one in ends))
        while due and due[0][0] <= now_ps:
            _, _, side, packet = heapq.heappop(due)
            ends[1 - side].end.kernel.arrives(packet)
    for one in ends:
        one.end.close()
    return digest.hexdigest()


def _told(packet: Datagram) -> str:
    """What a packet says, except for where memory is."""
    kind, fields = datagram.read(packet.data) or ("", {})
    told = sorted((name, value) for name, value in fields.items() if name not in UNTOLD)
    return f"{packet.src} {packet.dst} {packet.traffic_class} {kind} {told}"
