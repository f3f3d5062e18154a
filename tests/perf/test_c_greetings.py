"""The endpoint in C, under AddressSanitizer and UBSan, and peers that know the secret and say what
they like: each is served or told what is wrong, and the next one is served as if nothing had been.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from openmrc.verbs.line import CLIENT, ExchangeError, Line

ROOT = Path(__file__).resolve().parents[2]
C = ROOT / "examples/c"
COMPILER = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
SANITIZED = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
SECRET = bytes(range(32))
PLANES = "127.0.8.1,127.0.8.2"
GREETINGS, WORDS_SAID, MET, TALKS = 10_000, 2_000, 100, 12

PLANE = {"address": "127.0.9.1", "port": 4791, "sources": [49152, 49153]}
QP = {"nic": 0, "qp_num": 77, "psn": 5, "pmtu": 1024, "mpr": 512, "max_wimm": 128,
      "send_depth": 64, "trim_nack": True, "dynamic_mpr": False, "svc_time": False,
      "planes": [PLANE, {**PLANE, "address": "127.0.9.2"}]}  # fmt: skip
REGION = {"addr": 4096, "length": 1 << 20, "rkey": 5}
WITH = {"planes": 2, "evs": 4, "mpr": 512, "receives": 64}
TEST = {"test": "write_bw", "sizes": [65536], "iterations": 9, "duration_s": 0.0, "qps": 1,
        "tx_depth": 128, "bidirectional": False}  # fmt: skip
KIT = {"qp": QP, "regions": [REGION], "extra": {"conformance": {"with": WITH}}}
PERF = {"qp": QP, "regions": [REGION], "extra": TEST}
WORDS = ({"post": 3072}, {"post": 8, "imm": 7}, {"receives": 3}, {"port": 1, "up": False},
         {"read": 4096, "bytes": 16})  # fmt: skip
EDGES: tuple[Any, ...] = (
    *(0, -1, 1, 3, 33, 99, 1 << 20, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 64, -5, 1.5, 1e308),
    *("x", "a" * 70_000, "\x1b]0;x\x07", "127.0.9.1" * 10, "::1", '"', "\\", None, True, [], {}),
    [[[[[[]]]]]] * 40,
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The endpoint, which as `greetings` and `words` only reads lines of its input."""
    if COMPILER is None:
        pytest.skip("no C compiler: examples/c is not compiled; apt install gcc")
    out = tmp_path_factory.mktemp("c") / "endpoint"
    parts = [one for one in sorted(C.glob("*.c")) if one.name != "main.c"]
    sources = [Path(__file__).with_name("greetings.c"), *parts]
    found = ["-I", ROOT / "conformance", "-I", C]
    words = [COMPILER, *SANITIZED, *map(str, [*found, "-o", out, *sources])]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "cannot find" in done.stderr and "san" in done.stderr:
        pytest.skip("no sanitizers; apt install libasan8 libubsan1")
    assert done.returncode == 0, done.stderr
    return out


