"""The benchmarks run, and mean what they print."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmrc.bench import sim as benchsim
from openmrc.cli.command import main
from openmrc.errors import InputError, OpenMrcError
from openmrc.jit import interpreted

ROOT = Path(__file__).resolve().parents[1]
compiled_only = pytest.mark.skipif(interpreted(), reason="measures compiled code")

TOPO = """\
Nodes 8
Tiers 2
Podsize 8
Tier 0
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 100
Radix_Down 2
Downlink_Latency_ns 1000
"""
CM = "Nodes 8\nConnections 2\n0->1 id 1 start 0 size 300000\n1->7 id 2 start 0 size 100000\n"


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_bench_prints_what_is_promised_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = {"link_traversals_per_s": 4_000_000, "loop_s": 1.0, "peak_rss_mb": 200.0}
    monkeypatch.setattr(benchsim, "_child", lambda what: dict(case))
    assert main(["bench", "sim", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == dict.fromkeys(benchsim.CASES, case)


@compiled_only
def test_a_case_runs_in_a_process_of_its_own() -> None:
    figures = benchsim.measure("M256_8x100G")
    assert list(figures) == ["link_traversals_per_s", "loop_s", "peak_rss_mb"]
    traversals = figures["link_traversals_per_s"] * figures["loop_s"]
    assert 1.2e6 < traversals < 1.4e6  # 250,112 data packets over 3.8 links each, and their SACKs
    assert figures["peak_rss_mb"] > benchsim.measure_floor()["peak_rss_mb"]


def test_a_case_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InputError, match="there is no case 'P1'; accepted: P1024_100G"):
        benchsim.measure("P1")


def test_a_child_that_fails_is_an_error() -> None:
    with pytest.raises(OpenMrcError, match="ended with status 1"):
        benchsim._child("nothing")


def test_the_parts_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpreted: its loops are the simulator's functions, compiled a second time for a minute."""
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    figures: dict[str, Any] = json.loads(run("benchmarks/parts.py", "--quick", "--json"))
    for size in ("near", "far"):
        assert min(figures[size][part] for part in ("call", "event", "hop_idle", "hop_queued")) > 0
        # the rest are times less that of a call, which in so short a run may be the larger one
        assert np.isfinite(list(figures[size].values())).all()
        assert {"pull", "place", "answer"} <= figures[size].keys()


@compiled_only
def test_the_wire_can_be_measured() -> None:
    figures: dict[str, Any] = json.loads(run("benchmarks/wire.py", "--quick", "--json"))
    for frames in ("data", "headers", "sack"):
        assert min(figures["near"][frames].values()) > 0


@compiled_only
def test_policies_can_be_measured() -> None:
    figures: dict[str, Any] = json.loads(run("benchmarks/policies.py", "--quick", "--json"))
    assert all(f["ratio"] > 0 for f in figures.values())


@compiled_only
def test_a_peer_is_timed_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "x.topo").write_text(TOPO)
    (tmp_path / "y.cm").write_text(CM)
    peer = tmp_path / "htsim"
    peer.write_text(
        '#!/bin/sh\ncase "$*" in *"-end 20000"*) sleep 0.2; esac\n'
        "echo Flow x finished at 12.5 total\n"
        "echo New: 100 Rtx: 4 RTS: 1 Bounced: 0 ACKs: 30 NACKs: 5 Pulls: 0\n"
    )
    peer.chmod(peer.stat().st_mode | stat.S_IXUSR)
    files = ("--topo", str(tmp_path / "x.topo"), "--cm", str(tmp_path / "y.cm"))
    out = run("benchmarks/peer.py", "--htsim", str(peer), *files, "--repeat", "1").splitlines()
    # three quarters of the bytes cross two links, one quarter four: 140 packets x 2.5
    assert out[1].split()[:2] == ["htsim", "350"]
    assert out[3].startswith("ratio of link traversals per second")


def test_memory_is_told_before_a_run() -> None:
    out = run("benchmarks/memory.py", "examples/incast.toml", "fabric.nics=64")
    assert out.splitlines()[-1].startswith("all")
    assert "engine.state.QP" in run("benchmarks/memory.py", "--records")


def test_traces_are_read_as_fast_as_they_say() -> None:
    pytest.importorskip("google.protobuf")
    goal, chakra = run("benchmarks/traces.py", "--nodes", "600", "--ranks", "4").splitlines()
    for line, kind in ((goal, "goal"), (chakra, "chakra")):
        assert line.startswith(f"{kind}: 600 nodes of 4 ranks in ")
        assert "; 200 messages, 200 computations; peak " in line
