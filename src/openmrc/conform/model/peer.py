"""The other end of a queue pair, as the text describes it, on a network that loses, trims, marks,
repeats and delays packets at random: what `serve` and `arrive` play.

All is drawn from a seed. A network is given in percent: `loss=5 trim=5 mark=5 twice=5 late=5`;
`late` is a packet that takes half a round trip more, `behind` an answer that takes an eighth more,
so that others overtake it; `queue` is what the answer to each takes more, in percent of a round
trip, but for retransmissions, which overtake data; `penalty` is what each SACK asks for (MRC 4.8),
and `restore` whether it takes back what was asked for before; `narrow` is an answer that tells a
window of 128, and not the one agreed; `ask` is a packet before which a requester sends a probe,
`refuse` one for which the responder has no room, and `wrong` one before which another comes with
one field wrong, so that nobody may believe it.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from openmrc.conform.events import Event
from openmrc.conform.model.cutting import opcode
from openmrc.conform.model.received import HEADER, MESSAGES, PLACED, Received, Told
from openmrc.engine import packet as pk

Packet = tuple[str, dict[str, int]]  # kind and fields
MayBelieve = Callable[[str, Mapping[str, int]], bool]
COPY_ARRIVES = 0.1  # the chance that the next packet is the oldest copy that the network holds
REFUSALS = (pk.NACK_NO_BITMAP, pk.NACK_NO_PKT_BUFFER, pk.NACK_NO_RESOURCE, 0x1F)  # one is unknown
# What may be wrong: fields, and their bits on the wire, but for signs.
_BITS = {
    "data": {
        "psn": 24, "msn": 16, "rkey": 32, "va": 63, "dma_length": 32, "length": 11, "opcode": 1,
    },
    "sack": {"cack_psn": 24, "sack_offset": 15, "sack_bitmap": 64, "rcvd_bytes": 24},
    "nack": {"nack_psn": 24},
    "ack": {"msn": 16},
}  # fmt: skip


@dataclass(frozen=True)
class Network:
    """The chances of a packet, in percent, and what they are drawn from."""

    seed: int = 1
    loss: int = 0
    trim: int = 0
    mark: int = 0
    twice: int = 0
    late: int = 0
    queue: int = 0
    penalty: int = 0
    restore: int = 0
    refuse: int = 0
    behind: int = 0
    narrow: int = 0
    wrong: int = 0
    ask: int = 3
    plane: int = -1  # where it loses; -1 is everywhere

    def dice(self) -> random.Random:
        """The dice of an exchange."""
        return random.Random(self.seed)

    def falsified(
        self, kind: str, p: dict[str, int], may_believe: MayBelieve, dice: random.Random
    ) -> Iterator[dict[str, int]]:
        """This packet with one field wrong, so that nobody may believe it: with one bit wrong, or
        with the nearest value that is.
        """
        if not self.wrong:
            return
        for name, bits in _BITS.get(kind, {}).items():
            if dice.random() * 100 >= self.wrong:
                continue
            sign = dice.choice((0, 1, -1))
            if sign == 0:
                near = p | {name: p[name] ^ 1 << dice.randrange(bits)}
            else:
                # alone: a bitmap moves with cack_psn, and would be what is wrong
                alone = p | {"sack_bitmap": 0} if name == "cack_psn" else p
                near = _nearest(kind, alone, name, bits, sign, may_believe)
            if not may_believe(kind, near):
                yield near


def _nearest(
    kind: str, p: dict[str, int], name: str, bits: int, sign: int, may_believe: MayBelieve
) -> dict[str, int]:
    """The packet whose field is off by least, in one direction, of those that nobody may believe;
    if there is none, the packet as it is.
    """
    steps = range(1, 1 << bits - 1)
    mask = (1 << bits) - 1 if name != "sack_offset" else -1  # it has a sign

    def off_by(step: int) -> dict[str, int]:
        return p | {name: p[name] + sign * step & mask}

    first = bisect_left(steps, True, key=lambda step: not may_believe(kind, off_by(step)))
    return off_by(steps[first]) if first < len(steps) else p


class Responder:
    """A responder: it answers what a target sends a round trip later."""

    def __init__(self, told: Told, rtt_ps: int) -> None:
        self._received = Received(replace(told, region=(0, 0, 1 << 62), receives=1 << 30))
        self._rtt_ps = rtt_ps
        self._due: list[tuple[int, int, str, Event]] = []
        self._behind: list[tuple[int, int, Packet]] = []  # answers that others overtake
        self._n = 0

    def network(self, network: Network) -> None:
        """From now on the network is this one."""
        self._network, self._dice = network, network.dice()

    def hears(self, event: Event) -> None:
        """A packet left the target: it is lost, or answered later."""
        if event.kind not in ("data", "probe", "request"):
            return
        net, dice, p = self._network, self._dice, event.fields
        lossy = net.plane in (-1, p["plane"])
        if dice.random() * 100 < net.loss and lossy:
            return
        trimmed = dice.random() * 100 < net.trim and event.kind == "data" and not p["no_trim"]
        how = "trimmed" * trimmed
        if net.refuse and dice.random() * 100 < net.refuse and event.kind == "data":
            how += " refused"
        if dice.random() * 100 < net.mark:
            how += " marked"
        copies = 1 + (dice.random() * 100 < net.twice)
        for copy in range(copies):
            late = self._rtt_ps // 2 * (dice.random() * 100 < net.late)
            self._n += 1
            at = (
                event.at_ps
                + self._rtt_ps * (100 + net.queue * (not p.get("rtx"))) // 100
                + late
                + copy * self._rtt_ps // 8
            )
            heapq.heappush(self._due, (at, self._n, how, event))

    @property
    def next_at(self) -> int | None:
        """When it answers next, ps."""
        return min((held[0][0] for held in (self._due, self._behind) if held), default=None)

    def answers(self, now_ps: int, may_believe: MayBelieve) -> Iterator[Packet]:
        """What it sends now; and what its network makes of it, if nobody `may_believe` it."""
        while self._due and self._due[0][0] <= now_ps:
            _, _, how, event = heapq.heappop(self._due)
            for kind, p in self._to(event, how):
                for wrong in self._network.falsified(kind, p, may_believe, self._dice):
                    yield kind, wrong
                if self._network.behind and self._dice.random() * 100 < self._network.behind:
                    self._n += 1
                    heapq.heappush(self._behind, (now_ps + self._rtt_ps // 8, self._n, (kind, p)))
                else:
                    yield kind, p
        while self._behind and self._behind[0][0] <= now_ps:
            yield heapq.heappop(self._behind)[2]

    def _to(self, event: Event, how: str) -> Iterator[Packet]:
        p, r = event.fields, self._received
        if event.kind == "request":
            yield "response", {"op": p["op"], "id": p["id"], **self._way(p["plane"])}
            return
        marked = {"ce": 1} if "marked" in how else {}
        if event.kind == "probe":
            yield "sack", self._sack(p, marked, r.now.cack + 1) | {
                "pr": 1, "ack_psn_offset": p["probe_id"],
            }  # fmt: skip
            if r.now.cack == r.now.high and r.now.done:
                yield "ack", self._ack()
            return
        if "refused" in how:
            reason = self._dice.choice(REFUSALS)
            reflected = {"entropy": p["ev"], "tx_timestamp": p["tx_timestamp"]}
            yield "nack", {
                "nack_psn": p["psn"], "nack_reason": reason, **reflected, **self._way(),
            }  # fmt: skip
            return
        done, seq = r.now.done, r.sequence(p["psn"])
        own = {**p, **marked, "trimmed": int("trimmed" in how), "rkey": 0}
        verdict, sacks = r.take(own)
        if verdict == HEADER:
            reflected = {"entropy": p["ev"], "tx_timestamp": p["tx_timestamp"]}
            yield "nack", {
                "nack_psn": p["psn"], "nack_reason": pk.NACK_TRIMMED, **reflected, **self._way(),
            }  # fmt: skip
        if sacks:
            base = max(seq - 11 * seq % 64, r.now.cack - 62)  # as may be (row 6): often unaligned
            if r.now.high == r.now.cack and seq % 2:
                base = r.now.cack + 1  # and empty, where nothing is to be shown
            r.reported(base)
            offset = seq - r.now.cack
            yield "sack", self._sack(p, marked, base) | {"ack_psn_offset": offset}
        repeats = sacks and r.now.cack == r.now.high and r.now.done
        if repeats or (verdict == PLACED and r.now.done > done):
            yield "ack", self._ack()

    def _sack(self, p: Mapping[str, int], marked: Mapping[str, int], base: int) -> dict[str, int]:
        now = self._received.now
        return {
            "cack_psn": self._received.psn(now.cack),
            "psn": self._received.psn(now.cack),
            "sack_offset": base - now.cack,
            "sack_bitmap": now.bitmap(base),
            "rcvd_bytes": -(-now.n_bytes // pk.RCVD_UNIT_BYTES) & 0xFF_FFFF,
            "ooo_count": min(now.high - now.cack, 0x7FFF),
            "entropy": p["ev"],
            "tx_timestamp": p["tx_timestamp"],
            "m": pk.M_SKIP_ONCE if marked else pk.M_NONE,
            "rcv_cwnd_pen": self._network.penalty,
            "restore_cwnd": self._network.restore,
            **self._window(),
            **self._way(p["plane"]),
        }

    def _window(self) -> dict[str, int]:
        """The window that a SACK tells, if the network makes it `narrow` at times."""
        narrow = self._network.narrow
        if not narrow:
            return {}
        most = self._received.told.mpr // pk.MPR_UNIT
        return {"mpr": 1 if self._dice.random() * 100 < narrow else most}

    def _ack(self) -> dict[str, int]:
        now = self._received.now
        psn = self._received.psn(now.end - 1)
        return {"syndrome": pk.AETH_ACK, "msn": now.done - 1, "psn": psn, **self._way()}

    def _way(self, plane: int = 0) -> dict[str, int]:
        return {"plane": plane, "class": pk.CLASS_CONTROL}


class Requester:
    """A requester: it sends messages, and again what its network does not deliver."""

    def __init__(self, told: Told, network: Network, planes: int, evs: int) -> None:
        self._told, self._network, self._dice = told, network, network.dice()
        self._planes, self._evs = planes, evs

    def packets(self, n: int, held: Received) -> Iterator[Packet]:
        """Messages of some `n` packets, until all of them are `held`."""
        dice, net = self._dice, self._network
        of = list(self._messages(n, held.now.high + 1, held.now.done))
        last = held.now.high + len(of)
        first = last - len(of) + 1
        waiting, sent = list(range(first, last + 1)), set[int]()
        copies: list[Packet] = []  # that the network still holds
        while waiting or copies:
            if copies and (not waiting or dice.random() < COPY_ARRIVES):
                yield copies.pop(0)
                continue
            seq = self._next(waiting, of, first, held)
            waiting.remove(seq)
            if held.has(seq):
                continue
            if dice.random() * 100 < net.ask:
                yield "probe", {"probe_id": dice.randrange(1 << 16), **self._path(dice)}
            p = of[seq - first] | {"psn": held.psn(seq), **self._path(dice)}
            p["a"] = int(seq in sent or p["ends"] or dice.random() < 0.05)
            del p["ends"]
            p |= {"rtx": int(seq in sent)}
            sent.add(seq)
            p["class"] = pk.CLASS_RETRANSMIT if p["rtx"] else pk.CLASS_DATA
            for wrong in net.falsified("data", p, held.may_take, dice):
                yield "data", wrong
            roll = dice.random() * 100
            if roll < net.loss:
                waiting.append(seq)
                continue
            if roll < net.loss + net.trim:
                waiting.append(seq)
                hop = dice.choice(["trimmed", "trimmed_lasthop"])
                yield "data", p | {hop: 1, "length": 0, "class": pk.CLASS_CONTROL}
                continue
            if dice.random() * 100 < net.mark:
                p["ce"] = 1
            yield "data", p
            if dice.random() * 100 < net.twice:
                copies.append(("data", p | {"rtx": 1, "a": 1}))

    def _next(
        self, waiting: list[int], of: list[dict[str, int]], first: int, held: Received
    ) -> int:
        """Which goes next: the first that the peer's window and its messages have room for, or,
        where packets overtake each other, one behind it.
        """
        now, mpr = held.now, self._told.mpr
        near = [
            seq
            for seq in waiting
            if seq <= now.cack + mpr and (of[seq - first]["msn"] - now.done) % 0x1_0000 < MESSAGES
        ][:8]
        return (
            self._dice.choice(near) if self._dice.random() * 100 < self._network.late else near[0]
        )

    def _messages(self, n: int, seq: int, msn: int) -> Iterator[dict[str, int]]:
        """The packets of messages, one after the other, at addresses of their own."""
        dice, pmtu = self._dice, self._told.pmtu
        va, rkey, room = self._told.region
        end = seq + n
        while seq < end:
            size = dice.choice([1, 1, 2, 3, dice.randrange(4, 40)])
            less = dice.choice([0, 0, 1, 3, pmtu // 2, pmtu - 1, pmtu])
            length = size * pmtu - (less if size == 1 else less % pmtu)
            imm = dice.randrange(1 << 32) if dice.random() < 0.2 else None
            at = va + dice.choice([0, room - length, dice.randrange(room - length + 1)])
            for k in range(size):
                last = k == size - 1
                packet = {
                    "opcode": opcode(k, size, last and imm is not None),
                    "va": at + k * pmtu,
                    "rkey": rkey,
                    "dma_length": length,
                    "length": min(pmtu, length - k * pmtu),
                    "msn": msn & 0xFFFF,
                    "ends": int(last),
                }
                yield packet | ({"imm": imm} if last and imm is not None else {})
            seq, msn = seq + size, msn + 1

    def _path(self, dice: random.Random) -> dict[str, int]:
        plane = dice.randrange(self._planes)
        return {"ev": (plane << 16) + 1 + dice.randrange(self._evs), "plane": plane}
