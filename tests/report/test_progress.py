from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from openmrc.report import progress
from openmrc.report.progress import Bar, Compiling, SweepBar
from openmrc.run.simulation import Step
from openmrc.say import CLEAR
from openmrc.sim.world import Progress


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock is a second after the last."""
    ticks: Iterator[int] = iter(range(10_000))
    monkeypatch.setattr(progress, "perf_counter", lambda: next(ticks))


def test_a_sweep_says_each_tenth_and_what_is_left(
    second: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with SweepBar(25, 20, Path("d")) as bar:
        for number in range(20):
            bar.update(f"seed={number}", "no memory" if number == 9 else "")
    assert capsys.readouterr().err.splitlines() == [
        "5 of 25 runs are in d.",
        "2 of 20 runs, 9 s left",
        "4 of 20 runs, 8 s left",
        "6 of 20 runs, 7 s left",
        "8 of 20 runs, 6 s left",
        "FAILED: seed=9: no memory",
        "10 of 20 runs, 1 failed, 5 s left",
        "12 of 20 runs, 1 failed, 4 s left",
        "14 of 20 runs, 1 failed, 3 s left",
        "16 of 20 runs, 1 failed, 2 s left",
        "18 of 20 runs, 1 failed, 1 s left",
        "24 of 25 runs are in d, 1 failed.",
    ]


def test_many_failures_are_not_all_said(capsys: pytest.CaptureFixture[str]) -> None:
    with SweepBar(50, 50, Path("d")) as bar:
        for number in range(50):
            bar.update(f"seed={number}", "why")
    said = [line for line in capsys.readouterr().err.splitlines() if "left" not in line]
    assert said == [
        *(f"FAILED: seed={number}: why" for number in range(5)),
        "More failed; the column error says which, and why.",
        "0 of 50 runs are in d, 50 failed.",
    ]


def test_on_a_terminal_it_is_one_line_that_changes(
    second: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = SweepBar(3, 3, Path("d"))
    with bar:
        bar.update("seed=1", "")
    with suppress(KeyboardInterrupt), bar:
        raise KeyboardInterrupt
    assert capsys.readouterr().err.split(CLEAR) == [
        "",
        "0 of 3 runs",
        "1 of 3 runs, 2 s left",
        "",
        "1 of 3 runs are in d.\n",
        "1 of 3 runs, 2 s left",
        "",
        "Interrupted: 1 of 3 runs are in d; resume by running the same again.\n",
    ]


def test_a_quiet_sweep_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with SweepBar(3, 2, Path("d"), loud=False) as bar:
        bar.update("seed=1", "")
        bar.update("seed=2", "why")
    assert capsys.readouterr().err == ""


def test_a_long_sweep_counts_minutes_and_hours() -> None:
    durations = [progress.duration(seconds) for seconds in (99, 100, 5999, 6000, 86_400)]
    assert durations == ["99 s", "2 min", "100 min", "2 h", "24 h"]


def test_a_run_says_what_is_left_by_its_last_seconds(second: None) -> None:
    with Bar() as bar:
        said = []
        for index, share in ((0, 0.1), (0, 0.2), (0, 0.4), (1, 0.1), (1, 0.1), (1, 1.0)):
            now = Progress(2_500_000, 1, 4, 9, 0.1)
            bar.update(Step("mrc", index, 2, now, share))
            said.append(bar._progress.tasks[0].fields["words"])
    flows = "1 of 4 flows, 2 us simulated"
    left = ["", ", 8 s left", ", 4 s left", "", "", ", 0 s left"]
    assert said == [flows + each for each in left]


def test_without_a_terminal_a_long_run_says_a_line_every_half_minute(
    second: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with Bar() as bar:
        for tick in range(80):
            bar.update(Step("mrc", 0, 2, Progress(2_500_000, 1, 4, 9, 0.1), tick / 100))
    flows = "1 of 4 flows, 2 us simulated"
    assert capsys.readouterr().err.splitlines() == [
        f"  mrc (1 of 2): 29 %, {flows}, 71 s left",
        f"  mrc (1 of 2): 59 %, {flows}, 41 s left",
    ]


@pytest.mark.parametrize(
    ("at_s", "share", "left_s"),
    [
        ([3], [0.2], None),  # a single step
        ([3, 5], [0.2, 0.4], 6),
        ([0, 1, 2], [0, 0.1, 0.5], 1.25),
        ([0, 2, 4], [0, 0.0, 0.0], None),  # nothing is placed yet
        ([0, 2, 4, 6], [0, 0.005, 0.01, 0.21], 7.9),  # how long the network filled is no rate
        ([3, 3.5], [0.2, 0.9], None),  # too short to know
        ([0, 60, 62.5, 65], [0, 0.1, 0.2, 0.3], 17.5),  # how long it took to begin is forgotten
        ([0, 60, 120], [0, 0.1, 0.3], 210),  # a step of a minute is the last one that counts
        ([10, 14], [0.5, 1.0], 0),
    ],
)
def test_the_rest_takes_as_long_as_at_the_rate_of_the_last_seconds(
    at_s: list[float], share: list[float], left_s: float | None
) -> None:
    left = progress.TimeLeft()
    for step in zip(at_s, share, strict=True):
        found = left.after(*step)
    assert found == (None if left_s is None else pytest.approx(left_s))


def test_of_a_long_run_only_the_last_seconds_are_kept() -> None:
    left = progress.TimeLeft()
    for tenth in range(10_000):
        left.after(tenth / 10, tenth / 10_000)
    assert len(left._steps) <= 10 * progress.RECENT_S + 2


def rows_of_a_compilation() -> Iterator[tuple[float, str, int, int]]:
    """(seconds, what, step, steps): 400 functions in 8 s, then the machine code of all in 12 s."""
    yield 0.0, "", 0, 600
    for number in range(400):
        yield number / 50, f"f{number}", number, 600
    yield 20.0, "all", 600, 600
    yield 20.0, "done", 600, 600


def test_a_compilation_is_a_line_every_few_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiling = Compiling()
    for at_s, what, step, steps in rows_of_a_compilation():
        monkeypatch.setattr(progress, "monotonic", lambda at_s=at_s: 1000.0 + at_s)
        compiling(what, step, steps)
    first, *lines = capsys.readouterr().err.splitlines()
    assert first.startswith("Compiling the simulator")
    assert lines == ["  41 %: f250", "  100 %: all"]
    compiling("", 0, 0)  # how much there is to do is unknown
    monkeypatch.setattr(progress, "monotonic", lambda: 1050.0)
    compiling("more", 0, 0)
    assert capsys.readouterr().err.splitlines()[1:] == ["  more"]


def test_on_a_terminal_a_compilation_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    compiling = Compiling()
    for _, what, step, steps in rows_of_a_compilation():
        compiling(what, step, steps)
    first, line = capsys.readouterr().err.split("\n")
    assert first.startswith("Compiling the simulator")
    parts = line.split(CLEAR)[1:]
    assert len(parts) == 402
    assert parts[250:252] == ["  41 %: f250", "  41 %: f251"]
    assert parts[-2:] == ["  100 %: all", ""]
