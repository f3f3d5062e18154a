"""Rules in real time: against the endpoint in C, a broken one, and our own live endpoint."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from openmrc.capi import build
from openmrc.cli.command import main
from openmrc.conform import network, script
from openmrc.conform.network import NetworkTarget, Where, verdict
from openmrc.conform.run import FAIL, NOT_APPLICABLE, PASS, run
from openmrc.conform.targets import served
from openmrc.conform.tester import limits_of
from openmrc.errors import InputError
from openmrc.units import S

ROOT = Path(__file__).resolve().parents[2]
COMPILER = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
SECRET = bytes(range(32))
THERE, HERE = "127.0.10.1,127.0.10.2", ("127.0.11.1", "127.0.11.2")
PATIENCE_PS = 20 * S  # whoever is late on a busy machine is not wrong
RULES = {rule.name: rule for rule in script.rules()}
HELD = (
    "a-write-is-cut-into-packets",
    "psns-are-consecutive",
    "rqmsn-counts-immediates",
    "a-write-completes-with-its-ack",
    "a-nak-ends-the-qp",
    "an-unexpected-event-ends-the-qp",
    "a-port-that-goes-down-is-told",
    "data-is-placed-in-any-order",
    "immediates-come-in-order",
    "an-immediate-without-receive-is-refused",
    "sack-shows-what-came-beyond-a-hole",
    "sack-of-a-marked-packet",
    "above-the-window-is-nacked",
    "a-probe-reflects-ev-and-time-stamp",
    "one-ack-for-several-messages",
)


def compiled(folder: Path, change: tuple[str, str] = ("", "")) -> str:
    """The endpoint in C, one line of it changed."""
    if COMPILER is None:
        pytest.skip("no C compiler: examples/c is not compiled; apt install gcc")
    texts = {file: file.read_text() for file in (ROOT / "examples/c").glob("*.[ch]")}
    assert not change[0] or sum(text.count(change[0]) for text in texts.values()) == 1
    for file, text in texts.items():
        (folder / file.name).write_text(text.replace(*change) if change[0] else text)
    words = [COMPILER, "-O0", "-I", str(ROOT / "conformance"), "-o", str(folder / "endpoint")]
    subprocess.run([*words, *map(str, sorted(folder.glob("*.c")))], check=True)
    return str(folder / "endpoint")


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken endpoint fails again at once."""
    monkeypatch.setattr(network, "PAUSES_S", (0.0, 0.0, 0.0))


@contextmanager
def serving(program: str, patience_ps: int = PATIENCE_PS) -> Iterator[Where]:
    words = [program, "serve", "--port", "0", "--planes", THERE]
    env = {**os.environ, "OPENMRC_SECRET": SECRET.hex()}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().split()[-1])
            yield Where(HERE, "127.0.0.1", port, SECRET, patience_ps=patience_ps)
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Where]:
    with serving(compiled(tmp_path_factory.mktemp("c"))) as where:
        yield where


@pytest.mark.parametrize("name", HELD)
def test_the_endpoint_in_c_passes(there: Where, name: str) -> None:
    found = verdict(RULES[name], there)
    assert found.outcome == PASS, (found.why, found.came)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("trimmed-is-nacked", "nothing trims in an ordinary network"),
        ("mpr-is-told-if-agreed", "dynamic_mpr: 0 is accepted"),
    ],
)
def test_what_it_cannot_be_held_against(there: Where, name: str, why: str) -> None:
    found = verdict(RULES[name], there)
    assert (found.outcome, found.why) == (NOT_APPLICABLE, why)


def test_a_broken_endpoint_fails_the_rule_that_says_so(tmp_path: Path) -> None:
    """The bitmap of its SACKs is off by one."""
    change = ("(uint16_t)(base - q->cack)", "(uint16_t)(base - q->cack + 1)")
    with serving(compiled(tmp_path, change), patience_ps=0) as where:
        found = verdict(RULES["sack-shows-what-came-beyond-a-hole"], where)
    assert found.outcome == FAIL
    assert found.why.startswith("missing: expect sack cack_psn=+0")


