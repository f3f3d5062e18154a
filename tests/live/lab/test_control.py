"""A lab's control, its commands' lines and its clock: without namespaces, in this process."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from openmrc.cli.command import main
from openmrc.cli.lab import _writer, split, unwritten
from openmrc.errors import InputError
from openmrc.fabric.actions import EVENT, FaultSchedule
from openmrc.live.lab import commands, control
from openmrc.live.lab.clock import Clock

MS = 10**9  # picoseconds


@pytest.fixture
def name() -> str:
    return f"test {os.getpid()} {time.monotonic_ns()}"


def test_a_lab_answers_by_its_name(name: str) -> None:
    asked: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> list[str]:
        asked.append(request)
        if request["do"] == "refuse":
            raise InputError("no such place")
        return ["done"]

    control.serve([control.listen(name)], answer)
    assert name in control.running()
    assert control.ask(name, {"do": "heal", "where": "everywhere"}) == ["done"]
    assert asked.pop() == {"do": "heal", "where": "everywhere"}
    with pytest.raises(InputError, match="no such place"):
        control.ask(name, {"do": "refuse"})
    with pytest.raises(InputError, match="KeyError: 'do'"):
        control.ask(name, {"word": "that nobody foresaw"})
    assert control.ask(name, {"do": "go on"}) == ["done"]
    with pytest.raises(InputError, match="is running already"):
        control.listen(name)


def test_a_lab_that_is_gone_is_no_lab(name: str) -> None:
    control.listen(name).close()
    with pytest.raises(InputError, match=f"--name {name}: no such lab is running"):
        control.ask(name, {"do": "status"})


@pytest.mark.parametrize("do", ["fail", "heal", "anything new"])
def test_what_changes_a_lab_says_which(name: str, do: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only lab of the machine may be that of somebody's day-long trial."""
    monkeypatch.delenv(control.VARIABLE, raising=False)
    monkeypatch.setattr(control, "running", lambda: [name])
    control.serve([control.listen(name)], lambda request: request["do"])
    with pytest.raises(InputError) as error:
        control.ask(None, {"do": do})
    assert str(error.value) == f"say which lab is meant with --name NAME; there is: {name}"
    assert control.ask(None, {"do": "status"}) == "status"
    monkeypatch.setenv(control.VARIABLE, name)  # on one of its hosts
    assert control.ask(None, {"do": do}) == do


