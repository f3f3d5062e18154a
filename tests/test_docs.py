"""What the documents show must run, and what can be written must be in the documents."""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import runpy
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import openmrc
from openmrc.bench import sim as benchsim
from openmrc.cli.parser import make_parser
from openmrc.engine import ev, fate, qp
from openmrc.fabric.kinds import KINDS
from openmrc.live.lab.topology import topology
from openmrc.run.lab.spec import lab_spec
from openmrc.scenario.fabric import FABRICS
from openmrc.scenario.fault import FaultSection
from openmrc.scenario.jobs import JobSection
from openmrc.scenario.lab import LabSection
from openmrc.scenario.scenario import load_lab, load_scenario, parse_scenario
from openmrc.scenario.sections import Header, ReportSection, StopSection
from openmrc.scenario.transports import TRANSPORTS
from openmrc.scenario.workloads import WORKLOADS
from openmrc.sweeps.here import WORKERS_MAX
from openmrc.sweeps.plan import RUNS_MAX
from tests.engine import diagrams

if TYPE_CHECKING:
    from tests.conftest import FakeWorld

ROOT = Path(__file__).resolve().parents[1]


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.toml")), ids=lambda p: p.stem)
def test_an_example_describes_what_can_be_built(path: Path) -> None:
    fabric, traffic, _ = load_scenario(path).build()
    assert traffic.n_nics <= fabric.n_nics


def test_the_lines_of_the_readme_are_few_and_run(
    fake_world: type[FakeWorld], capsys: pytest.CaptureFixture[str]
) -> None:
    lines, ten = blocks("README.md", "python")
    assert ten.count("\n") <= 10
    exec(compile(lines, "README.md", "exec"), {})
    assert lines.count("\n") <= 20
    assert capsys.readouterr().out == (
        "slowest flow: 320.0 us; ideal: 10.0 us\npackets lost to the cut: 1\n"
    )


def test_the_citation_names_this_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {openmrc.__version__}\n" in citation


# What is no term of this field, or says itself what it is where it stands.
COMMON_WORDS = {
    *(
        "AI",
        "API",
        "GOAL",
        "GPU",
        "PCIe",
        "PyTorch",
        "TOML",
        "UDP",
        "IP",
        "KB",
        "MB",
        "KiB",
        "MiB",
        "RFC",
    ),
    *("ASTRA", "SimAI"),  # other projects
    *("ERROR", "RTS", "READ", "SEND", "RACK", "NACKed", "SACKed", "RTX"),
    *("SENT", "TRIMMED", "TRIED", "EXPIRED", "DOUBTED", "LOST", "CUT"),  # fate.py
    *("DELIVERED", "LATE", "NEEDLESS"),
}


@pytest.mark.parametrize("page", ["README.md", "docs/protocol.md"])
def test_the_glossary_has_every_abbreviation(page: str) -> None:
    glossary = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^\| ([^|]*) \|", glossary, re.M)
    known = set(re.findall(r"[A-Za-z0-9_]+", " ".join(terms)))
    text = (ROOT / page).read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```|`[^`]*`|^    .*$|\]\([^)]*\)", " ", text, flags=re.S | re.M)
    used = re.findall(r"\b[A-Z]\w*[A-Z0-9]\w*\b", prose)
    terms_used = {word.removesuffix("s") for word in used if "_" not in word}  # names of codes
    assert terms_used - known - COMMON_WORDS == set()


def test_git_ignores_what_the_readmes_commands_write() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    written = set(re.findall(r"(?:--out |--page |--pcap |out=\"|mrc init )([\w.]+)", text))
    assert {"results", "loss", "why.html", "nic.pcapng", "first.toml"} <= written
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    ignored = [line.strip("/") for line in lines]
    assert [name for name in written if not any(fnmatch(name, one) for one in ignored)] == []


def test_every_public_name_is_on_the_api_page() -> None:
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    names = [name for name in openmrc.__all__ if name != "__version__"]
    assert [name for name in names if name not in page] == []
    for option in list(inspect.signature(openmrc.sweep).parameters)[2:]:
        assert f"| `{option}` |" in page
    assert f"{RUNS_MAX:,} runs" in page
    assert f"1 to {WORKERS_MAX}" in page


