"""A library that implements the C API badly: it neither stops an agent nor misleads it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from openmrc.capi import build, header
from openmrc.capi.control import formats
from openmrc.capi.control.layouts import DENIED, GOOD
from openmrc.capi.places import Refused
from openmrc.errors import InputError
from openmrc.fabric import places
from openmrc.fabric.clos import multiplane
from openmrc.nics.agent import NicAgent
from openmrc.nics.library import Library
from openmrc.nics.nic import Request
from openmrc.nics.plan import planned
from openmrc.ops import evs
from openmrc.ops.schedule import TURNS
from openmrc.units import MS

FABRIC = multiplane(12, 2, 10**9, 4, 2, 0, 0)
GIDS = [bytes([nic]) * 16 for nic in range(12)]
PLANNED = planned(FABRIC, 0, 8)


def built(source: str, out: Path) -> Path:
    try:
        compiler = build.compiler()
    except InputError as error:
        pytest.skip(str(error))
    (out / "infiniband").mkdir()
    (out / "mrc.h").write_text(header.mrc_h())
    (out / "mrc_ctl.h").write_text(header.mrc_ctl_h())
    (out / "infiniband/verbs.h").write_text(header.verbs_h())
    words = [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-I", str(out)]
    file = Path(__file__).with_name(source)
    subprocess.run([*words, str(file), "-o", str(out / "bad.so")], check=True)
    return out / "bad.so"


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("bad.c", tmp_path_factory.mktemp("bad"))


@pytest.fixture(scope="module")
def worse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("worse.c", tmp_path_factory.mktemp("worse"))


def wire(ev: formats.Ev) -> int:
    return int.from_bytes(ev.value[:4], "big")


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


# --- one with moods


def test_events_without_end_of_evs_that_nobody_set_are_no_reason_to_look(
    worse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORSE", "flood")
    one, told = agent(Library(worse))
    assert not one.hear()
    report = one.round(0)
    assert (report.periods, report.lost, told) == (1, [], [])


def test_calls_that_fail_now_and_then_are_made_again(
    worse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORSE", "moody")
    library = Library(worse)
    one, told = agent(library)
    assert (one.evs, [words.rpartition(": ")[2] for words in told]) == ([], ["EIO"])
    dead, reports = places.ports(FABRIC, "plane 1 t1 1"), []
    for period in range(2 * TURNS):
        one.keep_off(dead[: len(dead) * (period % 2)])
        reports += [one.round(period), one.round(period)]
        wanted = {ev for ev in PLANNED if ev.port == 2 and wire(ev) == FABRIC.ev(1, 1)}
        states = {ev: DENIED if period % 2 and ev in wanted else GOOD for ev in PLANNED}
        monkeypatch.setenv("WORSE", "")
        assert library.query_ev_profile(1).evs == states
        monkeypatch.setenv("WORSE", "moody")
    assert len(wanted) == 1
    assert all(not report.lost for report in reports)
    assert all(report.periods for report in reports)  # what failed is asked again
    assert {words.rpartition(": ")[2] for words in told} == {"EIO"}


def test_ports_that_no_plane_has_are_left_out(worse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORSE", "flaps")
    one, _ = agent(Library(worse))
    assert {tuple(one.down()) for _ in range(8)} == {(), (1,)}
    assert one.round(0).lost == []


def test_times_that_cannot_be_are_answers(worse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORSE", "times")
    one, _ = agent(Library(worse))
    report = one.round(0)
    assert (report.periods, report.lost) == (1, [])


def test_an_answer_to_the_batch_before_answers_nothing(
    worse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORSE", "stale")
    library = Library(worse)
    asked = [Request(i, GIDS[1], PLANNED[i]) for i in range(4)]
    library.ep_batch_send_wait(asked, 10**6)
    for _ in range(3):
        assert library.ep_batch_send_wait(asked, 10**6) == []
    library._asked = (1 << 16) - 2  # numbers begin anew
    monkeypatch.setenv("WORSE", "")
    assert [one.number for one in library.ep_batch_send_wait(asked, 10**6)] == [0, 1, 2, 3]


def test_events_of_another_version_find_room(worse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORSE", "old")
    library = Library(worse)
    library.create_ev_event_cq(64)
    assert len(library.poll_ev_event(64)) == 64  # 8 bytes more each than what it says it writes
    assert library.poll_ev_event(1)[0].state == 0


def test_a_nic_without_room_is_done_without(worse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORSE", "limits")
    one, told = agent(Library(worse))
    assert told == ["its EVs stay its own: a profile has room for 0 EVs"]
    assert one.round(0).periods == 1


def test_a_list_of_devices_ends_where_it_ends(worse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORSE", "list")
    with pytest.raises(Refused, match=r"mlx5_0: worse0$"):
        Library(worse, "mlx5_0")


@pytest.mark.parametrize(("how", "n"), [("kept", 4), ("more", 8)])
def test_a_controller_that_begins_anew_keeps_a_profile_that_is_online(
    worse: Path, monkeypatch: pytest.MonkeyPatch, how: str, n: int
) -> None:
    """Its EVs become those of the plan, if there are as many."""
    monkeypatch.setenv("WORSE", how)
    library = Library(worse)
    before = library.query_ev_profile(1).evs
    assert (len(before), sum(state == DENIED for state in before.values())) == (n, 1)
    one, told = agent(library)
    if how == "kept":
        assert (one.evs, one.denied, told) == (PLANNED, frozenset(), [])
    else:
        assert (one.evs, [*one.denied]) == ([*before], [[*before][3]])
        assert told == ["its EVs stay its own: each port keeps as many EVs as it has"]
    one.keep_off(np.zeros(0, np.int64))
    one.round(0)
    assert library.query_ev_profile(1).evs == dict.fromkeys(one.evs, GOOD)
    assert len(told) == (how == "more")  # said once
