"""Everything that a target does in an exchange, beside what it must do: the rules that hold always.

    each sack: cack_psn=$.cack_psn

`$.x` is what the model says of the packet. Where it says nothing, as of what a target on a network
may do a little later, nothing is compared. Of each packet that the kit has sent there is an event
`sent`, with how many answers it had, once these must have come.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openmrc.conform import events
from openmrc.conform.events import Event
from openmrc.conform.model import posted, received
from openmrc.conform.model.copies import Copies
from openmrc.conform.model.ways import Ways
from openmrc.conform.model.window import Window
from openmrc.conform.script import Rule, Step
from openmrc.conform.sentences import Sentence, read
from openmrc.engine import packet as pk
from openmrc.units import US

SENT = "sent"  # the kind of the events of the kit's own packets
STAMP_PS = 128_000
FOLLOWS_PS = 2 * US  # a packet that could follow has followed by then (in virtual time)
UNASKED_MAX = 16  # duplicates and the like in a row that are surely answered
_HEARD = (received.PLACED, received.DUPLICATE, received.BEYOND, received.HEADER)
_ANSWERS = ("sack", "nack", "ack", "response")


@dataclass(frozen=True)
class Breach:
    """A rule that did not hold, at a packet; and the packet before it."""

    rule: Rule
    step: Step
    sent: Event | None
    came: Event
    why: str


@dataclass
class _Sent:
    """A packet of the kit, and what came of it."""

    event: Event
    kind: str
    fields: Mapping[str, int]
    right: dict[str, int]
    after: received.Snapshot
    answers: Counter[str] = field(default_factory=Counter)


class Watch:
    """The rules that hold always, beside an exchange."""

    def __init__(self, rules: Sequence[Rule], target: Any, with_: Mapping[str, int]) -> None:
        self.breaches: list[Breach] = []
        self.held: set[str] = set()
        self._rules: dict[str, list[tuple[Rule, Step, Sentence]]] = {}
        for rule in rules:
            for step in rule.steps:
                sentence = read(step)
                self._rules.setdefault(sentence.kind, []).append((rule, step, sentence))
        self._target, self._exact = target, target.patience_ps == 0
        self._with = with_
        planes = with_.get("planes", 2)
        self._all = (1 << planes) - 1
        mpr = with_.get("mpr", 512)
        self.received = received.Received(
            received.Told(
                target.flow_psn["responder"],
                target.pmtu,
                mpr,
                target.region["responder"],
                with_.get("max_wimm", 128),
                with_.get("receives", received.MESSAGES),
                bool(with_.get("trim_nack", 1)),
            )
        )
        va, rkey, _ = target.region["requester"]
        self.posted = posted.Posted(
            posted.Told(
                target.flow_psn["requester"],
                target.pmtu,
                mpr,
                va,
                rkey,
                with_.get("max_wimm", 128),
                bool(with_.get("dynamic_mpr")),
            )
        )
        self._ways: Ways | None = Ways(planes, target.rtt_ps) if self._exact else None
        rate_bps = getattr(target, "rate_bps", 0) * planes  # 0: nobody knows it
        self._window: Window | None = None
        if self._exact and rate_bps:
            trimming = bool(with_.get("trimming", 1) and with_.get("trim_nack", 1))
            self._window = Window(rate_bps, target.rtt_ps, target.pmtu, trimming)
        trims = bool(with_.get("trimming", 1) and with_.get("trim_nack", 1))
        self._copies = Copies(planes, target.rtt_ps, trims)
        self._busy_ps = 0  # when the target last had something to do
        self._sent: list[_Sent] = []
        self._by_psn: dict[int, list[_Sent]] = {}
        self._open: list[_Sent] = []  # whose answers may still come
        self._seen = 0  # events of the log
        self._unasked = 0.0  # answers that a peer need not give without end (`plausible`)
        self._masks = [(-1, self._all, self._all)]  # time, own ports up, the peer's
        self._status_id = 0
        self._asked: dict[int, Mapping[str, int]] = {}  # the target's requests, by id
        self._probe_ids: set[int] = set()
        self._evs: dict[int, set[int]] = {}
        self._stamp: tuple[int, int] | None = None  # time and stamp of a packet
        self._waiting: tuple[Event, int] | None = None  # data that asked for nothing
        self._immediates = self._completions = 0

    # --- what is done to the target

    def sends(self, kind: str, fields: Mapping[str, int]) -> None:
        """The kit sends a packet, now."""
        event = Event(self._target.now_ps, kind, dict(fields))
        right: dict[str, int] = {}
        r = self.received
        if kind == "data":
            right = self._data(fields)
            if right.get("verdict") in _HEARD:
                self._hears(fields)
            if self._ways and right.get("receives") is not None and right["acks"]:
                up = self._ways.planes(self._masks[-1][1] & self._masks[-1][2])
                twice = r.now.cack == r.now.high and not r.under_way and up & up - 1
                right["acks"] = right["acks_max"] = 2 if twice else 1
        elif kind == "probe" and not r.ended:
            if self._ways:
                self._ways.probed(fields["plane"], r.now.n_bytes)
            self._hears(fields)
            repeats = r.now.cack == r.now.high and r.now.done > 0
            right = {"sacks": 1 + (r.now.high > r.now.cack + 64), "nacks": 0, "acks": int(repeats)}
        elif kind in ("sack", "nack", "ack") and not fields.get("frame"):
            self._check_idle()
            heard = self.posted.hears(kind, fields)
            right = {"completions": heard.acked if heard else 0}
            if heard and kind == "nack":
                seq = self.posted.sequence(fields["nack_psn"], self.posted.una)
                self._copies.refused(seq, fields.get("entropy", 0))
            elif heard and kind == "sack":
                ev, marked = fields.get("entropy", 0), bool(fields.get("m"))
                self._copies.reflected(ev, marked, self._target.now_ps)
            if heard and self._window:
                self._clock(self._window, kind, fields, heard)
        elif kind == "request":
            right = {"responses": self._request(fields)}
        elif kind == "response":
            self._response(fields)
        if not self._exact:  # nobody knows which packet brought these
            for name in ("completions", "acks"):
                right.pop(name, None)
        one = _Sent(event, kind, fields, right, r.now)
        if kind in ("sack", "nack"):
            self._ways = None  # the target's own deliveries choose then
        self._sent.append(one)
        if kind == "data":
            self._by_psn.setdefault(fields["psn"], []).append(one)
        self._open.append(one)
        self._waiting = None

    def _clock(self, w: Window, kind: str, p: Mapping[str, int], heard: posted.Heard) -> None:
        """An answer moves the window."""
        now, q = self._target.now_ps, self.posted
        if kind == "nack":
            seq = q.sequence(p["nack_psn"], q.una)
            reason = p.get("nack_reason")
            if w.answers(seq, p.get("entropy", 0)):
                if reason == pk.NACK_TRIMMED:
                    w.trimmed(seq, now)
                elif reason == pk.NACK_TRIMMED_LASTHOP:
                    self._window = None
                else:
                    w.refused(seq)
            w.hears(now)
            return
        w.hears(now)
        if kind == "ack":
            w.acked(heard.fresh, heard.units)
            return
        if p.get("rcv_cwnd_pen") or p.get("restore_cwnd"):
            self._window = None
        cack = q.sequence(p["cack_psn"], q.una - 1)
        rtt = w.sample(cack + p.get("ack_psn_offset", 0), p, heard.said, now)
        w.acked(heard.fresh, heard.units)
        w.on_sack(heard.n_bytes, rtt, p.get("m") == pk.M_SKIP_ONCE, now)

    def _check_idle(self) -> None:
        """Before an answer changes anything: was there something that could leave?"""
        w, now = self._window, self._target.now_ps
        if w and now > self._busy_ps + FOLLOWS_PS and self.posted.una < self.posted.new:
            room = w.flying < w.bytes - w.spare - 1
            self._check(Event(now, "idle", {}), {"may_send": int(room and self.posted.may_send)})
        self._busy_ps = now

    def _hears(self, p: Mapping[str, int]) -> None:
        if self._ways:
            self._ways.hears(p["plane"], p["ev"], self._target.now_ps)

    def posts(self, length: int, imm: int | None) -> None:
        """The application writes."""
        if not self.posted.ended:
            self.posted.post(length, imm)

    def receives(self, n: int) -> None:
        """The application has this many receives posted."""
        self.received.receives = n

    def port(self, number: int, up: bool) -> None:
        """A port of the target goes down or comes up."""
        _, own, peers = self._masks[-1]
        own = own | 1 << number if up else own & ~(1 << number)
        self._masks.append((self._target.now_ps, own, peers))
        self._waiting = self._window = None
        self._copies.planes_calm = False

    def _data(self, p: Mapping[str, int]) -> dict[str, int]:
        r = self.received
        at, done, immediates = r.sequence(p["psn"]), r.now.done, len(r.immediates)
        verdict, sacks = r.take(p)
        complete = r.now.done - done
        nothing_follows = r.now.cack == r.now.high
        right = {"sacks": sacks, "nacks": 0, "acks": 0, "acks_max": 0, "placed": 0}
        if verdict == received.PLACED:
            right["placed"] = 1
            right["va"] = p["va"]
            right["acks"] = int(complete > 0 and not r.ended)
            right["acks_max"] = right["acks"] * (1 + nothing_follows)
            right["receives"] = len(r.immediates) - immediates
        elif verdict == received.DUPLICATE:
            right["acks"] = right["acks_max"] = int(nothing_follows and r.now.done > 0)
        elif verdict == received.BEYOND:
            right["nacks"] = 1
        elif verdict == received.HEADER:
            right["nacks"] = int(r.told.trim_nack)
        elif verdict == received.REFUSED:
            right["acks_max"] = 1  # a NAK, if it persists
        if r.ended:
            right = {"placed": right["placed"]}
        unasked = verdict in (received.DUPLICATE, received.BEYOND)
        self._unasked = max(self._unasked + (1 if unasked else -1 / 16), 0)
        if self._unasked > UNASKED_MAX:
            right, self._ways = {"placed": 0}, None
        if not self._exact:  # it may be late, and what is late is not counted twice
            late = verdict == received.PLACED and at < r._asked
            sure = (
                p.get("a") or p.get("ce") or p.get("rtx") or verdict == received.DUPLICATE or late
            )
            if not (sure and sacks):
                right.pop("sacks", None)
            placed = ("placed",) if verdict == received.PLACED else ()  # later ones may lie over it
            for name in ("acks", "acks_max", "receives", *placed):
                right.pop(name, None)
        return right | {"verdict": verdict}

    def _request(self, p: Mapping[str, int]) -> int:
        """How many responses a request has."""
        op, mask = p.get("op", 0), p.get("port_status_mask", 0)
        if op == pk.OP_EV_PROBE:
            return 1
        if op != pk.OP_PORT_STATUS or not mask >> p.get("plane", p.get("ev", 0) >> 16) & 1:
            return 0
        newer = (p["id"] - self._status_id + 0x8000 & 0xFFFF) - 0x8000 >= 0
        if newer:
            self._status_id = p["id"]
            _, own, _ = self._masks[-1]
            self._masks.append((self._target.now_ps, own, mask & self._all))
            self._window = None
            self._copies.planes_calm = False
        return 1 if self._masks[-1][1] & self._masks[-1][2] else 0

    def _response(self, p: Mapping[str, int]) -> None:
        """The answer to a probe of a plane says that its port is up (row 19)."""
        if self._ways:
            self._ways.answered(p.get("id", -1))
        asked = self._asked.get(p.get("id", -1))
        if asked and asked["op"] == pk.OP_EV_PROBE:
            _, own, peers = self._masks[-1]
            self._masks.append((self._target.now_ps, own, peers | 1 << asked["plane"]))

    # --- what the target does

    def looks(self) -> None:
        """Take what the target has done since, and what it has not."""
        log = self._target.log
        while self._seen < len(log):
            event = log[self._seen]
            self._seen += 1
            right = getattr(self, f"_on_{event.kind}", self._on_other)(event)
            self._check(event, right)
        now = self._target.now_ps
        if self._waiting and now > self._waiting[0].at_ps + FOLLOWS_PS:
            self._check_asked(0)
        late = now - max(self._target.patience_ps * 2, 0)
        while self._open and (self._exact or self._open[0].event.at_ps < late):
            self._close(self._open.pop(0))

    def _close(self, one: _Sent) -> None:
        """The answers to a packet must have come."""
        counts = {f"{kind}s": one.answers[kind] for kind in _ANSWERS}
        counts |= {
            "placed": one.answers[events.DELIVERED],
            "completions": one.answers[events.DONE],
            "receives": one.answers[events.RECEIVED],
        }
        self._check(Event(one.event.at_ps, SENT, {**one.fields, **counts}), one.right, one.event)

    def _on_other(self, _: Event) -> dict[str, int]:
        return {}

    def _on_error(self, _: Event) -> dict[str, int]:
        self.received.ended = self.posted.ended = True
        self._waiting = None
        return {}

    def _on_completion(self, event: Event) -> dict[str, int]:
        right = {"id": self._completions, "acked": int(event.fields["id"] < self.posted.acked)}
        self._completions += 1
        self._credit_last(event)
        return right

    def _on_receive(self, event: Event) -> dict[str, int]:
        right = {"id": self._immediates}
        if self._immediates < len(self.received.immediates):
            right["imm"] = self.received.immediates[self._immediates]
        right["due"] = int(self._immediates < len(self.received.immediates))
        self._immediates += 1
        self._credit_last(event)
        return right

    def _on_delivered(self, event: Event) -> dict[str, int]:
        of = self._by_psn.get(event.fields["psn"], [])
        for one in reversed(of):
            if self._exact or one.right.get("verdict") == received.PLACED or one is of[0]:
                one.answers[event.kind] += 1
                return {"va": one.fields["va"]}
        return {}

    def _credit_last(self, event: Event) -> None:
        if self._exact and self._sent:
            self._sent[-1].answers[event.kind] += 1

    def _on_sack(self, event: Event) -> dict[str, int]:
        p, r = event.fields, self.received
        probe = bool(p["pr"])
        if probe and self._ways and self._sent and self._sent[-1].kind == "probe":
            self._ways.turn = self._sent[-1].fields["plane"] - 1
        right = self._control(event) | self._turn(event)
        trigger = self._trigger(event, "probe" if probe else "data")
        right["reflects"] = int(trigger is not None)
        if trigger is None:
            return right
        trigger.answers["sack"] += 1
        own = trigger.fields
        snapshot = self._snapshot(trigger, p)
        base = r.sequence(p["cack_psn"]) + p["sack_offset"]
        r.reported(base)
        right |= {
            "entropy": own.get("ev", 0),
            "cack_psn": r.psn(snapshot.cack),
            "sack_bitmap": snapshot.bitmap(base),
            "rcvd_bytes": -(-snapshot.n_bytes // pk.RCVD_UNIT_BYTES) & 0xFF_FFFF,
            "beyond": (snapshot.got >> snapshot.cack + 1).bit_count(),
            "span": snapshot.high - snapshot.cack,
            "marked": int(bool(own.get("ce"))),
        }
        if not own.get("unstamped"):
            right["tx_timestamp"] = own.get("tx_timestamp", 0)
        if not probe:
            offset = own["psn"] - right["cack_psn"] & pk.PSN_MASK
            right["ack_psn_offset"] = max(offset - (offset >> 23 << 24), -0x8000)
        if not self._with.get("always_skip_after"):
            right["m"] = pk.M_SKIP_ONCE if own.get("ce") else pk.M_NONE
        dynamic = self._with.get("dynamic_mpr")
        right["mpr"] = r.told.mpr // pk.MPR_UNIT if dynamic else 0
        return right

    def _snapshot(self, trigger: _Sent, p: Mapping[str, int]) -> received.Snapshot:
        """The state that a SACK shows: that after its trigger, or, of one that is made a little
        later, the first that agrees with it.
        """
        if self._exact:
            return self.received.now
        r = self.received
        since = self._sent[self._sent.index(trigger) :]
        for one in since:
            base = r.sequence(p["cack_psn"]) + p["sack_offset"]
            same = r.psn(one.after.cack) == p["cack_psn"]
            if same and one.after.bitmap(base) == p["sack_bitmap"]:
                return one.after
        return trigger.after

    def _on_nack(self, event: Event) -> dict[str, int]:
        right = self._control(event) | self._turn(event)
        trigger = self._trigger(event, "data")
        right["reflects"] = int(trigger is not None)
        if trigger is None:
            return right
        trigger.answers["nack"] += 1
        own = trigger.fields
        verdict = trigger.right.get("verdict")
        right |= {
            "nack_psn": own["psn"],
            "entropy": own.get("ev", 0),
            "tx_timestamp": own.get("tx_timestamp", 0),
        }
        if verdict == received.BEYOND:
            right["nack_reason"] = pk.NACK_PSN_OOR_WINDOW
        elif verdict == received.HEADER:
            last_hop = own.get("trimmed_lasthop")
            right["nack_reason"] = pk.NACK_TRIMMED_LASTHOP if last_hop else pk.NACK_TRIMMED
        return right

    def _on_ack(self, event: Event) -> dict[str, int]:
        p, r = event.fields, self.received
        if self._ways and self._sent and self._sent[-1].kind == "probe":
            self._ways.turn = self._sent[-1].fields["plane"] - 1
        right = self._control(event) | self._turn(event)
        self._credit_last(event)
        if p["syndrome"] != pk.AETH_ACK:
            right["msn"] = r.now.done - 1 & 0xFF_FFFF if self._exact else p["msn"]
            return right
        shot = r.now
        if not self._exact:
            states = [one.after for one in self._sent]
            shot = next((s for s in states if s.done - 1 == p["msn"]), r.now)
        right |= {"msn": shot.done - 1 & 0xFF_FFFF, "psn": r.psn(shot.end - 1)}
        return right

    def _on_data(self, event: Event) -> dict[str, int]:
        p = event.fields
        again = self._waiting is not None
        first, seq = (
            self.posted.una == self.posted.new,
            self.posted.sequence(p["psn"], self.posted.una),
        )
        right = self.posted.sends(p) | self._place(event)
        self._busy_ps = event.at_ps
        if self._window and p["rtx"] and self._window.flies(seq):
            self._window = None  # it was judged lost, or is in doubt
        if self._exact:
            _, own, peers = self._masks[-1]
            right |= self._copies.sends(seq, p, event.at_ps, own & peers)
        if w := self._window:
            right |= {"flying": w.flying, "room": math.ceil(w.bytes - w.spare + 0.5)}
            w.sends(seq, p, event.at_ps, first)
        if again:
            self._check_asked(1)
        if self._exact:
            self._waiting = None if p["a"] or p["rtx"] else (event, len(self._sent))
        if not self._with.get("trim_nack", 1):
            right["no_trim"] = 1
        elif self._exact and not self._probe_ids:  # a trial of a path is not trimmed (row 11)
            right["no_trim"] = 0 if self._with.get("trimming", 1) else 1
        if not self._exact:  # planes are read one by one, and answers may cross it
            unsure = {"new_psn", "sent_before", "shown"}
            unsure |= {"window"} if self._with.get("dynamic_mpr") else set()
            right = {name: value for name, value in right.items() if name not in unsure}
        return right

    def _check_asked(self, followed: int) -> None:
        """Data that asked for nothing was followed by more, or not (row 5)."""
        assert self._waiting is not None
        event, _ = self._waiting
        self._waiting = None
        if not self.posted.ended:
            self._check(Event(event.at_ps, "unasked", event.fields), {"followed": followed}, event)

    def _on_probe(self, event: Event) -> dict[str, int]:
        p = event.fields
        right = self._place(event) | {"known_id": int(p["probe_id"] in self._probe_ids)}
        right["ended"] = int(self.posted.ended)
        self._probe_ids.add(p["probe_id"])
        return right

    def _on_request(self, event: Event) -> dict[str, int]:
        p = event.fields
        right = self._control(event) | self._stamped(event)
        if self._exact:
            right["port_status_mask"] = self._masks[-1][1] if p["op"] == pk.OP_PORT_STATUS else 0
        if p["op"] == pk.OP_EV_PROBE and self._ways:
            if (ev := self._ways.ev[p["plane"]]) is not None:
                right["way_back"] = ev
            self._ways.asks(p["plane"], p["id"], p["ev"])
            right |= self._turn(event) if self._masks[-1][2] == self._all else {}
        elif p["op"] == pk.OP_PORT_STATUS:
            right |= self._turn(event)
        known = self._asked.get(p["id"])
        right["repeats"] = int(known is None or known["op"] == p["op"] == pk.OP_PORT_STATUS)
        self._asked[p["id"]] = p
        return right

    def _on_response(self, event: Event) -> dict[str, int]:
        p = event.fields
        right = self._control(event) | self._stamped(event)
        asked = [one for one in self._sent if one.kind == "request" and one.fields["id"] == p["id"]]
        right["asked"] = int(bool(asked))
        if asked:
            last = asked[-1]
            last.answers["response"] += 1
            right["op"] = last.fields.get("op", 0)
            if right["op"] == pk.OP_EV_PROBE:
                right["plane"] = last.fields.get("plane", 0)
            else:
                right |= self._turn(event)
        return right

    # --- of every packet

    def _control(self, event: Event) -> dict[str, int]:
        p = event.fields
        right = {"plane_up": self._is_up(event.at_ps, p["plane"])}
        if self._exact:
            right["own_path"] = int(p["ev"] >> 16 == p["plane"] or self._came_by(p))
        if self._ways and not (event.kind in ("request", "response") and p["op"] == pk.OP_EV_PROBE):
            ev = self._ways.ev[p["plane"]]
            right |= {} if ev is None else {"ev": ev}
        return right

    def _turn(self, event: Event) -> dict[str, int]:
        """The plane of an answer that takes the planes in turn."""
        if not self._ways:
            return {}
        plane = self._ways.next(self._masks[-1][1] & self._masks[-1][2])
        self._ways.turn = event.fields["plane"]
        return {} if plane is None else {"plane": plane}

    def _came_by(self, p: Mapping[str, int]) -> bool:
        return any(one.fields.get("ev") == p["ev"] for one in self._sent)

    def _place(self, event: Event) -> dict[str, int]:
        """The path of data or of a probe, and the time that it says."""
        p = event.fields
        right = {"plane_up": self._is_up(event.at_ps, p["plane"])}
        evs = self._evs.setdefault(p["plane"], set())
        evs.add(p["ev"])
        right |= {"paths": len(evs), "evs": self._with.get("evs", 4)}
        if self._exact:
            right["ev_plane"] = p["ev"] >> 16
        return right | self._stamped(event)

    def _stamped(self, event: Event) -> dict[str, int]:
        """The time stamp of a packet, by that of the first one."""
        if not self._exact:
            return {}
        stamp, said = event.at_ps // STAMP_PS, event.fields["tx_timestamp"]
        if self._stamp is None:
            self._stamp = stamp, said
        return {"tx_timestamp": stamp - self._stamp[0] + self._stamp[1] & 0xFFFF}

    def _is_up(self, at_ps: int, plane: int) -> int:
        """Whether a plane was up at both ends, now or as long ago as a packet may take."""
        since = at_ps - self._target.patience_ps
        now = [m for m in self._masks if m[0] <= since][-1:]
        later = [m for m in self._masks if m[0] > since]
        states = self._masks[-1:] if self._exact else now + later
        return int(any(own & peers & 1 << plane for _, own, peers in states))

    def _trigger(self, event: Event, kind: str) -> _Sent | None:
        """The packet that a SACK or NACK answers: the latest that agrees with most of it."""
        if self._exact:
            return self._sent[-1] if self._sent and self._sent[-1].kind == kind else None
        best, most = None, 0
        for one in reversed(self._sent):
            if one.kind == kind and (n := _agreement(one.fields, event)) > most:
                best, most = one, n
        return best

    def _check(self, event: Event, right: Mapping[str, int], sent: Event | None = None) -> None:
        """Hold a packet against what is right."""
        for rule, step, sentence in self._rules.get(event.kind, ()):
            fields = event.fields
            if not all(c.holds(right, fields) for c in sentence.chosen):
                continue
            says = [c.says(right, fields) for c in sentence.must]
            if any(each is not None for each in says):
                self.held.add(rule.name)
            if False in says:
                wrong = sentence.must[says.index(False)]
                whole = {t.name: right.get(t.name) for t in wrong.right if t.own}
                why = f"{step.text} ({', '.join(f'{n} is {v}' for n, v in whole.items())})"
                last = sent or (self._sent[-1].event if self._sent else None)
                self.breaches.append(Breach(rule, step, last, event, why))


def _agreement(own: Mapping[str, int], event: Event) -> int:
    """In how many of its three reflected fields an answer agrees with a packet."""
    p = event.fields
    if event.kind == "nack":
        names = own["psn"] == p["nack_psn"]
    elif p["pr"]:
        names = own.get("probe_id") == p["ack_psn_offset"]
    else:
        names = own["psn"] == p["cack_psn"] + p["ack_psn_offset"] & pk.PSN_MASK
    same_time = own.get("tx_timestamp", 0) == p["tx_timestamp"]
    return 2 * int(names) + int(same_time) + int(own.get("ev", 0) == p["entropy"])
