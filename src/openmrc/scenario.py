"""A scenario: the file that says what is built, what runs on it, and what breaks when.

`load_scenario` reads TOML into the Structs of `sections` and refuses whatever it does not
understand. `Scenario.to_toml` writes every default out, and what it writes loads as equal.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from openmrc._toml import Table, read_table, refuse_unknown, write_table
from openmrc.errors import InputError
from openmrc.sections import (
    FABRICS,
    WORKLOADS,
    FabricSection,
    FaultSection,
    Header,
    StopSection,
    TransportSection,
    WorkloadSection,
)

if TYPE_CHECKING:
    from openmrc.fabric.faults import FaultSchedule
    from openmrc.fabric.model import Fabric
    from openmrc.traffic import Traffic

TOP = ("name", "seed", "fabric", "transport", "workload", "fault", "stop")
SETTABLE = tuple(key for key in TOP if key != "fault")  # a fault has no name to be reached by


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A checked scenario; equal if it means the same."""

    name: str
    seed: int
    fabric: FabricSection
    transports: tuple[TransportSection, ...]
    workload: WorkloadSection
    faults: tuple[FaultSection, ...]
    stop: StopSection
    source: str  # what errors name as the place: the file, or the options it came from

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scenario) and self.to_toml() == other.to_toml()

    def __hash__(self) -> int:
        return hash(self.to_toml())

    def build(self) -> tuple[Fabric, Traffic, FaultSchedule]:
        """Return what the scenario describes; raise `InputError` for what cannot exist."""
        from openmrc.fabric.faults import compile_faults

        try:
            fabric = self.fabric.build()
            traffic = self.workload.build(fabric.n_nics, self.seed)
            faults = [fault.build() for fault in self.faults]
            if fabric.n_planes > 1 and any(t.rules == "peer" for t in self.transports):
                raise InputError(
                    f"transport.rules: 'peer' is for a fabric of one plane, this one has"
                    f" {fabric.n_planes}; use 'mrc'"
                )
            schedule = compile_faults(faults, fabric, self.seed, self.stop.time)
            return fabric, traffic, schedule
        except InputError as error:
            raise error.at(self.source) from None

    def to_toml(self) -> str:
        """Return the scenario as a file, every default written out."""
        tables = [
            write_table("", Header(name=self.name, seed=self.seed)),
            write_table("[fabric]", self.fabric, kind=self.fabric.kind),
            *(write_table("[[transport]]", transport) for transport in self.transports),
            write_table("[workload]", self.workload, kind=self.workload.kind),
            *(write_table("[[fault]]", fault) for fault in self.faults),
            write_table("[stop]", self.stop),
        ]
        return "\n".join(tables)


def load_scenario(path: str | Path, overrides: Sequence[str] = ()) -> Scenario:
    """Read a scenario file, then `overrides` ("fabric.nics=128", "transport.mrc.pmtu=2048").

    Raises `InputError` naming the file, the key's path, the value and what would be accepted.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); name a scenario file"
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text; a scenario is a TOML file") from None
    return parse_scenario(text, overrides, source=str(path), base=path.parent, name=path.stem)


def parse_scenario(
    text: str,
    overrides: Sequence[str] = (),
    source: str = "scenario",
    base: Path | None = None,
    name: str = "scenario",
) -> Scenario:
    """Read a scenario from TOML text; files it names are relative to `base`, or to where we are.

    `source` is what errors call it, `name` what it is called if it does not say. Raises
    `InputError` as `load_scenario` does.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source}: is not TOML: {error}; see docs/scenario.md") from None
    if not raw:
        raise InputError(
            f'{source}: is empty; at least [workload] and its kind, such as "permutation"'
        )
    return _from_tables({"name": name} | raw, overrides, source, base or Path())


def demo_scenario(overrides: Sequence[str] = ()) -> Scenario:
    """Return the scenario that `mrc demo` runs."""
    text = files("openmrc").joinpath("scenarios/demo.toml").read_text(encoding="utf-8")
    return parse_scenario(text, overrides, source="demo.toml")


def peer_scenario(topo: str, cm: str, overrides: Sequence[str] = ()) -> Scenario:
    """Return the run that htsim would make of a `.topo` and a `.cm` file, with its parameters.

    Its packets are 4086 B of payload and 64 B of header, 64 hashed EVs, and both queues one BDP
    with marks on the last hop as well; `rules = "peer"` stands for the rest.
    """
    fabric = {"kind": "htsim", "topo": topo, "ecn_last_hop": True}
    transport = {"rules": "peer", "pmtu": 4086, "evs_active": 64, "evs_backup": 0}
    workload = {"kind": "htsim", "cm": cm}
    tables = {"name": Path(cm).stem, "fabric": fabric, "transport": transport, "workload": workload}
    return _from_tables(tables, overrides, "--topo --cm", Path())


