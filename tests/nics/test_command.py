"""`mrc ops evs` and `mrc ops nic`: what they print, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmrc.cli.command import main

LAB = "examples/lab/linux.toml"


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["ops", *words]) == 0
    return capsys.readouterr().out.splitlines()


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["ops", *words]) == 2
    return capsys.readouterr().err


def test_evs_are_planned_for_every_nic(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "evs", LAB)
    assert [line.split(":")[0] for line in lines] == [f"nic {nic}" for nic in range(8)]
    assert lines[0].count(":") == 9
    assert printed(capsys, "evs", LAB, "--nics", "1", "--count", "4", "--deny", "plane 0 t1 1") == [
        "nic 1: 0000c000:1 0003c000:2 0005c000:3 0007c000:4"
    ]


def test_what_is_wrong_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "--deny" in refused(capsys, "evs", LAB, "--deny", "plane 9 t1 0")
    assert "--count: 3 EVs: 4 planes need one each" in refused(capsys, "evs", LAB, "--count", "3")
    assert "--nics" in refused(capsys, "evs", LAB, "--nics", "99")
    network = tmp_path / "network.toml"
    network.write_text('[network]\nrate = "1Gbps"\nhosts = [["127.0.0.1"], ["127.0.0.2"]]\n')
    secret = tmp_path / "secret.hex"
    secret.write_text(bytes(range(32)).hex())
    words = ["controller", str(network), "--nics", "--secret", str(secret)]
    assert "--nics: EVs are paths of a fabric" in refused(capsys, *words)
