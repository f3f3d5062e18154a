"""The schema that editors complete and check by says what the tables say."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from openmrc.cli.init import TEMPLATES, schema_file, template
from openmrc.errors import InputError
from openmrc.scenario.scenario import TOP, parse_scenario
from openmrc.scenario.schema import schema, text

jsonschema = pytest.importorskip("jsonschema")

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").rglob("*.toml"))
SMALL = '[workload]\nkind = "permutation"\n'


def refused(tables: dict[str, Any]) -> list[str]:
    validator = jsonschema.Draft202012Validator(schema())
    return [error.json_path for error in validator.iter_errors(tables)]


def test_the_file_of_the_package_is_made_from_the_tables() -> None:
    assert schema_file().read_text(encoding="utf-8") == text(), "python -m openmrc.scenario.schema"
    jsonschema.Draft202012Validator.check_schema(schema())
    assert tuple(schema()["properties"]) == TOP


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_example_passes(path: Path) -> None:
    assert refused(tomllib.loads(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_and_what_it_is_written_out_as_passes(name: str) -> None:
    scenario = parse_scenario(template(name))
    scenario.build()
    assert refused(tomllib.loads(template(name))) == []
    assert refused(tomllib.loads(scenario.to_toml())) == []


@pytest.mark.parametrize(
    "wrong",
    [
        SMALL + "[fabrics]\n",
        SMALL + "[fabric]\nnicks = 4\n",
        SMALL + "[fabric]\nnics = 1\n",
        SMALL + '[fabric]\nnics = "4"\n',
        SMALL + '[fabric]\nport_rate = "100"\n',
        SMALL + '[fabric]\nport_rate = "100gbps"\n',
        SMALL + '[fabric]\nkind = "fat-tree"\nplanes = 2\n',
        SMALL + '[fabric]\nkind = "clos"\n',
        SMALL + '[transport]\npaths = "mrcc"\n',
        SMALL + '[transport]\nkind = "roce"\npaths = "mrc"\n',
        SMALL + "[[transport]]\nmpr = 9000000000\n",
        SMALL + '[[fault]]\nat = "1us"\nkind = "link-dwon"\nwhere = "nic 0"\n',
        '[workload]\nkind = "permutation"\nn = 3\n',
        '[workload]\nsize = "1MB"\n',
        '[workload]\nkind = "jobs"\n[[workload.job]]\nkind = "jobs"\n',
        "seed = -1\n" + SMALL,
    ],
)
def test_what_the_tables_refuse_the_schema_refuses(wrong: str) -> None:
    with pytest.raises(InputError):
        parse_scenario(wrong)
    assert refused(tomllib.loads(wrong)) != []


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (
            '[transport]\npaths = "oblivous"\n',
            "transport.paths: 'oblivous' is refused; did you mean",
        ),
        ('[transport]\npaths = "oblivous"\n', "did you mean 'oblivious'? accepted: mrc, "),
        ('[transport]\ncc = "NSCC"\n', "did you mean 'nscc'? accepted: "),
        (
            '[transport]\nkind = "rocee"\n',
            "transport.kind: 'rocee' is refused; did you mean 'roce'?",
        ),
        ('[fabric]\nkind = "multi-plane"\n', "did you mean 'multiplane'? accepted: "),
        ('[fabric]\nforwarding = "usids"\n', "did you mean 'usid'? accepted: arithmetic, usid"),
        ('[fabric]\nport_rate = "100gbps"\n', "is not a unit of rate (bps, "),
        ('[fabric]\nport_rate = "100gbps"\n', "; did you mean 'Gbps'?"),
        ('[fabric]\nlink_delay = "1US"\n', "; did you mean 'us'?"),
        (
            '[[fault]]\nat = "1us"\nkind = "link-dwon"\nwhere = "nic 0"\n',
            "did you mean 'link-down'?",
        ),
    ],
)
def test_a_mistyped_value_is_refused_with_the_nearest(wrong: str, hint: str) -> None:
    with pytest.raises(InputError) as error:
        parse_scenario(SMALL + wrong)
    assert hint in str(error.value)


def test_a_mistyped_workload_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match="'permutations' is refused; did you mean"):
        parse_scenario('[workload]\nkind = "permutations"\n')


def test_the_schema_knows_defaults_and_words() -> None:
    fabric = schema()["properties"]["fabric"]["allOf"][0]["then"]["properties"]
    assert (fabric["nics"]["default"], fabric["port_rate"]["default"]) == (64, "200Gbps")
    assert fabric["t0_up"]["default"] == "auto"
    assert json.dumps(fabric["forwarding"]["enum"]) == '["arithmetic", "usid"]'
