"""Whatever a command is given or denied: one line on standard error, and a documented status."""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from openmrc.cli.command import main

if TYPE_CHECKING:
    from tests.conftest import FakeWorld

SCENARIO = '[fabric]\nnics = 4\n[workload]\nkind = "permutation"\nsize = "1kB"\n'
ROOT = Path(__file__).parents[2]

# Commands that read a file, with the place of its name.
READERS = {
    "run": "run {}",
    "run --topo": "run --topo {} --cm a.cm",
    "sweep": "sweep {} --over seed=1,2 --out swept",
    "run, matrix": "run x.toml --set workload.kind=matrix --set workload.file={}",
    "run, goal": "run x.toml --set workload.kind=goal --set workload.file={}",
    "run, links": "run x.toml --set fabric.kind=links --set fabric.file={}",
    "decode": "decode {}",
    "lab": "lab {} -- true",
    "compare": "compare {} folder",
    "why": "why {}",
    "switches": "switches linux {}",
    "policy check": "policy check {}",
    "conformance --capture": "conformance --capture {}",
    "conformance --ways": "conformance --ways {}",
    "ops agent": "ops agent --host {}",
    "ops controller": "ops controller {}",
    "ops controller --cert": "ops controller x.toml --cert {}",
    "perf --secret": "perf write_bw x --secret {}",
    "perf": "perf write_bw",  # the host file, which a variable names
}
INPUTS = {
    "missing": "no.file",
    "unreadable": "/proc/self/mem",  # also for root
    "a directory": "folder",
    "empty": "empty",
    "endless": "/dev/zero",
    "a pipe that nobody writes to": "pipe",
    "no text": "bytes",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "x.toml").write_text(SCENARIO)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "a.cm").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# --- what is read ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("what", INPUTS)
def test_an_input_that_cannot_be_read_is_status_2_and_one_line(
    command: str,
    what: str,
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENMRC_HOST", INPUTS[what])
    before = files(here)
    assert main(READERS[command].format(INPUTS[what]).split()) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("mrc: ")
    assert printed.err.count("\n") == 1
    assert files(here) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("fabric.port_rate=100000Tbps", "fabric.port_rate: 100000Tbps is too fast for a link;"),
        ("fabric.link_delay=2s", "fabric.link_delay: 2s is too long a delay; at most 1s"),
        ("fabric.switch_delay=2s", "fabric.switch_delay: 2s is too long a delay; at most 1s"),
        ("workload.size=9000000TB", "3.6e+19 bytes over links of 200Gbps can take more than 53"),
    ],
)
def test_a_number_that_no_run_can_hold_is_refused(
    change: str, words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "x.toml", "--set", change]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)


