"""What a results directory holds of the endpoints' knowledge: the input of `mrc why`.

Of the scenario only the fabric is read: an operator does not know which faults were scheduled.
Where switches hash, ports are those of the fabric's outline, all that senders know of paths there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.fabric.model import Fabric
from openmrc.fabric.outline import Outline, outline
from openmrc.fabric.ways import exist, hops, routes
from openmrc.ops.spoken import Spoken
from openmrc.run.columns import refuse
from openmrc.run.saved import SCENARIO, SUMMARY, Saved
from openmrc.units import US
from openmrc.wire import layout
from openmrc.wire.framing import MRC_FRAMING, probe_bytes

if TYPE_CHECKING:
    import polars as pl

    from openmrc.scenario.scenario import Scenario
    from openmrc.scenario.transports import AnyTransport

PMTU_BYTES = 4096
FILES = ("events", "paths", "account", "counts")


@dataclass(frozen=True, eq=False)
class Record:
    """One transport's run, as its senders knew it."""

    name: str
    fabric: Fabric
    summary: dict[str, Any]
    flows: pl.DataFrame
    steps: pl.DataFrame | None
    events: pl.DataFrame | None  # of paths, and of NICs' own ports; None: not recorded
    paths: pl.DataFrame  # that lost packets, by bin
    # Senders learn of full queues by trimmed packets; else what these drop counts as lost.
    trims: bool = True
    outline: Outline | None = None  # where switches hash
    # Of packets and probes, one by one; None: senders of this transport keep none.
    account: pl.DataFrame | None = None
    counts: pl.DataFrame | None = None  # of ports; ports are those of `known`; empty: not recorded
    port_counts: pl.DataFrame | None = None  # the same of ports of the whole fabric
    names: Mapping[str, str] = field(default_factory=dict)  # what people call its places

    @cached_property
    def spoken(self) -> Spoken:
        """How its places are spoken of."""
        return Spoken(self.fabric, self.names)

    @property
    def known(self) -> Fabric:
        """The fabric as senders know it: its ports are those of all analysis."""
        return self.fabric if self.outline is None else self.outline.fabric

    @property
    def is_recorded(self) -> bool:
        """Whether what ports counted, and what senders told if they do, was recorded."""
        return self.counts is not None and len(self.counts) > 0

    @property
    def end_us(self) -> float:
        """When the run ended, us."""
        return float(self.summary["sim_time_us"])

    @property
    def rtt_us(self) -> float:
        """The round trip of an idle fabric, us."""
        return MRC_FRAMING.base_rtt_ps(self.fabric, PMTU_BYTES) / US

    @property
    def probe_bytes(self) -> int:
        """The IP packet of a probe of a path, bytes: with a carrier where nothing hashes."""
        return probe_bytes(*[layout.IPV6] * (2 if self.outline is None else 1))

    def routes(self, rows: pl.DataFrame) -> npt.NDArray[np.int32]:
        """[rows, hops] the directed ports that the paths of some rows cross."""
        columns = (rows[name].to_numpy() for name in ("src", "dst", "ev"))
        return routes(self.known, *columns)


def read(directory: Path) -> list[Record]:
    """Return the record of each transport of a results directory, as `mrc run --out` writes it.

    Raises `InputError` for any other directory, and for one with files of several runs.
    """
    import polars as pl

    saved = Saved(directory)
    saved.check_tables()
    scenario = _scenario(saved)
    fabric = scenario.fabric.build()
    transports = saved.summary["transports"]
    names = [transport.name for transport in scenario.transports]
    if [*transports] != names[: len(transports)]:  # an interrupted run has not got to all
        raise InputError(
            f"{directory / SUMMARY}: transports {', '.join(transports)}; {SCENARIO} has"
            f" {', '.join(names)}; run it again"
        )
    frames = _frames(saved, fabric)
    found = []
    for (name, run), transport in zip(transports.items(), scenario.transports, strict=False):
        hashed = not getattr(transport, "srv6", True)
        knows = "events" in frames and _keeps_account(transport)
        around = outline(fabric) if hashed and knows else None
        known = fabric if around is None else around.fabric
        for table in ("events", "paths", "account") if knows else ():
            _check_paths(saved, table, frames[table], name, known)
        of = {each: _of(frame, name) for each, frame in frames.items()}
        if hashed and not knows:  # EVs name no path of the fabric
            of |= {each: of[each].clear() for each in ("events", "paths") if each in of}
        own = getattr(transport, "trim", None)
        cut_short = scenario.fabric.trim if own is None else own
        trims = cut_short and getattr(transport, "trim_nack", True)
        account = of["account"] if knows else None
        counts = port_counts = of.get("counts", pl.DataFrame())
        if around is not None:
            counts = by_outline(port_counts, around)
        found.append(
            Record(
                name, fabric, run, of["flows"], of.get("steps"), of.get("events"),
                of.get("paths", pl.DataFrame()), trims, around, account, counts, port_counts,
            )
        )  # fmt: skip
    return found


