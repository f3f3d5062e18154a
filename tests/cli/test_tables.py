"""The tables of all commands in narrow terminals: no line is too long, and no number is cut."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from openmrc.cli.command import main
from openmrc.jit import interpreted

# RoCEv2, jobs, faults and long times, so that there is much to say.
SCENARIO = """
[fabric]
nics = 8
planes = 2
port_rate = "10Mbps"
t0_down = 4
[workload]
kind = "jobs"
[[workload.job]]
name = "the first of the two jobs"
kind = "permutation"
size = "100kB"
nics = "0-3"
[[workload.job]]
name = "second"
kind = "permutation"
size = "20kB"
nics = "4-7"
[[transport]]
name = "multipath reliable connection"
[[transport]]
kind = "roce"
pfc = false
convergence = "1ms"
[[fault]]
at = "1ms"
kind = "link-down"
where = "plane 0 t0 0 - t1 0"
"""
TRAINING = """
[fabric]
nics = 4
[workload]
kind = "training"
dp = 4
steps = 2
microbatches = 1
dp_size = "256KiB"
layers = 1
forward = "100us"
"""
COMMANDS = {
    "run": "run x.toml",
    "run --verbose": "run x.toml --verbose",
    "training": "run t.toml",
    "decode": "decode a-roce.pcapng",
    "decode of MRC": "decode 'a-multipath reliable connection.pcapng'",
    "sweep": "sweep x.toml --over seed=1,2 --over transport.pmtu=1024,2048 --out swept",
    "plan": "plan --gpus 65536 --collisions",
    "day": "day t.toml",
    "compare": "compare out out",
}
NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?![\w.,])")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables")
    (path / "x.toml").write_text(SCENARIO)
    (path / "t.toml").write_text(TRAINING)
    kept = ["--pcap", str(path / "a.pcapng"), "--out", str(path / "out")]
    assert main(["run", str(path / "x.toml"), *kept, "--json"]) == 0
    return path


@pytest.mark.skipif(interpreted(), reason="minutes in plain Python")
@pytest.mark.parametrize("command", COMMANDS)
def test_no_table_is_too_wide_and_no_number_is_cut(
    command: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TERM", "xterm")
    found = {}
    for columns in ("500", "80", "60"):
        monkeypatch.setenv("COLUMNS", columns)
        for stream in (sys.stdout, sys.stderr):
            monkeypatch.setattr(stream, "isatty", lambda: True)
        assert main(shlex.split(COMMANDS[command])) == 0
        printed = capsys.readouterr()
        text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", printed.out + printed.err)
        lines = [line for line in text.splitlines() if line[:1] in tuple("│┃┏")]
        assert lines
        assert max(map(len, lines)) <= int(columns)
        assert "…" not in "".join(lines)
        assert "-…" not in text  # of the progress bar, the time that is left
        found[columns] = {number for line in lines for number in NUMBER.findall(line)}
    assert len(found["500"]) > 5
    assert found["80"] >= found["500"]
    assert found["60"] >= found["500"]
