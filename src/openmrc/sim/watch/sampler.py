"""Samples a world while it runs, to show the run over time (`samples`).

`World.run` stops at the end of every interval and the arrays are read; the simulation is not
affected. Intervals are merged when there are too many (`intervals`), so memory is bounded however
long the run is.

Three things are kept: every edge of the fabric's sketch, every directed port (with fewer intervals
where there are many ports), and the sending end of one QP.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from openmrc.fabric.actions import PORT_DOWN, PORT_HEALTH, SWITCH_SILENT
from openmrc.fabric.kinds import RATED
from openmrc.fabric.sketch import Sketch, sketch
from openmrc.sim.watch.intervals import Array, Intervals
from openmrc.sim.watch.reader import QpReader, queue_bytes
from openmrc.sim.watch.samples import DOWN, LOSSY, SILENT, SLOW, UP, Groups, Links, Samples, Table
from openmrc.sim.watch.watched import Watched
from openmrc.units import PS_BITS

# Ports times intervals: 18 MB. A fabric with more ports has fewer intervals, but at least:
PORT_CELLS_MAX, PORT_COLUMNS_MIN = 2**20, 16
LINKS_MAX = 512  # ports with a row of their own in the result; the others are aggregated


class Sampler:
    """Reads a world at the ends of intervals. It writes nothing into it."""

    def __init__(self, world: Watched, qp: QpReader, columns: int) -> None:
        """Sample the paths of `qp`, in at most `columns` intervals."""
        self._world = world
        # Without a schedule nothing is ever unhealthy.
        self._fault_at = np.ascontiguousarray(world.net.fault.at_ps)
        self._rate_bps = np.asarray(world.net.port_kind.rate_bps[world.net.port.kind])
        self.sketch = sketch(world.fabric)
        self._qp = qp
        self._edges = _EdgeReader(self.sketch)
        n_edges, n_groups = len(self.sketch.edge_row), self._edges.n_groups
        self._fine = Intervals(
            columns,
            {
                "sent_bytes": (n_edges, "f4"),
                "health": (n_edges, "u1"),
                "unhealthy": (n_edges, "i4"),
                "silent": (self.sketch.n_switch_nodes, "i4"),
                "queue_bytes": (n_groups, "i4"),
                "lost": (n_groups, "f4"),
                "trimmed": (n_groups, "f4"),
            },
        )
        self._of_qp = Intervals(columns, self._qp.shapes)
        n_ports = world.fabric.n_ports
        port_columns = max(PORT_COLUMNS_MIN, PORT_CELLS_MAX // n_ports)
        self._ports = Intervals(
            min(columns, port_columns),
            {
                "sent_bytes": (n_ports, "f4"),
                "queue_bytes": (n_ports, "i4"),
                "lost": (n_ports, "f4"),
                "trimmed": (n_ports, "f4"),
                "health": (n_ports, "u1"),
            },
        )
        self._fine_before = self._ports_before = _State(world)
        self._unsettled = False  # faults begin or end at the very start of this interval

    @property
    def due_ps(self) -> int:
        """When `take` is due, ps: at the last instant of an interval, before the next events."""
        return self._fine_before.at_ps if self._unsettled else self._fine.next_ps - 1

    def take(self) -> None:
        """The simulated time is `due_ps`: take the samples."""
        if self._unsettled:
            self._unsettled = False
            self._fine_before.silent, self._fine_before.health = self._silent(), self._health()
            return
        end_ps = self._fine.next_ps
        now = self._state(end_ps)
        self._fine.append(self._read_fine(self._fine_before, now))
        self._fine_before = now
        self._of_qp.append(self._qp.read())
        self._qp.note()
        if end_ps == self._ports.next_ps:  # a multiple of the other interval, by powers of two
            self._ports.append(self._read_ports(self._ports_before, now))
            self._ports_before = now
        self._unsettled = self._changes(end_ps, end_ps).size > 0

    def samples(self) -> Samples:
        """Everything up to now; the run may go on afterwards."""
        end_ps = self._world.now_ps
        now = self._state(end_ps)
        before, of_ports = self._fine_before, self._ports_before
        rest = end_ps > before.at_ps or end_ps == 0
        fine = self._fine.table(self._read_fine(before, now) if rest else None)
        rest_of_ports = end_ps > of_ports.at_ps or end_ps == 0
        ports = self._ports.table(self._read_ports(of_ports, now) if rest_of_ports else None)
        of_qp = self._of_qp.table(self._qp.read() if rest else None)
        sk, edges = self.sketch, self._edges
        rate_bps = edges.sum(self._rate_bps)
        sent_bytes = fine.pop("sent_bytes")
        of_groups = {key: fine.pop(key) for key in ("queue_bytes", "lost", "trimmed")}
        times = (self._fine.interval_ps, end_ps)
        return Samples(
            sketch=sk,
            edges=Table(*times, {"load": _load(sent_bytes, rate_bps, *times)} | fine),
            groups=Groups(
                *times,
                {"load": _load(edges.of_groups(sent_bytes), edges.of_groups(rate_bps), *times)}
                | of_groups,
                plane=sk.edge_plane[edges.group_first],
                row=sk.edge_row[edges.group_first],
                down=sk.edge_down[edges.group_first],
            ),
            links=self._links(ports, end_ps),
            qp=self._qp.samples(self._of_qp.interval_ps, end_ps, of_qp),
        )

    def _state(self, at_ps: int) -> _State:
        """The current state, as the interval that starts at `at_ps` begins."""
        now, net = _State(self._world), self._world.net
        now.at_ps = at_ps
        now.sent_bytes = _sent_bytes(net)
        now.lost, now.trimmed = (net.tally[name].astype(np.int64) for name in ("lost", "trimmed"))
        if len(self._fault_at):
            now.silent, now.health = self._silent(), self._health()
        return now

    def _read_fine(self, before: _State, now: _State) -> dict[str, Any]:
        edges = self._edges
        found: dict[str, Any] = {
            "sent_bytes": edges.sum(now.sent_bytes - before.sent_bytes),
            "queue_bytes": edges.longest_of_groups(queue_bytes(self._world.net)),
            "lost": edges.of_groups(edges.sum(now.lost - before.lost)),
            "trimmed": edges.of_groups(edges.sum(now.trimmed - before.trimmed)),
            "health": np.uint8(UP),
            "unhealthy": np.int32(0),
            "silent": np.int32(0),
        }
        if len(self._fault_at):
            health = self._worst_health(before, now)
            found["health"] = edges.largest(health)
            found["unhealthy"] = edges.sum(health != UP, np.int32)
            nodes = self.sketch.switch_node[self._ever_silent(before, now)]
            found["silent"] = np.bincount(nodes, minlength=self.sketch.n_switch_nodes)
        return found

    def _read_ports(self, before: _State, now: _State) -> dict[str, Any]:
        return {
            "sent_bytes": now.sent_bytes - before.sent_bytes,
            "queue_bytes": queue_bytes(self._world.net),
            "lost": now.lost - before.lost,
            "trimmed": now.trimmed - before.trimmed,
            "health": self._worst_health(before, now) if len(self._fault_at) else np.uint8(UP),
        }

    def _health(self) -> Array:
        """The current health of every port."""
        net, fabric = self._world.net, self._world.fabric
        port, health = net.port, np.full(fabric.n_ports, UP, np.uint8)
        health[np.asarray(net.port_kind.rate_bps[port.kind]) < self._rate_bps] = SLOW
        for name, _ in PORT_HEALTH:
            health[np.asarray(net.health[name]) > 0] = LOSSY
        health[self._at_silent(self._silent())] = SILENT
        health[np.asarray(port.up) == 0] = DOWN
        return health

    def _worst_health(self, before: _State, now: _State) -> Array:
        """The worst health of every port in an interval, however short it lasted."""
        health: Array = np.maximum(before.health, now.health)
        done = self._changes(before.at_ps, int(self._world.net.ctl[0].now))
        if done.size:
            for state, ports in (
                (LOSSY, done.target[_harms(done.action, done.rate)]),
                (SILENT, np.flatnonzero(self._at_silent(self._ever_silent(before, now)))),
                (DOWN, done.target[done.action == PORT_DOWN]),
            ):
                health[ports] = np.maximum(health[ports], state)
        return health

    def _at_silent(self, silent: Array) -> Array:
        """Which ports belong to links that end at silent switches."""
        fabric = self._world.fabric
        if not silent.any():
            return np.zeros(fabric.n_ports, np.bool_)
        here, there = fabric.port_switch, fabric.port_peer_switch
        found: Array = (silent[here] & (here >= 0)) | (silent[there] & (there >= 0))
        return found

    def _silent(self) -> Array:
        """Which switches are silent now."""
        found: Array = np.asarray(self._world.net.switch.silent) != 0
        return found

    def _ever_silent(self, before: _State, now: _State) -> Array:
        """Which switches were silent in an interval."""
        done = self._changes(before.at_ps, int(self._world.net.ctl[0].now))
        silent: Array = before.silent | now.silent
        silent[done.target[done.action == SWITCH_SILENT]] = True
        return silent

    def _changes(self, from_ps: int, until_ps: int) -> Any:
        """The actions of the schedule between two times, both included."""
        first = np.searchsorted(self._fault_at, from_ps)
        end = np.searchsorted(self._fault_at, until_ps, side="right")
        return self._world.net.fault[first:end]

    def _links(self, values: dict[str, Array], end_ps: int) -> Links:
        """The most relevant ports, in the order of their numbers, and the others together.

        A quarter of the rows goes to the ports with the most losses; then come the unhealthy ones
        and those with the longest queues or the highest load at any time.
        """
        sent_bytes = values.pop("sent_bytes")
        times = (self._ports.interval_ps, end_ps)
        values = {"load": _load(sent_bytes, self._rate_bps, *times)} | values
        n_ports = self._world.fabric.n_ports
        chosen = np.arange(n_ports) if n_ports <= LINKS_MAX else _telling(values)
        rest = np.setdiff1d(np.arange(n_ports), chosen)
        if len(rest):
            values = {
                name: np.concatenate([kept[:, chosen], _together(name, kept[:, rest])], axis=1)
                for name, kept in values.items()
            }
        names = tuple(self._world.fabric.port_name(int(port)) for port in chosen)
        return Links(*times, values, ports=chosen, names=names, others=len(rest))


class _State:
    """The state with which an interval begins: at first, that of a new world."""

    def __init__(self, world: Watched) -> None:
        n_ports = world.fabric.n_ports
        self.at_ps = 0
        self.sent_bytes: Array = np.zeros(n_ports)
        self.lost: Array = np.zeros(n_ports, np.int64)
        self.trimmed: Array = np.zeros(n_ports, np.int64)
        self.health: Array = np.full(n_ports, UP, np.uint8)
        self.silent: Array = np.zeros(world.fabric.n_switches, np.bool_)


class _EdgeReader:
    """Aggregates values by port into values by edge, and those into values by group."""

    def __init__(self, sk: Sketch) -> None:
        self._order = np.argsort(sk.port_edge, kind="stable")
        self._first = np.cumsum(sk.edge_ports) - sk.edge_ports
        key = (sk.edge_plane * len(sk.row_members) + sk.edge_row) * 2 + sk.edge_down
        _, self.group_first = np.unique(key, return_index=True)  # edges of a group are contiguous
        self.n_groups = len(self.group_first)

    def sum(self, by_port: Array, dtype: Any = np.float64) -> Array:
        if (
            not by_port.any()
        ):  # mostly true of losses: no need to go through memory in another order
            return np.zeros(len(self._first), dtype)
        found: Array = np.add.reduceat(by_port[self._order], self._first, dtype=dtype)
        return found

    def largest(self, by_port: Array) -> Array:
        found: Array = np.maximum.reduceat(by_port[self._order], self._first)
        return found

    def of_groups(self, by_edge: Array) -> Array:
        """Sums of values [..., edges]."""
        found: Array = np.add.reduceat(by_edge, self.group_first, axis=-1)
        return found

    def longest_of_groups(self, by_port: Array) -> Array:
        found: Array = np.maximum.reduceat(self.largest(by_port), self.group_first)
        return found


def _sent_bytes(net: Any) -> Array:
    """Bytes sent by every port up to now: of a frame in transmission only the part that has
    left.
    """
    port = net.port
    to_come_ps = np.maximum(np.asarray(port.free_at) - int(net.ctl[0].now), 0)
    rate_bps = np.asarray(net.port_kind.rate_bps[port.kind])
    found: Array = np.asarray(port.sent_bytes) - to_come_ps * (rate_bps / PS_BITS)
    return found


def _load(sent_bytes: Array, rate_bps: Array, interval_ps: int, end_ps: int) -> Array:
    """The fraction of the rate in use."""
    starts = np.arange(len(sent_bytes)) * interval_ps
    width_ps = np.clip(end_ps - starts, 1, interval_ps)
    bytes_per_ps = (rate_bps / PS_BITS).astype(np.float32)
    could_bytes = np.multiply.outer(width_ps.astype(np.float32), bytes_per_ps)
    found: Array = np.minimum(sent_bytes / could_bytes, np.float32(1))
    return found


def _telling(values: dict[str, Array]) -> Array:
    """Numbers of the `LINKS_MAX` ports to show."""
    lost = (values["lost"] + values["trimmed"]).sum(axis=0)
    by_loss = np.argsort(-lost, kind="stable")[: LINKS_MAX // 4]
    rank = np.zeros(len(lost))
    for name in ("load", "queue_bytes", "health"):
        peak = values[name].max(axis=0).astype(np.float64)
        rank += (2.0 if name == "health" else 1.0) * peak / max(float(peak.max()), 1e-9)
    rank[by_loss[lost[by_loss] > 0]] = np.inf
    return np.sort(np.argsort(-rank, kind="stable")[:LINKS_MAX])


def _together(name: str, rows: Array) -> Array:
    """Many links as one: mean load, sum of losses, longest queue, worst health."""
    together: Array
    if name == "load":
        together = rows.mean(axis=1, keepdims=True)
    elif name in ("lost", "trimmed"):
        together = rows.sum(axis=1, keepdims=True)
    else:
        together = rows.max(axis=1, keepdims=True)
    return together


def _harms(action: Array, rate: Array) -> Array:
    """Which actions let a port lose packets: those that do not restore it."""
    harms = np.zeros(len(action), np.bool_)
    for rated in RATED.values():
        if rated.loses:
            harms |= (action == rated.action) & (rate != rated.whole)
    return harms
