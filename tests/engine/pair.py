"""Two endpoints and a wire between them, in virtual time: the vocabulary of the engine's stories.

A `Pair` is one State with two NICs, 0 and 1, joined by `planes` planes of `evs + backup` paths
each. Queue pair `k` has an end on both; each end sends and receives. Data is pulled from the engine
port by port, as a NIC does, and takes its serialisation time; control packets and probes leave at
once. Everything arrives half a round trip later, unless a story says otherwise:

    pair = Pair(planes=2)
    pair.post(100_000)
    pair.drop(seq=5)
    pair.drive()
    assert pair.sent["rtx"] == 1

Payload is real: bytes of the sender's buffers, written where the responder says. After each call of
the engine its books are compared with the records they summarise (`check`).
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.engine import beliefs, bits, endpoint, fate, ports, requester, setup
from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.engine import verdict as said
from openmrc.engine.ev import (
    ASSUMED_BAD,
    EV_STATES,
    GOOD,
    NONE,
    SKIP,
    TRIED,
    WANTED,
    blame_of,
)
from openmrc.engine.parameters import Variants
from openmrc.jit import compiled, records

US = 1_000_000  # ps
MS = 1000 * US
S = 1000 * MS
FOREVER = 1 << 60
OVERHEAD = 88  # nominal bytes beside the payload
FRAME = 166  # bytes on the wire beside the payload
QPN0 = 16
NAMES = {
    pk.ACKNOWLEDGE: "ack",
    pk.ENDPOINT_REQUEST: "request",
    pk.ENDPOINT_RESPONSE: "response",
    pk.SACK: "sack",
    pk.NACK: "nack",
    pk.PROBE: "probe",
}

Bytes = npt.NDArray[np.uint8]


@compiled
def own_blame(st, i):  # type: ignore[no-untyped-def]
    """Give an EV a record of its own, as its first demotion does."""
    blame_of(st, st.ev[i])


@compiled
def on_packet(st, nic, qi, p, now):  # type: ignore[no-untyped-def]
    """`endpoint.on_packet`, which is compiled into its callers, for Python."""
    return endpoint.on_packet(st, nic, qi, p, now)


@compiled
def next_deadline(st, qi):  # type: ignore[no-untyped-def]
    """The same for `endpoint.next_deadline`."""
    return endpoint.next_deadline(st, qi)


def kind_of(p: Any) -> str:
    """data, rtx, sack, nack, ack, probe, request or response."""
    if p.opcode <= pk.LAST_DATA:
        return "rtx" if p.flag_bits & pk.RTX else "data"
    return NAMES[int(p.opcode)]


@dataclass
class Rule:
    """Something the wire does to packets of a kind, some times or always."""

    do: str
    times: float = FOREVER
    kind: str | None = None
    src: int | None = None
    plane: int | None = None
    ev: int | None = None
    psn: int | None = None
    above: int = -1  # bytes of payload: only packets with more
    by_ps: int = 0

    def takes(self, p: Any) -> bool:
        """True if the rule acts on this packet; counts it."""
        if self.times <= 0 or self.psn not in (None, int(p.psn)):
            return False  # the quick way out of the many rules of a story with many losses
        kind = kind_of(p)
        if (
            (self.kind not in (None, kind) and not (self.kind == "payload" and kind in DATA))
            or self.src not in (None, int(p.src))
            or self.plane not in (None, int(p.plane))
            or self.ev not in (None, int(p.ev))
            or int(p.payload_len) <= self.above
        ):
            return False
        self.times -= 1
        return True


DATA = ("data", "rtx")


@dataclass(frozen=True)
class Logged:
    """A packet that left an endpoint."""

    at: int
    kind: str
    p: Any


class Pair:
    """Two endpoints, the wire between them, their memory and a clock."""

    def __init__(
        self,
        *,
        planes: int = 2,
        evs: int = 4,
        backup: int = 0,
        qps: int = 1,
        pmtu: int = 4096,
        mpr: int = 512,
        rtt_us: int = 8,
        rate_gbps: int = 100,
        rto_exponent: int = 8,
        linear_cnt: int = 7,
        exp_cnt: int = 10,
        first_psn: int = 1000,
        messages: int = 64,
        max_wimm: int = 128,
        region_bytes: int = 4 << 20,
        seed: int = 1,
        checked: bool = True,
        **config: Any,
    ) -> None:
        self.planes, self.n_qps, self.pmtu, self.checked = planes, qps, pmtu, checked
        self.now = 0
        self.rate_bps = rate_gbps * 10**9
        frame_ps = (pmtu + FRAME) * 8 * 10**12 // self.rate_bps
        self.one_way_ps = (rtt_us * US - frame_ps) // 2
        n, per_plane = 2 * qps, evs + backup
        known = {field.name for field in fields(Variants)}
        parameters = Variants(
            pmtu=pmtu,
            rto_exponent=rto_exponent,
            linear_cnt=linear_cnt,
            exp_cnt=exp_cnt,
            max_wimm=max_wimm,
            **{name: value for name, value in config.items() if name in known},
        )
        world = {"nominal_overhead": OVERHEAD, "trimming": 1} | {
            name: value for name, value in config.items() if name not in known
        }
        st = setup.new_state(
            parameters,
            setup.Rooms(n, planes, mpr, messages, messages, planes * per_plane, per_plane),
            nics=2,
            peers=2,
            regions=n,
            port_rate_bps=self.rate_bps,
            base_rtt_ps=rtt_us * US,
            **world,
        )
        self.st = st
        index = np.arange(n)
        q = st.qp
        q.nic = index // qps
        q.peer_nic = 1 - q.nic
        q.peer = q.nic
        q.qpn = QPN0 + index
        q.peer_qpn = QPN0 + (index + qps) % n
        q.first_psn = (first_psn + 7919 * q.nic) & pk.PSN_MASK
        q.peer_psn = np.roll(q.first_psn, qps)
        for plane in range(planes):
            values = np.tile((plane << 16) + 1 + np.arange(per_plane), (n, 1))
            setup.set_paths(st, index, plane, values, evs)
        st.stream[:] = bits.seed_streams(seed, 0, n)
        setup.set_nics(st, planes, pmtu + FRAME)
        setup.set_peers(st.peer, [1, 0], [0, qps], planes)
        st.nic.qp0, st.nic.n_qps = [0, qps], qps
        st.nic.peer0, st.nic.n_peers = [0, 1], 1
        st.region.nic = q.nic
        st.region.length = region_bytes
        st.region.va = (1 << 32) + index * (1 << 30)
        st.region.rkey = index | (77 << es.REGION_INDEX_BITS)
        for qi in range(n):
            setup.open_qp(st, qi)
        self.memory = np.zeros((n, region_bytes), np.uint8)  # [region = QP end, offset]
        self.writes = np.zeros((n, region_bytes), np.uint8)  # how often each byte was placed
        self.expected = np.zeros((n, region_bytes), np.uint8)
        self.ahead = np.zeros(n, np.int64)  # next offset to post to, by region
        self.sources: dict[tuple[int, int], Bytes] = {}
        self.rng = np.random.default_rng(seed)
        self.sent: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()  # on what arrived, by text
        self.log: list[Logged] = []
        self.completions: list[tuple[int, int, int, int]] = []
        self.wanted = 0  # messages posted
        self.rules: list[Rule] = []
        self.flights: list[tuple[int, int, Any, Bytes | None]] = []
        self.count = itertools.count()
        self.port_free_at = [[0] * planes, [0] * planes]
        self.scratch = records(1, pk.PACKET)[0]
        self.turn = [0, 0]

    # --- what a story reads

    @property
    def q(self) -> Any:
        """The first QP's end on NIC 0: the sender of most stories."""
        return self.st.qp[0]

    @property
    def r(self) -> Any:
        """The other end of the first QP."""
        return self.st.qp[self.n_qps]

    @property
    def rtt(self) -> int:
        """Base round trip, ps."""
        return int(self.st.config[0].base_rtt_ps)

    @property
    def rto(self) -> int:
        return int(self.q.rto)

    def ev(self, plane: int, k: int) -> int:
        """Value of the k-th EV of a plane."""
        return (plane << 16) | (k + 1)

    def ev_index(self, plane: int, k: int) -> int:
        """Its index within a QP."""
        return plane * int(self.q.order_len) + k

    def path(self, plane: int, k: int, qp: int = 0) -> Any:
        """Its record."""
        return self.st.ev[int(self.st.qp[qp].ev0) + self.ev_index(plane, k)]

    def blame(self, plane: int, k: int, qp: int = 0) -> Any:
        """What is kept of it since it was first ASSUMED_BAD."""
        return self.blame_at(int(self.st.qp[qp].ev0) + self.ev_index(plane, k))

    def blame_at(self, i: int) -> Any:
        """The same of the EV with this index."""
        own_blame(self.st, i)
        return self.st.blame[int(self.st.ev[i].blame)]

    def path_state(self, plane: int, k: int, qp: int = 0) -> str:
        """GOOD, SKIP, ASSUMED_BAD or DENIED."""
        return EV_STATES[int(self.path(plane, k, qp).state)]

    def path_states(self, plane: int) -> str:
        """The states of a plane's EVs by first letter: GGSA."""
        return "".join(self.path_state(plane, k)[0] for k in range(int(self.q.order_len)))

    def plane(self, plane: int, qp: int = 0) -> Any:
        return self.st.plane[int(self.st.qp[qp].plane0) + plane]

    def slot(self, seq: int) -> Any:
        q = self.q
        return self.st.slot[int(q.slot0) + (seq & int(q.slot_mask))]

    def psn(self, seq: int) -> int:
        """PSN of a sequence number of the first sender."""
        return (int(self.q.first_psn) + seq) & pk.PSN_MASK

    def seq(self, p: Any) -> int:
        """The reverse, for data packets of the first sender."""
        return (int(p.psn) - int(self.q.first_psn)) & pk.PSN_MASK

    def packets(self, *kinds: str, src: int | None = None, since: int = 0) -> list[Logged]:
        """What was sent, in order."""
        return [
            x for x in self.log if x.kind in kinds and src in (None, int(x.p.src)) and x.at >= since
        ]

    def done(self, kind: int = es.DONE_SEND) -> list[int]:
        """Ids of completions of a kind, in order."""
        return [c[2] for c in self.completions if c[0] == kind]

    def immediates(self) -> list[int]:
        return [c[3] for c in self.completions if c[0] == es.DONE_RECV_IMM]

    def deadline(self, qi: int) -> int:
        """The earliest timer of a QP."""
        return int(next_deadline(self.st, qi))

    def error(self, qi: int = 0) -> str:
        return es.ERROR_TEXTS[int(self.st.qp[qi].error)]

    # --- what a story does

    def post(
        self,
        size: int,
        imm: int | None = None,
        *,
        src: int = 0,
        qp: int = 0,
        offset: int | None = None,
        rkey: int | None = None,
        pump: bool = True,
    ) -> bool:
        """Post a write of random bytes to the peer's region, by default after the one before."""
        qi = src * self.n_qps + qp
        region = (qi + self.n_qps) % (2 * self.n_qps)
        r = self.st.region[region]
        data = self.rng.integers(1, 256, size, np.uint8)
        at = int(self.ahead[region]) if offset is None else offset
        q = self.st.qp[qi]
        number = int(q.msg_end)
        key = int(r.rkey) if rkey is None else rkey
        accepted = requester.post_write(
            self.st,
            qi,
            self.wanted,
            size,
            int(r.va) + at,
            key,
            requester.NO_IMM if imm is None else imm,
        )
        if not accepted:
            return False
        self.sources[qi, number] = data
        self.wanted += 1
        if offset is None:
            self.ahead[region] += size
        if at >= 0 and at + size <= int(r.length):
            self.expected[region, at : at + size] = data
        if pump:
            self._pump()
        return True

    def _rule(self, do: str, times: float, seq: int | None, **how: Any) -> Rule:
        if seq is not None:
            how["psn"] = self.psn(seq)
        rule = Rule(do, times, **how)
        self.rules.append(rule)
        return rule

    def cut(self, **where: Any) -> Rule:
        """Lose everything on a plane, an EV, from a NIC ..., silently, until `heal`."""
        return self._rule("drop", FOREVER, None, **where)

    def heal(self, rule: Rule | None = None) -> None:
        """End one rule, or all."""
        self.rules = [r for r in self.rules if rule is not None and r is not rule]

    def drop(self, next: int = 1, *, seq: int | None = None, **which: Any) -> Rule:
        """Lose the next packets: data unless `kind` says otherwise."""
        which.setdefault("kind", "payload")
        return self._rule("drop", next, seq, **which)

    def trim(
        self, next: int = 1, *, seq: int | None = None, last_hop: bool = False, **which: Any
    ) -> Rule:
        """Cut the payload off the next data packets."""
        which.setdefault("kind", "payload")
        return self._rule("trim at last hop" if last_hop else "trim", next, seq, **which)

    def mark(self, next: float = FOREVER, *, seq: int | None = None, **which: Any) -> Rule:
        """Set CE."""
        return self._rule("mark", next, seq, **which)

    def delay(self, us: float, next: float = 1, *, seq: int | None = None, **which: Any) -> Rule:
        """Let packets arrive later."""
        return self._rule("delay", next, seq, by_ps=int(us * US), **which)

    def duplicate(
        self, next: int = 1, *, seq: int | None = None, us: float = 0, **which: Any
    ) -> Rule:
        """Deliver packets a second time, `us` later."""
        which.setdefault("kind", "payload")
        return self._rule("duplicate", next, seq, by_ps=int(us * US), **which)

    def port(self, nic: int, port: int, up: bool, noticed: bool = True) -> None:
        """A NIC's port goes down or up, both directions; `noticed` by the NIC."""
        where = [r for r in self.rules if r.do == f"port {nic}"]
        if up:
            self.rules = [r for r in self.rules if not (r in where and r.plane == port)]
        else:
            self.rules.append(Rule(f"port {nic}", plane=port))
        if noticed:
            ports.set_local_port(self.st, nic, port, int(up), self.now)
            self._after()
            self._pump()

    def deny(self, plane: int, k: int, denied: bool = True, nic: int = 0) -> None:
        """The denylist of a NIC takes an EV of its first QP, or gives it back."""
        q = self.st.qp[nic * self.n_qps]
        beliefs.deny(self.st, q, self.ev_index(plane, k), int(denied), self.now)
        self._after()
        self._pump()

    def inject(self, nic: int, opcode: int, qp: int = 0, **fields: int) -> list[Any]:
        """Hand a packet to a NIC as if it had arrived now; what that NIC sends at once."""
        p = records(1, pk.PACKET)[0]
        p.opcode = opcode
        p.src, p.dst = 1 - nic, nic
        p.dst_qpn = QPN0 + nic * self.n_qps + qp
        if opcode in (pk.ENDPOINT_REQUEST, pk.ENDPOINT_RESPONSE):
            p.dst_qpn = pk.ENDPOINT_QPN
        for name, value in fields.items():
            p[name] = value
        before = len(self.log)
        self._receive(p, np.zeros(int(p.payload_len), np.uint8))
        self._pump()
        return [x.p for x in self.log[before:]]

    def nack(self, seq: int, reason: int, entropy: int | None = None) -> None:
        """The sender hears a NACK about a packet in flight."""
        value = entropy
        if value is None:
            value = int(self.st.ev[int(self.q.ev0) + int(self.slot(seq).ev)].value)
        self.inject(0, pk.NACK, psn=self.psn(seq), reason=reason, entropy=value)

    def sack(self, cack: int, got: set[int] | None = None, **fields: int) -> None:
        """The sender hears a SACK: all up to `cack` received, and `got` beyond."""
        got = got or set()
        base = cack + 1
        word = sum(1 << (s - base) for s in got if base <= s < base + 64)
        fields.setdefault("rcvd_units", -(-(cack + 1 + len(got)) * (self.pmtu + OVERHEAD) // 256))
        p: dict[str, Any] = {
            "cack_psn": self.psn(cack),
            "sack_offset": 1,
            "bitmap": np.uint64(word),
        }
        trigger = fields.pop("trigger", cack)
        p["ack_offset"] = trigger - cack
        if trigger >= 0 and "entropy" not in fields:
            ev = int(self.slot(trigger).ev)
            p["entropy"] = int(self.st.ev[int(self.q.ev0) + ev].value)
        self.inject(0, pk.SACK, **(p | fields))

    def set_mpr(self, packets: int) -> None:
        """The receiver announces another window from now on."""
        receiver = self.st.qp[self.n_qps]
        receiver.mpr_now = min(packets, int(receiver.rx_mpr))

    def advance(self, us: float = 0, ps: int = 0) -> None:
        """Let time pass."""
        self._run(self.now + int(us * US) + ps, stop_when_done=False)

    def drive(self, limit_us: float = 1_000_000, errors: bool = False) -> None:
        """Run until every posted message completed or, where the story expects `errors`, its QP is
        in error; fail at the limit.
        """
        self._run(self.now + int(limit_us * US), stop_when_done=True)
        assert errors or not np.any(self.st.qp.state == es.ERROR), self.error(0) + self.error(-1)
        assert self.settled(), f"not settled after {limit_us} us: {self.summary()}"

    def until(self, condition: Callable[[], Any], limit_us: float = 100_000) -> None:
        """Run, event by event, until something holds."""
        end = self.now + int(limit_us * US)
        while not condition():
            at = self.next_at()
            assert at <= end, f"still not so after {limit_us} us: {self.summary()}"
            self._run(max(at, self.now), stop_when_done=False)

    def settled(self) -> bool:
        """True if nothing posted waits for its completion at a QP that still works."""
        q = self.st.qp
        return bool(np.all((q.msg_done == q.msg_end) | (q.state == es.ERROR)))

    def run_out(self) -> None:
        """Let all that is on the wire arrive."""
        self.advance(us=5 * self.rtt / US)

    def summary(self) -> str:
        q = self.q
        return (
            f"now {self.now}, una {q.una}, nxt {q.nxt}, lost {q.lost}, inflight {q.inflight}, "
            f"cwnd {q.cwnd:.0f}, planes_ok {q.planes_ok:b}, sent {dict(self.sent)}, "
            f"dropped {dict(self.dropped)}"
        )

    def assert_intact(self) -> None:
        """Every byte of every message posted is at its place, placed once."""
        assert np.array_equal(self.memory, self.expected)
        assert int(self.writes.max(initial=0)) <= 1
        assert int(self.writes.sum()) == sum(len(s) for s in self.sources.values())

    # --- the clock

    def _run(self, until: int, stop_when_done: bool) -> None:
        self._pump()
        while not (stop_when_done and self.settled()):
            at = self.next_at()
            if at > until:
                break
            self.now = max(self.now, at)
            self._step()
        if not stop_when_done:
            self.now = max(self.now, until)

    def next_at(self) -> int:
        at = min((self.deadline(qi) for qi in range(len(self.st.qp))), default=FOREVER)
        at = min(at, int(self.st.nic.deadline.min()))
        if self.flights:
            at = min(at, self.flights[0][0])
        for nic in (0, 1):
            at = min(at, *(t if t > self.now else FOREVER for t in self.port_free_at[nic]))
        return at

    def _step(self) -> None:
        """All that is due now: arrivals, then timers, then sending."""
        now = self.now
        while self.flights and self.flights[0][0] <= now:
            _, _, p, payload = heapq.heappop(self.flights)
            self._receive(p, payload)
        for qi in range(len(self.st.qp)):
            if self.deadline(qi) <= now:
                endpoint.on_deadline(self.st, qi, now)
                self._after(qi)
                assert self.deadline(qi) > now, "a timer that stays due"
        for nic in (0, 1):
            if int(self.st.nic[nic].deadline) <= now:
                endpoint.on_nic_deadline(self.st, nic, now)
                self._after()
        self._pump()

    def _pump(self) -> None:
        """Give every free port a packet, QP by QP in turn."""
        for nic in (0, 1):
            passed = 0
            while passed < self.n_qps:
                free = sum(1 << p for p, at in enumerate(self.port_free_at[nic]) if at <= self.now)
                qi = nic * self.n_qps + self.turn[nic] % self.n_qps
                self.turn[nic] += 1
                passed = 0 if free and self.pull(qi, free) else passed + 1

    def pull(self, qi: int, free: int) -> bool:
        """Ask a QP for a packet, given the mask of free ports; False if it has none."""
        q = self.st.qp[qi]
        inflight, again, cwnd, una = (
            int(q.inflight),
            int(q.inflight_again),
            float(q.cwnd),
            int(q.una),
        )
        plane = endpoint.next_packet(self.st, q, free, self.now, self.scratch)
        if plane < 0:
            return False
        p = self.scratch.copy()
        seq, number = (int(self.st.count[i]) for i in (es.SENT_SEQ, es.SENT_MESSAGE))
        assert p.psn == (int(q.first_psn) + seq) & pk.PSN_MASK
        held = again if p.flag_bits & pk.RTX else inflight
        assert held < cwnd, "sent against the window"
        assert seq < una + int(q.mpr), "sent beyond the PSN window"
        assert (free >> plane) & 1, "sent through a busy port"
        m = self.st.message[int(q.msg0) + (number & int(q.msg_mask))]
        at = int(p.va) - int(m.remote_va)
        payload = self.sources[qi, number][at : at + int(p.payload_len)]
        tx = (int(p.payload_len) + FRAME) * 8 * 10**12 // self.rate_bps
        self.port_free_at[int(q.nic)][plane] = self.now + tx
        self._launch(p, payload, tx)
        if self.checked:
            self.check(qi)
        return True

    def _launch(self, p: Any, payload: Bytes | None, tx: int) -> None:
        kind = kind_of(p)
        self.sent[kind] += 1
        self.log.append(Logged(self.now, kind, p.copy()))
        at = self.now + tx + self.one_way_ps
        for rule in self.rules:
            if rule.do.startswith("port") and rule.takes(p):
                self.dropped[kind] += 1
                return
        copies = [at]
        for rule in self.rules:
            if rule.do.startswith("port") or not rule.takes(p):
                continue
            if rule.do == "drop":
                self.dropped[kind] += 1
                return
            if rule.do.startswith("trim") and not p.flag_bits & pk.NO_TRIM:
                p.flag_bits |= pk.TRIMMED if rule.do == "trim" else pk.TRIMMED_LASTHOP
                self.dropped["trimmed"] += 1
                payload = None
            elif rule.do == "mark":
                p.flag_bits |= pk.CE
            elif rule.do == "delay":
                copies[0] += rule.by_ps
            elif rule.do == "duplicate":
                copies.append(at + rule.by_ps)
        for when in copies:
            heapq.heappush(self.flights, (when, next(self.count), p.copy(), payload))

    def _receive(self, p: Any, payload: Bytes | None) -> None:
        qi = endpoint.NOBODY if p.dst_qpn == pk.ENDPOINT_QPN else int(p.dst_qpn) - QPN0
        verdict = int(on_packet(self.st, int(p.dst), qi, p, self.now))
        self.verdicts[said.VERDICT_TEXTS[verdict]] += 1
        if verdict == said.PLACED:
            assert payload is not None, "a trimmed packet was placed"
            self._place(payload)
        self._after(qi if qi >= 0 else None)

    def _place(self, payload: Bytes) -> None:
        count = self.st.count
        region, at = int(count[es.PLACED_REGION]), int(count[es.PLACED_OFFSET])
        length = int(count[es.PLACED_LENGTH])
        assert length == len(payload)
        self.memory[region, at : at + length] = payload
        self.writes[region, at : at + length] += 1

    def _after(self, qi: int | None = None) -> None:
        """After a call of the engine: what it wants sent, what it completed, its books."""
        count = self.st.count
        for i in range(int(count[es.OUT])):
            self._launch(self.st.out[i].copy(), None, 0)
        for i in range(int(count[es.DONE])):
            c = self.st.done[i]
            self.completions.append((int(c.kind), int(c.qp), int(c.id), int(c.imm)))
        count[es.OUT] = count[es.DONE] = 0
        if self.checked:
            for i in range(len(self.st.qp)) if qi is None else (qi,):
                self.check(i)

    # --- the books

    def check(self, qi: int) -> None:
        """Every sum and count that the engine keeps equals what it summarises."""
        st = self.st
        q = st.qp[qi]
        first = int(q.slot0)
        slots = st.slot[first : first + int(q.slot_mask) + 1]
        again = slots["before"] != fate.NONE
        sent_bytes = slots["bytes_nominal"] * (slots["fate"] == fate.SENT)
        waits = np.isin(slots["fate"], fate.WAITING)
        assert int(q.inflight) == int(sent_bytes.sum())
        assert int(q.inflight_again) == int(sent_bytes[again].sum())
        assert int(q.lost) == int(np.count_nonzero(waits))
        assert 0 <= int(q.una) <= int(q.nxt) <= int(q.una) + int(q.slot_mask) + 1
        if int(q.state) != es.RTS:
            return
        if q.lost:
            assert q.lost_hint <= self._first_lost(q, waits)
        ev0 = int(q.ev0)
        states = st.ev["state"][ev0 : ev0 + int(q.n_evs)]
        active = st.ev["active"][ev0 : ev0 + int(q.n_evs)]
        assert int(q.n_bad) == int(np.count_nonzero(states == ASSUMED_BAD))
        usable = (states == GOOD) | (states == SKIP)
        assert not np.any((active == 1) & ~usable), "an unusable EV in the rotation"
        asked = st.blame["probe_id"][st.ev["blame"][ev0 : ev0 + int(q.n_evs)]]
        assert not np.any((asked < NONE) & (states != ASSUMED_BAD)), "a usable EV is on trial"
        assert int(q.waiting) == int(np.count_nonzero(asked == WANTED))
        assert int(q.tried) == int(np.count_nonzero(asked == TRIED))
        for number in range(int(q.n_planes)):
            plane = st.plane[int(q.plane0) + number]
            own = slice(int(plane.ev0), int(plane.ev0) + int(plane.n_evs))
            assert int(plane.n_good) == int(np.count_nonzero(usable[own]))
            at = int(q.order0) + number * int(q.order_len)
            rotation = st.order[at : at + int(plane.n_active)]
            assert sorted(rotation) == list(own.start + np.flatnonzero(active[own]))
            assert int(plane.n_active) <= int(plane.share)

    def _first_lost(self, q: Any, waits: Any) -> int:
        seq = int(q.una)
        while not waits[seq & int(q.slot_mask)]:
            seq += 1
        return seq
