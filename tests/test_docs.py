"""What the documents show must run, and what can be written must be in the documents."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from openmrc.scenario import load_scenario, parse_scenario
from openmrc.sections import (
    FABRICS,
    WORKLOADS,
    FaultSection,
    Header,
    StopSection,
    TransportSection,
)

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


def test_the_twenty_lines_of_the_readme_run(
    fake_world: type[FakeWorld], capsys: pytest.CaptureFixture[str]
) -> None:
    (lines,) = blocks("README.md", "python")
    exec(compile(lines, "README.md", "exec"), {})
    assert lines.count("\n") <= 20
    assert capsys.readouterr().out == (
        "slowest flow: 320.0 us; ideal: 10.0 us\npackets lost to the cut: 1\n"
    )


def test_the_scenario_in_the_reference_can_be_built() -> None:
    (text,) = blocks("docs/scenario.md", "toml")
    _, _, schedule = parse_scenario(text).build()
    assert [at_ps for at_ps, _ in schedule.names] == [100_000_000, 2_100_000_000]


@pytest.mark.parametrize(
    "section",
    [*FABRICS.values(), *WORKLOADS.values(), Header, TransportSection, FaultSection, StopSection],
)
def test_every_key_is_in_the_reference(section: type[msgspec.Struct]) -> None:
    reference = (ROOT / "docs/scenario.md").read_text(encoding="utf-8")
    keys = [field.encode_name for field in msgspec.structs.fields(section)]
    assert [key for key in keys if f"`{key}`" not in reference] == []
