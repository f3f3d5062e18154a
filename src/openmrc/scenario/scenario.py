"""A scenario: the file that says what is built, what runs on it, and what fails when.

`load_scenario` reads TOML into the Structs of `sections` and refuses whatever it does not
understand; `make_scenario` takes the same tables as dicts. `Scenario.to_toml` writes every default
out, and its output loads as an equal scenario.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from openmrc.errors import InputError
from openmrc.reading import STANDARD_INPUT, read_text, toml
from openmrc.say import written
from openmrc.scenario.fabric import FABRICS, FabricSection
from openmrc.scenario.fault import FaultSection
from openmrc.scenario.jobs import JOB_KEYS, Jobs, JobSection
from openmrc.scenario.lab import LabSection
from openmrc.scenario.limits import refuse_beyond
from openmrc.scenario.sections import Header, Level, ReportSection, StopSection
from openmrc.scenario.toml import (
    Choice,
    File,
    Files,
    Table,
    meant,
    plain,
    read_table,
    refuse_no_table,
    refuse_unknown,
    write_table,
)
from openmrc.scenario.transports import (
    TRANSPORTS,
    AnyTransport,
    label_of,
    refuse_convergence,
    refuse_idle,
)
from openmrc.scenario.workload import WorkloadSection
from openmrc.scenario.workloads import JOB_WORKLOADS, WORKLOADS

if TYPE_CHECKING:
    from openmrc.fabric.faults import FaultSchedule
    from openmrc.fabric.model import Fabric
    from openmrc.sim.mrc.transport import Transport
    from openmrc.sim.roce.transport import RoceTransport
    from openmrc.traffic.traffic import Traffic

HEAD = ("name", "seed", "level")
TOP = (*HEAD, "fabric", "transport", "workload", "fault", "stop", "report", "lab")
SETTABLE = tuple("fault[0]" if key == "fault" else key for key in TOP)
# One table of a list, as errors name it: "fault[0].rate", "workload.job[2].size".
ONE_OF_A_LIST = re.compile(r"(fault|transport|workload\.job)\[(\d+)\](?:\.(.+))?")
PEER: Table = {"rules": "peer", "pmtu": 4086}
PEER_MRC: Table = {"evs_active": 64, "evs_backup": 0}
PEER_SKIP: Table = {"skip_turns": "squared"}  # nearest to its figures (row 13)
PEER_ROCE: Table = {"kind": "roce", "cc": "none", "ack_every": 1}
Overrides = Sequence[str] | Mapping[str, Any]  # "fabric.nics=128" in a shell; {"fabric.nics": 128}


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A validated scenario. Two scenarios are equal if they mean the same."""

    name: str
    seed: int
    level: Level
    fabric: FabricSection
    transports: tuple[AnyTransport, ...]
    workload: WorkloadSection
    faults: tuple[FaultSection, ...]
    stop: StopSection
    report: ReportSection
    lab: LabSection
    source: str  # how errors name the source: the file, or the options
    tables: Table  # as written: values left out there are derived again after `replace`
    base: Path  # the directory of files that `tables` names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scenario) and self.to_toml() == other.to_toml()

    def __hash__(self) -> int:
        return hash(self.to_toml())

    def build(self) -> tuple[Fabric, Traffic, FaultSchedule]:
        """Return what the scenario describes; raise `InputError` for what cannot exist."""
        from openmrc.fabric.faults import compile_faults

        with self.naming():
            fabric = self.fabric.build()
            refuse_convergence(fabric, self.transports)
            traffic = self.workload.build(fabric.n_nics, self.seed)
            refuse_beyond(fabric, traffic, "fabric.topo" if self.fabric.kind == "htsim" else None)
            faults = [fault.build() for fault in self.faults]
            if self.report.qp is not None and self.report.qp >= traffic.n_qps:
                raise InputError(
                    f"report.qp: {self.report.qp}: there are {traffic.n_qps} queue pairs;"
                    f" accepted: 0 to {traffic.n_qps - 1}"
                )
            for number, each in enumerate(self.transports):
                if each.rules == "peer" and fabric.n_planes > 1:
                    raise InputError(
                        f"{_place(number, self.transports)}.rules: 'peer' is for a fabric of one"
                        f" plane, this one has {fabric.n_planes}; use {each.kind!r}"
                    )
            schedule = compile_faults(faults, fabric, self.seed, self.stop.time)
            return fabric, traffic, schedule

    def transport(self, number: int) -> Transport | RoceTransport:
        """Return a transport in the simulator's form; raise `InputError` for what it refuses."""
        with self.naming(number):
            return self.transports[number].build()

    @contextmanager
    def naming(self, number: int | None = None, place: str = "") -> Iterator[None]:
        """Add the file, and of several transports the one concerned, to an `InputError` within.

        `place` replaces the file if an override caused the error. An error of an option of the
        command ("--pcap: ...") stays as it is.
        """
        try:
            yield
        except InputError as error:
            said = str(error)
            if said.startswith("--"):
                raise
            if number is not None and len(self.transports) > 1:
                which = f"transport[{number}]"
                about = re.match(r"transport\b(?!\[)", said)
                said = which + said[about.end() :] if about else f"{said} (in the run of {which})"
            raise InputError(said).at(place or self.source) from None

    def replace(self, overrides: Mapping[str, Any], said_by: str = "replace") -> Scenario:
        """Return this scenario with other values: `{"fabric.nics": 128, "fault[0].rate": 0.1}`.

        A key is a path as in `mrc run --set`; `transport.pmtu` sets every transport's,
        `transport.NAME.pmtu` one's. Raises `InputError`, with `said_by` in front if an override
        caused it.
        """
        return _from_tables(self.tables, overrides, self.source, self.base, said_by)

    def files(self) -> list[Path]:
        """Return every file that the scenario names, absolute."""
        sections = (self.fabric, *self.transports, self.workload, *self.faults)
        values = [value for section in sections for value in msgspec.structs.astuple(section)]
        named = [Path(value) for value in values if isinstance(value, File)]
        several = [path for value in values if isinstance(value, Files) for path in value.paths()]
        policies = (value.file for value in values if isinstance(value, Choice))
        return [*named, *several, *(file for file in policies if file is not None)]

    def to_toml(self) -> str:
        """Return the scenario as a file, every default written out."""
        tables = [
            write_table("", Header(name=self.name, seed=self.seed, level=self.level)),
            write_table("[fabric]", self.fabric, kind=self.fabric.kind),
            *(write_table("[[transport]]", each, kind=each.kind) for each in self.transports),
            *self.workload.tables(),
            *(write_table("[[fault]]", fault) for fault in self.faults),
            write_table("[stop]", self.stop),
            write_table("[report]", self.report),
            write_table("[lab]", self.lab),
        ]
        return "\n".join(tables)


