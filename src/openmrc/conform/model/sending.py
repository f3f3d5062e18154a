"""A target as a requester: what each packet that it sends must say, and when it may leave."""

from __future__ import annotations

import math
from collections.abc import Mapping

from openmrc.conform.events import Event
from openmrc.conform.model import posted
from openmrc.conform.model.asking import Asking
from openmrc.conform.model.between import AGED_BYTES, AGED_MESSAGES, Between
from openmrc.conform.model.copies import Copies
from openmrc.conform.model.overdue import Overdue
from openmrc.conform.model.trips import Trips
from openmrc.conform.model.window import Window
from openmrc.engine import packet as pk
from openmrc.units import US

# In virtual time a packet that could follow has followed by then, and one that an answer lets go
# has left, while answers come one after the other.
FOLLOWS_PS, LEAVES_PS = 2 * US, US // 4
LOOKED_AT = 3  # missing packets


class Sending:
    """The requester of a target."""

    def __init__(self, link: Between) -> None:
        target, with_ = link.target, link.with_
        va, rkey, _ = target.region["requester"]
        self._link = link
        self.posted = posted.Posted(
            posted.Told(
                target.flow_psn["requester"],
                target.pmtu,
                with_.get("mpr", 512),
                va,
                rkey,
                with_.get("max_wimm", 128),
                bool(with_.get("dynamic_mpr")),
                AGED_MESSAGES * with_.get("aged", 0),
                AGED_BYTES * with_.get("aged", 0),
            )
        )
        self._mpr = self.posted.mpr
        self._port_bps = getattr(target, "rate_bps", 0)  # 0: nobody knows it
        self._window: Window | None = None
        if link.exact and self._port_bps:
            rate_bps = self._port_bps * link.planes
            self._window = Window(rate_bps, target.rtt_ps, target.pmtu, link.trims)
        self._trips = trips = Trips(target.rtt_ps)
        evs, rtt_ps, rto_ps = with_.get("evs", 4), target.rtt_ps, target.rto_ps
        self._copies = Copies(link.planes, evs, rtt_ps, rto_ps, link.trims, trips)
        self._overdue, self._asking = Overdue(trips, rto_ps, link.trims), Asking()
        self._busy_ps = 0  # when it last had something to do
        self.waiting: Event | None = None  # data that asked for nothing
        self._probe_ids: set[int] = set()
        self._evs: dict[int, set[int]] = {}
        self._completions = 0

    # --- what is done to it

    def posts(self, length: int, imm: int | None) -> None:
        """The application writes."""
        if not self.posted.waits:
            self._overdue.dry_ps = self._link.now_ps
        if not self.posted.ended:
            self.posted.post(length, imm, self._link.now_ps)

    def hears(self, kind: str, p: Mapping[str, int]) -> dict[str, int]:
        """A SACK, NACK or ACK arrives: what must come of it."""
        heard = self.posted.hears(kind, p)
        if heard is None:  # as if nothing had come
            return {"completions": 0} if self._link.exact else {}
        self._busy_ps = self._link.now_ps
        self._overdue.hears(self._link.now_ps)
        self._asking.hears(heard.advance)
        if kind == "nack":
            seq = self.posted.sequence(p["nack_psn"], self.posted.una)
            reason = p.get("nack_reason", 0)
            self._copies.refused(seq, p.get("entropy", 0), reason, self._link.now_ps)
            self._overdue.refused(seq)
        elif kind == "sack":
            seq = self.posted.sequence(p["cack_psn"], self.posted.una - 1)
            reflected = seq + p.get("ack_psn_offset", 0)
            is_probe, stamp = bool(p.get("pr")), p.get("tx_timestamp", -1)
            if is_probe:
                number = p.get("ack_psn_offset", 0)
                self._overdue.answered(number)
                self._copies.answered(p.get("entropy", 0), number, self._link.now_ps)
            else:
                # where all of a window is in flight the oldest one may have no record any more
                measures = reflected in heard.fresh and reflected > self.posted.new - self._mpr
                self._overdue.reflected(reflected, stamp, measures, self._link.now_ps)
            self._copies.reflected(
                p.get("entropy", 0),
                p.get("m", 0),
                -1 if is_probe else reflected,
                stamp,
                known=not is_probe and reflected not in heard.fresh,
                of_data=not is_probe and (reflected <= seq or reflected in heard.fresh),
                now_ps=self._link.now_ps,
            )
        self._copies.came(heard.fresh, self._link.now_ps)
        self._overdue.shown(heard.fresh, self._link.now_ps)
        if self._window:
            self._clock(self._window, kind, p, heard)
        return {"completions": heard.acked} if self._link.exact else {}

    def may_believe(self, kind: str, p: Mapping[str, int]) -> bool:
        """Whether the target may believe an answer; in real time more was sent than came."""
        return self.posted.may_believe(kind, p, self._link.exact)

    def disturbed(self) -> None:
        """Ports have changed: the turns of planes are not known now, and the window follows."""
        self.waiting = None
        if self._window and self._link.up:
            self._window.usable(self._port_bps * self._link.up.bit_count())
        self._copies.planes_calm = False

    def idle(self) -> dict[str, int] | None:
        """Before an answer changes anything: was there something that could leave? None while it
        may be about to.
        """
        w, q = self._window, self.posted
        if not w or self._link.now_ps <= self._busy_ps + LEAVES_PS or q.una == q.new:
            return None
        return {"may_send": int(w.has_room and q.may_send)}

    def missing(self) -> dict[str, int] | None:
        """Of the oldest packet that is missing, what is late."""
        q, link = self.posted, self._link
        if q.una == q.new or q.ended or link.up != link.all_up or not link.exact:
            return None
        missing = q.missing(LOOKED_AT)
        room = self._window.has_room if self._window else not q.may_send
        room = room and missing[-1] < q.una + q.mpr
        return self._overdue.late(missing, q.new, room, link.now_ps)

    @property
    def is_alone(self) -> bool:
        """Whether the packet that asked for nothing was not followed in time."""
        one = self.waiting
        late = one is not None and self._link.now_ps > one.at_ps + FOLLOWS_PS
        return late and not self.posted.ended

    def _clock(self, w: Window, kind: str, p: Mapping[str, int], heard: posted.Heard) -> None:
        """An answer moves the window."""
        now, q = self._link.now_ps, self.posted
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
        came = (w.flying_copy(seq) for seq in heard.fresh)
        if any(copy and self._trips.is_overdue(copy.again, copy.at_ps, now) for copy in came):
            w.may_have_lost()
        if kind == "ack":
            w.acked(heard.fresh, heard.units, now)
            return
        cack = q.sequence(p["cack_psn"], q.una - 1)
        rtt = w.sample(cack + p.get("ack_psn_offset", 0), p, heard.said, now)
        w.acked(heard.fresh, heard.units, now)
        penalty, restores = p.get("rcv_cwnd_pen", 0), bool(p.get("restore_cwnd"))
        w.on_sack(heard.n_bytes, rtt, p.get("m") == pk.M_SKIP_ONCE, now, penalty, restores)

    # --- what it does

    def on_data(self, event: Event) -> dict[str, int]:
        """Data leaves."""
        p = event.fields
        first, calm = self.posted.una == self.posted.new, self._copies.is_calm
        seq = self.posted.sequence(p["psn"], self.posted.una)
        right = self.posted.sends(p) | self._place(event, self.posted.posted_ps(seq))
        self._busy_ps = self._link.data_ps = event.at_ps
        if self._window and p["rtx"] and self._window.flying_copy(seq):
            self._lose(self._window, seq, event.at_ps)
        if self._link.exact:
            if self.posted.packets_beside(seq) < self._link.planes:
                self._copies.planes_calm = False  # a short message begins with any plane (row 13)
            right |= self._copies.sends(seq, p, event.at_ps, self._link.up, self.posted.waits)
            if first and self.posted.packets_beside(seq) == 1 < self._link.planes:
                right |= self._copies.begins(p["plane"])
        spoken = self._overdue.sends(seq, p, event.at_ps)
        # At the end it may go again in doubt, on another plane, or with a path that is bad (row 8).
        if self._link.exact and (self.posted.waits or (calm and self._link.planes == 1)):
            right |= spoken
        if w := self._window:
            right |= {"flying": w.flying, "room": math.ceil(w.bytes - w.spare + w.unsure + 0.5)}
            w.sends(seq, p, event.at_ps, first)
        if self._link.exact:
            self.waiting = None if p["a"] or p["rtx"] else event
        if not self._link.with_.get("trim_nack", 1):
            right["no_trim"] = 1
        elif self._link.exact and not self._probe_ids:  # a trial of a path is not trimmed (row 11)
            right["no_trim"] = 0 if self._link.with_.get("trimming", 1) else 1
        if not self._link.exact:  # planes are read one by one, and answers may cross it
            unsure = {"new_psn", "sent_before", "shown"}
            unsure |= {"window"} if self._link.with_.get("dynamic_mpr") else set()
            right = {name: value for name, value in right.items() if name not in unsure}
        return right

    def _lose(self, w: Window, seq: int, now_ps: int) -> None:
        """A packet in flight goes again. While more waits to be sent it was judged lost; at the end
        it may be in doubt, and after an RTO all may be lost: then the window is not known.
        """
        copy, rto_ps = w.flying_copy(seq), self._link.target.rto_ps
        sure = self.posted.waits and copy is not None and now_ps - copy.at_ps < rto_ps
        if not (sure and w.lost(seq, self._link.planes > 1, now_ps)):
            self._window = None

    def on_probe(self, event: Event) -> dict[str, int]:
        """A probe leaves."""
        p = event.fields
        right = self._place(event) | {"known_id": int(p["probe_id"] in self._probe_ids)}
        right["ended"] = int(self.posted.ended)
        self._probe_ids.add(p["probe_id"])
        self._overdue.asks(p["probe_id"], event.at_ps)
        self._copies.asks(p["ev"], p["probe_id"], event.at_ps)
        asked = self._asking.asks(event.at_ps)
        if self._copies.is_calm and self._link.exact and not self._overdue.is_silent(event.at_ps):
            right |= asked
        return right

    def on_completion(self, event: Event) -> dict[str, int]:
        """A write has completed."""
        right = {"id": self._completions, "acked": int(event.fields["id"] < self.posted.acked)}
        self._completions += 1
        return right

    def _place(self, event: Event, asked_ps: int | None = None) -> dict[str, int]:
        """The path of data or of a probe, and the time that it says."""
        p = event.fields
        right = {"plane_up": self._link.is_up(event.at_ps, p["plane"])}
        evs = self._evs.setdefault(p["plane"], set())
        evs.add(p["ev"])
        right |= {"paths": len(evs), "evs": self._link.with_.get("evs", 4)}
        if self._link.exact:
            right["ev_plane"] = p["ev"] >> 16
        return right | self._link.stamped(event, asked_ps)
