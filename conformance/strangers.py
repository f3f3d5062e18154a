"""Another reader of MRC's headers beside this one: every field of the vectors, and of captures.

    git clone https://github.com/anichol67/MRC-Client
    python conformance/strangers.py MRC-Client [CAPTURE ...]

Its dataclasses are given the bytes of each header, and say what each field holds. What differs is
printed by field, with the row of docs/wire.md that explains it; exit status 1 if none does. Nothing
of it is part of this project.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openmrc.fabric.dscp import Dscps
from openmrc.wire import WireError, decode
from openmrc.wire.pcap import read
from openmrc.wire.view import Packet

VECTORS = Path(__file__).parent / "vectors"
MODULE = "core.mrc_headers"
CLASSES = {
    **{name: name for name in ("BTH", "METH", "TSETH", "RETH", "AETH", "ImmDt", "NETH", "PETH")},
    **{name: name for name in ("SETH", "ERTH", "EETH")},
    "CC_STATE": "CCState",
}
# Names of fields there, where they are others than here.
NAMES = {
    "pkey": "p_key",
    "dest_qpn": "dqp",
    "rkey": "r_key",
    "dma_length": "dmalen",
    "type": "res_type",
    "nxt": "res_nxt",
    "cc_flags": "cc_fl",
    "vendor": "vendor_info",
    "restore_cwnd": "r_c",
    "imm": "value",
    "op_alternative": "op",
}
EXPLAINED = {
    ("BTH", "se"): "row 34: IBTA's order of SE and M",
    ("BTH", "m"): "row 34: IBTA's order of SE and M",
    ("EETH", "op"): "row 4: read there where `op_alternative` is here",
}


def packets(captures: list[Path]) -> Iterator[Packet]:
    """Yield what this project's decoder says of each frame."""
    for file in sorted(VECTORS.glob("*.json")):
        for vector in json.loads(file.read_text()):
            if "refused" not in vector:
                swapped = bool(vector.get("ev_swapped", False))
                dscps = Dscps(**vector.get("dscps", {}))
                yield decode(bytes.fromhex(vector["frame"]), ev_swapped=swapped, dscps=dscps)
    for path in captures:
        with read(path) as reader:
            for captured in reader:
                try:
                    yield decode(captured.data, check=False, length=captured.original_length)
                except WireError:
                    continue


def compare(theirs: Any, found: Packet) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield header, field, and both values, of every field that both have."""
    for view in found.headers:
        if view.name not in CLASSES or not hasattr(theirs, CLASSES[view.name]):
            continue
        end = view.offset + view.header.size_bytes
        other = getattr(theirs, CLASSES[view.name]).from_bytes(found.frame[view.offset : end])
        for name, value in view.fields.items():
            there = NAMES.get(name, name)
            yield view.name, name, value, getattr(other, there, "no such field")


def main() -> int:
    """Compare and print; 1 if anything differs that no row explains."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="of MRC-Client")
    parser.add_argument("captures", type=Path, nargs="*")
    options = parser.parse_args()
    sys.path.insert(0, str(options.checkout))
    theirs = importlib.import_module(MODULE)
    n_packets = n_fields = 0
    differ: Counter[tuple[str, str]] = Counter()
    example: dict[tuple[str, str], str] = {}
    for found in packets(options.captures):
        n_packets += 1
        for header, name, here, there in compare(theirs, found):
            n_fields += 1
            if here != there:
                differ[header, name] += 1
                example.setdefault((header, name), f"{here} here, {there} there")
    print(f"{n_packets:,} packets, {n_fields:,} fields, {differ.total():,} of them differ")
    for field, n in differ.most_common():
        why = EXPLAINED.get(field, "NOT EXPLAINED")
        print(f"{'.'.join(field):22} {n:8,}  {why}; such as {example[field]}")
    return int(any(field not in EXPLAINED for field in differ))


if __name__ == "__main__":
    sys.exit(main())
