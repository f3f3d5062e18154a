"""A library that implements the C API badly: it neither stops an agent nor misleads it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from openmrc.capi import build, header
from openmrc.capi.control import formats
from openmrc.capi.places import Refused
from openmrc.errors import InputError
from openmrc.fabric.clos import multiplane
from openmrc.nics.agent import NicAgent
from openmrc.nics.library import Library
from openmrc.nics.nic import Request
from openmrc.ops import evs
from openmrc.units import MS

FABRIC = multiplane(12, 2, 10**9, 4, 2, 0, 0)
GIDS = [bytes([nic]) * 16 for nic in range(12)]
SOURCE = Path(__file__).with_name("bad.c")


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        compiler = build.compiler()
    except InputError as error:
        pytest.skip(str(error))
    out = tmp_path_factory.mktemp("bad")
    (out / "infiniband").mkdir()
    (out / "mrc.h").write_text(header.mrc_h())
    (out / "mrc_ctl.h").write_text(header.mrc_ctl_h())
    (out / "infiniband/verbs.h").write_text(header.verbs_h())
    words = [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-I", str(out)]
    subprocess.run([*words, str(SOURCE), "-o", str(out / "bad.so")], check=True)
    return out / "bad.so"


def agent(library: Library) -> tuple[NicAgent, list[str]]:
    told: list[str] = []
    found = NicAgent(library, evs.make(FABRIC, 10, MS, 0.01), 0, GIDS, told.append, lambda: 0)
    found.start()
    return found, told


def test_what_is_missing_is_said_and_done_without(
    bad: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAD", "")
    one, told = agent(Library(bad))
    assert told == ["its EVs stay its own: mrc_ctl_modify_ev_fmt_profile is missing"]
    report = one.round(0)
    assert (report.periods, report.lost) == (1, [])
    assert one.down() == []  # it cannot be known
    assert told[1:] == ["its ports are not told: mrc_ctl_query_port is missing"]


def test_without_capabilities_nothing_is_known(bad: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAD", "bare")
    one, told = agent(Library(bad))
    assert "without EV probes: nothing is known of its paths" in told
    assert "without EV events: EVs are probed in turn alone" in told
    report = one.round(0)
    assert (report.periods, report.lost) == (0, [])


def test_a_call_that_does_not_return_holds_nobody(
    bad: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAD", "slow")
    library = Library(bad, patience_s=0.2)
    one, told = agent(library)
    began = time.monotonic()
    report = one.round(0)
    one.hear()
    assert time.monotonic() - began < 2
    assert (report.periods, report.lost) == (0, [])
    assert "probes: mrc_ctl_ep_batch_send_wait has not returned" in told
    monkeypatch.setenv("BAD", "")  # which the library reads in its next call
    until = time.monotonic() + 20
    while library._stuck:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert one.round(1).periods == 1


def test_a_device_may_take_any_time_to_open(bad: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[None] = []

    def waits() -> bool:
        asked.append(None)
        if len(asked) == 2:
            monkeypatch.setenv("BAD", "")
        return True

    monkeypatch.setattr("openmrc.nics.library.OPENING_S", 0.02)
    monkeypatch.setenv("BAD", "opens")
    Library(bad, patience_s=0.01, waits=waits)
    assert len(asked) >= 2
    monkeypatch.setenv("BAD", "opens")
    with pytest.raises(Refused, match="ibv_open_device has not returned"):
        Library(bad, waits=lambda: False)
    monkeypatch.setenv("BAD", "")  # its thread ends


@pytest.mark.parametrize("how", ["counts", "deaf"])
def test_what_cannot_be_believed_is_no_loss(
    bad: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("BAD", how)
    one, told = agent(Library(bad))
    assert not one.hear()
    report = one.round(0)
    assert (report.periods, report.lost) == (0, [])
    if how == "counts":
        assert "events: mrc_ctl_poll_ev_event says 71 of 64: nothing of it is believed" in told
        assert any(words.startswith("probes: mrc_ctl_ep_batch_send_wait says") for words in told)


def test_answers_count_once_and_events_are_no_evidence(
    bad: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAD", "order")
    library = Library(bad)
    ev = formats.packed(0xC000, 32, 1)
    answers = library.ep_batch_send_wait([Request(i, GIDS[1], ev) for i in range(4)], 10**6)
    assert [one.number for one in answers] == [0, 2]
    one, _ = agent(library)
    assert one.hear()  # an EV to look at ...
    monkeypatch.setenv("BAD", "")
    assert one.round(0).lost == []  # ... and its probes say that it is good


def test_no_library_and_no_device_are_told(bad: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.so"):
        Library(tmp_path / "none.so")
    with pytest.raises(Refused, match="mlx5_0: bad0"):
        Library(bad, "mlx5_0")
