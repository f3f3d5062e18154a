"""What a scenario needs in memory, before it is run: docs/costs.md's formula, evaluated.

    .venv/bin/python benchmarks/memory.py SCENARIO.toml [KEY=VALUE ...]
    .venv/bin/python benchmarks/memory.py --records

The second form prints the bytes of each record.
"""

from __future__ import annotations

import argparse

import numpy as np

from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.jit import heap
from openmrc.scenario.scenario import Scenario, load_scenario
from openmrc.sim.mrc import build
from openmrc.sim.mrc.derive import derive
from openmrc.sim.net import network
from openmrc.sim.net import state as ss

MODULES = {"engine.packet": pk, "engine.state": es, "jit.heap": heap, "sim.state": ss}


def record_bytes() -> dict[str, int]:
    """Bytes of each record: {"engine.state.QP": ...}."""
    return {
        f"{place}.{name}": value.itemsize
        for place, module in MODULES.items()
        for name, value in vars(module).items()
        if isinstance(value, np.dtype) and not (module is not pk and name == "PACKET")
    }


def estimate(scenario: Scenario) -> dict[str, int]:
    """Bytes of the arrays of a run of the first transport, by what they are for.

    Packets and the records of EVs that were ever ASSUMED_BAD are left out: how many there are
    depends on the run.
    """
    fabric, traffic, schedule = scenario.build()
    transport = scenario.transports[0].build()
    queues = scenario.fabric.queues()
    senders = int(np.bincount(traffic.qp_dst, minlength=1).max(initial=0))
    derived = derive(fabric, transport, queues, senders)
    planes, qps, nics = fabric.n_planes, traffic.n_qps, fabric.n_nics

    paths = np.ones(qps, np.int64)  # per plane
    climbs = fabric.uplinks(traffic.qp_src, traffic.qp_dst)
    for up in np.unique(climbs):
        mine = climbs == up
        one = int(mine.argmax())
        paths[mine] = fabric.n_paths(int(traffic.qp_src[one]), int(traffic.qp_dst[one]), 0)
    reverse = max(build.REVERSE_EVS // planes, build.REVERSE_EVS_PER_PLANE_MIN)
    if transport.rules == "peer":
        evs_out, evs_back, planes_of_evs = np.full(qps, transport.evs_active), np.ones(qps), 1
    elif transport.paths == "single":
        evs_out, evs_back, planes_of_evs = np.ones(qps), np.ones(qps), 1
    elif transport.hashed:  # as many as asked for: nobody knows how many paths there are
        evs_out = np.full(qps, derived.evs_per_plane_active + derived.evs_per_plane_backup)
        evs_back, planes_of_evs = np.full(qps, reverse), planes
    else:
        wanted = derived.evs_per_plane_active + derived.evs_per_plane_backup
        evs_out = np.minimum(paths, wanted)
        evs_back = np.minimum(paths, reverse)
        planes_of_evs = planes
    evs = int((evs_out + evs_back).sum()) * planes_of_evs
    # a rotation has room for the EVs of the plane that has most
    order = int(np.maximum(evs_out, 1).sum() + np.maximum(evs_back, 1).sum()) * planes

    ring_bytes = _pow2(derived.mpr_packets + 256) // 8
    messages = np.bincount(traffic.msg_qp, traffic.msg_count, qps)
    held = sum(_pow2(min(int(n), network.SEND_QUEUE_MAX)) for n in messages)
    pairs = {(min(a, b), max(a, b)) for a, b in zip(traffic.qp_src, traffic.qp_dst, strict=True)}
    carried = np.bincount(traffic.msg_qp, traffic.packets(transport.pmtu), qps)
    slots = [min(_pow2(int(n) + 1), _pow2(derived.mpr_packets)) for n in carried]
    units = sum(min(_pow2(int(n)), room) for n, room in zip(carried, slots, strict=True))
    size = {name.rpartition(".")[2]: n for name, n in record_bytes().items()}
    ends = 2 * qps
    per_end = size["QP"] + size["LINK_QP"] + planes * (size["PLANE"] + 4) + ring_bytes + 8
    if transport.paths == "reps":
        per_end += planes * size["REPS"]
    any_series = bool((traffic.msg_count > 1).any())
    first = np.clip(1 - traffic.msg_deps, 0, traffic.msg_count).sum() if any_series else 0
    entries = 2 * traffic.n_msgs + first + 8 * ends + 2 * nics + 4096
    releases = len(traffic.recv_next) + len(traffic.sent_next)
    return {
        "QPs": ends * per_end + qps * size["REGION"] + 2 * len(pairs) * size["PEER"],
        "slots": sum(slots) * size["SLOT"],
        "EVs": evs * size["EV"] + size["BLAME"] + 2 * order,
        "messages": held * (size["MESSAGE"] + size["RX_MESSAGE"])
        + traffic.n_msgs * (size["MESSAGE_STATE"] + any_series * size["SERIES"] + 4)
        + 4 * releases,
        "payload": 2 * units,
        "NICs": nics * (size["NIC"] + size["LINK_NIC"] + 8 * planes + 4 * es.REQUESTS),
        "ports": fabric.n_ports * (size["PORT"] + size["HEALTH"] + size["TALLY"] + 8),
        "switches": fabric.n_switches * size["SWITCH"],
        "heap": int(entries) * size["ENTRY"],
        "faults": len(schedule.events) * size["FAULT"],
    }


def _pow2(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scenario", nargs="?", metavar="SCENARIO.toml")
    parser.add_argument("set", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--records", action="store_true")
    arguments = parser.parse_args(argv)
    if arguments.records:
        for name, n in record_bytes().items():
            print(f"{name:28}{n:6}")
    if arguments.scenario:
        parts = estimate(load_scenario(arguments.scenario, arguments.set))
        for name, n in parts.items():
            print(f"{name:10}{n / 1e6:10.2f} MB")
        print(f"{'all':10}{sum(parts.values()) / 1e6:10.2f} MB, and packets under way")


if __name__ == "__main__":
    main()
