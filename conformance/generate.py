"""Writes the test vectors, their schema and `mrc.h`, the same bytes each time; with `--check` it
compares instead.

python conformance/generate.py [--check]
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:  # run as a script
    sys.path.insert(0, str(HERE.parent))

from conformance import sequences  # noqa: E402
from conformance.cases import GROUPS  # noqa: E402
from conformance.headers import c_header, schema  # noqa: E402
from conformance.packer import Frame, Vector, build  # noqa: E402
from conformance.roce import VECTORS as ROCE  # noqa: E402
from openmrc.fabric.dscp import DEFAULT  # noqa: E402
from openmrc.wire import layout  # noqa: E402


def as_dict(v: Vector) -> dict[str, Any]:
    """Return a vector as it stands in its file."""
    frame = build(v)
    out: dict[str, Any] = {"name": v.name, "shows": v.shows}
    if v.ev_swapped:
        out["ev_swapped"] = True
    if v.dscps != DEFAULT:
        out["dscps"] = v.dscps._asdict()
    out["frame"] = frame.data.hex()
    if v.refused:
        code, place = v.refused
        return {**out, "refused": {"code": code, "offset": _offset(frame, place)}}
    trimmed = v.cut is not None
    out["canonical"] = v.canonical and not trimmed
    if v.trimmed_from:
        out["trimmed_from"] = v.trimmed_from
    if v.trim_lengths:
        out["trim_lengths"] = v.trim_lengths
    if v.switched_from:
        out |= {"switched_from": v.switched_from, "at_usid": v.at_usid}
        out |= {"link_usid": v.link_usid} if v.link_usid else {}
    out["headers"] = {
        p.name: {
            f.name: _value(p.header, f, p.values.get(f.name, 0))
            for f in p.header.fields
            if f.name != layout.RESERVED
        }
        for p in frame.parts
    }
    out["ev"] = v.ev
    out["trimmed"] = trimmed
    out["icrc_ok"] = None if trimmed else True
    out["payload_at"] = frame.offsets["payload"]
    out["payload_length"] = 0 if trimmed else len(v.message.payload)
    return out


def text(vectors: list[Vector], but: tuple[str, ...] = ()) -> str:
    """Return a file: a list of vectors, each header on a line, without the keys `but`."""
    entries = []
    for v in vectors:
        lines = []
        for key, value in as_dict(v).items():
            if key in but:
                continue
            told = json.dumps(value)
            if key == "headers":
                rows = [f"      {json.dumps(name)}: {json.dumps(h)}" for name, h in value.items()]
                told = "{\n" + ",\n".join(rows) + "\n    }"
            lines.append(f"    {json.dumps(key)}: {told}")
        entries.append("  {\n" + ",\n".join(lines) + "\n  }")
    return "[\n" + ",\n".join(entries) + "\n]\n"


def _offset(frame: Frame, place: str) -> int:
    """Return where a header, or a field of it, begins in the frame."""
    name, _, key = place.partition(".")
    within = next(p.header.byte(key) for p in frame.parts if p.name == name) if key else 0
    return frame.offsets[name] + within


def _value(header: layout.Header, field: layout.Field, value: int) -> int | str:
    """Return a value as it stands in the files: addresses and 64-bit numbers as text."""
    if field.bits == 48:
        return ":".join(f"{byte:02x}" for byte in value.to_bytes(6, "big"))
    if field.bits == 128:
        return str(ipaddress.IPv6Address(value))
    if field.bits == 64:
        return f"0x{value:x}"
    if header is layout.IPV4 and field.bits == 32:
        return str(ipaddress.IPv4Address(value))
    return value


def files() -> dict[Path, str]:
    """Return the text of every file that is written."""
    made = {HERE / "vectors" / f"{group}.json": text(v) for group, v in GROUPS.items()}
    made[HERE / "vectors.schema.json"] = json.dumps(schema(), indent=1) + "\n"
    made[HERE / "mrc.h"] = c_header()
    made[HERE / "roce.json"] = text(ROCE, but=("ev", "trimmed"))
    made[HERE / "sequences.json"] = sequences.text()
    return made


def main() -> int:
    """Write the files, or compare them; 1 if they differ."""
    parser = argparse.ArgumentParser(description="Write the test vectors.")
    parser.add_argument("--check", action="store_true", help="compare the files, do not write them")
    check = parser.parse_args().check
    different = 0
    for path, wanted in files().items():
        if not check:
            path.write_text(wanted)
        elif not path.exists() or path.read_text() != wanted:
            print(f"{path} is not what this writes", file=sys.stderr)
            different = 1
    return different


if __name__ == "__main__":
    sys.exit(main())
