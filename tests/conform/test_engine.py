"""The engine passes every rule; each of its mutants fails the rule that names what is broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from openmrc.conform import script
from tests.conform.mutants import MUTANTS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """What `tests.conform.mutation` prints: a process, for only plain Python can be changed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.conform.mutation"],
        cwd=ROOT,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_the_engine_passes_every_rule(told: dict[str, Any]) -> None:
    assert told["engine"] == []
    framed = [rule for rule in script.rules() if any("frame=" in s.text for s in rule.steps)]
    assert told["not applicable"] == [rule.name for rule in framed]  # in process are no frames


def test_each_mutant_fails_its_rule(told: dict[str, Any]) -> None:
    assert len(MUTANTS) == len(told["mutants"]) >= 40
    assert {name for name, failed in told["mutants"].items() if not failed} == set()


def test_each_mutant_names_a_rule_of_the_kit() -> None:
    assert {mutant.rule for mutant in MUTANTS} <= {rule.name for rule in script.rules()}