def _scenario(saved: Saved) -> Scenario:
    """The scenario without its faults, which no operator knows."""
    from openmrc.scenario.scenario import make_scenario

    tables = {key: value for key, value in saved.scenario.items() if key != "fault"}
    file = saved.directory / SCENARIO
    try:
        return make_scenario(tables, base=saved.directory)
    except InputError as error:
        raise error.at(str(file)) from None
    except RecursionError:
        raise InputError(f"{file}: nested too deeply; run it again") from None


def _frames(saved: Saved, fabric: Fabric) -> dict[str, pl.DataFrame]:
    """The tables, checked: those of steps if the run trained, those of paths if any is there."""
    runs = saved.summary["transports"]
    limits = {
        "transports": tuple(runs),
        "nics": fabric.n_nics,
        "ports": fabric.n_ports,
        "end_us": max(run["sim_time_us"] for run in runs.values()) + 1,  # rounded
    }
    names = ["flows", *(["steps"] if any(run.get("training") for run in runs.values()) else [])]
    if any(saved.has(name) for name in FILES):
        names += FILES
        if lacking := [name for name in FILES if not saved.has(name)]:
            raise InputError(
                f"{saved.directory}: has no {lacking[0]}.parquet, an older openmrc wrote it; run it"
                f" again (mrc run {saved.directory / SCENARIO} --out DIR)"
            )
    frames = {name: saved.table(name, limits) for name in names}
    for name, run in runs.items():
        _check_rows(saved, frames["flows"], "flows", name, run["flows"]["total"])
        if training := run.get("training"):
            _check_rows(saved, frames["steps"], "steps", name, training["steps"]["total"])
    return frames


def _check_rows(saved: Saved, frame: pl.DataFrame, table: str, transport: str, n: int) -> None:
    """Raise `InputError` unless a transport has the rows that its summary counts, in order."""
    file, rows = saved.directory / f"{table}.parquet", _of(frame, transport)
    if len(rows) != n:
        said = f"{len(rows):,} rows of {transport}, {SUMMARY} says {n:,}"
        raise InputError(f"{file}: {said}; run it again")
    if table == "steps" and rows["step"].to_list() != [*range(1, n + 1)]:
        raise InputError(f"{file}: column step: of {transport} is not 1 to {n:,}; run it again")


def _check_paths(
    saved: Saved, table: str, frame: pl.DataFrame, transport: str, known: Fabric
) -> None:
    """Raise `InputError` for a path of a transport that the fabric does not have."""
    at = (frame["transport"] == transport).arg_true().to_numpy()
    qp, src, dst, ev = (frame[name].to_numpy()[at] for name in ("qp", "src", "dst", "ev"))
    there = np.where(qp >= 0, exist(known, src, dst, ev), hops(known, ev)[0] < known.n_planes)
    if len(wrong := at[~there]):
        row = int(wrong[0])
        of = f"the EV of a path from nic {frame['src'][row]} to nic {frame['dst'][row]}"
        refuse(saved.directory / f"{table}.parquet", frame, row, "ev", of)


def by_outline(counts: pl.DataFrame, around: Outline) -> pl.DataFrame:
    """Return counts of ports, summed by the port of the outline that stands for each."""
    import polars as pl

    ports = pl.Series("port", around.port_of[counts["port"].to_numpy()])
    key = ("from_us", "until_us", "port")
    rows = counts.with_columns(ports).group_by(key, maintain_order=True)
    return rows.agg(pl.exclude("transport").sum())


def _keeps_account(transport: AnyTransport) -> bool:
    """Whether senders of a transport know their paths."""
    from openmrc.scenario.transports import TransportSection

    if not isinstance(transport, TransportSection):
        return False
    return transport.paths == "mrc" and transport.rules != "peer" and transport.routing == "evs"


def _of(frame: pl.DataFrame, transport: str) -> pl.DataFrame:
    import polars as pl

    return frame.filter(pl.col("transport") == transport)
