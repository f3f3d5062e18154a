"""Events of a target, as rules name them: a kind, a time, and fields named as on the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from openmrc.engine import packet as pk
from openmrc.errors import InputError
from openmrc.wire import layout

KINDS = {
    **dict.fromkeys((o for o in layout.OPCODES if o <= pk.LAST_DATA), "data"),
    pk.SACK: "sack",
    pk.NACK: "nack",
    pk.ACKNOWLEDGE: "ack",
    pk.PROBE: "probe",
    pk.ENDPOINT_REQUEST: "request",
    pk.ENDPOINT_RESPONSE: "response",
}
# events that an application sees
DONE, RECEIVED, DELIVERED, FAILED = "completion", "receive", "delivered", "error"
# what is wrong with the frame of a packet that the kit sends, whatever its fields say
RIGHT, CORRUPT, FOREIGN, MISDIRECTED = 0, 1, 2, 3
FRAME, PAYLOAD = "frame", "payload"

# field of the wire -> field of the packet record, by kind
_EVERY = {"ev": "ev", "plane": "plane", "class": "klass"}
_BY_KIND = {
    "data": {
        **{name: name for name in ("opcode", "psn", "msn", "rqmsn", "va", "rkey", "imm")},
        "dma_length": "dma_len",
        "length": "payload_len",
        "tx_timestamp": "timestamp",
    },
    "sack": {
        **{name: name for name in ("psn", "cack_psn", "sack_offset", "m", "entropy", "mpr")},
        "sack_bitmap": "bitmap",
        "ack_psn_offset": "ack_offset",
        "tx_timestamp": "timestamp",
        "rcvd_bytes": "rcvd_units",
        "ooo_count": "ooo_count",
    },
    "nack": {
        "nack_psn": "psn",
        "nack_reason": "reason",
        "entropy": "entropy",
        "tx_timestamp": "timestamp",
    },
    "ack": {"psn": "psn", "syndrome": "reason", "msn": "msn"},
    "probe": {"psn": "psn", "probe_id": "ack_offset", "tx_timestamp": "timestamp"},
    "request": {
        "id": "psn",
        "op": "reason",
        "port_status_mask": "imm",
        "tx_timestamp": "timestamp",
    },
    "response": {"id": "psn", "op": "reason", "tx_timestamp": "timestamp"},
}
_FLAGS = {
    "a": pk.ACK_REQ,
    "rtx": pk.RTX,
    "pr": pk.PROBE_ANSWER,
    "no_trim": pk.NO_TRIM,
    "ce": pk.CE,
    "trimmed": pk.TRIMMED,
    "trimmed_lasthop": pk.TRIMMED_LASTHOP,
    "unstamped": pk.UNSTAMPED,
}
_OWN_FIELDS = {
    DONE: {"id"},
    RECEIVED: {"id", "imm"},
    DELIVERED: {"psn", "va"},
    FAILED: {"reason"},
}
# of a packet as a whole; of a byte that two fields share
_TOLD = {"sack": ("has", "lacks", "rcv_cwnd_pen", "restore_cwnd"), "data": (PAYLOAD,)}
PSNS = {"psn", "cack_psn", "nack_psn", "has", "lacks"}
NAMES: dict[str, Mapping[int, str]] = {
    "opcode": layout.OPCODES,
    "m": layout.SKIPS,
    "nack_reason": layout.NACK_REASONS,
    "syndrome": layout.SYNDROMES,
    "op": layout.ENDPOINT_OPS,
    FRAME: {RIGHT: "RIGHT", CORRUPT: "CORRUPT", FOREIGN: "FOREIGN", MISDIRECTED: "MISDIRECTED"},
    PAYLOAD: {0: "WRONG", 1: "RIGHT"},
    "class": {
        pk.CLASS_CONTROL: "CONTROL",
        pk.CLASS_RETRANSMIT: "RETRANSMIT",
        pk.CLASS_DATA: "DATA",
    },
}


@dataclass(frozen=True)
class Event:
    """A packet, or an event that an application was notified of."""

    at_ps: int
    kind: str
    fields: dict[str, Any]

    def says(self, name: str) -> Any:
        """Return the value of a field; None if this kind has no field of that name."""
        return self.fields.get(name)

    def shows(self, psn: int) -> bool:
        """Whether this SACK reports a PSN as received."""
        ahead = (psn - self.fields["cack_psn"]) & pk.PSN_MASK
        if ahead == 0 or ahead > pk.PSN_MASK // 2:
            return True
        bit = ahead - self.fields["sack_offset"]
        return 0 <= bit < 64 and bool(self.fields["sack_bitmap"] >> bit & 1)

    def __str__(self) -> str:
        shown = (f"{n}={_shown(n, v)}" for n, v in self.fields.items() if v or n in PSNS)
        return f"{self.at_ps / 1e6:9.3f} us  {self.kind}  {' '.join(shown)}"


def _shown(name: str, value: Any) -> str:
    if not isinstance(value, int):
        return str(value)
    if value in NAMES.get(name, {}):
        return NAMES[name][value]
    return f"{value:#x}" if name in ("sack_bitmap", "va", "entropy", "ev", "rkey") else str(value)


def of_record(p: Any, at_ps: int) -> Event:
    """Return the event of a packet record."""
    kind = KINDS[int(p.opcode)]
    fields: dict[str, Any] = {PAYLOAD: 1} if kind == "data" else {}  # a record has no bytes
    fields |= {name: int(p[field]) for name, field in _BY_KIND[kind].items()}
    fields |= {name: int(p[field]) for name, field in _EVERY.items()}
    fields |= {name: int(bool(int(p.flag_bits) & bit)) for name, bit in _FLAGS.items()}
    if "probe_id" in fields:
        fields["probe_id"] &= 0xFFFF
    if kind == "sack":
        fields["rcv_cwnd_pen"] = int(p.penalty) & pk.PENALTY_MAX
        fields["restore_cwnd"] = int(p.penalty & pk.RESTORE != 0)
        if fields["pr"]:  # the field is the id of the probe then
            fields["ack_psn_offset"] &= 0xFFFF
    return Event(at_ps, kind, fields)


def write_record(p: Any, kind: str, fields: Mapping[str, int]) -> None:
    """Write the fields of a packet into a cleared record."""
    p.opcode = fields.get("opcode") or next(o for o, k in KINDS.items() if k == kind)
    places = _BY_KIND[kind] | _EVERY
    for name, value in fields.items():
        if name in _FLAGS:
            p.flag_bits = int(p.flag_bits) | (_FLAGS[name] if value else 0)
        elif name == "probe_id" or (name == "ack_psn_offset" and fields.get("pr")):
            p.ack_offset = value - ((value & 0x8000) << 1)
        elif name == "rcv_cwnd_pen":
            p.penalty = int(p.penalty) | value
        elif name == "restore_cwnd":
            p.penalty = int(p.penalty) | (pk.RESTORE if value else 0)
        else:
            p[places[name]] = value


def check_field(kind: str, name: str) -> None:
    """Raise `InputError` unless packets of a kind have a field."""
    if kind in _OWN_FIELDS:
        known = _OWN_FIELDS[kind]
    elif kind in _BY_KIND:
        known = {*_BY_KIND[kind], *_EVERY, *_FLAGS, FRAME, *_TOLD.get(kind, ())}
    else:
        raise InputError(f"{kind!r} is no kind; {', '.join([*_BY_KIND, *_OWN_FIELDS])} are")
    if name not in known:
        raise InputError(f"{name!r}: {kind} has {', '.join(sorted(known))}")


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<=": lambda a, b: a is not None and a <= b,
    ">=": lambda a, b: a is not None and a >= b,
}
