"""Every command and snippet of the pages runs verbatim, in a scratch directory beside the examples.

The blocks of a page run one after the other, as a reader would type them; those that carry a marker
(`tests/pages.py`) do so where that says. `make docs-long` runs the long ones as well.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from openmrc.jit import interpreted
from openmrc.ops.mapper import ends
from openmrc.scenario.scenario import load_lab, load_scenario
from tests.live.lab.conftest import lacks
from tests.pages import LANGUAGES, MARKERS, ROOT, Block, blocks, pages

LONG = "OPENMRC_DOCS_LONG" in os.environ
# Before other work of a busy machine, as the pages advise; of these what this machine allows.
PRIORITIES = (("chrt", "-r", "1"), ("nice", "-n", "-10"), ("env",))
SHELL_TIMEOUT_S = 7200 if LONG else 900
RUN = ("sh", "console", "python")


@cache
def priority() -> tuple[str, ...]:
    """The first of these that this machine allows."""

    def allowed(prefix: tuple[str, ...]) -> bool:
        tried = [*prefix, "true"]
        return not subprocess.run(tried, check=False, capture_output=True).returncode

    return next(each for each in PRIORITIES if shutil.which(each[0]) and allowed(each))


def runs(block: Block) -> bool:
    """Whether a block is run with the others of its page."""
    return block.language in RUN and (
        not block.marker or block.marker == "lab" or (LONG and block.marker == "long")
    )


PAGES = [page for page in pages() if any(runs(block) for block in blocks(page))]


def test_every_block_says_what_it_is_and_what_is_not_run_says_why() -> None:
    every = [block for page in pages() for block in blocks(page)]
    assert len(every) > 60
    assert [block[:3] for block in every if block.language not in LANGUAGES] == []
    marked = [block for block in every if block.marker]
    assert [block[:2] for block in marked if block.marker not in MARKERS or not block.reason] == []
    assert {block.language for block in marked} <= {*RUN, "toml"}  # text is not run anyway
    left_out = [block for block in marked if block.language in RUN and block.marker != "lab"]
    assert len(left_out) <= 40


def test_what_is_a_part_of_a_file_is_in_it() -> None:
    parts = [block for page in pages() for block in blocks(page) if block.marker == "part"]
    of_files = [(block, name) for block in parts for name in re.findall(r"of (\S+/\S+)", block[5])]
    assert len(of_files) > 0
    for block, name in of_files:
        assert block.text in (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "block",
    [block for page in pages() for block in blocks(page) if block[2::2] == ("toml", "")],
    ids=lambda block: f"{block.page}:{block.line}",
)
def test_a_scenario_or_network_on_a_page_can_be_built(block: Block, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path, dirs_exist_ok=True)
    file = tmp_path / "on_a_page.toml"
    file.write_text(block.text)
    if "[workload]" in block.text or "[[workload]]" in block.text:
        load_scenario(file).build()
    elif ends.is_one(file):
        ends.read(file)
    else:
        load_lab(file)


# --- running


def scratch(folder: Path) -> dict[str, str]:
    """Return the environment of a reader who has installed openmrc beside a clone."""
    for name in ("examples", "conformance", "benchmarks", "docs"):
        (folder / name).symlink_to(ROOT / name)
    commands = folder / ".venv/bin"
    commands.mkdir(parents=True)
    python = shlex.quote(sys.executable)
    for name, what in {"mrc": "-m openmrc.cli", "python": "", "python3": ""}.items():
        (commands / name).write_text(f'#!/bin/sh\nexec {python} {what} "$@"\n')
        (commands / name).chmod(0o755)
    kept = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}", "MPLBACKEND": "agg"}
    # Unbuffered, a line and its end are two writes: lines of two processes at one output mix.
    kept.pop("PYTHONUNBUFFERED", None)
    return kept


def ended(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str, str]:
    """Run a command to its end; status, standard output, and both outputs in their order."""
    with (folder / ".both").open("w+b") as both:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=both,
            timeout=SHELL_TIMEOUT_S, check=False,
        )  # fmt: skip
        both.seek(0)
        return done.returncode, done.stdout.decode(), both.read().decode()


def typed(text: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a transcript, each with the lines that it prints."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def as_shown(printed: list[str], shown: list[str]) -> bool:
    """Whether lines are those of a page, where a line `...` stands for any number of them."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line.rstrip()) + r" *\n"
        for line in shown
    )
    return re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in printed)) is not None


