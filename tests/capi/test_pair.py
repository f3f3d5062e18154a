"""Two programs of C, each with an endpoint of its own, write to each other's memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from openmrc.capi import build, hot
from openmrc.jit import interpreted
from openmrc.verbs.cabled import prepare
from tests.capi.lines import hear, tell

SOURCE = Path(__file__).with_name("pair.c")
PLANES = ("127.0.8.1,127.0.8.2", "127.0.9.1,127.0.9.2")
STRICT = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]

pytestmark = pytest.mark.skipif(
    interpreted(), reason="a program that polls leaves plain Python no time for its timers"
)


@pytest.fixture(scope="module")
def program(library: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tmp_path_factory.mktemp("c") / "pair"
    subprocess.run(
        [build.compiler(), *STRICT, "-I", library / "include", SOURCE, "-o", made, "-L", library,
         "-lmrc", "-libverbs", f"-Wl,-rpath,{library}"],
        check=True,
    )  # fmt: skip
    prepare()
    hot.warm_up()
    return str(made)


def started(program: str, planes: str, words: list[str]) -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [program, *words],
        env={**os.environ, "OPENMRC_INTERFACES": planes, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_bytes_arrive_in_both_directions(program: str) -> None:
    words = ["300001", "20", "8"]
    last = [*words, "second"]
    with started(program, PLANES[0], words) as one, started(program, PLANES[1], last) as other:
        both = (one, other)
        first, second = hear(one), hear(other)
        tell(one, second)
        tell(other, first)
        assert [hear(each) for each in both] == ["ready\n"] * 2
        for each in both:
            tell(each, "go\n")
        # the 8th and the 16th of 20 writes are signaled, and the one with the immediate
        found = "3 signaled, 300001 bytes, 0 wrong, state 3, psn the peer's\n"
        assert [hear(each) for each in both] == [found] * 2
        for each in both:
            tell(each, "end\n")
    assert [one.returncode, other.returncode] == [0, 0]
