"""`mrc doctor --torch`: what a job would use, and what is wrong with the environment."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

from openmrc.cli.command import main
from openmrc.torch import doctor

NAMES = ("OPENMRC_HOST", "OPENMRC_INTERFACES", "OPENMRC_TIMEOUT", "OPENMRC_SHARED_MEMORY")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENMRC_INTERFACES", "127.0.0.1, 127.0.0.2")


def test_it_shows_planes_and_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENMRC_TIMEOUT", "7")
    found = doctor.examine()
    assert found["wire"]["mode"] == "ip"
    planes = [(one["interface"], one["address"]) for one in found["wire"]["planes"]]
    assert planes == [("lo", "127.0.0.1"), ("lo", "127.0.0.2")]
    assert {one["pmtu_bytes"] for one in found["wire"]["planes"]} == {8192}
    assert found["shared_memory"] is True
    told = "\n".join(doctor.lines(found))
    assert "on this host   shared memory" in told
    assert "plane 1        lo, 127.0.0.2, MTU " in told
    assert "silence of 7 s ends a job" in told


def test_what_cannot_be_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENMRC_INTERFACES", "nothing0")
    monkeypatch.setenv("OPENMRC_SHARED_MEMORY", "maybe")
    assert main(["doctor", "--torch", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["wire"] is None
    lacks = "\n".join(found["lacks"])
    assert "plane nothing0: no interface with an address" in lacks
    assert "OPENMRC_SHARED_MEMORY = 'maybe'" in lacks


def test_a_host_file_is_the_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENMRC_HOST", "/lab/h3.json")
    assert doctor.wire() == {"mode": "host file", "file": "/lab/h3.json", "planes": []}
