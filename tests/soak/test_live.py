"""`mrc soak --world live`: a third of a minute of it, and that what is wrong would be said."""

from __future__ import annotations

import pytest

from openmrc.cli.command import main
from openmrc.jit import interpreted
from openmrc.live.relay import Relay
from openmrc.soak import live as soak


@pytest.mark.skipif(interpreted(), reason="hours in plain Python")
def test_a_third_of_a_minute_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Bounds are generous: a transfer may stand still for a minute, memory may grow by 48 MB, and a
    killed peer may be noticed 5 s late, for other tests have the cores as well.
    """
    assert main(["soak", "--world", "live", "--minutes", "0.34", "--seed", "7"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("ok 7: ")
    assert " 1 kills, noticed within" in last or " 2 kills, noticed within" in last


@pytest.mark.skipif(interpreted(), reason="a transfer in plain Python takes minutes")
def test_a_wrong_byte_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The receiver's idea of the data differs in one byte: it looks."""
    whole = soak._pool
    calls = [0]

    def other(seed: int) -> object:
        pool = whole(seed)
        calls[0] += 1
        if calls[0] == 2:  # the first receiver's
            pool[::4096] ^= 1
        return pool

    monkeypatch.setattr(soak, "_pool", other)
    said: list[str] = []
    assert soak.soak(3, 0.3, said.append) == 1
    assert any("a byte is wrong" in line for line in said)
    assert said[-1] == "  again: mrc soak --world live --minutes 0.3 --seed 3"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--world", "live", "--hours", "1"], "--hours with --world live"),
        (["--world", "live", "--minutes", "0"], "--minutes 0: 0.2 or more is accepted"),
        (["--minutes", "1"], "--minutes without --world live"),
        (["--world", "live", "--seed", "-1"], "--seed -1: 0 to"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["soak", *options]) != 0
    assert why in capsys.readouterr().err


def test_a_relay_does_what_it_is_told() -> None:
    relay = Relay(2, 1)
    frame = bytes(14 + 80 - 4) + (2).to_bytes(4, "big") + b"x" * 40
    try:
        relay.trouble[0].repeat = 1.0
        relay.ends[0][0].send(frame)
        relay.ends[1][0].settimeout(10)
        assert [relay.ends[1][0].recv(2000) for _ in range(2)] == [frame, frame]
        relay.trouble[0].repeat, relay.trouble[0].corrupt = 0.0, 1.0
        relay.ends[0][0].send(frame)
        changed = relay.ends[1][0].recv(2000)
        assert sum(a != b for a, b in zip(frame, changed, strict=True)) == 1
        relay.trouble[0].cut = True
        relay.ends[0][0].send(frame)
        relay.ends[1][0].settimeout(0.2)
        with pytest.raises(TimeoutError):
            relay.ends[1][0].recv(2000)
        assert (relay.forwarded, relay.dropped, relay.repeated, relay.corrupted) == (3, 1, 1, 1)
    finally:
        relay.close()


def test_a_seed_that_is_drawn_is_one_that_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def soaked(seed: int, *_: object) -> int:
        seeds.append(seed)
        return 0

    monkeypatch.setattr(soak, "soak", soaked)
    monkeypatch.setattr("os.urandom", lambda n: b"\xff" * n)
    assert main(["soak", "--world", "live"]) == 0
    assert seeds == [(2**32 - 1) % soak.SEEDS]
    assert seeds[0] < soak.SEEDS