def options_of(*command: str) -> set[str]:
    """The options that a command's help names, without `--help`."""
    done = subprocess.run(
        [sys.executable, "-m", "openmrc.cli", *command, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(re.findall(r"--[a-z]+", done.stdout)) - {"--help"}


def long_options(parser: argparse.ArgumentParser) -> set[str]:
    """The long options of a command and of its parts."""
    found = {text for a in parser._actions for text in a.option_strings if text.startswith("--")}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= set().union(*map(long_options, action.choices.values()))
    return found - {"--help"}


def test_the_command_page_begins_with_every_command_and_its_options() -> None:
    usage = (ROOT / "docs/command.md").read_text(encoding="utf-8").partition("\n\n`mrc` alone")[0]
    shown: dict[str, str] = {}
    for lines in re.split(r"\n(?=mrc )", usage.partition("```text\n")[2]):
        shown[lines.split()[1]] = shown.get(lines.split()[1], "") + lines
    commands = next(
        a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction)
    ).choices
    assert set(shown) == set(commands)
    for name, parser in commands.items():
        missing = [o for o in sorted(long_options(parser)) if not re.search(o + r"\b", shown[name])]
        assert (name, missing) == (name, [])


def test_the_command_page_shows_every_option_of_a_sweep() -> None:
    options = options_of("sweep")
    assert len(options) == 10
    usage = (ROOT / "docs/command.md").read_text(encoding="utf-8").partition("\n\n## ")[0]
    assert [option for option in options if option not in usage] == []


def test_the_command_page_shows_every_option_of_a_run() -> None:
    options = options_of("run")
    usage = (ROOT / "docs/command.md").read_text(encoding="utf-8").partition("\n\n## ")[0]
    shown = usage.partition("\nmrc run SCENARIO")[2].partition("\nmrc decode")[0]
    assert set(re.findall(r"--[a-z]+", shown)) == options
    assert "[--world sim|lab]" in shown


@pytest.mark.parametrize("part", ["run", "fail", "heal", "status"])
def test_the_command_page_shows_every_option_of_a_lab(part: str) -> None:
    options = options_of("lab", part)
    assert len(options) == {"run": 6, "fail": 7, "heal": 2, "status": 2}[part]
    usage = (ROOT / "docs/command.md").read_text(encoding="utf-8").partition("\n\n## ")[0]
    lines = [line for line in usage.splitlines() if line.startswith("mrc lab")]
    shown = "".join(lines[:2] if part == "run" else [line for line in lines if f" {part} " in line])
    assert set(re.findall(r"--[a-z]+", shown)) == options


def test_the_lab_s_page_shows_a_lab_and_every_key_of_it(tmp_path: Path) -> None:
    (text,) = blocks("docs/lab.md", "toml")
    (tmp_path / "lab.toml").write_text(text)
    spec = lab_spec(load_lab(tmp_path / "lab.toml"))
    assert (spec.settings.switch, spec.fabric.n_nics) == ("linux", 8)
    page = (ROOT / "docs/lab.md").read_text(encoding="utf-8")
    for field in msgspec.structs.fields(LabSection):
        assert f"| `{field.encode_name}` |" in page


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples/lab").glob("*.toml")), ids=lambda p: p.stem
)
def test_an_example_of_a_lab_can_be_one(path: Path) -> None:
    spec = lab_spec(load_lab(path))
    assert topology(spec.fabric, spec.settings).links


