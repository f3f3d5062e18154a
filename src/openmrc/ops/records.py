"""What a results directory holds of what endpoints know: the input of `mrc why`.

Of the scenario only its fabric is read: what was planned to break is none of an operator's
knowledge.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.fabric.model import Fabric
from openmrc.ops import causes
from openmrc.ops.evidence import Evidence, of_lossy
from openmrc.run.ways import routes
from openmrc.units import US

if TYPE_CHECKING:
    import polars as pl

# Of a million packets that senders take for lost ten may only have been late.
BACKGROUND = 1e-5
FILES = ("events", "paths", "links")


@dataclass(frozen=True, eq=False)
class Record:
    """One transport's run, as its senders knew it."""

    name: str
    fabric: Fabric
    summary: dict[str, Any]
    flows: pl.DataFrame
    steps: pl.DataFrame | None
    events: pl.DataFrame | None  # None: senders of this transport know nothing of paths
    paths: pl.DataFrame
    links: pl.DataFrame

    def bins(self) -> list[float]:
        """When each bin begins in which a path lost packets, us."""
        found: list[float] = self.paths["from_us"].unique().sort().to_list()
        return found

    def evidence(self, bins: list[float]) -> Evidence:
        """What was seen in these bins."""
        import polars as pl

        rows = self.paths.filter(pl.col("from_us").is_in(bins))
        used = self.links.filter(pl.col("from_us").is_in(bins))
        found = self.routes(rows)
        sent, lost = (rows[name].to_numpy().astype(np.int64) for name in ("sent", "lost"))
        tried = np.maximum(sent, lost)  # probes of paths that carried nothing any more
        crossed = self._crossed(used)
        for column in causes.of_routes(self.fabric, found):
            there = column >= 0
            np.add.at(crossed, column[there], (tried - sent)[there])
        ends = [*used["until_us"].to_list(), *rows["until_us"].to_list()]
        return of_lossy(
            found, tried, lost, _ps(rows["first_us"]), _ps(rows["last_us"]), crossed,
            round(min(bins) * US), round(max(ends) * US), BACKGROUND,
        )  # fmt: skip

    def routes(self, rows: pl.DataFrame) -> npt.NDArray[np.int32]:
        """[rows, hops] the directed ports that the paths of some rows cross."""
        columns = (rows[name].to_numpy() for name in ("src", "dst", "ev"))
        return routes(self.fabric, *columns)

    def _crossed(self, used: pl.DataFrame) -> npt.NDArray[np.int64]:
        """[causes] packets across each, from those across each directed port."""
        fabric = self.fabric
        port = used["port"].to_numpy()
        ports = np.bincount(port, used["packets"].to_numpy(), fabric.n_ports)
        to, at = fabric.port_peer_switch, fabric.port_peer_nic
        switches = np.bincount(to[to >= 0], ports[to >= 0], fabric.n_switches)
        nics = np.bincount(at[at >= 0], ports[at >= 0], fabric.n_nics)
        own = fabric.port_nic >= 0
        nics += np.bincount(fabric.port_nic[own], ports[own], fabric.n_nics)
        return np.concatenate([ports, switches, nics]).astype(np.int64)


def read(directory: Path) -> list[Record]:
    """Return the record of each transport of a results directory, as `mrc run --out` writes it.

    Raises `InputError` for what is none.
    """
    import polars as pl

    from openmrc.scenario.scenario import make_scenario

    for name in ("summary.json", "scenario.toml", "flows.parquet"):
        if not (directory / name).is_file():
            raise InputError(
                f"{directory}: has no {name}; name a directory that mrc run --out has written"
            )
    try:
        summary = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
        tables = tomllib.loads((directory / "scenario.toml").read_text(encoding="utf-8"))
        transports = dict(summary["transports"])
        frames = {
            name: pl.read_parquet(directory / f"{name}.parquet")
            for name in ("flows", "steps", *FILES)
            if (directory / f"{name}.parquet").is_file()
        }
    except (ValueError, KeyError, TypeError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{directory}: is not what mrc run --out writes ({error})") from None
    tables.pop("fault", None)
    fabric = make_scenario(tables, base=directory).fabric.build()
    watched = {
        name
        for name, section in zip(transports, tables.get("transport", [{}]), strict=False)
        if "events" in frames and _keeps_account(section)
    }
    return [
        Record(
            name,
            fabric,
            run,
            _of(frames["flows"], name),
            _of(frames["steps"], name) if "steps" in frames else None,
            _of(frames["events"], name) if name in watched else None,
            *(_of(frames[k], name) if k in frames else pl.DataFrame() for k in ("paths", "links")),
        )
        for name, run in transports.items()
    ]


def _keeps_account(section: Any) -> bool:
    """Whether senders of a transport with these keys know their paths."""
    return bool(
        section.get("kind", "mrc") == "mrc"
        and section.get("paths", "mrc") == "mrc"
        and section.get("rules", "mrc") != "peer"
        and section.get("srv6", True)
    )


def _of(frame: pl.DataFrame, transport: str) -> pl.DataFrame:
    import polars as pl

    return frame.filter(pl.col("transport") == transport)


def _ps(times_us: pl.Series) -> npt.NDArray[np.int64]:
    return np.asarray(np.rint(times_us.to_numpy() * US), np.int64)
