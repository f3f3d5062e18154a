"""Files that users name: whatever they are, they are read to their end, or refused in one line."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openmrc.errors import InputError
from openmrc.fabric.links import load_links
from openmrc.fabric.topo import load_topo
from openmrc.policies.check import check
from openmrc.reading import NESTED_MAX, opened, read_bytes, read_text, toml
from openmrc.scenario.scenario import load_scenario, value_of
from openmrc.sim.mrc.policies import find
from openmrc.verbs import hostfile, secret
from openmrc.wire import pcap
from openmrc.workload.chakra.collectives import read_groups
from openmrc.workload.cm import load_cm
from openmrc.workload.goal import load_goal
from openmrc.workload.matrix import load_matrix

READERS: dict[str, Callable[[Path], Any]] = {
    "scenario": load_scenario,
    "topology": load_topo,
    "links": lambda path: load_links(path, 0),
    "matrix": lambda path: load_matrix(path, 4),
    "array": lambda path: load_matrix(path.rename(path.with_suffix(".npy")), 4),
    "connections": lambda path: load_cm(path, 4),
    "goal": lambda path: load_goal(path, 4),
    "groups": lambda path: read_groups(path, 4),
    "policy": lambda path: find(f"{path.rename(path.with_suffix('.py'))}:choose", "choose", path),
    "policy that is checked": lambda path: check(str(path)),
    "host file": hostfile.read,
    "secret": secret.given,
    "capture": pcap.read,
}


@pytest.mark.parametrize("what", READERS)
@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_what_may_never_end_is_refused_by_its_name(what: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "named"
    with socket.socket(socket.AF_UNIX) as listening:
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "socket":
            listening.bind(str(path))
        else:
            path.symlink_to("/dev/zero")
        with pytest.raises(InputError, match=r"named(\.py|\.npy)?: is no regular file; name a"):
            READERS[what](path)


def test_a_pipe_that_the_caller_has_opened_is_read() -> None:
    """As a shell's `<(...)` gives it."""
    ours, theirs = os.pipe()
    os.write(theirs, b"a = 1")
    os.close(theirs)
    assert read_text(f"/dev/fd/{ours}", "a file") == "a = 1"
    os.close(ours)


def test_errors_while_a_file_is_read_name_it(tmp_path: Path) -> None:
    def fails(error: Exception) -> None:
        with opened(tmp_path / "a", "a file"):
            raise error

    (tmp_path / "a").touch()
    with pytest.raises(InputError, match=r"/a: cannot be read \(Input/output error\); name a file"):
        fails(OSError(5, "Input/output error"))
    with pytest.raises(InputError, match="/a: is not UTF-8 text; name a file"):
        fails(UnicodeDecodeError("utf-8", b"", 0, 1, ""))
    with pytest.raises(InputError, match="no file has such a name"):
        read_bytes("a\0b", "a file")
    (tmp_path / "a").write_bytes(bytes(3))
    with pytest.raises(InputError, match="/a: is longer than 0 MiB; name a file"):
        read_bytes(tmp_path / "a", "a file", 2)


DEEP = 40_000  # parts of a key: half a minute for its reader


@pytest.mark.parametrize("part", ["a", '"a b"', "'a.b'", "a - b", "a \t"])
@pytest.mark.parametrize("form", ["{} = 1", "[{}]", "[[{}]]", "x = {{{} = 1}}", "x = 1\n {}=2"])
def test_keys_of_countless_parts_are_refused_at_once(part: str, form: str) -> None:
    deep = form.format(".".join([part.strip()] * DEEP))
    if part == "a - b":  # no key at all
        deep = form.format(".".join(["a"] * DEEP) + " - b")
    with pytest.raises(ValueError, match="nested too deeply"):
        toml(deep)


def test_what_only_looks_deep_is_read() -> None:
    dots = "." * DEEP
    numbers = "[" + ", ".join(["1.5"] * 1000) + "]"
    text = f'# {dots}\nname = "{dots}"\nn = {numbers}\na.b.c = "1.2.3"\n'
    assert toml(text)["a"] == {"b": {"c": "1.2.3"}}
    most = ".".join("a" * NESTED_MAX)
    assert "a" in toml(f"{most} = 1")
    assert value_of(f"{most}.a") == f"{most}.a"  # a word
    assert value_of("[" * DEEP) == "[" * DEEP
    assert value_of("9" * 5000) == "9" * 5000
