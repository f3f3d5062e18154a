"""Runs the kit against the engine and its mutants, in plain Python; prints JSON.

NUMBA_DISABLE_JIT=1 python -m tests.conform.mutation          each mutant's own rule
NUMBA_DISABLE_JIT=1 python -m tests.conform.mutation --first  the first rule that each fails
"""

from __future__ import annotations

import json
import sys

from openmrc.conform import script, whole
from openmrc.conform.engine import EngineTarget
from openmrc.conform.run import FAIL, NOT_APPLICABLE, run
from openmrc.jit import interpreted
from tests.conform.mutants import MUTANTS, mutated


def main() -> None:
    """Print which rules the engine fails, and by mutant what its own rule says."""
    assert interpreted(), "set NUMBA_DISABLE_JIT=1: compiled functions cannot be changed"
    rules = {rule.name: rule for rule in script.rules()}
    every = [*rules.values(), *script.rules(kind=script.ALWAYS)]
    told_of = whole.hold(every, lambda rule, always: run(rule, EngineTarget, always))
    engine = [(each.rule, each.outcome) for each in told_of]
    told = {}
    for mutant in MUTANTS:
        own = rules[mutant.rule]
        tried = [own]
        if "--first" in sys.argv:
            tried = [rule for rule in rules.values() if rule.role == own.role]
        with mutated(mutant):
            failed = (r.name for r in tried if run(r, EngineTarget).outcome == FAIL)
            told[mutant.name] = next(failed, "")
    broken = [name for name, outcome in engine if outcome == FAIL]
    framed = [name for name, outcome in engine if outcome == NOT_APPLICABLE]
    print(json.dumps({"engine": broken, "not applicable": framed, "mutants": told}))


if __name__ == "__main__":
    main()
