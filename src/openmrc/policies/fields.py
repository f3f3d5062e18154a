"""What a policy sees of the engine's state, field by field: meaning and unit.

Every field of the engine's records can be read; listed here are those that are useful to a policy.
The others are internal (`engine/state.py`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from openmrc.engine import state


class Field(NamedTuple):
    """A field of a record: what it means, and its unit, "" where it has none."""

    meaning: str
    unit: str = ""


# Arrays of `State` whose elements are records, with what the records are.
RECORDS: dict[str, Any] = {
    "config": state.CONFIG,
    "qp": state.QP,
    "slot": state.SLOT,
    "plane": state.PLANE,
    "ev": state.EV,
    "blame": state.BLAME,
    "message": state.MESSAGE,
    "rx_message": state.RX_MESSAGE,
    "nic": state.NIC,
    "peer": state.PEER,
    "reps": state.REPS,
    "region": state.REGION,
}

QP = {
    "cwnd": Field("congestion window: what `step` sets", "bytes"),
    "pkt": Field("nominal size of a full packet: the least window", "bytes"),
    "max_wnd": Field("the largest window, 1.5 BDP, with which a run begins", "bytes"),
    "inflight": Field("sent and neither received nor judged lost", "bytes"),
    "base_rtt": Field("round trip of an idle fabric", "ps"),
    "target": Field("queueing delay that NSCC aims at", "ps"),
    "avg_delay": Field("mean queueing delay of the last round trips", "ps"),
    "una": Field("oldest packet not known received, counted from 0", "packets"),
    "nxt": Field("the next new packet", "packets"),
    "seq_end": Field("packets posted so far", "packets"),
    "lost": Field("judged lost and not sent again yet", "packets"),
    "mpr": Field("how far beyond `una` packets may be outstanding", "packets"),
    "rto": Field("retransmission timeout", "ps"),
    "index": Field("of this queue pair: the row of `st.own` and of `st.stream`"),
    "plane0": Field("its first record in `st.plane`"),
    "n_planes": Field("how many planes it has"),
    "ev0": Field("its first record in `st.ev`"),
    "n_evs": Field("how many EVs it has, of all planes"),
    "planes_ok": Field("mask of the planes that may take a turn"),
    "nic": Field("NIC of this end"),
    "peer_nic": Field("NIC of the other end"),
    "n_rtx": Field("sent again so far", "packets"),
    "n_inferred": Field("judged lost by inference so far", "packets"),
    "n_bad": Field("EVs in ASSUMED_BAD"),
}
PLANE = {
    "ev0": Field("its first EV, as an index within the queue pair"),
    "n_evs": Field("how many EVs it has"),
    "n_active": Field("of them in the rotation"),
    "n_good": Field("of them GOOD or SKIP"),
    "turn": Field("given to the plane, with bounded lag", "packets"),
    "losses": Field("lost in a row, none delivered in between", "packets"),
    "delivered_at": Field("when the newest packet known delivered was sent", "ps"),
}
EV = {
    "state": Field("GOOD, SKIP, ASSUMED_BAD or DENIED of `openmrc.engine.ev`"),
    "active": Field("1 in the rotation, 0 a backup"),
    "plane": Field("number of its plane"),
    "value": Field("the 32 bits that stand in a packet"),
    "marks": Field("CE marks met in a row"),
    "used": Field("packets sent on it", "packets"),
}
BLAME = {
    "demoted_at": Field("when it was last left, long ago if it never was", "ps"),
}
CONFIG = {
    "port_rate_bps": Field("rate of a port", "bit/s"),
    "base_rtt_ps": Field("round trip of an idle fabric", "ps"),
}

# Expressions as written in a policy.
VISIBLE = {
    "q": (state.QP, QP),
    "st.plane[q.plane0 + plane]": (state.PLANE, PLANE),
    "st.ev[q.ev0 + ev]": (state.EV, EV),
    "st.blame[st.ev[q.ev0 + ev].blame]": (state.BLAME, BLAME),
    "st.config[0]": (state.CONFIG, CONFIG),
}
