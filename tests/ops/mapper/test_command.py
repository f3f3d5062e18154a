"""Wrong options of `mrc mapper` and `mrc controller` are refused in a line that names them."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from openmrc.cli import main
from openmrc.ops import schedule
from openmrc.ops.mapper import words
from openmrc.scenario.scenario import load_lab
from openmrc.verbs.exchange import CLIENT, Line

SCENARIO = """
[fabric]
nics = 8
planes = 2
port_rate = "100Gbps"
t0_down = 4

[workload]
kind = "permutation"
size = "1MB"
"""
NETWORK = """
[network]
rate = "25Gbps"
hosts = [["203.0.113.1"], ["203.0.113.2"]]
"""
HOST = """{"fabric": {"nics": 8, "planes": 1, "port_rate": "100Gbps", "t0_down": 4}, "nic": 3,
"mode": "udp", "ports": [{"interface": "lo"}], "secret": "%s"}"""
FILES = {"fabric.toml": SCENARIO, "network.toml": NETWORK, "secret.hex": "00ff", "no.pem": "00ff"}
FILES |= {"host.json": HOST % "hush", "quiet.json": HOST % ""}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("controller fabric.toml --load 0%", "--load 0%: a share of a link's rate above 0%"),
        ("controller fabric.toml --load nan%", "--load nan%: a share"),
        ("controller fabric.toml --load 5", "--load 5: a share"),
        ("controller fabric.toml --crossings 0", "--crossings 0: 1 to 1000 are accepted"),
        ("controller fabric.toml --crossings 1001", "--crossings 1001: 1 to 1000 are accepted"),
        ("controller fabric.toml --period 0ms", "--period 0ms: a time above 0"),
        ("controller fabric.toml --period 61s", "--period 61s: a time above 0, up to 60s, is"),
        ("controller network.toml --set fabric.nics=4", "--set: changes a scenario"),
        ("controller fabric.toml --cert no.pem", "--cert no.pem: no certificate with its key"),
        ("mapper --secret secret.hex", "--secret: only with --network"),
        ("mapper --network network.toml --host host.json", "--host and --network: one of them"),
        ("mapper --host host.json", "host.json: secret = 'hush': bytes in hex are accepted"),
        ("mapper --host quiet.json --controller ::1", "--controller: the host file has no secret"),
        ("doctor --node --host host.json", "host.json: secret = 'hush': bytes in hex"),
        ("mapper --network network.toml", "network.toml: no host in it has only addresses"),
    ],
)
def test_a_wrong_option_is_named(
    command: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    more = ["--secret", "secret.hex"] if command.startswith("controller") else []
    assert main([*command.split(), *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"mrc: {said}")


def test_a_history_that_can_no_longer_be_written_ends_the_controller_in_a_line(
    tmp_path: Path,
) -> None:
    (tmp_path / "fabric.toml").write_text(SCENARIO)
    (tmp_path / "secret.hex").write_text("00ff")
    command = "controller fabric.toml --secret secret.hex --history history.sqlite"
    with subprocess.Popen(
        [sys.executable, "-m", "openmrc.cli", *command.split(), "--port", "0", "--http-port", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        port = re.search(r"port (\d+)", process.stderr.readline())
        assert port is not None
        process.stdout.readline()  # it serves
        with sqlite3.connect(tmp_path / "history.sqlite") as database:
            database.execute("DROP TABLE agent")
        line = Line.to("127.0.0.1", int(port[1]), 60.0)
        line.authenticate(bytes.fromhex("00ff"), CLIENT)
        line.send(
            words.join(schedule.make(load_lab(str(tmp_path / "fabric.toml"), []).fabric.build()), 0)
        )
        _, said = process.communicate(timeout=60)
        line.close()
    assert process.returncode == 3
    assert said.splitlines()[-1].startswith("mrc: history.sqlite: cannot be written (no such table")
    assert said.endswith("make room, or name another --history\n")
