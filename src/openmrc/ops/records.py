"""What a results directory holds of the endpoints' knowledge: the input of `mrc why`.

Of the scenario only the fabric is read: an operator does not know which faults were scheduled.
Where switches hash, causes are those of the fabric's outline, all that senders know of paths there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.fabric.model import Fabric
from openmrc.fabric.outline import Outline, outline
from openmrc.fabric.ways import exist, hops, routes
from openmrc.ops import balance, causes, crowd, damage
from openmrc.ops.columns import number
from openmrc.ops.evidence import Evidence, of_lossy
from openmrc.ops.hung import Hang, hangs
from openmrc.run.columns import refuse
from openmrc.run.saved import SCENARIO, SUMMARY, Saved
from openmrc.units import US
from openmrc.wire import layout
from openmrc.wire.framing import MRC_FRAMING, probe_bytes

if TYPE_CHECKING:
    import polars as pl

    from openmrc.scenario.scenario import Scenario
    from openmrc.scenario.transports import AnyTransport

# Of a million packets that senders judge lost ten may only have been late.
BACKGROUND = 1e-5
# At most this fraction of the packets behind a queue that trims everything counts as lost, because
# headers, answers and probes are late or dropped; if it trims a part, the square of it times this.
JAMMED = 0.15
DROPPED = 0.5  # behind a queue that drops what it cannot trim
# Of late packets that were judged lost some are proven late: this multiple of them are not.
UNPROVEN = 2
LATE_MAX = 0.2  # at which dead paths still stand out
PMTU_BYTES = 4096
JUDGED_US = 300.0  # after which packets in flight have been judged lost: an RTO
FILES = ("events", "paths", "links", "account", "counts")


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
    links: pl.DataFrame  # ports are those of `known`
    jammed: float = JAMMED  # the part of the packets behind queues that trim that counts as lost
    # And senders learn of it; else what full queues do counts as lost, and only what switches
    # counted shows which are full.
    trims: bool = True
    outline: Outline | None = None  # where switches hash
    # What went into switches and did not come out; None if the run was stopped before its end.
    missing: balance.Missing | None = None
    damaged: damage.Damaged | None = None  # what NICs got with a wrong iCRC
    account: pl.DataFrame | None = None  # of packets and probes, one by one
    counts: pl.DataFrame | None = None  # of ports; ports are those of `known`
    port_counts: pl.DataFrame | None = None  # the same of ports of the whole fabric
    hung: tuple[Hang, ...] = ()  # switches that sent nothing while packets came in

    @property
    def known(self) -> Fabric:
        """The fabric as senders know it: its causes and ports are those of all analysis."""
        return self.fabric if self.outline is None else self.outline.fabric

    def names(self, cause: int) -> tuple[str, ...]:
        """Return the places that a cause stands for, as faults name them: one if nothing hashes."""
        known, whole = self.known, self.fabric
        if self.outline is None:
            return (causes.name(known, cause),)
        if causes.kind(known, cause) == causes.LINK:
            return tuple(whole.port_name(port) for port in self.outline.ports(cause).tolist())
        if causes.kind(known, cause) == causes.SWITCH:
            found = self.outline.switches(cause - known.n_ports).tolist()
            return tuple(whole.switch_name(switch) for switch in found)
        return (causes.name(known, cause),)

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

    def bins(self) -> list[float]:
        """When each bin begins in which a path lost packets, us."""
        found: list[float] = self.paths["from_us"].unique().sort().to_list()
        return found

    def every_bin(self) -> list[float]:
        """When each bin begins in which packets were sent or lost, us."""
        found: list[float] = self.links["from_us"].unique().sort().to_list()
        return sorted({*found, *self.bins()})

    def bins_between(self, since_us: float, until_us: float) -> list[float]:
        """When the bins begin, from the one at a time to that at another, us."""
        every = self.every_bin()
        before = [begin for begin in every if begin <= since_us][-1:]
        return before + [begin for begin in every if since_us < begin <= until_us]

    def bins_of(self, rows: pl.DataFrame) -> list[float]:
        """When the bins begin, from the first to the last in which these rows lost packets, us."""
        first, last = number(rows["from_us"].min()), number(rows["from_us"].max())
        return [begin for begin in self.every_bin() if first <= begin <= last]

    def rate(self, cause: int, rows: pl.DataFrame) -> float:
        """The fraction of the packets that crossed a place that it lost, from the first bin with a
        loss to the last.
        """
        lost = int(rows["lost"].sum())
        crossed = int(self.evidence(self.bins_of(rows)).crossed[cause])
        return lost / max(crossed, lost, 1)

    def evidence(self, bins: list[float]) -> Evidence:
        """The evidence of these bins."""
        import polars as pl

        rows = self.paths.filter(pl.col("from_us").is_in(bins))
        used = self.links.filter(pl.col("from_us").is_in(bins))
        found = self.routes(rows)
        sent, lost = (rows[name].to_numpy().astype(np.int64) for name in ("sent", "lost"))
        tried = np.maximum(sent, lost)  # probes of paths that carried no more data
        crossed = self._crossed(used)
        for column in causes.of_routes(self.known, found):
            there = column >= 0
            np.add.at(crossed, column[there], (tried - sent)[there])
        ends = [*used["until_us"].to_list(), *rows["until_us"].to_list()]
        return of_lossy(
            found, tried, lost, _ps(rows["first_us"]), _ps(rows["last_us"]), crossed,
            round(min(bins) * US), round(max(ends) * US), self.chance(rows, bins),
        )  # fmt: skip

    def chance(self, rows: pl.DataFrame, bins: list[float]) -> npt.NDArray[np.float64]:
        """[rows] the fraction of each path's packets that may be lost in these bins without a fault
        there.
        """
        return np.asarray(self.late(rows, bins) + self._by_full_queues(rows), np.float64)

    def late(self, rows: pl.DataFrame, bins: list[float]) -> npt.NDArray[np.float64]:
        """[rows] the fraction of each path's packets that may be late in these bins, and count as
        lost.
        """
        import polars as pl

        used = self.links.filter(pl.col("from_us").is_in(bins))
        late = np.maximum(self._late(self.paths, self.links), self._late(rows, used))
        return np.asarray(BACKGROUND + late[self._plane(rows)], np.float64)

    def _by_full_queues(self, rows: pl.DataFrame) -> npt.NDArray[np.float64]:
        """[rows] the fraction of each path's packets that full queues may have lost."""
        crowded = self.crowded(rows)
        if not self.trims:
            return np.asarray(np.minimum(crowd.UNEVEN * crowded, DROPPED), np.float64)
        return np.asarray(self.jammed * crowded**2, np.float64)

    def _plane(self, rows: pl.DataFrame) -> npt.NDArray[np.int64]:
        evs = rows["ev"].to_numpy()
        found = evs >> self.known.ev_plane_shift & (1 << self.known.ev_plane_bits) - 1
        return np.asarray(found, np.int64)

    def _late(self, rows: pl.DataFrame, used: pl.DataFrame) -> npt.NDArray[np.float64]:
        """[planes] the fraction of the packets of some bins that may be late and not lost: some are
        proven late, and as much as most NICs miss is assumed so.
        """
        import polars as pl

        n = self.fabric.n_planes
        if self.events is None or not len(used):
            return np.zeros(n)
        during = pl.col("t_us").is_between(used["from_us"].min(), used["until_us"].max())
        alarms = self.events.filter(during & (pl.col("event") == "false alarm"))
        late = np.bincount(self._plane(alarms), minlength=n)
        own = used.filter(pl.col("port") < self.fabric.n_nics * n)
        size = self.fabric.n_nics * n
        packets = np.bincount(own["port"].to_numpy(), own["packets"], size).reshape(-1, n)
        port = rows["src"].to_numpy() * n + self._plane(rows)
        lost = np.bincount(port, rows["lost"], size).reshape(-1, n)
        share = np.where(packets > 0, lost / np.maximum(packets, 1), np.nan)
        sends = (packets > 0).any(axis=0)
        usual = np.zeros(n)
        usual[sends] = np.nanmedian(share[:, sends], axis=0)
        proved = UNPROVEN * late / np.maximum(packets.sum(axis=0), 1)
        return np.asarray(np.minimum(np.minimum(proved, usual), LATE_MAX), np.float64)

    def crowded(self, rows: pl.DataFrame) -> npt.NDArray[np.float64]:
        """[rows] the fraction of the packets that was trimmed where and when each lost some, or
        dropped where full queues do not trim.
        """
        part = crowd.trimmed if self.trims else crowd.dropped
        return part(rows, self.routes(rows), self.links)

    def undropped(self, rows: pl.DataFrame) -> npt.NDArray[np.float64]:
        """[rows] the losses of some rows that remain if they are all that full queues dropped."""
        return crowd.undropped(rows, self.routes(rows), self.links, JUDGED_US)

    def routes(self, rows: pl.DataFrame) -> npt.NDArray[np.int32]:
        """[rows, hops] the directed ports that the paths of some rows cross."""
        columns = (rows[name].to_numpy() for name in ("src", "dst", "ev"))
        return routes(self.known, *columns)

    def _crossed(self, used: pl.DataFrame) -> npt.NDArray[np.int64]:
        """[causes] packets across each, from those across each directed port."""
        fabric = self.known
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
        around = outline(fabric) if hashed else None
        known = fabric if around is None else around.fabric
        knows = "events" in frames and _keeps_account(transport)
        for table in ("events", "paths", "account") if knows else ():
            _check_paths(saved, table, frames[table], name, known)
        of = {each: _of(frame, name) for each, frame in frames.items()}
        events = of["events"] if knows else None
        paths, links = (of.get(each, pl.DataFrame()) for each in ("paths", "links"))
        own = getattr(transport, "trim", None)
        cut_short = scenario.fabric.trim if own is None else own
        trims = cut_short and getattr(transport, "trim_nack", True)
        missing, damaged, counts, port_counts = None, None, None, None
        hung: tuple[Hang, ...] = ()
        if events is not None:
            port_counts = of["counts"]
            counts = port_counts if around is None else _by_outline(port_counts, around)
            hung = tuple(hangs(fabric, links))
            if around is not None:
                links = _by_outline(links, around)
            if run["flows"]["unfinished"] == 0:  # else packets are still under way
                missing = balance.missing(known, links)
            damaged = damage.damaged(known, links)
            links = links.filter(pl.any_horizontal(pl.col("packets", "trimmed", "dropped") > 0))
        jammed, flows, steps = _jammed(paths, links), of["flows"], of.get("steps")
        found.append(
            Record(
                name, fabric, run, flows, steps, events, paths, links, jammed, trims, around,
                missing, damaged, of["account"] if events is not None else None, counts,
                port_counts, hung,
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


def _by_outline(links: pl.DataFrame, around: Outline) -> pl.DataFrame:
    """Counts of links, summed by the port of the outline that stands for each."""
    import polars as pl

    ports = pl.Series("port", around.port_of[links["port"].to_numpy()])
    key = ("from_us", "until_us", "port")
    rows = links.with_columns(ports).group_by(key, maintain_order=True)
    return rows.agg(pl.exclude("transport").sum())


def _jammed(paths: pl.DataFrame, links: pl.DataFrame) -> float:
    """The part of the packets behind queues that trim that may count as lost in a run."""
    if not len(links):
        return JAMMED
    return crowd.lost_part(int(paths["lost"].sum()), crowd.behind(links), crowd.UNEVEN, JAMMED)


def _keeps_account(transport: AnyTransport) -> bool:
    """Whether senders of a transport know their paths."""
    from openmrc.scenario.transports import TransportSection

    if not isinstance(transport, TransportSection):
        return False
    return transport.paths == "mrc" and transport.rules != "peer"


def _of(frame: pl.DataFrame, transport: str) -> pl.DataFrame:
    import polars as pl

    return frame.filter(pl.col("transport") == transport)


def _ps(times_us: pl.Series) -> npt.NDArray[np.int64]:
    return np.asarray(np.rint(times_us.to_numpy() * US), np.int64)