def load_scenario(path: str | Path, overrides: Sequence[str] = ()) -> Scenario:
    """Read a scenario file, then `overrides` ("fabric.nics=128", "transport.mrc.pmtu=2048").

    "-" is standard input; files that it names are relative to the working directory. Raises
    `InputError` with the file, the key's path, the value and the accepted values.
    """
    path = _file(path)
    text = read_text(path, "a scenario file")
    source, name = _names_of(path)
    return parse_scenario(text, overrides, source=source, base=path.parent, name=name)


def load_lab(path: str | Path, overrides: Sequence[str] = ()) -> Scenario:
    """Read a scenario file for its fabric, faults and `[lab]`: it may be without a `[workload]`.

    Raises `InputError` as `load_scenario` does.
    """
    path = _file(path)
    source, name = _names_of(path)
    tables = _tables_of(read_text(path, "a scenario file"), source)
    if not tables:
        raise InputError(f"{source}: is empty; at least [fabric] and a key of it, such as nics")
    raw: Table = {"name": name} | tables
    raw.setdefault("workload", {"kind": "permutation", "size": "1MB"})  # never run
    return _from_tables(raw, overrides, source, path.parent)


def _file(path: str | Path) -> Path:
    if not isinstance(path, str | Path):
        raise InputError(f"scenario: {path!r} is not the name of a file; make_scenario takes dicts")
    return Path(path)


def _names_of(path: Path) -> tuple[str, str]:
    """How errors name a file, and the default name of its scenario."""
    if str(path) == STANDARD_INPUT:
        return "standard input", "scenario"
    return str(path), path.stem