@pytest.mark.parametrize("test", ["write_bw", "write_lat"])
def test_the_command_page_shows_every_option_of_perf(test: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "openmrc.cli", "perf", test, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    options = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", done.stdout)) - {"--help"}
    assert len(options) == {"write_bw": 19, "write_lat": 16}[test]
    page = (ROOT / "docs/command.md").read_text(encoding="utf-8")
    usage, _, rest = page.partition("\n\n## ")
    table = rest.partition("## mrc perf\n")[2]
    assert [option for option in options if option not in usage] == []
    assert [option for option in options if f"`{option}`" not in table] == []


def test_the_command_page_shows_every_option_of_paper() -> None:
    options = options_of("paper")
    assert len(options) == 6
    page = (ROOT / "docs/command.md").read_text(encoding="utf-8")
    usage, _, rest = page.partition("\n\n## ")
    shown = next(line for line in usage.splitlines() if line.startswith("mrc paper"))
    table = rest.partition("## mrc paper\n")[2].partition("\n## ")[0]
    assert [option for option in options if option not in shown] == []
    assert [option for option in options if f"`{option}`" not in table] == []


def test_every_metric_is_on_the_page_of_the_live_world() -> None:
    from openmrc.verbs import metrics

    page = (ROOT / "docs/live.md").read_text(encoding="utf-8")
    names = [
        what[0]
        for group in (metrics.DEVICE, metrics.PORT, metrics.QP, metrics.LINK)
        for what in group.values()
    ]
    assert len(names) > 20
    assert [name for name in names if f"`{name}`" not in page] == []


def test_the_scenario_in_the_reference_can_be_built() -> None:
    text, jobs, faults = blocks("docs/scenario.md", "toml")
    _, _, schedule = parse_scenario(text).build()
    assert [at_ps for at_ps, _ in schedule.names] == [100_000_000, 2_100_000_000]
    _, traffic, _ = parse_scenario(jobs).build()
    assert traffic.jobs == ("training", "noise")
    one_of_each = parse_scenario(faults)
    _, _, schedule = one_of_each.build()
    assert len({at_ps for at_ps, _ in schedule.names}) > len(one_of_each.faults)


def test_every_kind_of_fault_is_in_the_reference() -> None:
    reference = (ROOT / "docs/scenario.md").read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"`{kind}`" not in reference] == []


@pytest.mark.parametrize(
    "section",
    [
        *FABRICS.values(),
        *WORKLOADS.values(),
        JobSection,
        Header,
        *TRANSPORTS.values(),
        FaultSection,
        StopSection,
        ReportSection,
        LabSection,
    ],
)
def test_every_key_is_in_the_reference(section: type[msgspec.Struct]) -> None:
    reference = (ROOT / "docs/scenario.md").read_text(encoding="utf-8")
    keys = [field.encode_name for field in msgspec.structs.fields(section)]
    assert [key for key in keys if f"`{key}`" not in reference] == []


# --- docs/costs.md


def memory() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks/memory.py"))


def table(document: str, heading: str) -> list[list[str]]:
    """Cells of the rows of the first table whose heading contains these words."""
    lines = (ROOT / document).read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|") and heading in line)
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.split("|")[1:-1]])
    return rows


def indented(text: str) -> str:
    """As it stands in a docstring."""
    return "".join(f"    {line}\n" for line in text.splitlines())


def test_the_bytes_of_every_record_are_as_documented() -> None:
    said = {row[0].strip("`"): int(row[1]) for row in table("docs/costs.md", "| Record | Bytes |")}
    assert said == memory()["record_bytes"]()


EXAMPLES = {
    "P1024_100G": benchsim.CASES["P1024_100G"],
    "M256_8x100G": benchsim.CASES["M256_8x100G"],
    "16,384 NICs x 8 planes": """
        [fabric]
        nics = 16384
        planes = 8
        port_rate = "100Gbps"
        t0_down = 64
        [workload]
        kind = "permutation"
        size = "4MB"
    """,
    "all-to-all of 256 x 8": """
        [fabric]
        nics = 256
        planes = 8
        port_rate = "100Gbps"
        t0_down = 64
        [workload]
        kind = "all-to-all"
        size = "16MB"
    """,
}


@pytest.mark.parametrize("column", [1, 2, 3, 4])
def test_the_examples_of_memory_follow_the_formula(column: int) -> None:
    name = list(EXAMPLES)[column - 1]
    parts = memory()["estimate"](parse_scenario(EXAMPLES[name]))
    said = {row[0]: row[column] for row in table("docs/costs.md", name)}
    assert {key: said[key] for key in parts} == {key: f"{n / 1e6:,.1f}" for key, n in parts.items()}
    assert said["**all, without packets in flight**"] == f"{sum(parts.values()) / 1e6:,.1f}"


