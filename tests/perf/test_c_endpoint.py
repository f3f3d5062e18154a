"""The endpoint in C, which knows the documents alone, and `mrc perf`: bytes both ways."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import socket
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from openmrc.cli.command import main
from openmrc.perf import ends, run
from openmrc.perf.plan import BW
from openmrc.verbs import Device
from openmrc.verbs.line import CLIENT, Line
from tests.live.two import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
COMPILER = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
SECRET = bytes(range(32))
HERE, THERE = "127.0.6.1,127.0.6.2", "127.0.7.1,127.0.7.2"
STRICT = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    if COMPILER is None:
        pytest.skip("no C compiler: examples/c is not compiled; apt install gcc")
    made = tmp_path_factory.mktemp("c") / "mrc_endpoint"
    sources = sorted((ROOT / "examples/c").glob("*.c"))
    subprocess.run(
        [COMPILER, *STRICT, "-I", ROOT / "conformance", "-o", made, *sources], check=True
    )
    return str(made)


def started(program: str, words: Sequence[str]) -> subprocess.Popen[str]:
    given = ["--planes", THERE, "--pmtu", "8192"]
    return subprocess.Popen(
        [program, *words, *given], stdout=subprocess.PIPE, text=True, env=knowing(SECRET.hex())
    )


def knowing(secret: str) -> dict[str, str]:
    return {**os.environ, "OPENMRC_SECRET": secret}


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_what_mrc_perf_writes_arrives_in_c(
    program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENMRC_SECRET", SECRET.hex())
    with started(program, ["serve", "--once", "--port", "0"]) as server:
        port = said(server).split()[-1]
        words = ["perf", "write_bw", "127.0.0.1", "--port", port, "--planes", HERE, "--json"]
        assert main([*words, "-n", "20", "-s", "300001"]) == 0
        assert said(server) == "took 20 messages of 300001 bytes, 0 bytes wrong\n"
        assert server.wait(PATIENCE_S) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"][0]["iterations"] == 20
    assert all(port["tx_packets"] for port in found["device"]["ports"])


def test_what_c_writes_arrives_at_mrc_perf(program: str) -> None:
    listening: queue.Queue[int] = queue.Queue()
    placed: list[int] = []

    def serve() -> None:
        with Device.on_network(HERE.split(","), **ends.LIMITS) as device:
            run._serve(device, BW, 0, SECRET, False, listening.put)
            placed.append(sum(port["rx_bytes"] for port in device.counters()["ports"]))

    server = threading.Thread(target=serve)
    server.start()
    port = str(listening.get(timeout=PATIENCE_S))
    words = ["write", "127.0.0.1", "--port", port, "--size", "300001", "--iters", "20"]
    with started(program, words) as client:
        assert said(client).startswith("wrote 6000020 bytes")
        assert client.wait(PATIENCE_S) == 0
    server.join(PATIENCE_S)
    assert placed[0] > 6_000_020


def test_who_does_not_know_the_secret_is_turned_away(program: str) -> None:
    with started(program, ["serve", "--port", "0"]) as server:
        port = said(server).split()[-1]
        other = [program, "write", "127.0.0.1", "--planes", HERE, "--port", port]
        said_by = {}
        for secret in ("ab" * 32, "00"):
            done = subprocess.run(
                other, capture_output=True, text=True, check=False, env=knowing(secret)
            )
            assert done.returncode == 1
            said_by[secret] = done.stderr
        server.terminate()
    assert "does not know the secret" in said_by["ab" * 32]
    assert "16 bytes or more" in said_by["00"]


def test_who_says_nothing_is_given_up_and_the_next_one_served(program: str) -> None:
    with started(program, ["serve", "--port", "0"]) as server:
        port = int(said(server).split()[-1])
        with (
            socket.create_connection(("127.0.0.1", port)),
            contextlib.closing(Line.to("127.0.0.1", port, 10.0)) as line,
        ):
            line.authenticate(SECRET, CLIENT)
        server.terminate()