def _tables_of(text: str, source: str) -> Table:
    try:
        return toml(text)
    except ValueError as error:  # also a number of thousands of digits
        raise InputError(f"{source}: is not TOML: {error}; see docs/scenario.md") from None


def parse_scenario(
    text: str,
    overrides: Sequence[str] = (),
    source: str = "scenario",
    base: Path | None = None,
    name: str = "scenario",
) -> Scenario:
    """Read a scenario from TOML text; files it names are relative to `base`, by default the working
    directory.

    Errors name the text `source`; `name` is the scenario's name if the text has none. Raises
    `InputError` as `load_scenario` does.
    """
    if not isinstance(text, str):
        raise InputError(f"{source}: {text!r} is not text; load_scenario reads a file")
    raw = _tables_of(text.removeprefix("\ufeff"), source)
    if not raw:
        raise InputError(
            f'{source}: is empty; at least [workload] and its kind, such as "permutation"'
        )
    return _from_tables({"name": name} | raw, overrides, source, base or Path())


def make_scenario(
    tables: Mapping[str, Any],
    overrides: Overrides = (),
    base: Path | None = None,
    name: str = "scenario",
) -> Scenario:
    """Check a scenario given as dicts: `{"fabric": {"nics": 32}, "workload": {"kind": "incast"}}`.

    The keys are those of a file, `transport` and `fault` lists of dicts where there are several.
    Files are relative to `base`, by default the working directory. Raises `InputError` as
    `load_scenario` does.
    """
    if not isinstance(tables, Mapping):
        raise InputError(f"scenario: {tables!r} is not a dict; load_scenario reads a file")
    return _from_tables(
        {"name": name} | plain(tables), overrides, "scenario", base or Path(), "overrides"
    )


def as_scenario(given: Scenario | str | Path | Mapping[str, Any]) -> Scenario:
    """Return the scenario itself, or that of the file of this name, or of these tables."""
    if isinstance(given, Scenario):
        return given
    if isinstance(given, Mapping):
        return make_scenario(given)
    if isinstance(given, str | Path):
        return load_scenario(given)
    raise InputError(
        f"scenario: {given!r} is none; accepted: a Scenario, the name of a file, or dicts"
    )


def demo_scenario(overrides: Sequence[str] = ()) -> Scenario:
    """Return the scenario that `mrc demo` runs."""
    text = files("openmrc.scenario").joinpath("files/demo.toml").read_text(encoding="utf-8")
    return parse_scenario(text, overrides, source="demo.toml")


def peer_scenario(topo: str, cm: str, overrides: Sequence[str] = ()) -> Scenario:
    """Return the run that htsim would make of a `.topo` and a `.cm` file, with its parameters.

    Its packets have 4086 B of payload and 64 B of header; there are 64 hashed EVs, and both queues
    are one BDP with marks on the last hop as well; a path that is marked again and again loses more
    turns, as htsim's do; `rules = "peer"` implies the rest. If an
    override says `transport.kind=roce` it is htsim's RoCE: line rate, an acknowledgement for each
    packet.
    """
    changes = [change.replace(" ", "") for change in overrides]
    roce = "transport.kind=roce" in changes
    skips = not any(change.startswith("transport.paths=") for change in changes)
    fabric = {"kind": "htsim", "topo": topo} | ({} if roce else {"ecn_last_hop": True})
    transport = PEER | (PEER_ROCE if roce else PEER_MRC | (PEER_SKIP if skips else {}))
    workload = {"kind": "htsim", "cm": cm}
    tables = {"name": Path(cm).stem, "fabric": fabric, "transport": transport, "workload": workload}
    return _from_tables(tables, overrides, "--topo --cm", Path())


def _from_tables(
    raw: Table, overrides: Overrides, source: str, base: Path, said_by: str = "--set"
) -> Scenario:
    raw = dict(raw)
    transports = raw.get("transport", {})
    raw["transport"] = list(transports) if isinstance(transports, list) else [transports]
    overridden: list[str] = []
    try:
        for path, value in _changes(overrides, said_by):
            overridden.append(_override(raw, path, value, said_by))
        return _check(raw, source, base.absolute())
    except InputError as error:
        if str(error).startswith(said_by):
            raise
        # The key's path without list positions: as an override would name it.
        place = re.sub(r"\[\d+\]", "", str(error)).partition(":")[0]
        raise error.at(said_by if place in overridden else source) from None