@pytest.mark.parametrize(
    "scenario",
    [
        EXAMPLES["P1024_100G"],
        EXAMPLES["M256_8x100G"],
        '[workload]\nkind = "ring-all-reduce"\nsize = "1MB"\nchannels = 3',
        '[workload]\nkind = "ring-all-reduce"\nsize = "1MB"\nflows = "series"\nchunks = 3',
        '[workload]\nkind = "broadcast"\nchunks = 300\nflows = "series"',
        '[workload]\nkind = "incast"\nvictim = true',
        '[transport]\npaths = "single"\n[workload]\nkind = "permutation"',
        '[workload]\nkind = "permutation"\n[[fault]]\nat = "0s"\nkind = "link-construction"\n'
        'where = "plane * t0 * - t1 *"\nmtbf = "9ms"\nmttr = "1ms"\nuntil = "1s"\n',
    ],
    ids=["P1024_100G", "M256_8x100G", "ring", "series", "chain", "incast", "single", "faults"],
)
def test_the_formula_of_memory_is_what_a_world_allocates(scenario: str) -> None:
    from openmrc.sim.world import World

    checked = parse_scenario(scenario)
    fabric, traffic, schedule = checked.build()
    transport = checked.transports[0].build()
    world = World(fabric, traffic, transport, schedule, queues=checked.fabric.queues())
    # packets and blame, and what hardly depends on the scenario
    apart = {
        "blame",
        "hop",
        "packet",
        "after",
        "timeline",
        "rate",
        "column",
        "bucket",
        "bucket_bits",
        "out",
        "done",
        "nscc",
    }
    allocated = sum(
        array.nbytes
        for state in (world.net, world.engine)
        for name, array in state._asdict().items()
        if name not in apart
    )
    assert sum(memory()["estimate"](checked).values()) == pytest.approx(allocated, abs=8192)


# --- docs/protocol.md


def test_the_life_of_a_qp_is_drawn_from_the_table() -> None:
    page = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    assert f"## The life of a QP\n\n```text\n{diagrams.of_qp()}```\n" in page
    assert indented(diagrams.of_qp()) in str(qp.__doc__)


def test_the_states_of_an_ev_are_drawn_from_the_table() -> None:
    page = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    section = page.split("## The states of an EV\n")[1]
    assert section.split("```text\n")[1].partition("```")[0] == diagrams.of_ev()
    assert indented(diagrams.of_ev()) in str(ev.__doc__)
    rows = table("docs/protocol.md", "| Event | From | When | To | Where |")
    assert [(row[0], row[1], row[3]) for row in rows] == [
        (e.name, ", ".join(ev.EV_STATES[state] for state in e.before), ev.EV_STATES[e.after])
        for e in ev.EVENTS
    ]


def test_the_fates_of_a_transmission_are_drawn_from_the_table() -> None:
    page = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    section = page.split("## The fate of a transmission\n")[1]
    assert section.split("```text\n")[1].partition("```")[0] == diagrams.of_fate()
    assert indented(diagrams.of_fate()) in str(fate.__doc__)


def test_every_place_named_in_the_protocol_exists() -> None:
    text = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    package = ROOT / "src/openmrc"
    files = set(re.findall(r"`((?:sim/)?[a-z_]+\.py)`", text))
    assert [name for name in files if not list(package.glob(f"**/{name}"))] == []
    modules = "|".join(sorted(path.stem for path in (package / "engine").glob("[a-z]*.py")))
    named = re.findall(rf"`({modules})\.(?!py`)(\w+)`", text)
    assert len({module for module, _ in named}) >= 9
    for module, name in named:
        assert hasattr(importlib.import_module(f"openmrc.engine.{module}"), name), name


def test_every_test_named_in_the_protocol_exists() -> None:
    text = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    tests = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", text))
    assert len(named) > 20
    assert [name for name in sorted(named) if f"def {name}(" not in tests] == []