def run_page(page: str, folder: Path) -> str:
    """Run what a page shows, in its order; all that its shell and Python print."""
    environment = scratch(folder)
    kept = [block for block in blocks(page) if runs(block)]
    if any(block.marker == "lab" for block in kept) and any(lacks().values()):
        print(f"NOT TESTED: the labs of {page}: {next(filter(None, lacks().values()))}")
        kept = [block for block in kept if block.marker != "lab"]
    printed = []
    for language, group in itertools.groupby(kept, key=lambda block: block.language):
        these = list(group)
        texts = [block.text for block in these]
        if language == "console":
            for command, shown in itertools.chain.from_iterable(map(typed, texts)):
                _, out, words = ended(["sh", "-c", command], folder, environment)
                lines = (out + words).splitlines()
                assert as_shown(lines, shown), "\n".join([f"$ {command}", *lines])
        else:
            script = folder / "typed"
            script.write_text("\n".join(texts))
            shell = ["sh", "-e"] if language == "sh" else [sys.executable]
            first = any(block.marker == "lab" for block in these)  # its times are real ones
            argv = [*(priority() if first else ()), *shell, "typed"]
            status, out, words = ended(argv, folder, environment)
            assert status == 0, out + words
            printed.append(out)
    return "".join(printed)


# --- what is to be seen then, where a page says so


def readme(folder: Path, out: str) -> None:
    found = re.search(r"slowest flow: ([\d.]+) us; ideal: ([\d.]+) us\n.* the cut: (\d+)\n", out)
    assert found is not None
    slowest, ideal, lost = map(float, found.groups())
    assert ideal < slowest < 3 * ideal
    assert lost > 0
    assert re.findall(r"shape: .*", out) == ["shape: (3, 3)", "shape: (9, 3)"]
    assert len(list((folder / "loss/runs").iterdir())) == 9
    assert (folder / "results/report.html").exists()
    (gained,) = [b.text for b in blocks("README.md") if b.language == "text"]
    assert gained in out
    assert re.search(r"^[\d,]+ packets$|\d packets$", out, re.M)  # decoded


def command(folder: Path, out: str) -> None:
    made = {"first.toml", "results", "a", "b", "compared.html", "swept", "swept.png"}
    assert made <= {path.name for path in folder.iterdir()}


def api(folder: Path, out: str) -> None:
    assert re.findall(r"shape: .*", out) == ["shape: (2, 3)", "shape: (4, 3)"]
    said = r"^<Result of a lossy T0, seed 1: mrc [\d.]+us, single [\d.]+[um]s>$"
    assert re.search(said, out, re.M)
    assert (folder / "results/summary.json").exists()
    assert "</html>" in (folder / "report.html").read_text(encoding="utf-8")


def verbs(folder: Path, out: str) -> None:
    first, *moved = out.splitlines()
    assert first == "SUCCESS 42 True"
    assert sorted(line.partition(",")[0] for line in moved) == [
        f"{done} {(folder / 'copy.toml').stat().st_size} bytes: SUCCESS"
        for done in ("received", "sent")
    ]


SEEN: dict[str, Callable[[Path, str], None]] = {
    "README.md": readme,
    "docs/command.md": command,
    "docs/api.md": api,
    "docs/verbs.md": verbs,
}


@pytest.mark.skipif(interpreted(), reason="minutes in plain Python")
@pytest.mark.timeout(SHELL_TIMEOUT_S)
@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_runs(page: str, tmp_path: Path) -> None:
    out = run_page(page, tmp_path)
    if page in SEEN:
        SEEN[page](tmp_path, out)


@pytest.mark.skipif(not LONG, reason="make docs-long")
@pytest.mark.timeout(SHELL_TIMEOUT_S)
@pytest.mark.parametrize(
    "block",
    [block for page in pages() for block in blocks(page) if block.marker == "install"],
    ids=lambda block: f"{block.page}:{block.line}",
)
def test_what_installs_it_does(block: Block, tmp_path: Path) -> None:
    """In a copy of what is committed, and an environment that knows the wheel built from it."""
    clone, wheels, environment = tmp_path / "openmrc", tmp_path / "wheels", tmp_path / "environment"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    pip = [str(environment / "bin/pip"), "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", "--quiet", "--no-deps", "-w", str(wheels), str(clone)], check=True
    )
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    clean |= {
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        "PIP_FIND_LINKS": str(wheels),
        "VIRTUAL_ENV": str(environment),
    }
    (clone / "typed").write_text(block.text)
    status, out, words = ended(["sh", "-e", "typed"], clone, clean)
    assert status == 0, out + words


def test_a_transcript_is_compared_line_by_line() -> None:
    assert typed("$ a b\none\n$ c\n") == [("a b", ["one"]), ("c", [])]
    printed = ["one", "two  ", "three"]
    assert as_shown(printed, ["one", "two", "three"])
    assert as_shown(printed, ["one", "..."])
    assert as_shown(printed, ["...", "three"])
    assert not as_shown(printed, ["one", "two"])
    assert not as_shown(printed, ["one", "...", "four"])