def _from_tables(raw: Table, overrides: Sequence[str], source: str, base: Path) -> Scenario:
    raw = dict(raw)
    transports = raw.get("transport", {})
    raw["transport"] = transports if isinstance(transports, list) else [transports]
    overridden: list[str] = []
    try:
        for override in overrides:
            overridden.append(_override(raw, override))
        return _check(raw, source, base)
    except InputError as error:
        if str(error).startswith("--set"):
            raise
        # The key's path without list positions: what an override would have called it.
        place = re.sub(r"\[\d+\]", "", str(error)).partition(":")[0]
        raise error.at("--set" if place in overridden else source) from None


def _check(raw: Table, source: str, base: Path) -> Scenario:
    refuse_unknown(raw, TOP, "")
    header = {key: raw[key] for key in ("name", "seed") if key in raw}
    try:
        head = read_table(header, Header, "", base)
    except InputError as error:
        raise InputError(str(error).removeprefix(".")) from None
    return Scenario(
        name=head.name,
        seed=head.seed,
        fabric=_of_kind(raw.get("fabric", {}), FABRICS, "fabric", base, default="multiplane"),
        transports=_transports(raw["transport"], base),
        workload=_of_kind(raw.get("workload", {}), WORKLOADS, "workload", base),
        faults=tuple(
            read_table(fault, FaultSection, f"fault[{number}]", base)
            for number, fault in enumerate(_list(raw.get("fault", []), "fault"))
        ),
        stop=read_table(raw.get("stop", {}), StopSection, "stop", base),
        source=source,
    )


def _of_kind(
    table: Any, kinds: dict[str, Any], place: str, base: Path, default: str | None = None
) -> Any:
    if not isinstance(table, dict):
        raise InputError(
            f"{place}: {table!r} is not a table; write [{place}] and its keys below it"
        )
    kind = table.get("kind", default)
    if kind is None:
        raise InputError(f"{place}.kind: is missing; accepted: {', '.join(kinds)}")
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(f"{place}.kind: {kind!r} is refused; accepted: {', '.join(kinds)}")
    return read_table(table, kinds[kind], place, base, kind=kind)


def _transports(tables: list[Any], base: Path) -> tuple[TransportSection, ...]:
    if not tables:
        raise InputError("transport: is an empty list; leave it out, or write [[transport]]")
    sections: list[TransportSection] = []
    for number, table in enumerate(tables):
        place = f"transport[{number}]" if len(tables) > 1 else "transport"
        if isinstance(table, dict) and isinstance(label := _label(table), str):
            table = {"name": label} | table
        section = read_table(table, TransportSection, place, base)
        if section.name in [other.name for other in sections]:
            raise InputError(
                f"{place}.name: {section.name!r} is already the name of another transport;"
                " give each a name of its own"
            )
        sections.append(section)
    return tuple(sections)


def _label(table: Table) -> Any:
    """A transport's name: what it is called, else the value of `paths`."""
    return table.get("name", table.get("paths", "mrc"))


def _list(tables: Any, place: str) -> list[Any]:
    if not isinstance(tables, list):
        raise InputError(f"{place}: is one table; it is a list, write [[{place}]]")
    return tables


def _override(raw: Table, override: str) -> str:
    """Set one "a.b=value" in `raw`; return the key's path as errors will name it."""
    path, equals, text = override.partition("=")
    section, dot, key = path.strip().partition(".")
    if not equals or not section or (dot and not key):
        raise InputError(f"--set {override}: accepted: KEY=VALUE, such as fabric.nics=128")
    if section in SETTABLE and bool(dot) == (section in ("name", "seed")):
        raise InputError(f"--set {override}: accepted: KEY=VALUE, such as fabric.nics=128")
    try:
        refuse_unknown({section: {} if dot else text}, SETTABLE, "")
    except InputError as error:
        raise error.at("--set") from None
    try:
        value: Any = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()  # a word or a quantity: nobody quotes in a shell
    if not dot:
        raw[section] = value
    elif section == "transport":
        key = _override_transports(raw["transport"], key, value)
    else:
        table = raw.get(section, {})
        if isinstance(table, dict):
            raw[section] = table | {key: value}
    return f"{section}.{key}" if dot else section


def _override_transports(tables: list[Any], key: str, value: Any) -> str:
    name, dot, key = key.rpartition(".")
    labels = [_label(table) for table in tables if isinstance(table, dict)]
    if dot and name not in labels:
        raise InputError(
            f"--set transport.{name}.{key}: there is no transport {name!r};"
            f" there is: {', '.join(map(str, labels))}"
        )
    for number, table in enumerate(tables):
        if isinstance(table, dict) and (not dot or _label(table) == name):
            tables[number] = table | {key: value}
    return key