def test_without_a_lab_the_command_that_starts_one_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(control.VARIABLE, raising=False)
    monkeypatch.setattr(control, "running", list)
    for do in ("fail", "status"):
        with pytest.raises(InputError, match="no lab is running; start one with mrc lab"):
            control.ask(None, {"do": do})


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["lab", "F.toml"], "mrc lab F.toml: nothing to run on its hosts; add -- COMMAND, or"),
        (["lab", "F.toml", "--"], "nothing to run on its hosts"),
        (["lab", "F.toml", "--shell", "0", "--", "id"], "both --shell and -- COMMAND; say one"),
    ],
)
def test_what_a_lab_shall_run_is_said_once(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    printed = capsys.readouterr().err
    assert why in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize(("code", "status"), [(errno.EPIPE, 1), (errno.ENOSPC, 3)])
def test_a_reader_that_leaves_ends_the_commands(code: int, status: int) -> None:
    """As in `mrc lab ... -- seq 1 200000 | head -3`: no command goes on for nobody."""
    reader, writer = os.pipe()
    os.close(reader)
    if code == errno.ENOSPC:
        os.close(writer)
        writer = os.open("/dev/full", os.O_WRONLY)
    stopped: list[int] = []
    write = _writer(writer, unwritten(stopped))
    script = "import time\nwhile True: print('y' * 99, flush=True); time.sleep(0.001)"
    command = started("h0", script, write, print)
    begun = time.monotonic()
    assert commands.watch([command], lambda: stopped[0] if stopped else 0) == status
    assert command.status == 128 + 15
    assert time.monotonic() - begun < 10
    assert len(stopped) == 1  # told once: what comes after it is discarded
    os.close(writer)


@pytest.mark.parametrize("bad", ["", "x" * 61, "a\nb"])
def test_a_name_must_fit_an_address(bad: str) -> None:
    with pytest.raises(InputError, match="printable bytes are accepted"):
        control.listen(bad)


class Here:
    """In place of namespaces: this one."""

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        yield


def started(host: str, script: str, out: Any, err: Any) -> commands.Command:
    words = [sys.executable, "-c", script]
    write = [one.append if isinstance(one, list) else one for one in (out, err)]
    return commands.start(Here(), host, words, {"HERE": host}, *write)  # type: ignore[arg-type]


def test_lines_are_marked_and_whole_and_the_first_failure_counts() -> None:
    out: list[bytes] = []
    err: list[bytes] = []
    slow = "import time, sys; print('one\\ntwo'); sys.stdout.flush(); time.sleep(0.5); sys.exit(3)"
    quick = "import os, sys; print(os.environ['HERE'], end='', file=sys.stderr); sys.exit(4)"
    status = commands.watch([started("h0", slow, out, err), started("h1", quick, out, err)], int)
    assert status == 4
    assert b"".join(out) == b"h0| one\nh0| two\n"
    assert b"".join(err) == b"h1| h1\n"  # a last line without its end gets one


def test_what_a_command_leaves_running_is_not_waited_for() -> None:
    script = "import subprocess; subprocess.Popen(['sleep', '20']); print('left')"
    out: list[bytes] = []
    begun = time.monotonic()
    assert commands.watch([started("h0", script, out, [])], int) == 0
    assert out == [b"h0| left\n"]
    assert time.monotonic() - begun < 10


def test_a_command_that_does_not_listen_is_killed_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "GRACE_S", 0.2)
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    command = started("h0", script, [], [])
    assert commands.watch([command], lambda: 143) == 143
    assert command.status in (128 + 9, 128 + 15)  # 15: before it could ignore it


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match="no-such-command: cannot be run"):
        commands.start(Here(), "h0", ["no-such-command"], {}, print, print)  # type: ignore[arg-type]


def schedule(*at_ps: int) -> FaultSchedule:
    rows = np.zeros(len(at_ps), EVENT)
    rows["at_ps"], rows["target"] = at_ps, range(len(at_ps))
    return FaultSchedule(rows, (), np.ones((1, 1), np.bool_))


def test_the_clock_acts_at_each_instant_once() -> None:
    seen: list[list[int]] = []
    over = threading.Event()

    def act(events: Any) -> None:
        seen.append(events["target"].tolist())
        if events["target"][-1] == 3:
            over.set()

    clock = Clock(schedule(0, 0, 150 * MS, 300 * MS), act)
    begun = time.monotonic()
    clock.start()
    assert over.wait(20)
    assert time.monotonic() - begun >= 0.3
    assert [target for instant in seen for target in instant] == [0, 1, 2, 3]
    assert seen[0][:2] == [0, 1]
    clock.stop()


def test_a_clock_that_is_stopped_does_no_more() -> None:
    seen: list[Any] = []
    clock = Clock(schedule(60_000 * MS), seen.append)
    clock.start()
    clock.stop()
    assert seen == []


@pytest.mark.parametrize(
    ("line", "ours", "theirs"),
    [
        ("lab a.toml -- sh -c x", "lab run a.toml", "sh -c x"),
        ("lab a.toml --hosts 0 -- x -- y", "lab run a.toml --hosts 0", "x -- y"),
        ("lab fail place", "lab fail place", ""),
        ("lab --help", "lab --help", ""),
        ("run a.toml", "run a.toml", ""),
    ],
)
def test_a_command_line_is_split_at_the_command(line: str, ours: str, theirs: str) -> None:
    assert split(line.split()) == (ours.split(), theirs.split())
