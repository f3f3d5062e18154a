"""A header field is added as CONTRIBUTING says, in three files, and everything knows it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import openmrc

PACKAGE = Path(openmrc.__file__).parent
EDITS = {  # what stands there, and what stands there then
    "wire/layout.py": {
        """  returned in the answer
    reserved           16
""": """  returned in the answer
    hops_seen          16  switches that it has passed
""",
        """_NAMES = {
""": """_NAMES = {
    "hops_seen": {1: "ONE"},
""",
    },
    "engine/packet.py": {
        """        ("timestamp", "u2"),""": """        ("hops_seen", "u2"),
        ("timestamp", "u2"),""",
    },
    "wire/extensions.py": {
        "        add(out, at, PETH.probe_id, p.ack_offset)": """\
        add(out, at, PETH.probe_id, p.ack_offset)
        add(out, at, PETH.hops_seen, p.hops_seen)""",
        "        p.ack_offset = signed16(get(data, at, PETH.probe_id))": """\
        p.ack_offset = signed16(get(data, at, PETH.probe_id))
        p.hops_seen = get(data, at, PETH.hops_seen)""",
    },
}
STORY = """
from openmrc.engine import packet
from openmrc.jit import records
from openmrc.wire import decode, diagrams, dissector, encode, frame, layout

p, e = records(1, packet.PACKET)[0], records(1, frame.ENVELOPE)[0]
p.opcode, p.klass, p.ack_offset, p.hops_seen = packet.PROBE, packet.CLASS_CONTROL, 7, 513
e.udp_port = layout.UDP_PORT
data = encode(p, e)
found = decode(data)
assert found["PETH"]["hops_seen"] == 513 and found["PETH"]["probe_id"] == 7
assert "hops_seen = 513" in found.show()
assert (int(found.record.hops_seen), int(found.record.ack_offset)) == (513, 7)
lua = dissector.path().read_text(encoding="utf-8")
assert '{ "hops_seen", 48, 16, ProtoField.uint16("mrc.peth.hops_seen", "hops_seen", ' in lua
page = diagrams.parts()["PETH"]
assert "| 48-63 | `hops_seen` | switches that it has passed (1 ONE) |" in page
assert layout.PETH.size_bytes == 16
from openmrc.wire.scapy import MRC_PETH, Ether
assert Ether(data)[MRC_PETH].hops_seen == 513
"""


def test_a_header_field_takes_three_files(tmp_path: Path) -> None:
    copy = tmp_path / "openmrc"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, edits in EDITS.items():
        text = (copy / name).read_text(encoding="utf-8")
        for old, new in edits.items():
            assert text.count(old) == 1, (name, old)
            text = text.replace(old, new)
        (copy / name).write_text(text, encoding="utf-8")
    plain = {"NUMBA_DISABLE_JIT": "1", "OPENMRC_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", STORY],
        capture_output=True,
        check=False,
        text=True,
        env=os.environ | plain | {"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
