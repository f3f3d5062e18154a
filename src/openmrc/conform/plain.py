"""The kit against the engine, in plain Python: in a process of its own, without minutes of
compilation.

    NUMBA_DISABLE_JIT=1 python -m openmrc.conform.plain NAME ...    prints a JSON list of outcomes

It is the same engine, line by line; a few packets per rule need no speed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from openmrc.conform import script, whole
from openmrc.conform.outcome import Outcome
from openmrc.conform.run import run
from openmrc.conform.script import Rule
from openmrc.errors import OpenMrcError


def outcomes(rules: Sequence[Rule]) -> list[Outcome]:
    """Test the engine against rules of the kit, and return their outcomes, in order."""
    done = subprocess.run(
        [sys.executable, "-m", "openmrc.conform.plain", *(rule.name for rule in rules)],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise OpenMrcError(f"the engine's process ended: {done.stderr.strip()[-400:]}")
    return [Outcome(**each) for each in json.loads(done.stdout)]


def main(names: Sequence[str]) -> None:
    """Print the outcomes of these rules."""
    from openmrc.conform.engine import EngineTarget

    known = {rule.name: rule for rule in script.rules() + script.rules(kind=script.ALWAYS)}
    told = whole.hold([known[name] for name in names], lambda r, a: run(r, EngineTarget, a))
    print(json.dumps([each.as_dict() for each in told]))


if __name__ == "__main__":
    main(sys.argv[1:])