def read(program: Path, lines: list[bytes], what: str = "greetings") -> list[str]:
    """What is said of each line."""
    given = b"\n".join(lines) + b"\n"
    done = subprocess.run([program, what], input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    said = done.stdout.decode("ascii").splitlines()
    assert len(said) == len(lines)
    assert all(one == "taken" or one.startswith("refused: ") for one in said)
    return said


class Served:
    """The endpoint, serving one peer after the other."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.answers: Counter[str] = Counter()

    @contextlib.contextmanager
    def met(self) -> Iterator[Line]:
        """A connection on which both have proved that they know the secret."""
        with contextlib.closing(Line.to("127.0.0.1", self._port, 5.0)) as line:
            line.authenticate(SECRET, CLIENT)
            yield line

    def greet(self, greeting: bytes) -> str:
        """Say this, and what the endpoint makes of it."""
        with self.met() as line:
            line._socket.sendall(greeting + b"\n")
            answer = self._heard(line)
        self.answers[answer.split(":")[0]] += 1
        return answer

    def talk(self, words: list[bytes]) -> str:
        """Begin as the kit does, then say these words; the last thing that the endpoint says."""
        with self.met() as line:
            line.send(KIT)
            for word in ("connected", "measured"):
                assert self._heard(line) == "told"
                line.send({word: True})
            line._socket.sendall(b"".join(word + b"\n" for word in words))
            line._socket.shutdown(1)
            last = ""
            while (answer := self._heard(line)) != "left":
                last = answer
        self.answers[last.split(":")[0]] += 1
        return last

    @staticmethod
    def _heard(line: Line) -> str:
        try:
            return "refused: " + str(line.receive()["refused"])
        except KeyError:
            return "told"
        except (OSError, ExchangeError):
            return "left"


@pytest.fixture
def served(program: Path) -> Iterator[Served]:
    words = [str(program), "serve", "--port", "0", "--planes", PLANES]
    # Each client has a process, whose memory goes with it.
    env = {**os.environ, "OPENMRC_SECRET": SECRET.hex(), "ASAN_OPTIONS": "detect_leaks=0"}
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=env) as one:
        assert one.stdout is not None
        assert one.stderr is not None
        endpoint = Served(int(one.stdout.readline().split()[-1]))
        try:
            yield endpoint
            for good in (KIT, PERF):  # as if nothing had been
                assert endpoint.greet(json.dumps(good).encode()) == "told"
            assert one.poll() is None
        finally:
            one.terminate()
            said = one.stderr.read()
    assert not [line for line in said.splitlines() if not line.startswith("mrc_endpoint: ")]
    assert "ended by signal" not in said
    assert said.isascii()
    assert "\x1b" not in said


def mutated(rng: random.Random, one: Any) -> bytes:
    """Change, drop or repeat a value or two anywhere, and now and then some bytes of the text."""
    root = [json.loads(json.dumps(one))]
    for _ in range(rng.choice((1, 1, 2))):
        within: Any = root
        while True:
            keys = list(within) if isinstance(within, dict) else list(range(len(within)))
            key = rng.choice(keys)
            below = within[key]
            if not (isinstance(below, dict | list) and below and rng.random() < 0.85):
                break
            within = below
        what = rng.random()
        if what < 0.15 and within is not root:
            del within[key]
        elif what < 0.25 and isinstance(within, list):
            within[:] = within * rng.choice((2, 20))
        else:
            within[key] = deepcopy(rng.choice(EDGES))
    text = bytearray(json.dumps(root[0]).encode())
    while rng.random() < 0.2:
        text[rng.randrange(len(text))] = rng.randrange(256)
    return bytes(text).replace(b"\n", b" ")


def test_ten_thousand_greetings(program: Path) -> None:
    rng = random.Random(38)
    said = read(program, [mutated(rng, (KIT, PERF)[n % 2]) for n in range(GREETINGS)])
    assert said.count("taken") > GREETINGS // 10  # mutations that leave a greeting good
    assert len(set(said)) > 30  # and those that are refused, for reasons of their own


def test_words_of_a_kit(program: Path) -> None:
    rng = random.Random(38)
    said = read(program, [mutated(rng, rng.choice(WORDS)) for _ in range(WORDS_SAID)], "words")
    assert said.count("taken") > WORDS_SAID // 10
    assert len(set(said)) == 7  # taken, five reasons, and no JSON


@pytest.mark.parametrize(
    ("path", "least", "most"),
    [
        ("qp qp_num", 3, (1 << 24) - 1),
        ("qp psn", 0, (1 << 24) - 1),
        ("qp mpr", 1, 32640),
        ("qp max_wimm", 1, 32640),
        ("qp planes 1 port", 1, 65535),
        ("qp planes 0 sources 1", 49152, 65535),
        ("regions 0 length", 4096, 1 << 62),
        ("regions 0 rkey", 0, (1 << 32) - 1),
        ("extra conformance with planes", 1, 8),
        ("extra conformance with evs", 1, 4),
        ("extra conformance with mpr", 1, 2048),
        ("extra conformance with exp_cnt", 0, 25),
    ],
)
def test_the_ends_of_each_range(program: Path, path: str, least: int, most: int) -> None:
    lines = []
    for value in (least, most, least - 1, most + 1, float(least), str(least), None):
        greeting = json.loads(json.dumps(KIT))
        within = greeting
        *steps, last = [int(one) if one.isdigit() else one for one in path.split()]
        for step in steps:
            within = within[step]
        within[last] = value
        lines.append(json.dumps(greeting).encode())
    said = read(program, lines)
    assert said[:2] == ["taken", "taken"]
    assert not any(one == "taken" for one in said[2:])


def test_a_key_of_another_object_is_no_key_of_this_one(program: Path) -> None:
    stray = {"extra": {**TEST, "qp": QP, "psn": 7}, "regions": [REGION]}
    [said] = read(program, [json.dumps(stray).encode()])
    assert said == "refused: nic: 0 to 2147483647 is accepted"


def test_peers_that_say_what_they_like_are_served_one_after_the_other(served: Served) -> None:
    rng = random.Random(38)
    for n in range(MET):
        served.greet(mutated(rng, (KIT, PERF)[n % 2]))
    for _ in range(TALKS):
        words = [json.dumps(word).encode() for word in rng.choices(WORDS, k=6)]
        served.talk([*words, mutated(rng, rng.choice(WORDS))])
    assert served.answers["told"] > TALKS // 3
    assert served.answers["refused"] > TALKS // 3


def test_keys_cannot_be_foretold(program: Path) -> None:
    """Nothing of the C library's generator is linked: every key comes from the kernel."""
    symbols = subprocess.run(["nm", "-u", program], capture_output=True, text=True, check=True)
    used = {line.split()[-1].split("@")[0] for line in symbols.stdout.splitlines()}
    assert "getrandom" in used
    assert not used & {"rand", "srand", "random", "srandom", "rand_r", "drand48"}
