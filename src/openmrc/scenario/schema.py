"""The JSON schema of a scenario file, generated from the tables that check it.

`python -m openmrc.scenario.schema` writes `files/scenario.schema.json`, a part of the package, by
which editors complete and check scenarios. Checks of several keys together (a place that does not
exist, a key without effect) are left to `mrc run`.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

import msgspec

from openmrc.scenario.fabric import FABRICS
from openmrc.scenario.fault import FaultSection
from openmrc.scenario.jobs import Jobs, JobSection
from openmrc.scenario.lab import LabSection
from openmrc.scenario.scenario import TOP
from openmrc.scenario.sections import Header, ReportSection, StopSection
from openmrc.scenario.toml import AUTO, ByteCount, Choice, File, Files, Quantity, Rate, Size, plain
from openmrc.scenario.toml import Time as TimeKey
from openmrc.scenario.transports import TRANSPORTS
from openmrc.scenario.workloads import JOB_WORKLOADS, WORKLOADS
from openmrc.units import RATE_BPS, SIZE_BYTES, TIME_PS

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
UNITS = ((TimeKey, TIME_PS, "a time, such as 12us"), (Rate, RATE_BPS, "a rate, such as 100Gbps"),
         (Size, SIZE_BYTES, "a size, such as 4KiB or 2MB"))  # fmt: skip


def schema() -> Schema:
    """Return the schema of a whole scenario file."""
    fault = _table(FaultSection)
    tables: Schema = {
        **_table(Header)["properties"],
        "fabric": _one_of({kind: _table(each) for kind, each in FABRICS.items()}, "multiplane"),
        "transport": _or_list(
            _one_of({kind: _table(each) for kind, each in TRANSPORTS.items()}, "mrc")
        ),
        "workload": _workload(),
        "fault": {"type": "array", "items": fault},
        "stop": _table(StopSection),
        "report": _table(ReportSection),
        "lab": _table(LabSection),
    }
    return {
        "$schema": DIALECT,
        "title": "A scenario of openmrc",
        **_closed({key: tables[key] for key in TOP}, []),
    }


def text() -> str:
    """Return the schema as the text of the file in the package."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def _workload() -> Schema:
    kinds = {kind: _table(each) for kind, each in WORKLOADS.items() if each is not Jobs}
    job = _table(JobSection)["properties"] | {"nics": {"type": ["string", "array"]}}
    works = {kind: _table(each) for kind, each in JOB_WORKLOADS.items()}
    of_job = {
        kind: _closed(job | each["properties"], each["required"]) for kind, each in works.items()
    }
    jobs = _closed({"job": {"type": "array", "items": _one_of(of_job)}}, ["job"])
    return _one_of(kinds | {Jobs.kind: jobs})


def _one_of(kinds: Mapping[str, Schema], default: str = "") -> Schema:
    """Tables of several kinds: `kind` determines the keys."""
    named = {"kind": {"enum": list(kinds)} | ({"default": default} if default else {})}
    rules = [
        {
            "if": {"properties": {"kind": {"const": kind}}, "required": _said(kind, default)},
            "then": _closed(named | table["properties"], table["required"]),
        }
        for kind, table in kinds.items()
    ]
    return {
        "type": "object",
        "properties": named,
        "required": [] if default else ["kind"],
        "allOf": rules,
    }


def _said(kind: str, default: str) -> list[str]:
    """A kind that is the default also applies if none is stated."""
    return [] if kind == default else ["kind"]


def _or_list(table: Schema) -> Schema:
    return {"anyOf": [table, {"type": "array", "items": table, "minItems": 1}]}


def _closed(properties: Schema, required: list[str]) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _table(struct: Any) -> Schema:
    """One table: its keys with their types, ranges and defaults; a name is never required."""
    properties, required = {}, []
    for field in msgspec.structs.fields(struct):
        key = field.encode_name
        properties[key] = about = _with_auto(_of_type(field.type))
        if field.default not in (msgspec.NODEFAULT, msgspec.UNSET):
            about["default"] = AUTO if field.default is None else plain(field.default)
        elif field.default is msgspec.NODEFAULT and key != "name":
            required.append(key)
    return {"properties": properties, "required": required}


def _of_type(kind: Any) -> Schema:
    """The schema of a key's type; that it may be left out is stated elsewhere."""
    stated = [each for each in get_args(kind) if each is not msgspec.UnsetType]
    if get_origin(kind) is UnionType and len(stated) < len(get_args(kind)):
        kind = functools.reduce(operator.or_, stated)
    return msgspec.json.schema(kind, schema_hook=_special)


def _with_auto(about: Schema) -> Schema:
    """Add "auto", which a file says for None in a table."""
    if "anyOf" not in about:
        return dict(about)
    return about | {
        "anyOf": [{"const": AUTO} if each == {"type": "null"} else each for each in about["anyOf"]]
    }


def _special(kind: type) -> Schema:
    """The schema of types that msgspec does not know: quantities, names of files, choices."""
    if issubclass(kind, Choice):
        own = {"type": "string", "pattern": r"\.py:\w+$", "description": "FILE.py:NAME"}
        return {"anyOf": [{"enum": list(kind.WORDS)}, own]}
    if issubclass(kind, File | Files):
        return {"type": "string", "description": "a file, relative to the scenario"}
    for quantity, units, words in UNITS:
        if issubclass(kind, quantity):
            number = r"^\s*\+?[0-9]+(\.[0-9]+)?\s*"
            said = {
                "type": "string",
                "pattern": f"{number}({'|'.join(units)})\\s*$",
                "description": words,
            }
            return {"anyOf": [said, {"type": "integer"}]} if issubclass(kind, ByteCount) else said
    assert issubclass(kind, Quantity)
    return {"type": "string"}  # with special words, such as "bgp"


if __name__ == "__main__":
    Path(str(files("openmrc.scenario"))).joinpath("files/scenario.schema.json").write_text(
        text(), encoding="utf-8"
    )
