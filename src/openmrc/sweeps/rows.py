"""A row of the data set: one run and transport, all keys of the scenario, all figures.

A key's column is named by its path (`fabric.nics`). Quantities are integers of bytes, bit/s or
picoseconds; null is `"auto"`, or a key that this kind of fabric or workload lacks. The run itself
makes the row, so nothing here loads a library of data frames.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, UnsetType

from openmrc.run.figures import flat, without_lists
from openmrc.run.results import Result
from openmrc.scenario.fabric import FABRICS
from openmrc.scenario.fault import FaultSection
from openmrc.scenario.scenario import Scenario
from openmrc.scenario.sections import StopSection
from openmrc.scenario.transports import TRANSPORTS
from openmrc.scenario.workloads import WORKLOADS


def rows(result: Result) -> list[dict[str, Any]]:
    """Return one row per transport of a run."""
    summary = result.summary()
    common = {key: summary[key] for key in ("wall_s", "peak_rss_mb")}
    return [
        _keys(result.scenario, number) | common | flat(without_lists(figures))
        for number, figures in enumerate(summary["transports"].values())
    ]


def failed_row(scenario: Scenario, error: str) -> dict[str, Any]:
    """Return the row of a run that failed."""
    return _keys(scenario, None) | {"error": error}


def key_types() -> dict[str, type]:
    """Return every key that a scenario can have, of all kinds, with its type."""
    types = {
        "name": str,
        "seed": int,
        "fabric.kind": str,
        **_types("fabric.", FABRICS.values()),
        "transport.kind": str,
        **_types("transport.", TRANSPORTS.values()),
        "workload.kind": str,
        **_types("workload.", WORKLOADS.values()),
        **_types("stop.", [StopSection]),
    }
    del types["transport.name"]  # it is the column `transport`
    return types


def fault_types() -> dict[str, type]:
    """Return the keys of one fault, with their types."""
    return _types("", [FaultSection])


def _keys(scenario: Scenario, transport: int | None) -> dict[str, Any]:
    keys: dict[str, Any] = {"name": scenario.name, "seed": scenario.seed}
    tables: dict[str, Any] = {
        "fabric": scenario.fabric,
        "workload": scenario.workload,
        "stop": scenario.stop,
    }
    if transport is not None:
        tables["transport"] = scenario.transports[transport]
        keys["transport"] = scenario.transports[transport].name
    for place, section in tables.items():
        keys |= {f"{place}.{key}": value for key, value in _values(section).items()}
    for place in tables.keys() - {"stop"}:
        keys[f"{place}.kind"] = tables[place].kind
    keys.pop("transport.name", None)
    keys["fault"] = [_values(fault) for fault in scenario.faults]
    return keys


def _values(section: msgspec.Struct) -> dict[str, Any]:
    return {
        field.encode_name: _value(getattr(section, field.name), _type(field.type))
        for field in msgspec.structs.fields(section)
    }


def _value(value: Any, kind: type) -> Any:
    if value is None or value is UNSET:
        return None
    return kind(value)


def _type(annotation: Any) -> type:
    """Return the column's type for a key's type: text, except for numbers and booleans."""
    if get_origin(annotation) is Annotated:
        return _type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [a for a in get_args(annotation) if a not in (type(None), UnsetType)]
        return _type(kinds[0]) if len(kinds) == 1 else str
    if not isinstance(annotation, type):
        return str
    return next((kind for kind in (bool, int, float) if issubclass(annotation, kind)), str)


def _types(place: str, sections: Iterable[type[msgspec.Struct]]) -> dict[str, type]:
    return {
        f"{place}{field.encode_name}": _type(field.type)
        for section in sections
        for field in msgspec.structs.fields(section)
    }
