"""An attacker who knows everything about one queue pair, against both ends of it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openmrc.engine import packet as pk
from openmrc.jit import interpreted
from openmrc.wire import decode
from tests.live.endpoint.stage import KNOWN, OPCODES, PAGE, Script, Stage

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 15  # half a minute in all: once compiled and fast, once in plain Python and guided
pytestmark = pytest.mark.skipif(interpreted(), reason="the stage is compiled; the fuzzer runs both")


@pytest.fixture(scope="module")
def script() -> Iterator[Script]:
    stage = Stage()
    yield Script(stage)
    stage.close()


@settings(max_examples=1500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(min_size=4, max_size=24))
def test_whatever_is_forged_nothing_of_others_is_harmed(script: Script, data: bytes) -> None:
    script.play(data)


def test_hundreds_of_random_frames_of_each_opcode(script: Script) -> None:
    rng = np.random.default_rng(1)
    for number in range(len(OPCODES)):
        for _ in range(250):
            data = bytearray(rng.bytes(16))
            data[1] = number
            script.play(bytes(data))
    script.stage.transfer()
    assert script.stage.lives > 0  # who knows all can end what he knows: SECURITY.md


def test_what_is_forged_would_be_believed() -> None:
    """The stage tests something: with nothing wrong, a frame goes all the way into memory."""
    stage = Stage()
    opcode = OPCODES.index(pk.WRITE_ONLY)
    nic, plane, _, made = stage.forge(bytes([1, opcode, 3 << 2, 0]))
    assert decode(made).icrc_ok
    stage.receive(nic, plane, made)
    assert (stage.rooms[nic][0][PAGE : PAGE + 64] == stage.data[:64]).all()
    assert stage.hosts[nic].ep.qp[KNOWN].rx_packets == 1
    stage.transfer()
    stage.close()


@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="LIVE ENDPOINT NOT FUZZED: atheris is not installed (wheels: Linux x86-64 only)",
)
@pytest.mark.parametrize("plain", ["0", "1"], ids=["compiled", "guided"])
def test_the_fuzzer_finds_nothing(tmp_path: Path, plain: str) -> None:
    found = tmp_path / "found"
    found.mkdir()
    run = subprocess.run(
        [
            sys.executable,
            str(ROOT / "fuzz" / "live.py"),
            f"-max_total_time={SECONDS}",
            "-max_len=40",
            "-timeout=60",
            "-rss_limit_mb=0",  # its peak begins with that of the process that starts it
            str(found),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NUMBA_DISABLE_JIT": plain},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    done = re.search(r"#(\d+)\s+DONE", run.stderr)
    assert done, run.stderr[-3000:]
    assert int(done[1]) > (50 if plain == "1" else 500)
