"""A target as a responder: what each of its answers must say, and which each packet must bring."""

from __future__ import annotations

from collections.abc import Mapping

from openmrc.conform.events import Event
from openmrc.conform.model import received
from openmrc.conform.model.between import AGED_BYTES, AGED_MESSAGES, Between, Sent
from openmrc.conform.model.received import Received
from openmrc.conform.model.ways import Ways
from openmrc.engine import packet as pk

UNASKED_MAX = 16  # duplicates and the like in a row that are surely answered
_HEARD = (received.PLACED, received.DUPLICATE, received.BEYOND, received.HEADER)


class Answering:
    """The responder of a target."""

    def __init__(self, link: Between) -> None:
        target, with_ = link.target, link.with_
        self._link = link
        self.received = Received(
            received.Told(
                target.flow_psn["responder"],
                target.pmtu,
                with_.get("mpr", 512),
                target.region["responder"],
                with_.get("max_wimm", 128),
                with_.get("receives", received.MESSAGES),
                bool(with_.get("trim_nack", 1)),
                AGED_MESSAGES * with_.get("aged", 0),
                AGED_BYTES * with_.get("aged", 0),
            )
        )
        # Where an EV is one end's source port, answers have an EV of their own.
        follows = link.exact and not getattr(target, "local_evs", False)
        self._ways: Ways | None = Ways(link.planes, target.rtt_ps) if follows else None
        self._by_psn: dict[int, list[Sent]] = {}
        self._unasked = 0.0  # answers that a peer need not give without end
        self._status_id = 0
        self._asked: dict[int, Mapping[str, int]] = {}  # the target's requests, by id
        self._immediates = 0
        self._shows_own = True  # the last SACK of data

    # --- what the kit sends

    def data(self, p: Mapping[str, int]) -> dict[str, int]:
        """Data arrives: what must come of it."""
        r = self.received
        right = self._data(p)
        if right.get("verdict") in _HEARD:
            self._hears(p)
        if self._ways and right.get("receives") is not None and right["acks"]:
            planes = self._ways.planes(self._link.up)
            twice = r.now.cack == r.now.high and not r.under_way and planes & planes - 1
            right["acks"] = right["acks_max"] = 2 if twice else 1
        return right

    def probe(self, p: Mapping[str, int]) -> dict[str, int]:
        """A probe arrives: what must come of it."""
        r = self.received
        if r.ended:
            return {}
        if self._ways:
            self._ways.probed(p["plane"], r.now.n_bytes)
        self._hears(p)
        right = {"sacks": 1 + (r.now.high > r.now.cack + 64), "nacks": 0}
        if self._link.exact:
            right["acks"] = int(r.now.cack == r.now.high and r.now.done > 0)
        return right

    def remember(self, one: Sent) -> None:
        """A packet has been sent."""
        if one.kind == "data":
            self._by_psn.setdefault(one.fields["psn"], []).append(one)
        elif one.kind in ("sack", "nack"):
            self._ways = None  # the target's own deliveries choose its ways then

    def request(self, p: Mapping[str, int]) -> int:
        """A request arrives: how many responses must come."""
        op, mask = p.get("op", 0), p.get("port_status_mask", 0)
        if op == pk.OP_EV_PROBE:
            return 1
        if op != pk.OP_PORT_STATUS or not mask >> p.get("plane", p.get("ev", 0) >> 16) & 1:
            return 0
        newer = (p["id"] - self._status_id + 0x8000 & 0xFFFF) - 0x8000 >= 0
        if newer:
            self._status_id = p["id"]
            self._link.turns(self._link.own_up, mask & self._link.all_up)
        return 1 if self._link.up else 0

    def response(self, p: Mapping[str, int]) -> None:
        """The answer to a probe of a plane says that its port is up (row 19)."""
        if self._ways:
            self._ways.answered(p.get("id", -1))
        asked = self._asked.get(p.get("id", -1))
        if asked and asked["op"] == pk.OP_EV_PROBE:
            self._link.turns(self._link.own_up, self._link.peers_up | 1 << asked["plane"])

    def _data(self, p: Mapping[str, int]) -> dict[str, int]:
        r = self.received
        at, done, immediates = r.sequence(p["psn"]), r.now.done, len(r.immediates)
        verdict, sacks = r.take(p)
        complete = r.now.done - done
        nothing_follows = r.now.cack == r.now.high
        right = {"sacks": sacks, "nacks": 0, "acks": 0, "acks_max": 0, "placed": 0}
        if verdict == received.PLACED:
            right["placed"] = 1
            if not p["length"]:
                del right["placed"]  # nobody sees it
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
        if not self._link.exact:  # it may be late, and what is late is not counted twice
            late = verdict == received.PLACED and at < r._asked
            sure = (
                p.get("a") or p.get("ce") or p.get("rtx") or verdict == received.DUPLICATE or late
            )
            if not (sure and sacks) or verdict == received.HEADER:
                right.pop("sacks", None)
            placed = ("placed",) if verdict == received.PLACED else ()  # later ones may lie over it
            for name in ("acks", "acks_max", "receives", *placed):
                right.pop(name, None)
        return right | {"verdict": verdict}

    def _hears(self, p: Mapping[str, int]) -> None:
        if self._ways:
            self._ways.hears(p["plane"], p["ev"], self._link.now_ps)

    # --- what the target does

    def on_sack(self, event: Event) -> dict[str, int]:
        """The target has sent a SACK."""
        p, r = event.fields, self.received
        probe = bool(p["pr"])
        self._after_probe()
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
            right |= self._turn_of_blocks(base, r.sequence(own["psn"]), snapshot.cack)
        if not self._link.with_.get("always_skip_after"):
            right["m"] = pk.M_SKIP_ONCE if own.get("ce") else pk.M_NONE
        dynamic = self._link.with_.get("dynamic_mpr")
        right["mpr"] = r.told.mpr // pk.MPR_UNIT if dynamic else 0
        return right

    def _turn_of_blocks(self, base: int, seq: int, cack: int) -> dict[str, int]:
        """Blocks alternate (row 6): this SACK or the last one is of its own trigger's block."""
        before, self._shows_own = self._shows_own, seq <= cack or base <= seq < base + 64
        return {"own_block": int(before or self._shows_own)} if self._link.exact else {}

    def _snapshot(self, trigger: Sent, p: Mapping[str, int]) -> received.Snapshot:
        """The state that a SACK shows: that after its trigger, or, of one that is made a little
        later, the first that agrees with it.
        """
        if self._link.exact:
            return self.received.now
        r = self.received
        since = self._link.sent[self._link.sent.index(trigger) :]
        for one in since:
            base = r.sequence(p["cack_psn"]) + p["sack_offset"]
            same = r.psn(one.after.cack) == p["cack_psn"]
            if same and one.after.bitmap(base) == p["sack_bitmap"]:
                return one.after
        return trigger.after

    def on_nack(self, event: Event) -> dict[str, int]:
        """The target has sent a NACK."""
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

    def on_ack(self, event: Event) -> dict[str, int]:
        """The target has sent an ACK or a NAK."""
        p, r = event.fields, self.received
        self._after_probe()
        right = self._control(event) | self._turn(event)
        if p["syndrome"] != pk.AETH_ACK:
            right["msn"] = r.now.done - 1 & 0xFF_FFFF if self._link.exact else p["msn"]
            return right
        shot = r.now
        if not self._link.exact:
            states = [one.after for one in self._link.sent]
            shot = next((s for s in states if s.done - 1 == p["msn"]), r.now)
        right |= {"msn": shot.done - 1 & 0xFF_FFFF, "psn": r.psn(shot.end - 1)}
        return right

    def on_delivered(self, event: Event) -> dict[str, int]:
        """A payload is in place."""
        of = self._by_psn.get(event.fields["psn"], [])
        for one in reversed(of):
            if self._link.exact or one.right.get("verdict") == received.PLACED or one is of[0]:
                one.answers[event.kind] += 1
                return {"va": one.fields["va"]}
        return {}

    def on_receive(self, _: Event) -> dict[str, int]:
        """A receive has completed."""
        right = {"id": self._immediates}
        if self._immediates < len(self.received.immediates):
            right["imm"] = self.received.immediates[self._immediates]
        right["due"] = int(self._immediates < len(self.received.immediates))
        self._immediates += 1
        return right

    def on_request(self, event: Event) -> dict[str, int]:
        """The target has sent a request."""
        p = event.fields
        right = self._control(event) | self._link.stamped(event)
        if self._link.exact:
            right["port_status_mask"] = self._link.own_up if p["op"] == pk.OP_PORT_STATUS else 0
        if p["op"] == pk.OP_EV_PROBE and self._ways:
            if (ev := self._ways.ev[p["plane"]]) is not None:
                right["way_back"] = ev
            self._ways.asks(p["plane"], p["id"], p["ev"])
            if self._link.peers_up == self._link.all_up:
                right |= self._turn(event)
        elif p["op"] == pk.OP_PORT_STATUS:
            right |= self._turn(event)
        if p["op"] == pk.OP_EV_PROBE and self._link.exact and self._link.up == self._link.all_up:
            half_ps = self._link.target.rtt_ps // 2  # a base round trip may have been measured
            right["data_lately"] = int(event.at_ps < self._link.data_ps + half_ps)
        known = self._asked.get(p["id"])
        right["repeats"] = int(known is None or known["op"] == p["op"] == pk.OP_PORT_STATUS)
        self._asked[p["id"]] = p
        return right

    def on_response(self, event: Event) -> dict[str, int]:
        """The target has answered a request."""
        p = event.fields
        right = self._control(event) | self._link.stamped(event)
        asked = [
            one for one in self._link.sent if one.kind == "request" and one.fields["id"] == p["id"]
        ]
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

    def _control(self, event: Event) -> dict[str, int]:
        """The path of every answer."""
        p = event.fields
        right = {"plane_up": self._link.is_up(event.at_ps, p["plane"])}
        if self._link.exact:
            right["own_path"] = int(p["ev"] >> 16 == p["plane"] or self._came_by(p))
        if self._ways and not (event.kind in ("request", "response") and p["op"] == pk.OP_EV_PROBE):
            ev = self._ways.ev[p["plane"]]
            right |= {} if ev is None else {"ev": ev}
        return right

    def _turn(self, event: Event) -> dict[str, int]:
        """The plane of an answer that takes the planes in turn."""
        if not self._ways:
            return {}
        plane = self._ways.next(self._link.up)
        self._ways.turn = event.fields["plane"]
        return {} if plane is None else {"plane": plane}

    def _after_probe(self) -> None:
        """What answers a probe begins on its plane."""
        if self._ways and (probe := self._link.last("probe")):
            self._ways.turn = probe.fields["plane"] - 1

    def _came_by(self, p: Mapping[str, int]) -> bool:
        return any(one.fields.get("ev") == p["ev"] for one in self._link.sent)

    def _trigger(self, event: Event, kind: str) -> Sent | None:
        """The packet that a SACK or NACK answers: the latest that agrees with most of it."""
        if self._link.exact:
            return self._link.last(kind)
        best, most = None, 0
        for one in reversed(self._link.sent):
            if one.kind == kind and (n := _agreement(one.fields, event)) > most:
                best, most = one, n
        return best


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
