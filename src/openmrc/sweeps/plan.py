"""The runs of a sweep, and the name under which each is found again.

A run's key is a hash of everything that determines its result: the scenario with every default
written out, the files it names, and the code. So a sweep that was stopped, or is called again with
more values, runs only what is missing, and after an edit of the protocol everything runs again.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from openmrc import version
from openmrc.errors import InputError
from openmrc.scenario.scenario import Scenario
from openmrc.scenario.toml import plain

RUNS_MAX = 100_000  # each is a file, and all are read at the end: about a millisecond each
KEY_DIGITS = 20  # 80 bits: no two of 100,000 runs share a key by chance

# Code that determines the figures of a run, in addition to its scenario.
CODE = (  # apart from what is compiled
    "workload/**/*.py",
    "scenario/*.py",
    "run/*.py",
)

Over = Mapping[str, Any] | Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class Run:
    """One point of a sweep: `overrides` as they were given, and the scenario they lead to."""

    key: str
    scenario: Scenario
    overrides: dict[str, Any]


def plan(scenario: Scenario, over: Over, said_by: str = "over") -> list[Run]:
    """Return the runs of a sweep, each once, in order: the last key changes fastest.

    `over` maps keys to values, of which every combination is run; or it lists the combinations.
    Raises `InputError` that begins with `said_by` before anything is run.
    """
    _check_transports(scenario)
    runs: dict[str, Run] = {}
    for overrides in _points(over, said_by):
        overrides = plain(overrides)
        changed = scenario.replace(overrides, said_by)
        _check_transports(changed, said_by)
        run = Run(_key(changed), changed, overrides)
        runs.setdefault(run.key, run)
    return list(runs.values())


@functools.cache
def code_hash() -> str:
    """Return a name of the code that produces the figures: any edit of it changes the name."""
    from openmrc.jit import cache

    digest = hashlib.sha256()
    patterns = (*cache.COMPILED_PARTS, *CODE)
    for path in sorted(path for pattern in patterns for path in cache.PACKAGE.glob(pattern)):
        digest.update(f"{path.relative_to(cache.PACKAGE)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:KEY_DIGITS]


def _check_transports(scenario: Scenario, said_by: str = "") -> None:
    """Check the transports; fabric and workload, which take longer, are checked when the run
    starts.
    """
    for number, transport in enumerate(scenario.transports):
        with scenario.naming(number, said_by):
            transport.build()


def _key(scenario: Scenario) -> str:
    digest = hashlib.sha256(f"{version.__version__} {code_hash()}\n".encode())
    digest.update(scenario.to_toml().encode())
    for path in scenario.files():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:KEY_DIGITS]


def _points(over: Any, said_by: str) -> list[dict[str, Any]]:
    if isinstance(over, Mapping):
        lists = [_values(key, values, said_by) for key, values in over.items()]
        names, combinations = list(over), itertools.product(*lists)
        points = [dict(zip(names, values, strict=True)) for values in _few(combinations, said_by)]
    elif isinstance(over, Iterable) and not isinstance(over, str):
        points = [_point(point, said_by) for point in _few(over, said_by)]
    else:
        raise InputError(f"{said_by}: {over!r} is neither a dict nor a list of dicts")
    if not points or not points[0]:
        raise InputError(f"{said_by}: is empty; such as seed = 1 to 10")
    return points


def _point(point: Any, said_by: str) -> dict[str, Any]:
    if not isinstance(point, Mapping):
        raise InputError(f"{said_by}: {point!r} is not a dict; such as {{'seed': 1}}")
    return dict(point)


def _values(key: str, values: Any, said_by: str) -> list[Any]:
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise InputError(f"{said_by} {key}: {values!r} is not a list; give the values as one")
    listed = _few(values, said_by)
    if not listed:
        raise InputError(f"{said_by} {key}: has no value; give at least one")
    return listed


def _few(values: Iterable[Any], said_by: str) -> list[Any]:
    listed = list(itertools.islice(values, RUNS_MAX + 1))
    if len(listed) > RUNS_MAX:
        raise InputError(f"{said_by}: more than {RUNS_MAX:,} runs; sweep over fewer at a time")
    return listed
