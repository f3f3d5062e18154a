"""Every command under every condition that a caller can put it in: one line, a documented status.

The caller is a shell, a scheduler, a container or a lost terminal. What a command reads and writes
is in `test_never_lost.py`.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from openmrc import ending
from openmrc.cli import interrupts
from openmrc.cli.command import main
from openmrc.cli.parser import make_parser

if TYPE_CHECKING:
    from tests.conftest import FakeWorld

SCENARIO = '[fabric]\nnics = 4\n[workload]\nkind = "permutation"\nsize = "1kB"\n'

# Every command, and the function that is its heart.
HEARTS = {
    "init new.toml": "openmrc.cli.init.template",
    "demo": "openmrc.scenario.scenario.demo_scenario",
    "run x.toml": "openmrc.scenario.scenario.load_scenario",
    "sweep x.toml --over seed=1,2 --out swept": "openmrc.sweeps.command.run_all",
    "decode a.pcapng": "openmrc.wire.pcap.read",
    "compare a b": "openmrc.report.compare.read_saved",
    "plan --gpus 64": "openmrc.planning.comparison.compare",
    "day x.toml": "openmrc.day.day.sides_of",
    "zoom out --at 1us": "openmrc.zoom.moment.moment_of",
    "switches linux x.toml": "openmrc.scenario.scenario.load_lab",
    "paper B6": "openmrc.paper.publish.run_missing",
    "paper --list": "openmrc.paper.command.chosen_of",
    "lab x.toml -- true": "openmrc.scenario.scenario.load_lab",
    "lab status": "openmrc.live.lab.control.ask",
    "lab fail x": "openmrc.live.lab.control.ask",
    "doctor": "openmrc.live.lab.needs.examine",
    "bench sim": "openmrc.bench.sim.measure",
    "bench live": "openmrc.bench.live.run",
    "bench torch": "openmrc.torch.bench.command.run",
    "policy check x.py": "openmrc.policies.check.check",
    "policy fields --json": "openmrc.cli.policy.json.dumps",
    "soak": "openmrc.soak.sim.soak",
    "soak --world live": "openmrc.soak.live.soak",
    "perf write_bw": "openmrc.perf.run.server",
    "why a": "openmrc.ops.records.read",
    "ops agent --host no.json": "openmrc.verbs.hostfile.read",
    "ops controller x.toml": "openmrc.scenario.scenario.load_lab",
    "secret": "openmrc.verbs.secret.new",
    "ops alerts": "importlib.resources.files",
    "build-lib": "openmrc.capi.build.build",
    "conformance": "openmrc.conform.script.rules",
    "completion bash": "openmrc.cli.completion._bash",
    "help run": "openmrc.cli.parser.Parser.format_help",
    "version": "openmrc.cli.about.version_line",
}
# Those that read standard input where a file is named "-".
READERS = (
    "run -",
    "sweep - --over seed=1 --out o",
    "lab - -- true",
    "decode -",
    "switches linux -",
)
# Those that print their results at once.
PRINTERS = (
    "", "--help", "--version", "run --help", "init -", "init --schema", "run x.toml",
    "run x.toml --json", "plan --gpus 64", "plan --gpus 64 --json", "paper --list",
    "policy fields", "secret", "ops alerts", "ops dashboard", "completion zsh",
    "help run", "version", "conformance --list", "switches linux x.toml", "run x.toml --estimate",
)  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a scenario; signals are heard as in a process of `mrc`."""
    (tmp_path / "x.toml").write_text(SCENARIO)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENMRC_HOST", "no.json")
    monkeypatch.setenv("OPENMRC_SECRET", bytes(range(32)).hex())
    before = {number: signal.getsignal(number) for number in ending.SIGNALS}
    usual = sys.unraisablehook
    for number in ending.SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupts.keep()
    yield tmp_path
    sys.unraisablehook = usual
    for number, handler in before.items():
        signal.signal(number, handler)
    ending.note(signal.SIGINT)


