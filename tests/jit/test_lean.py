"""A process that only compiles does less, and makes the same machine code."""

from __future__ import annotations

import hashlib
import operator
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numba import types
from numba.core import ir
from numba.core.errors import TypingError

from openmrc.jit import interpreted, lean


def code_of(preparation: str) -> str:
    """The digest of the machine code of an encoder, made by a process of its own."""
    program = f"""
from hashlib import sha256
import numba, numpy as np
from openmrc.jit import lean
from openmrc.wire import addresses
{preparation}
addresses.write_ipv6._cache = numba.core.caching.NullCache()
kinds = (numba.types.uint8[::1], *[numba.types.int64] * 3)
addresses.write_ipv6.compile(kinds)
library = addresses.write_ipv6.overloads[kinds].library
print(sha256(library._get_compiled_object()).hexdigest())
"""
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.skipif(interpreted(), reason="nothing is compiled")
def test_the_machine_code_is_the_same() -> None:
    usual = code_of("")
    assert len(usual.strip()) == 2 * hashlib.sha256().digest_size
    assert code_of("lean.only_compile()") == usual


def test_the_variables_of_an_instruction_are_those_that_numba_lists() -> None:
    where = ir.Loc("file.py", 1)
    scope = ir.Scope(None, where)
    a, b, c = (ir.Var(scope, name, where) for name in "abc")
    for one in (
        ir.Expr.call(a, [b, a], (("key", c),), where),
        ir.Expr.getattr(a, "name", where),
        ir.Assign(ir.Expr.binop(operator.add, a, b, where), c, where),
        ir.Assign(ir.Const(3, where), a, where),
        ir.Expr.build_tuple([], where),
    ):
        known: list[Any] = one._rec_list_vars(one.__dict__)
        assert known == lean.variables(one.__dict__)
    assert lean.variables({"x": (a, [b, np.int64(3)], None), "y": {"z": c}}) == [a, b, c]


def test_numba_is_asked_once_for_the_same_types() -> None:
    asked: list[tuple[Any, ...]] = []

    def ask(function: Any, context: Any, args: Any, kws: Any) -> str:
        asked.append((function.key, *args, *kws))
        if function.key == "broken":
            raise TypingError("no such operator")
        return f"{function.key} {len(args)}"

    once = lean.once_for_all(ask)
    add, broken = (
        SimpleNamespace(key=key, _code=code) for code, key in enumerate(("add", "broken"))
    )
    for _ in range(2):
        assert once(add, None, (types.int64, types.int64), {}) == "add 2"
        assert once(add, None, (types.int64, types.float64), {}) == "add 2"
        with pytest.raises(TypingError):
            once(broken, None, (types.int64,), {})
    n, x = types.int64, types.float64
    assert asked == [("add", n, n), ("add", n, x), ("broken", n), ("broken", n)]
