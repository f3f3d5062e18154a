"""Shells complete what there is, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from openmrc.cli.command import main
from openmrc.cli.completion import SHELLS, commands_of
from openmrc.cli.parser import make_parser


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def completed(script: str, words: str, folder: Path) -> list[str]:
    """What bash offers for the last word."""
    last = len(words.split(" ")) - 1
    code = f'{script}\nCOMP_WORDS=({words} ""); COMP_CWORD={last}; _mrc; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_commands_options_and_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bash = script("bash", capsys)
    assert completed(bash, "mrc de", tmp_path) == ["demo", "decode"]
    assert completed(bash, "mrc run x.toml --o", tmp_path) == ["--out"]
    assert completed(bash, "mrc run --world ", tmp_path) == ["sim", "lab"]
    assert completed(bash, "mrc bench l", tmp_path) == ["live"]
    assert completed(bash, "mrc lab h", tmp_path) == ["heal"]
    assert completed(bash, "mrc lab fail --fac", tmp_path) == ["--factor"]
    assert completed(bash, "mrc perf write_b", tmp_path) == ["write_bw"]
    assert completed(bash, "mrc run first", tmp_path) == []  # bash itself: names of files


@pytest.mark.parametrize("shell", SHELLS)
def test_every_option_of_every_command_is_in_the_script(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = script(shell, capsys)
    found = list(commands_of(make_parser()))
    assert {"run", "init", "compare", "completion"} <= {command.name for command in found}
    for command in found:
        assert command.name in text
        for word in command.words:
            option = f"-l {word.removeprefix('--')}" if shell == "fish" else word
            assert (option if word.startswith("--") else word) in text
    if shutil.which(shell) and shell != "fish":
        subprocess.run([shell, "-n"], input=text, text=True, check=True)