def test_a_dash_is_standard_input(
    fake_world: type[FakeWorld],
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for text, status in ((SCENARIO, 0), ("[fabrics]", 2)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(["run", "-", "--json"]) == status
    printed = capsys.readouterr()
    assert '"scenario": "scenario"' in printed.out
    assert "mrc: standard input: fabrics: unknown table; did you mean 'fabric'?" in printed.err


# --- what is written ---------------------------------------------------------------------------


@contextmanager
def room_for(n_bytes: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes, as on a disk that is full."""
    usual, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (usual, most))


def test_a_full_disk_under_out_still_gives_the_table(
    fake_world: type[FakeWorld], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(here)
    with room_for(3000):
        assert main(["run", "x.toml", "--out", "out"]) == 3
    printed = capsys.readouterr()
    assert "40.0" in printed.out  # the longest flow
    assert printed.err.splitlines()[-1] == (
        "mrc: out: cannot be written (File too large); no file there is half written"
    )
    assert files(here) == sorted([*before, "out"])


def test_a_full_disk_leaves_the_capture_of_before(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "a.pcapng").write_bytes(b"of before")
    with room_for(2000):
        assert main(["run", "x.toml", "--pcap", "a.pcapng"]) == 3
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (
        "",
        "mrc: --pcap a.pcapng: cannot be written (File too large); name a file with room for it\n",
    )
    assert (here / "a.pcapng").read_bytes() == b"of before"
    assert [name for name in files(here) if "unfinished" in name] == []


def test_a_device_is_captured_to_as_it_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "x.toml", "--pcap", "/dev/full"]) == 3
    assert capsys.readouterr().err.startswith("mrc: --pcap /dev/full: cannot be written (No space")
    assert main(["run", "x.toml", "--pcap", "/dev/null", "--json"]) == 0
    assert Path("/dev/null").is_char_device()


def test_an_interrupted_run_keeps_its_capture(here: Path) -> None:
    from openmrc.run.captures import written

    def interrupted(file: Path) -> None:
        with written(file) as stream:
            stream.write(b"so far")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted(here / "new/a.pcapng")
    assert (here / "new/a.pcapng").read_bytes() == b"so far"


def test_a_full_disk_ends_a_sweep_and_a_plan_in_one_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with room_for(100):
        assert (
            main(["sweep", "x.toml", "--over", "seed=1", "--out", "swept", "--workers", "1"]) == 3
        )
        assert main(["plan", "--gpus", "64", "--planes", "1", "--scenario", "p.toml"]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    *_, swept, planned = printed.err.splitlines()
    assert swept.startswith("mrc: swept/runs/")
    assert swept.endswith("(File too large); what was written before is kept")
    assert planned.startswith("mrc: --scenario p.toml: cannot be written (File too large)")


PRINTERS = {
    "a table": ["run", "x.toml"],
    "an object": ["run", "x.toml", "--json"],
    "a plan": ["plan", "--gpus", "64", "--planes", "1"],
    "a list": ["paper", "--list"],
    "help": ["--help"],
    "the help of a command": ["decode", "--help"],
    "the version": ["--version"],
}


@pytest.mark.parametrize("what", PRINTERS)
def test_an_output_that_is_full_is_status_3_and_one_line(
    what: str,
    fake_world: type[FakeWorld],
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(PRINTERS[what]) == 3
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "mrc: standard output: cannot be written (No space left on device)"


def test_a_full_output_does_not_take_the_results_along(
    fake_world: type[FakeWorld],
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["run", "x.toml", "--out", "."]) == 3
    assert (here / "summary.json").exists()
    assert f"Results are in the current directory ({here})." in capsys.readouterr().err


MRC = 'mrc() { "$PYTHON" -m openmrc.cli "$@"; }; '  # of this clone, whatever its folder is called


def shell(command: str, here: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of shell in which `mrc` is the command, in a process of its own."""
    path = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHON": sys.executable}
    return subprocess.run(
        ["/bin/sh", "-c", MRC + command],
        cwd=here,
        capture_output=True,
        env={k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"} | path | environment,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "status", "out", "err"),
    [
        ("mrc paper --list >&-", 3, 0, 1),  # closed: nobody will ever see what is printed
        ("mrc paper --list 2>&-", 0, 18, 0),
        ("mrc run no.toml 2>&-", 2, 0, 0),
        ("mrc run no.toml 2>/dev/full", 2, 0, 0),
        ("mrc init new.toml 2>/dev/full", 0, 0, 0),
        ("mrc paper --list > /dev/full", 3, 0, 1),
    ],
)
def test_closed_and_full_outputs_of_a_shell(
    command: str, status: int, out: int, err: int, here: Path
) -> None:
    done = shell(command, here)
    assert done.returncode == status
    assert (done.stdout.count(b"\n"), done.stderr.count(b"\n")) == (out, err)


def test_a_terminal_without_unicode_shows_a_name_with_it(
    fake_world: type[FakeWorld], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(["run", "x.toml", "--set", "name=Größe", "--set", "transport.name=日"]) == 0
    terminal.seek(0)
    lines = terminal.read().splitlines()
    assert lines[0].strip() == "Gr\\xf6\\xdfe, seed 1"
    assert any(line.startswith("| \\u65e5 ") for line in lines)


# --- what Python drops of Ctrl-C -----------------------------------------------------------------

DROPPED = """
import ctypes, gc, signal
from openmrc.cli import interrupts

interrupts.AGAIN_AFTER_S = 0.0  # as soon as the hook is left, and never within it
interrupts.keep()


@ctypes.CFUNCTYPE(None)
def called_from_c():
    signal.raise_signal(signal.SIGINT)


class Half:
    def __del__(self):
        raise AttributeError("half made")


try:
    called_from_c()  # C has no exceptions: the interrupt ends here, or nowhere
    while True:
        pass
except KeyboardInterrupt:
    interrupts.heard()
    print("heard")
Half()
"""


def test_what_python_drops_of_an_interrupt_is_raised_again(here: Path) -> None:
    """LLVM calls Python while code is loaded: an interrupt there was a traceback and no end."""
    (here / "dropped.py").write_text(DROPPED)
    done = shell('"$PYTHON" dropped.py', here)
    assert (done.stdout, done.stderr, done.returncode) == (b"heard\n", b"", 0)


LOADING = """
import os, signal
from openmrc.cli import interrupts

interrupts.keep()
signal.alarm(60)
try:
    import slow
    while True:
        pass
except KeyboardInterrupt:
    import slow  # whole: it was not interrupted
    print("heard")
"""
SLOW = """
import signal, time

class Half:
    def __set_name__(self, owner, name):
        signal.raise_signal(signal.SIGTERM)

class Whole:
    half = Half()
"""


@pytest.mark.parametrize("then", ["pass", "os.read(os.pipe()[0], 1)"], ids=["runs", "waits"])
def test_an_interrupt_waits_until_a_module_has_loaded(then: str, here: Path) -> None:
    """Python wraps what a class in the making raises in a RuntimeError: a traceback."""
    (here / "loading.py").write_text(LOADING.replace("        pass", f"        {then}"))
    (here / "slow.py").write_text(SLOW)
    done = shell('"$PYTHON" loading.py', here)
    assert (done.stdout, done.stderr, done.returncode) == (b"heard\n", b"", 0)


def test_a_module_that_never_loads_is_interrupted(here: Path) -> None:
    program = LOADING.replace("    import slow  # whole: it was not interrupted\n", "")
    at_once = program.replace(
        "\ninterrupts.keep", "\ninterrupts.LOADED_WITHIN_S = 0\ninterrupts.keep"
    )
    (here / "loading.py").write_text(at_once)
    forever = "import signal\nsignal.raise_signal(signal.SIGINT)\nwhile True:\n    pass\n"
    (here / "slow.py").write_text(forever)
    done = shell('"$PYTHON" loading.py', here)
    assert (done.stdout, done.stderr, done.returncode) == (b"heard\n", b"", 0)


def test_ctrl_c_before_the_command_has_loaded_ends_it_silently(here: Path) -> None:
    """Modules of the standard library that load first are where it was a traceback."""
    (here / "argparse.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    (here / "ctrl_c.py").write_text("from openmrc.cli import main\nmain(['version'])\n")
    done = shell('"$PYTHON" ctrl_c.py; echo $?', here)
    assert (done.stdout, done.stderr) == (b"130\n", b"")


# --- no cache ----------------------------------------------------------------------------------


def test_a_capture_can_come_through_a_pipe(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "x.toml", "--pcap", "a.pcapng", "--json"]) == 0
    capsys.readouterr()
    assert main(["decode", "a.pcapng"]) == 0
    done = shell("cat a.pcapng | mrc decode -", here)
    assert (done.stdout.decode(), done.stderr, done.returncode) == (
        capsys.readouterr().out, b"", 0,
    )  # fmt: skip
    assert shell("mrc decode - < empty", here).stderr.startswith(b"mrc: standard input: is empty;")


def test_a_capture_to_standard_output_is_that_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = shell("mrc run x.toml --pcap - | mrc decode -", here)
    assert done.returncode == 0
    assert main(["run", "x.toml", "--pcap", "a.pcapng", "--json"]) == 0
    capsys.readouterr()
    assert main(["decode", "a.pcapng"]) == 0
    assert done.stdout.decode() == capsys.readouterr().out
    assert b"x, seed 1" in done.stderr  # the table
    assert not (here / "-").exists()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("run x.toml --json", "--pcap - and --json: both are for standard output; name a file for"),
        ("run two.toml", "--pcap -: 2 transports make as many captures; name a file"),
        ("lab x.toml -- true", "--pcap -: standard output is that of the commands; name a file"),
    ],
)
def test_a_capture_that_cannot_be_standard_output_is_refused(
    command: str, words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "two.toml").write_text(SCENARIO + "[[transport]]\n[[transport]]\npaths = 'single'\n")
    first, file, *more = command.split()
    assert main([first, file, "--pcap", "-", *more]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)


def test_without_a_cache_a_command_says_so_once_and_runs(here: Path) -> None:
    assert main(["run", "x.toml", "--pcap", "a.pcapng", "--json"]) == 0
    cache = "x.toml/below"  # a file is in its way
    done = shell("mrc decode a.pcapng", here, OPENMRC_CACHE=cache)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].endswith(b" packets")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("Compiling the decoder, for this run alone: some seconds. There is")
    assert f"no cache: {cache} cannot be written (" in line
