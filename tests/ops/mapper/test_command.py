"""Wrong options of agents and of their controller are refused in a line that names them."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from openmrc.cli import main
from openmrc.ops import schedule
from openmrc.ops.mapper import words
from openmrc.scenario.scenario import load_lab
from openmrc.verbs.line import CLIENT, Line
from openmrc.verbs.secret import of_agent, token
from openmrc.verbs.timely import REQUEST_S

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
SECRET = bytes(range(32))
HOST = """{"fabric": {"nics": 8, "planes": 1, "port_rate": "100Gbps", "t0_down": 4}, "nic": 3,
"mode": "udp", "ports": [{"interface": "lo"}], "secret": "%s"}"""
FILES = {
    "fabric.toml": SCENARIO,
    "network.toml": NETWORK,
    "secret.hex": SECRET.hex(),
    "weak.hex": "00ff",
}
FILES |= {"no.pem": "00ff", "text": "\u00fc", "same.hex": "ab" * 16}
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
        ("agent --secret secret.hex", "--secret: only with --network"),
        ("agent --network network.toml --host host.json", "--host and --network: one of them"),
        ("agent --host host.json", "host.json: secret: bytes in hex are accepted"),
        (
            "agent --host quiet.json --controller ::1",
            "--controller: the host file: there is no secret",
        ),
        ("doctor --node --host host.json", "host.json: secret: bytes in hex"),
        ("agent --host quiet.json --key secret.hex", "--key: only with --controller"),
        (
            "agent --host quiet.json --controller ::1 --key weak.hex",
            "--key weak.hex: the secret has 2",
        ),
        ("controller fabric.toml --secret weak.hex", "--secret weak.hex: the secret has 2 bytes"),
        (
            "controller fabric.toml --secret same.hex",
            "--secret same.hex: the secret repeats 1 byte, and",
        ),
        ("controller fabric.toml --secret text", "--secret text: hex digits are accepted, two for"),
        (
            "controller fabric.toml --secret nosuch",
            "--secret nosuch: cannot be read (No such file or directory); name",
        ),
        (
            f"controller fabric.toml --secret {'ab' * 16}",
            "--secret: names no file that can be read; name a",
        ),
        ("secret --nic 3 --token", "--nic and --token: name one of them"),
        ("secret --nic -1", "--nic -1: the number of a NIC is accepted"),
        ("secret --secret secret.hex", "--secret: only with --nic or --token"),
        (
            "controller fabric.toml --listen a\u0300..b",
            "--listen a\u0300..b: is no address, and no",
        ),
        ("agent --network network.toml", "network.toml: no host in it has only addresses"),
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
    is_alone = command.startswith("controller") and "--secret" not in command
    more = ["--secret", "secret.hex"] if is_alone else []
    group = ["ops"] if command.startswith(("agent", "controller")) else []
    assert main([*group, *command.split(), *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"mrc: {said}")


def test_a_history_that_can_no_longer_be_written_ends_the_controller_in_a_line(
    tmp_path: Path,
) -> None:
    (tmp_path / "fabric.toml").write_text(SCENARIO)
    (tmp_path / "secret.hex").write_text(SECRET.hex())
    command = "ops controller fabric.toml --secret secret.hex --history history.sqlite"
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
        line.authenticate(SECRET, CLIENT)
        line.send(
            words.join(schedule.make(load_lab(str(tmp_path / "fabric.toml"), []).fabric.build()), 0)
        )
        _, said = process.communicate(timeout=60)
        line.close()
    assert process.returncode == 3
    assert said.splitlines()[-1].startswith("mrc: history.sqlite: cannot be written (no such table")
    assert said.endswith("make room, or name another --history\n")


@pytest.mark.parametrize("ports", ["--port {} --http-port 0", "--port 0 --http-port {}"])
def test_a_controller_whose_port_is_used_says_which_and_what_to_do(
    ports: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OPENMRC_SECRET", SECRET.hex())
    (tmp_path / "fabric.toml").write_text(SCENARIO)
    with socket.create_server(("127.0.0.1", 0)) as used:
        asked = ports.format(used.getsockname()[1])
        assert main(["ops", "controller", str(tmp_path / "fabric.toml"), *asked.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    said = asked.replace(" --http", ", --http")
    assert line == (
        f"mrc: --listen 127.0.0.1, {said}: Address already in use; end what listens there"
        " (ss -tlnp), or name others"
    )


def test_a_controller_on_an_address_of_another_host_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENMRC_SECRET", SECRET.hex())
    (tmp_path / "fabric.toml").write_text(SCENARIO)
    asked = ["--listen", "203.0.113.9", "--port", "0", "--http-port", "0"]
    assert main(["ops", "controller", str(tmp_path / "fabric.toml"), *asked]) == 2
    assert capsys.readouterr().err == (
        "mrc: --listen 203.0.113.9, --port 0, --http-port 0: Cannot assign requested address; it is"
        " no address of this host; those are shown by: ip -br address\n"
    )


@contextlib.contextmanager
def controller(tmp_path: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """The command, the port of its agents, and its address for browsers."""
    (tmp_path / "fabric.toml").write_text(SCENARIO)
    command = ["ops", "controller", "fabric.toml", "--port", "0", "--http-port", "0", *more]
    with subprocess.Popen(
        [sys.executable, "-m", "openmrc.cli", *command],
        cwd=tmp_path,
        env={**os.environ, "OPENMRC_SECRET": SECRET.hex()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        port = re.search(r"port (\d+)", process.stderr.readline())
        assert port is not None
        try:
            yield process, int(port[1]), process.stdout.readline().strip()
        finally:
            process.kill()


def test_https_serves_beside_callers_that_say_nothing_and_ends_with_them(tmp_path: Path) -> None:
    """Silent before, in and after the handshake: none holds another, nor the end."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl: HTTPS is not tested; apt install openssl")
    words = "req -x509 -newkey rsa:2048 -nodes -keyout k.pem -out c.pem -days 2 -subj /CN=localhost"
    subprocess.run([openssl, *words.split()], cwd=tmp_path, check=True, capture_output=True)
    both = (tmp_path / "c.pem").read_text() + (tmp_path / "k.pem").read_text()
    (tmp_path / "ck.pem").write_text(both)
    context = ssl.create_default_context(cafile=str(tmp_path / "c.pem"))
    with (
        controller(tmp_path, "--cert", "ck.pem") as (process, _, address),
        contextlib.ExitStack() as open_,
    ):
        where = urlsplit(address)
        assert (where.scheme, where.hostname, where.query) == ("https", "127.0.0.1", "")
        for said in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n"):
            raw = open_.enter_context(socket.create_connection(("127.0.0.1", where.port or 0)))
            raw.sendall(said)
        raw = socket.create_connection(("127.0.0.1", where.port or 0))
        shaken = open_.enter_context(context.wrap_socket(raw, server_hostname="localhost"))
        shaken.sendall(b"GET /sta")
        began = time.monotonic()
        asking = http.client.HTTPSConnection("localhost", where.port, timeout=60, context=context)
        open_.callback(asking.close)
        asking.sock = context.wrap_socket(
            socket.create_connection(("127.0.0.1", where.port or 0)), server_hostname="localhost"
        )
        asking.request("GET", "/state", headers={"Authorization": f"Bearer {token(SECRET)}"})
        assert asking.getresponse().status == 200
        assert time.monotonic() - began < REQUEST_S  # when the silent ones are cut
        began = time.monotonic()
        process.terminate()
        assert process.wait(60) == 143
        assert time.monotonic() - began < 3 * REQUEST_S  # 2 s on a machine that is free; or never


def test_a_secret_makes_keys_and_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENMRC_SECRET", raising=False)
    (tmp_path / "secret.hex").write_text(SECRET.hex() + "\n")

    def said(*words: str) -> str:
        assert main(["secret", *words]) == 0
        return capsys.readouterr().out.strip()

    assert len({said() for _ in range(3)}) == 3
    assert len(bytes.fromhex(said())) == 32
    of_file = ["--secret", str(tmp_path / "secret.hex")]
    assert said("--token", *of_file) == token(SECRET)
    keys = [said("--nic", str(nic), *of_file) for nic in range(3)]
    assert keys == [of_agent(SECRET, nic).hex() for nic in range(3)]
    assert len({*keys, token(SECRET), SECRET.hex()}) == 5
    monkeypatch.setenv("OPENMRC_SECRET", SECRET.hex())
    assert said("--token") == token(SECRET)