def test_a_target_that_dies_has_failed(tmp_path: Path) -> None:
    change = (
        '	if ((value = member(word, "post"))) {',
        "	if ((value = word)) {\n		exit(0);",
    )
    with serving(compiled(tmp_path, change), patience_ps=0) as where:
        found = verdict(RULES["a-short-write-is-one-packet"], where)
    assert found.outcome == FAIL


def test_without_an_upper_tester_attributes_are_a_file(there: Where, tmp_path: Path) -> None:
    """What an application does or sees is out of reach, and a queue pair is for one rule."""
    file = tmp_path / "target.json"
    attributes = {"nic": 0, "qp_num": 77, "psn": 5, "pmtu": 1024, "mpr": 512, "max_wimm": 8}
    planes = [{"address": one, "port": 4999, "sources": [50_000]} for one in THERE.split(",")]
    region = {"addr": 4096, "length": 65536, "rkey": 9}
    told = {**attributes, "send_depth": 64, "planes": planes}
    file.write_text(json.dumps({"qp": told, "regions": [region], "rtt_us": 1, "rto_us": 4}))
    where = Where(HERE, attributes=file)
    for name in ("a-short-write-is-one-packet", "payload-is-placed-at-its-address"):
        made: list[NetworkTarget] = []

        def make(settings: dict[str, int], made: list[NetworkTarget] = made) -> NetworkTarget:
            made.append(NetworkTarget(where, settings))
            return made[-1]

        assert run(RULES[name], make).outcome == NOT_APPLICABLE  # type: ignore[arg-type]
        assert made[0].flow_psn["requester"] == 5
        made[0].close()
    kits = json.loads(where.kits.read_text())
    assert [one["address"] for one in kits["qp"]["planes"]] == list(HERE)


def test_a_device_is_opened_as_a_rule_wants_it() -> None:
    limits = limits_of({"planes": 1, "evs": 4, "mpr": 128, "trim_nack": 0, "receives": 3})
    assert (limits["evs_active"], limits["mpr"], limits["trim_nack"]) == (4, 128, False)
    with pytest.raises(InputError, match="with: a device has no colour"):
        limits_of({"colour": 1})


def test_nobody_reads_the_live_endpoints_secret_in_a_list_of_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []

    def popen(words: list[str], env: dict[str, str], **_: Any) -> Any:
        started.append((words, env))
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(FileNotFoundError), served("live"):
        pass
    [(words, env)] = started
    assert len(bytes.fromhex(env["OPENMRC_SECRET"])) == 32
    assert env["OPENMRC_SECRET"] not in " ".join(words)


@pytest.mark.parametrize("target", ["live", "libmrc"])
def test_our_own_targets_pass(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    if target == "libmrc":
        try:
            build.compiler()
            build.python_library()
        except InputError as error:
            pytest.skip(str(error))
    names: Sequence[str] = (HELD[3], HELD[10])
    rules = [word for name in names for word in ("--rule", name)]
    assert main(["conformance", "--against", target, "--patience", "20s", *rules]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 rules: 2 passed"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--address h", "--interface: name the planes of this host, as eth0,eth1"),
        ("--address h --against live", "--against, --address, --attributes, --capture: name one"),
        ("--interface lo", "--interface without --address: openmrc's own target needs none"),
        ("--patience 1s", "--patience: the engine runs in virtual time, and is never late"),
        ("--against live --patience soon", "--patience"),
        ("--port 5", "--port without --serve"),
        ("--attributes f --interface lo", "--attributes: a queue pair is for one rule"),
        (
            "--address h --interface lo --secret xy",
            "--secret xy: cannot be read (No such file or directory); name a",
        ),
    ],
)
def test_options_that_do_not_fit(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", *words.split()]) == 2
    assert says in capsys.readouterr().err


def test_a_post_follows_what_was_sent(there: Where) -> None:
    """Frames and the words to the upper tester go different ways: on a busy machine a post that is
    not held back overtakes them.
    """
    target = NetworkTarget(there, {})
    try:
        sent_ps = target.now_ps
        target.send("sack", {"cack_psn": target.flow_psn["requester"] - 1, "tx_timestamp": 0})
        target.post(8, None)
        assert target.now_ps - sent_ps >= network.PATIENCE_PS
    finally:
        target.close()
