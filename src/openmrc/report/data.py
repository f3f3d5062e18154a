"""The content of the page's pictures, as one JSON object: never more than `PAGE_BYTES_MAX`.

Tables of samples are packed (`pack`) with rows first, times are microseconds. Each kind of table
has a budget of bytes that all transports share: if they are many or their tables large, fewer links
and paths get rows of their own and neighbouring intervals are merged. The page says what it left
out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from openmrc.report import pack, steps
from openmrc.report.series import cumulative, goodput, last_bin_ps
from openmrc.run.outcome import TransportResult
from openmrc.run.results import Result
from openmrc.units import US

if TYPE_CHECKING:
    from openmrc.fabric.sketch import Sketch
    from openmrc.sim.watch.samples import Groups, Links, QpSamples, Samples, Table

PAGE_BYTES_MAX = 10_000_000
# Of packed tables, all transports together; base64 adds a third: 8.1 MB. The rest of the page is
# for text and curves.
LINK_BYTES, EDGE_BYTES, GROUP_BYTES, EV_BYTES = 3_900_000, 1_100_000, 400_000, 700_000
ROWS_MAX = 2048  # of links and of EVs, all transports together: their names are text
EVS_MAX = 256
CURVE_POINTS = 40_000  # of each kind of curve, all transports together
GOODPUT_POINTS, CDF_POINTS, QP_POINTS = 400, 2000, 1000  # of one transport
MARKS_MAX = 1000  # faults with labels

Array = npt.NDArray[Any]


def page_data(result: Result) -> dict[str, Any]:
    """Return everything `page.js` draws."""
    runs = result.transports
    end_ps = max([last_bin_ps(run) for run in runs], default=1)
    marks = result.fault_marks[:MARKS_MAX]
    sampled = next((run.samples for run in runs if run.samples is not None), None)
    return {
        "marks": {
            "us": [at_ps / US for at_ps, _ in marks],
            "label": [label for _, label in marks],
            "more": len(result.fault_marks) - len(marks),
        },
        "sketch": sampled and _sketch(sampled.sketch),
        "runs": [_run(run, end_ps, len(runs)) for run in runs],
    }


def _run(run: TransportResult, end_ps: int, n: int) -> dict[str, Any]:
    """One of `n` transports."""
    starts_ps, gbps = goodput(run, end_ps, max(16, min(GOODPUT_POINTS, CURVE_POINTS // n)))
    values_ps, ranks = cumulative(run.fct_ps, max(16, min(CDF_POINTS, CURVE_POINTS // n)))
    return {
        "name": run.name,
        "goodput": {"us": _us(starts_ps), "gbps": _short(gbps)},
        "fct": {"us": _us(values_ps), "rank": ranks.tolist(), "flows": len(run.completed)},
        "samples": run.samples and _samples(run.samples, n),
        "training": steps.page_data(run.training),
    }


def _samples(samples: Samples, n: int) -> dict[str, Any]:
    return {
        "edges": _edges(samples.edges, samples.sketch, n),
        "groups": _groups(samples.groups, n),
        "links": _links(samples.links, samples.sketch, n),
        "qp": _qp(samples.qp, n),
    }


class _Columns:
    """A table's intervals, merged until `bytes_max` holds `rows` of them."""

    def __init__(self, table: Table, rows: int, bytes_max: int, columns_max: int = 2**31) -> None:
        room = min(max(1, bytes_max // max(rows, 1)), columns_max)
        self._table = table
        self.factor = math.ceil(table.columns / room)
        self.step_ps = table.interval_ps * self.factor
        starts_ps = np.arange(table.columns) * table.interval_ps
        self._widths = np.clip(table.end_ps - starts_ps, 1, table.interval_ps)

    def times(self) -> dict[str, Any]:
        columns = math.ceil(self._table.columns / self.factor)
        return {
            "step": self.step_ps / US,
            "end": self._table.end_ps / US,
            "columns": columns,
        }

    def rows(self, name: str, how: str, which: Any = slice(None)) -> Array:
        """Return the values `name`, [rows, columns], of rows `which` only."""
        table = np.atleast_2d(self._table.values[name].T)[which]
        return pack.join(table, self.factor, how, self._widths)


def _sketch(sk: Sketch) -> dict[str, Any]:
    """Rows of nodes, and the lines between them: an upward edge stands for both directions."""
    up = ~sk.edge_down
    names = ("nic", *(f"t{tier}" for tier in range(len(sk.row_members) - 1)))
    return {
        "planes": sk.planes,
        "rows": [
            {"name": name, "members": members, "joined": joined, "nodes": nodes}
            for name, members, joined, nodes in zip(
                names, sk.row_members, sk.row_joined, sk.row_nodes, strict=True
            )
        ],
        "plane": sk.edge_plane[up].tolist(),
        "row": sk.edge_row[up].tolist(),
        "lower": sk.edge_lower[up].tolist(),
        "upper": sk.edge_upper[up].tolist(),
        "links": sk.edge_ports[up].tolist(),
    }


def _edges(edges: Table, sk: Sketch, n: int) -> dict[str, Any]:
    down = sk.edge_down
    one_each = int(sk.edge_ports.max()) == 1  # then its health tells how many are unhealthy
    rows = len(down) + len(down) // (2 if one_each else 1) + sk.n_switch_nodes
    columns = _Columns(edges, rows, EDGE_BYTES // n)
    both = {
        name: np.maximum(columns.rows(name, "max", ~down), columns.rows(name, "max", down))
        for name in ("health", "unhealthy")
    }
    return columns.times() | {
        "up": pack.shares(columns.rows("load", "mean", ~down)),
        "down": pack.shares(columns.rows("load", "mean", down)),
        "health": pack.states(both["health"]),
        "unhealthy": None if one_each else pack.counts(both["unhealthy"]),
        "silent": pack.counts(columns.rows("silent", "max")),
    }


def _groups(groups: Groups, n: int) -> dict[str, Any]:
    columns = _Columns(groups, 4 * len(groups.plane), GROUP_BYTES // n)
    return columns.times() | {
        "plane": groups.plane.tolist(),
        "row": groups.row.tolist(),
        "down": groups.down.astype(int).tolist(),
        "load": pack.shares(columns.rows("load", "mean")),
        "queue": pack.counts(columns.rows("queue_bytes", "max")),
        "lost": pack.counts(columns.rows("lost", "sum")),
        "trimmed": pack.counts(columns.rows("trimmed", "sum")),
    }


def _links(links: Links, sk: Sketch, n: int) -> dict[str, Any]:
    """Rows plane by plane and row by row; the sum of the others last."""
    edge = sk.port_edge[links.ports]
    order = np.lexsort((links.ports, edge))
    if len(order) > (most := max(4, ROWS_MAX // n)):
        tells = (links.values["lost"] + links.values["trimmed"]).sum(axis=0)[: len(order)]
        tells = tells * 1e6 + links.values["load"].max(axis=0)[: len(order)]
        kept = np.argsort(-tells[order], kind="stable")[:most]
        order = order[np.sort(kept)]
    left_out = len(links.ports) - len(order)
    which = np.append(order, len(links.ports)) if links.others else order
    columns = _Columns(links, 5 * len(which), LINK_BYTES // n)
    edge = sk.port_edge[links.ports[order]]
    return columns.times() | {
        "name": [links.names[i] for i in order],
        "plane": sk.edge_plane[edge].tolist(),
        "row": sk.edge_row[edge].tolist(),
        "down": sk.edge_down[edge].astype(int).tolist(),
        "others": links.others,
        "left_out": left_out,
        "total_lost": links.values["lost"].sum(axis=0)[which].astype(int).tolist(),
        "total_trimmed": links.values["trimmed"].sum(axis=0)[which].astype(int).tolist(),
        "load": pack.shares(columns.rows("load", "mean", which)),
        "queue": pack.counts(columns.rows("queue_bytes", "max", which)),
        "lost": pack.counts(columns.rows("lost", "sum", which)),
        "trimmed": pack.counts(columns.rows("trimmed", "sum", which)),
        "health": pack.states(columns.rows("health", "max", which)),
    }


def _qp(qp: QpSamples, n: int) -> dict[str, Any]:
    """Paths plane by plane; if there are too many, those with trouble and those used most."""
    order = np.lexsort((qp.evs, qp.plane))
    most = min(EVS_MAX, max(4, ROWS_MAX // n))
    if len(order) > most:
        tells = qp.values["state"].max(axis=0) * 1e9 + qp.values["used"].sum(axis=0)
        order = order[np.sort(np.argsort(-tells[order], kind="stable")[:most])]
    points = max(16, min(QP_POINTS, CURVE_POINTS // 4 // n))
    columns = _Columns(qp, 2 * len(order), EV_BYTES // n, points)
    return columns.times() | {
        "qp": qp.qp,
        "src": qp.src,
        "dst": qp.dst,
        "bundle": qp.bundle,
        "ev": qp.evs[order].tolist(),
        "plane": qp.plane[order].tolist(),
        "name": [qp.names[int(ev)] for ev in qp.evs[order]],
        "left_out": len(qp.evs) - len(order),
        "state": pack.states(columns.rows("state", "max", order)),
        "used": pack.counts(columns.rows("used", "sum", order)),
        "moves": _moves(qp, columns, order),
        "cwnd_bytes": columns.rows("cwnd_bytes", "last")[0].astype(int).tolist(),
        "inflight_bytes": columns.rows("inflight_bytes", "last")[0].tolist(),
        "delay_us": _delay_us(qp, columns),
        "queue_bytes": columns.rows("queue_bytes", "max")[0].tolist(),
    }


def _delay_us(qp: QpSamples, columns: _Columns) -> list[float] | None:
    """The delay that congestion control measures, us; None if it measures none."""
    if "delay_ps" not in qp.values:
        return None
    return _short(columns.rows("delay_ps", "last")[0] / US)


def _moves(qp: QpSamples, columns: _Columns, order: Array) -> dict[int, list[tuple[int, str]]]:
    """By row, for paths that can move and did: the columns in which one became another, and which;
    the first is the original.
    """
    if "value" not in qp.values:
        return {}
    moves = {}
    for row, values in enumerate(columns.rows("value", "last", order)):
        moved = np.flatnonzero(np.diff(values, prepend=values[:1])) if len(values) else values
        if len(moved):
            moves[row] = [(int(c), qp.names[int(values[c])]) for c in (0, *moved.tolist())]
    return moves


def _us(times_ps: Array) -> list[float]:
    return [time_ps / US for time_ps in times_ps.tolist()]


def _short(values: Array) -> list[float]:
    return [float(f"{value:.5g}") for value in values.tolist()]