def _check(raw: Table, source: str, base: Path) -> Scenario:
    refuse_unknown(raw, TOP, "")
    header = {key: raw[key] for key in HEAD if key in raw}
    try:
        head = read_table(header, Header, "", base)
    except InputError as error:
        raise InputError(str(error).removeprefix(".")) from None
    fabric = fabric_section(raw.get("fabric", {}), base)
    transports = _transports(raw["transport"], base)
    refuse_idle(fabric, transports)
    return Scenario(
        name=head.name,
        seed=head.seed,
        level=head.level,
        fabric=fabric,
        transports=transports,
        workload=_workload(raw.get("workload", {}), base),
        faults=tuple(
            read_table(fault, FaultSection, f"fault[{number}]", base)
            for number, fault in enumerate(_list(raw.get("fault", []), "fault"))
        ),
        stop=read_table(raw.get("stop", {}), StopSection, "stop", base),
        report=read_table(raw.get("report", {}), ReportSection, "report", base),
        lab=read_table(raw.get("lab", {}), LabSection, "lab", base),
        source=source,
        tables=raw,
        base=base,
    )


def fabric_section(table: Any, base: Path = Path()) -> FabricSection:
    """Return a checked `[fabric]` table on its own; `InputError` as for a scenario."""
    section: FabricSection = _of_kind(table, FABRICS, "fabric", base, default="multiplane")
    return section


def _workload(table: Any, base: Path) -> WorkloadSection:
    if not isinstance(table, dict) or table.get("kind") != Jobs.kind:
        workload: WorkloadSection = _of_kind(table, WORKLOADS, "workload", base)
        return workload
    refuse_unknown(table, ("kind", "job"), "workload")
    jobs: list[tuple[JobSection, WorkloadSection]] = []
    for number, job in enumerate(_list(table.get("job", []), "workload.job")):
        place = f"workload.job[{number}]"
        work = _of_kind(job, JOB_WORKLOADS, place, base, also=JOB_KEYS)
        given = {key: job[key] for key in JOB_KEYS if key in job}
        if isinstance(nics := given.get("nics"), list):
            given["nics"] = ", ".join(map(str, nics))
        section = read_table({"name": _job_label(job)} | given, JobSection, place, base)
        if section.name in [other.name for other, _ in jobs]:
            raise InputError(
                f"{place}.name: {section.name!r} is already the name of another job;"
                " give each a name of its own"
            )
        jobs.append((section, work))
    if not jobs:
        raise InputError("workload.job: there is none; write [[workload.job]] and its keys")
    return Jobs(job=tuple(jobs))


def _job_label(table: Table) -> Any:
    """A job's name: the stated one, else its kind."""
    return table.get("name", table.get("kind"))


def _of_kind(
    table: Any,
    kinds: dict[str, Any],
    place: str,
    base: Path,
    default: str | None = None,
    also: Sequence[str] = (),
) -> Any:
    refuse_no_table(table, place)
    kind = table.get("kind", default)
    if kind is None:
        raise InputError(f"{place}.kind: is missing; accepted: {', '.join(kinds)}")
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(
            f"{place}.kind: {written(kind)} is refused; {meant(kind, kinds)}"
            f"accepted: {', '.join(kinds)}"
        )
    return read_table(table, kinds[kind], place, base, **dict.fromkeys(("kind", *also)))


def _transports(tables: list[Any], base: Path) -> tuple[AnyTransport, ...]:
    if not tables:
        raise InputError("transport: is an empty list; leave it out, or write [[transport]]")
    sections: list[AnyTransport] = []
    for number, table in enumerate(tables):
        place = _place(number, tables)
        if isinstance(table, dict) and isinstance(label := label_of(table), str):
            table = {"name": label} | table
        section: AnyTransport = _of_kind(table, TRANSPORTS, place, base, default="mrc")
        if section.name in [other.name for other in sections]:
            raise InputError(
                f"{place}.name: {section.name!r} is already the name of another transport;"
                " give each a name of its own"
            )
        sections.append(section)
    return tuple(sections)


def _place(number: int, transports: Sequence[Any]) -> str:
    """How errors name one of the transports."""
    return f"transport[{number}]" if len(transports) > 1 else "transport"


