"""What CI and installations take from others is pinned: actions by commit, packages by hash."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOCKS = sorted(ROOT.glob("requirements*.lock"))


def test_an_action_is_a_commit_and_its_comment_says_which_version() -> None:
    used = [
        line.partition("uses:")[2].strip()
        for file in (ROOT / ".github/workflows").glob("*.yml")
        for line in file.read_text().splitlines()
        if "uses:" in line
    ]
    assert len(used) > 5
    assert [one for one in used if not re.fullmatch(r"\S+@[0-9a-f]{40}  # v[\d.]+", one)] == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_has_a_version_and_the_hashes_of_each_package(lock: Path) -> None:
    text = lock.read_text().replace("\\\n", " ")
    for line in text.splitlines():
        pin, *hashes = line.split(" --hash=")
        assert re.match(r"[\w.-]+==[\w.+]+( ; .+)?$", pin.strip()), line
        assert hashes, line
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", one.strip()) for one in hashes)


@pytest.mark.parametrize("name", ["Makefile", "Containerfile", ".ci/run"])
def test_a_lock_is_installed_by_its_hashes_alone(name: str) -> None:
    words = (ROOT / name).read_text().replace("\\\n", " ").splitlines()
    installs = [line for line in words if "pip install" in line and " -r " in line]
    assert all("--require-hashes" in line for line in installs)


def test_hashes_are_those_of_all_files_of_a_version_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: dict[str, Any] = runpy.run_path(str(ROOT / ".ci/hashes.py"))
    on = {
        "here": [("a_b-1.2-py3-none-any.whl", "a1"), ("a-b-1.2.tar.gz", "b1")],
        "there": [
            ("a_b-1.2+cpu-cp312-cp312-linux.whl", "c1"),
            ("a_b-1.2.1-py3-none-any.whl", "d1"),
        ],
    }
    asked = []

    def files(index: str, name: str) -> list[tuple[str, str]]:
        asked.append(name)
        return on[index]

    locked = made["locked"]
    monkeypatch.setitem(locked.__globals__, "files", files)
    both = ["here", "there"]
    assert locked("A.b==1.2; x < '3'\n", both) == (
        "A.b==1.2 ; x < '3' \\\n    --hash=sha256:a1 \\\n    --hash=sha256:b1"
    )
    assert locked("a-b==1.2+cpu", both) == "a-b==1.2+cpu \\\n    --hash=sha256:c1"
    with pytest.raises(SystemExit, match=r"a-b==1\.3: no file of it is on here, there"):
        locked("a-b==1.3", both)
    assert set(asked) == {"a-b"}
