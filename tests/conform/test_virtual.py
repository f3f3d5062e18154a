"""The live endpoint in virtual time passes rules exactly; broken, it fails the one that says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
HELD = (
    "a-write-is-cut-into-packets",
    "psns-are-consecutive",
    "a-write-completes-with-its-ack",
    "planes-take-turns",
    "a-port-that-goes-down-is-told",
    "immediates-come-in-order",
    "sack-shows-what-came-beyond-a-hole",
    "sack-of-a-marked-packet",
    "a-probe-reflects-ev-and-time-stamp",
    "immediates-arrive-by-a-bad-network",
)
# What is broken in the module of `live.endpoint`, and which exchange finds it.
BROKEN = {
    "receive": ("copy(to, data.ctypes.data", "copy(to + 1, data.ctypes.data", "immediates-come"),
    "transmit": ("p.va - st.message[at].remote_va", "0", "a-write-is-cut"),
    "ip": ("ecn = value & 3", "ecn = value & 1", "sack-of-a-marked"),
    "loop": ("endpoint.post_receive(q)", "pass", "immediates-come"),
    "complete": ("own.signaled:", "not own.signaled:", "a-write-completes"),
}
PROGRAM = f"""
import inspect, json
from importlib import import_module
from openmrc.conform import script
from openmrc.conform.run import PASS
from tests.conform import stories, virtual
rules, always = script.rules(), script.rules(kind=script.ALWAYS)
def fails(start):
    rule = next(rule for rule in rules if rule.name.startswith(start))
    said = virtual.verdict(rule, always)
    return said.breaches[0].rule.name if said.breaches else said.outcome * (said.outcome != PASS)
held = [fails(name) for name in {HELD}]
twice = [stories.of_live(3) for _ in range(2)]
broken = {{}}
for name, (old, new, start) in {BROKEN}.items():
    module = import_module("openmrc.live.endpoint." + name)
    text, was = inspect.getsource(module), dict(vars(module))
    assert text.count(old) == 1, (name, old)
    space = dict(was)
    exec(compile(text.replace(old, new), module.__file__, "exec"), space)
    codes = {{n: f.__code__ for n, f in was.items() if hasattr(f, "__code__")}}
    own = {{n: space[n].__code__ for n in codes if was[n].__module__ == module.__name__}}
    for n, code in own.items():
        was[n].__code__ = code
    broken[name] = fails(start)
    for n in own:
        was[n].__code__ = codes[n]
print(json.dumps([held, twice, broken]))
"""


@pytest.fixture(scope="module")
def told() -> Any:
    env = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    words = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_live_endpoint_passes(told: Any) -> None:
    assert dict(zip(HELD, told[0], strict=True)) == dict.fromkeys(HELD, "")


def test_a_run_repeats(told: Any) -> None:
    assert told[1][0] == told[1][1]


@pytest.mark.parametrize("module", BROKEN)
def test_a_broken_one_fails(told: Any, module: str) -> None:
    assert told[2][module]