def commands() -> set[str]:
    """The first words of all commands."""
    parsers = [a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    return set(parsers[0].choices)


def test_no_command_is_left_out() -> None:
    assert {command.split()[0] for command in HEARTS} == commands()


@pytest.mark.parametrize("number", ending.SIGNALS)
@pytest.mark.parametrize("command", HEARTS)
def test_a_signal_ends_a_command_with_its_status_and_one_line(
    command: str,
    number: signal.Signals,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def signalled(*_: Any, **__: Any) -> None:
        signal.raise_signal(number)

    monkeypatch.setattr(HEARTS[command], signalled)
    assert main(command.split()) == 128 + number
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[-1] == "mrc: interrupted"
    assert "Traceback" not in printed.err


@pytest.mark.parametrize("number", ending.SIGNALS)
def test_results_so_far_are_kept_whatever_ends_a_run(
    number: signal.Signals,
    fake_world: type[FakeWorld],
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (here / "x.toml").write_text(SCENARIO + '[[transport]]\n[[transport]]\npaths = "single"\n')
    whole = fake_world.run

    def signalled(world: FakeWorld, progress: Any = None) -> bool:
        done = whole(world, progress)
        if world.number == 2:
            signal.raise_signal(number)
        return done

    monkeypatch.setattr(fake_world, "run", signalled)
    assert main(["run", "x.toml", "--out", "out"]) == 128 + number
    assert "INTERRUPTED: these are partial results." in capsys.readouterr().out
    assert '"partial": true' in (here / "out/summary.json").read_text()


def test_who_ignores_a_signal_goes_on_ignoring_it() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
    interrupts.keep()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_sigterm_ends_what_ignores_only_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a shell's background
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert ending.status() == 143


@pytest.mark.parametrize("number", ending.SIGNALS)
def test_what_is_ended_in_order_has_the_status_of_its_signal(number: signal.Signals) -> None:
    asked = ending.awaited()
    signal.raise_signal(number)  # raises nothing
    assert asked == [128 + number]


def test_what_is_ended_in_order_ignores_what_its_caller_ignores() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked = ending.awaited()
    signal.raise_signal(signal.SIGINT)
    assert asked == []
    signal.raise_signal(signal.SIGTERM)
    assert asked == [143]


@pytest.mark.parametrize("command", READERS)
def test_a_closed_standard_input_is_said(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(command.split()) == 2
    said = "mrc: standard input: is closed; name a file, or leave it open\n"
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize("command", HEARTS)
def test_a_closed_standard_output_is_status_3_before_anything_begins(
    command: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(here.iterdir())
    monkeypatch.setattr(sys, "stdout", None)
    assert main(command.split()) == 3
    said = "mrc: standard output: cannot be written (it is closed)\n"
    assert capsys.readouterr().err == said
    assert list(here.iterdir()) == before


@pytest.mark.parametrize("command", PRINTERS)
def test_a_reader_that_leaves_is_status_1_in_silence(
    command: str,
    fake_world: type[FakeWorld],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = os.pipe()
    os.close(ours)  # `| true`
    piped = open(theirs, "w", encoding="utf-8")  # noqa: SIM115 (closing it would fail again)
    monkeypatch.setattr(sys, "stdout", piped)
    assert main(command.split()) == 1
    monkeypatch.undo()
    piped.close()  # to where `hush` has turned it
    assert "mrc:" not in capsys.readouterr().err


NOWHERE = (
    "run x.toml", "run -", "sweep x.toml --over seed=1 --out o", "decode a", "compare a b", "why a",
    "init", "demo", "switches linux x.toml", "lab x.toml -- true", "policy check x.py",
    "build-lib", "paper B6", "plan --gpus 64", "ops controller x.toml",
    "ops agent --host h.json", "perf write_bw",
    "conformance --capture a", "doctor --torch",
)  # fmt: skip


@pytest.mark.parametrize("command", NOWHERE)
def test_a_directory_that_is_gone_is_one_line(
    command: str,
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (here / "gone").mkdir()
    os.chdir(here / "gone")
    (here / "gone").rmdir()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SCENARIO.encode())))
    status = main(command.split())
    last = capsys.readouterr().err.splitlines()[-1:]
    assert status == (0 if command.startswith("plan") else 2)
    assert status == 0 or last[0].startswith("mrc: ")
    assert "refused something" not in "".join(last)
