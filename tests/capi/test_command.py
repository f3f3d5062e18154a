"""`mrc build-lib`: what it makes, and what it says where something is missing."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from openmrc.capi import build, hot
from openmrc.cli.command import main
from openmrc.errors import InputError
from openmrc.verbs import cabled


def undefined(library: Path) -> str:
    words = ["nm", "-D", "--undefined-only", str(library)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("checked", [False, True])
def test_both_libraries_are_made(
    library: Path,
    tmp_path: Path,
    checked: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(cabled, "prepare", lambda: compiled.append("endpoint"))
    monkeypatch.setattr(hot, "warm_up", lambda: compiled.append("calls"))
    words = ["build-lib", "--out", str(tmp_path), *(["--asan"] if checked else [])]
    assert main(words) == 0
    made = [tmp_path / "libmrc.so", tmp_path / "libibverbs.so.1"]
    assert capsys.readouterr().out == "".join(f"{one}\n" for one in made)
    assert compiled == ["endpoint", "calls"]
    assert (tmp_path / "libibverbs.so").resolve() == made[1]
    assert ("__asan_init" in undefined(made[0])) == checked


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(InputError, match=r"no C compiler: .* type: sudo apt install gcc"):
        build.compiler()


def test_a_python_without_headers_or_library_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    with pytest.raises(InputError, match=r"Python\.h: missing; type: sudo apt install python3-dev"):
        build.python_library()
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: None)
    with pytest.raises(InputError, match="has no shared library"):
        build.python_library()
