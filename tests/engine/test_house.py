"""What the engine may know of the world, and how its rules say where they come from."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import openmrc.engine

FILES = sorted(Path(openmrc.engine.__file__).parent.glob("*.py"))
OUTSIDE = {"time", "datetime", "socket", "random", "secrets", "os", "sys", "threading", "asyncio"}
BELOW = (
    "openmrc.engine",
    "openmrc.byref",
    "openmrc.callref",
    "openmrc.jit",
    "openmrc.units",
    "openmrc.errors",
)


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_engine_knows_no_clock_no_socket_no_chance_and_no_upper_floor(path: Path) -> None:
    for name in imports(path):
        assert name.split(".")[0] not in OUTSIDE
        assert not name.startswith("openmrc") or name.startswith(BELOW)
        assert name.split(".")[0] in {"openmrc", "numpy", "typing", "__future__"}


def test_citations_have_one_form() -> None:
    """`MRC 2.10`, `reference 4.6`, `row 9`, `rows 5, 6`: sections up to 5, rows up to 29."""
    sections, rows = set(), set()
    for path in FILES:
        text = path.read_text()
        sections |= set(re.findall(r"(?:MRC|[Rr]eference) (\d+\.\d+)", text))
        for first in re.findall(r"[Rr]ows? (\d+(?:(?:, | to | and )\d+)*)", text):
            rows |= {int(n) for n in re.findall(r"\d+", first)}
        assert not re.findall(r"(?:MRC|[Rr]eference) §", text)
    assert all(1 <= int(s.split(".")[0]) <= 5 for s in sections)
    assert rows <= set(range(1, 30))
    assert {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19} <= rows


def test_every_row_that_the_engine_decides_or_cites_has_a_test_named_after_it() -> None:
    cited = set()
    for path in FILES:
        for found in re.findall(r"[Rr]ows? (\d+(?:(?:, | to | and )\d+)*)", path.read_text()):
            cited |= {int(n) for n in re.findall(r"\d+", found)}
    named = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        named |= {int(n) for n in re.findall(r"def test_row_(\d+)_", path.read_text())}
    assert named >= {*range(5, 21), 23, 24, 26}
    assert cited <= named
