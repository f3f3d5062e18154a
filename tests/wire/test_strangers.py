"""Another reader of headers beside ours: what differs is counted by field, explained or not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
READER = """
from dataclasses import dataclass

@dataclass
class AETH:
    syndrome: int
    msn: int

    @classmethod
    def from_bytes(cls, data):
        return cls(data[0], int.from_bytes(data[1:4], ORDER))

@dataclass
class EETH:
    res_type: int
    op: int
    tx_timestamp: int

    @classmethod
    def from_bytes(cls, data):
        return cls(data[0] >> 4, data[1] >> 4 & 3, data[28] << 8 | data[29])
"""


@pytest.mark.parametrize(
    ("order", "status", "says"),
    [
        ("'big'", 0, "EETH.op "),
        ("'little'", 1, "NOT EXPLAINED; such as 7 here, 458752 there"),
    ],
)
def test_what_another_reader_reads_otherwise(
    order: str, status: int, says: str, tmp_path: Path
) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core/mrc_headers.py").write_text(READER.replace("ORDER", order))
    words = [sys.executable, "conformance/strangers.py", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert says in done.stdout
