"""Sequences of packets: rules of the conformance kit as they happen against the engine, as frames.

NUMBA_DISABLE_JIT=1 python -m conformance.sequences       prints them as JSON
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conformance.packer import SRV6, Message, Part, Vector, build
from openmrc.conform import script
from openmrc.conform.events import KINDS, Event
from openmrc.engine import packet as pk
from openmrc.units import US
from openmrc.wire import layout

RULES = (
    "above-the-window-is-nacked",
    "below-the-window-is-sacked",
    "sack-of-a-duplicate",
    "sack-of-a-marked-packet",
    "the-last-psn-of-the-window",
    "sack-shows-what-came-beyond-a-hole",
    "sack-reflects-the-time-stamp",
    "a-trimmed-packet-is-not-received",
    "a-trim-nack-brings-the-packet-again",
    "what-a-snapshot-shows-missing-goes-again",
    "silence-brings-a-probe",
    "a-probe-is-answered",
    "a-probe-without-time-stamp",
    "a-missing-ack-is-asked-for",
    "always-skip-leaves-the-path",
    "a-path-that-answers-serves-again",
    "a-port-that-goes-down-is-told",
    "immediates-come-in-order",
    "a-nak-ends-the-qp",
)
KIT_QPN, TARGET_QPN = 0x00_0011, 0x00_0010
TRIMMED_BYTES = 128  # row 21
_BTH = ("psn", "a", "rtx")
_OPCODES = {kind: opcode for opcode, kind in KINDS.items() if opcode > pk.LAST_DATA}
_DSCPS = {
    pk.CLASS_CONTROL: layout.DSCP_CONTROL,
    pk.CLASS_RETRANSMIT: layout.DSCP_TRIMMABLE_RETX,
    pk.CLASS_DATA: layout.DSCP_TRIMMABLE,
}


def frame_of(kind: str, fields: Mapping[str, int], to_kit: bool) -> str:
    """Return a packet of a rule as a frame, in hexadecimal."""
    opcode = fields.get("opcode") or _OPCODES[kind]
    given = {"ftype": layout.FTYPE_NONE if fields.get("unstamped") else layout.FTYPE_TIMESTAMP}
    given |= fields
    if kind == "nack":
        given["cc_type"] = layout.CC_TYPE_NACK
    length = fields.get("length", 0) if kind == "data" else 0
    qpn = KIT_QPN if to_kit else TARGET_QPN
    psn = fields.get("psn", fields.get("id", fields.get("cack_psn", fields.get("nack_psn", 0))))
    bth = {name: given[name] for name in _BTH if name in given} | {"psn": psn & pk.PSN_MASK}
    bth |= {"opcode": opcode, "pkey": layout.PKEY_DEFAULT, "ts": int(kind == "data")}
    bth |= {"dest_qpn": pk.ENDPOINT_QPN if kind in ("request", "response") else qpn}
    parts = [Part("BTH", layout.BTH, bth | {"pad": -length % 4})]
    for header in layout.EXTENSIONS[opcode]:
        names = {field.name for field in header.fields}
        parts.append(Part(header.name, header, {n: given[n] for n in names if n in given}))
    dscp = _DSCPS[fields.get("class", pk.CLASS_DATA if kind in ("data", "probe") else 0)]
    if fields.get("no_trim") or kind == "probe":
        dscp = layout.DSCP_NO_TRIM
    if trimmed := fields.get("trimmed") or fields.get("trimmed_lasthop"):
        dscp = layout.DSCP_TRIMMED if fields.get("trimmed") else layout.DSCP_TRIMMED_LASTHOP
        length = 1024
    ecn = 0 if dscp == layout.DSCP_CONTROL else layout.ECN_CE if fields.get("ce") else 2
    message = Message(tuple(parts), bytes(length), dscp, ecn)
    ev = fields.get("ev", 0x0001_0001)
    cut = TRIMMED_BYTES if trimmed else None
    return build(Vector("", "", message, SRV6, ev=ev, cut=cut)).data.hex()


def sequences() -> list[dict[str, Any]]:
    """Return all of them; in plain Python, for the engine is not compiled here."""
    from openmrc.conform.engine import EngineTarget
    from openmrc.conform.run import PASS, run

    rules = {rule.name: rule for rule in script.rules()}
    found = []
    for name in RULES:
        made: list[EngineTarget] = []
        sent: list[tuple[int, Event]] = []

        class Recorded(EngineTarget):
            """The engine, and what it is sent."""

            def send(self, kind: str, given: Mapping[str, int], sent: Any = sent) -> None:
                sent.append((len(self.log), Event(self.now_ps, kind, dict(given))))
                super().send(kind, given)

        def make(settings: Mapping[str, int], made: Any = made, kind: Any = Recorded) -> Any:
            made.append(kind(settings))
            return made[-1]

        rule = rules[name]
        verdict = run(rule, make)
        assert verdict.outcome == PASS, verdict
        steps = _steps(made[0].log, sent)
        head = {"name": name, "shows": rule.says, "source": rule.source, "role": rule.role}
        found.append({**head, "settings": rule.settings, "steps": steps})
    return found


def _steps(log: list[Event], sent: list[tuple[int, Event]]) -> list[dict[str, Any]]:
    """Both directions, and what the application saw, in their order."""
    steps = []
    for at in range(len(log) + 1):
        for place, event in sent:
            if place == at:
                steps.append(_step("kit", event))
        if at < len(log):
            steps.append(_step("target", log[at]))
    return steps


def _step(who: str, event: Event) -> dict[str, Any]:
    step: dict[str, Any] = {"at_us": round(event.at_ps / US, 3), "from": who}
    if event.kind in KINDS.values():
        return {
            **step,
            "packet": event.kind,
            "frame": frame_of(event.kind, event.fields, who != "kit"),
        }
    return {**step, "application": event.kind, **event.fields}


def text() -> str:
    """Return the file, made by a process in plain Python: a step a line."""
    done = subprocess.run(
        [sys.executable, "-m", "conformance.sequences"],
        cwd=Path(__file__).resolve().parents[1],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    entries = []
    for one in json.loads(done.stdout):
        steps = ",\n".join(f"      {json.dumps(step)}" for step in one.pop("steps"))
        head = ",\n".join(f"    {json.dumps(key)}: {json.dumps(one[key])}" for key in one)
        entries.append(f'  {{\n{head},\n    "steps": [\n{steps}\n    ]\n  }}')
    return "[\n" + ",\n".join(entries) + "\n]\n"


if __name__ == "__main__":
    print(json.dumps(sequences()))
