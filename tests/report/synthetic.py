"""Results as large as they come, and noise throughout: nothing in them can be made small."""

from __future__ import annotations

from typing import Any

import numpy as np

from openmrc.fabric.clos import multiplane
from openmrc.fabric.sketch import sketch
from openmrc.run.figures import PACKETS, PATHS
from openmrc.run.outcome import TransportResult
from openmrc.run.results import Result
from openmrc.scenario.scenario import Scenario, parse_scenario
from openmrc.sim.watch.sampler import LINKS_MAX
from openmrc.sim.watch.samples import Groups, Links, QpSamples, Samples, Table
from openmrc.units import US, S

END_PS = 10 * S
COLUMNS = 500
EVS = 4096
FABRIC = multiplane(64, 8, 10**11, 16, 16, 500_000, 250_000)  # 1024 links: as many as are drawn


def heavy(transports: int, flows: int, faults: int = 20_000, columns: int = COLUMNS) -> Result:
    """Ten simulated seconds, every table full of noise."""
    rng = np.random.default_rng(1)
    shown = samples(rng, columns)  # the same for all: what is drawn of it is written for each
    return Result(
        scenario=scenario(transports),
        transports=tuple(run(rng, f"transport {i}", flows, shown) for i in range(transports)),
        partial=False,
        wall_s=1.0,
        fault_marks=tuple(
            (int(at), f"link-down plane {i % 8} t0 {i % 4} - t1 {i % 16}")
            for i, at in enumerate(np.sort(rng.integers(0, END_PS, faults)))
        ),
    )


def scenario(transports: int) -> Scenario:
    text = '[fabric]\nnics = 64\nplanes = 8\n[workload]\nkind = "permutation"\n'
    for i in range(transports):
        text += f'[[transport]]\nname = "transport {i}"\n'
    fault = '[[fault]]\nat = "1us"\nkind = "link-down"\nwhere = "plane 0 t0 0 - t1 0"\n'
    return parse_scenario(text + 3000 * fault)  # a quarter of a megabyte


def run(rng: Any, name: str, flows: int, shown: Samples) -> TransportResult:
    done = rng.integers(1, END_PS, flows)
    done[0] = END_PS
    bins = 4096
    return TransportResult(
        name=name,
        flows={
            "start_ps": np.zeros(flows, np.int64),
            "done_ps": done,
            "bytes": np.full(flows, 1000),
            "failed": np.zeros(flows, bool),
        },
        flow_errors=[],
        qp_errors=[],
        counters=dict.fromkeys((*PACKETS, *PATHS, "link_traversals"), 123_456_789),
        timeline={"goodput_bytes": rng.integers(0, 10**9, bins)},
        bin_ps=END_PS // bins,
        derived={"base_rtt_ps": 8 * US, "data_packet_wire_bytes": 4262},
        ideal_ps=US,
        now_ps=END_PS,
        loop_s=1.0,
        bytes_verified=1,
        samples=shown,
    )


def samples(rng: Any, columns: int) -> Samples:
    sk = sketch(FABRIC)
    times = (-(-END_PS // columns), END_PS)
    edges, groups = len(sk.edge_row), 32

    def shares(rows: int) -> Any:
        return rng.random((columns, rows), np.float32)

    def counts(rows: int) -> Any:
        return rng.integers(0, 10**7, (columns, rows)).astype(np.float32)

    def states(rows: int, n: int) -> Any:
        return rng.integers(0, n, (columns, rows)).astype(np.uint8)

    rows = LINKS_MAX + 1
    return Samples(
        sketch=sk,
        edges=Table(
            *times,
            {
                "load": shares(edges),
                "health": states(edges, 5),
                "unhealthy": states(edges, 2),
                "silent": states(sk.n_switch_nodes, 2),
            },
        ),
        groups=Groups(
            *times,
            {
                "load": shares(groups),
                "queue_bytes": counts(groups),
                "lost": counts(groups),
                "trimmed": counts(groups),
            },
            plane=np.repeat(np.arange(8), 4),
            row=np.tile([0, 0, 1, 1], 8),
            down=np.tile([False, True], 16),
        ),
        links=Links(
            *times,
            {
                "load": shares(rows),
                "queue_bytes": counts(rows),
                "lost": counts(rows),
                "trimmed": counts(rows),
                "health": states(rows, 5),
            },
            ports=np.arange(LINKS_MAX),
            names=tuple(FABRIC.port_name(port) for port in range(LINKS_MAX)),
            others=FABRIC.n_ports - LINKS_MAX,
        ),
        qp=QpSamples(
            *times,
            {
                "cwnd_bytes": rng.random(columns) * 10**6,
                "inflight_bytes": rng.integers(0, 10**6, columns),
                "delay_ps": rng.random(columns) * US,
                "queue_bytes": rng.integers(0, 10**6, columns),
                "state": states(EVS, 6),
                "used": counts(EVS),
            },
            qp=0,
            src=0,
            dst=63,
            evs=np.arange(EVS),
            plane=np.arange(EVS) // (EVS // 8),
            names={ev: f"over plane {ev % 8} t1 {ev % 16}" for ev in range(EVS)},
        ),
    )