def _list(tables: Any, place: str) -> list[Any]:
    if not isinstance(tables, list):
        raise InputError(f"{place}: is one table; it is a list, write [[{place}]]")
    return tables


def _changes(overrides: Overrides, said_by: str) -> Iterator[tuple[str, Any]]:
    """Each override as (path, value)."""
    if isinstance(overrides, Mapping):
        for path, value in overrides.items():
            yield path, plain(value)
        return
    for override in overrides:
        path, equals, text = override.partition("=")
        if not equals:
            raise _not_a_change(override, said_by)
        yield path.strip(), value_of(text)


def value_of(text: str) -> Any:
    """Return the value of a word from a shell: a TOML value, else the word itself."""
    try:
        return toml(f"value = {text}")["value"]
    except ValueError:
        return text.strip()  # a word or a quantity: shells need no quotes


def _not_a_change(override: str, said_by: str) -> InputError:
    return InputError(f"{said_by} {override}: accepted: KEY=VALUE, such as fabric.nics=128")


def _override(raw: Table, path: str, value: Any, said_by: str) -> str:
    """Set `path` ("a.b") in `raw`; return the name that errors use for it."""
    section, dot, key = path.partition(".")
    one = ONE_OF_A_LIST.fullmatch(path)
    if not section or (dot and not key) or (one and not one[3]):
        raise _not_a_change(f"{path}={written(value)}", said_by)
    if one:
        return _override_numbered(raw, one[1], int(one[2]), one[3], value, said_by)
    if section in SETTABLE and bool(dot) == (section in HEAD):
        raise _not_a_change(f"{path}={written(value)}", said_by)
    try:
        refuse_unknown({section: {} if dot else value}, SETTABLE, "")
    except InputError as error:
        raise error.at(said_by) from None
    if not dot:
        raw[section] = value
    elif section == "transport":
        key = _override_named(raw["transport"], section, label_of, key, value, said_by)
    elif section == "workload" and "." in key and (jobs := _jobs_of(raw)):
        key = f"job.{_override_named(jobs, section, _job_label, key, value, said_by)}"
    else:
        table = raw.get(section, {})
        if isinstance(table, dict):
            raw[section] = table | {key: value}
    return f"{section}.{key}" if dot else section


def _override_numbered(
    raw: Table, what: str, number: int, key: str, value: Any, said_by: str
) -> str:
    """Set a key of one table of a list; "transport.qps" is the name that errors use for it."""
    if what == "workload.job":
        tables = _jobs_of(raw)
    else:
        tables = raw[what] = list(_list(raw.get(what, []), what))
    if number >= len(tables):
        noun = what.rpartition(".")[2]
        there_is = f"{what}[0]" if tables else f"no {noun}"
        there_is += f" to {what}[{len(tables) - 1}]" if len(tables) > 1 else ""
        raise InputError(
            f"{said_by} {what}[{number}].{key}: there is no such {noun}; there is {there_is}"
        )
    if isinstance(tables[number], dict):
        tables[number] = tables[number] | {key: value}
    return f"{what}.{key}"


def _jobs_of(raw: Table) -> list[Any]:
    """Return the list of jobs in `raw`, to be modified in place; empty if there is none."""
    workload = raw.get("workload", {})
    jobs = workload.get("job") if isinstance(workload, dict) else None
    if not isinstance(jobs, list):
        return []
    jobs = list(jobs)
    raw["workload"] = workload | {"job": jobs}
    return jobs


def _override_named(
    tables: list[Any], what: str, label: Callable[[Table], Any], key: str, value: Any, said_by: str
) -> str:
    """Set "NAME.KEY" in the table of that name, "KEY" in all; return the key alone."""
    name, dot, key = key.rpartition(".")
    labels = [label(table) for table in tables if isinstance(table, dict)]
    if dot and name not in labels:
        what_it_is = "job" if what == "workload" else what
        raise InputError(
            f"{said_by} {what}.{name}.{key}: there is no {what_it_is} {name!r};"
            f" accepted: {', '.join(map(str, labels))}"
        )
    for number, table in enumerate(tables):
        if isinstance(table, dict) and (not dot or label(table) == name):
            tables[number] = table | {key: value}
    return key
