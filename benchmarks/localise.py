"""Faults drawn at random, and whom the localiser names: precision, recall, and the odds of alarms.

    .venv/bin/python benchmarks/localise.py [--quick] [--json] [--trials N] [--seed N]

A fabric of 1,024 NICs on 8 planes, 32,768 directed links; probes by the mapper's schedule, ten a
millisecond over each link, and bursts of a hundred over links that are suspected; traffic of 8
queue pairs for each NIC over 128 paths each, at half of the ports' rate. Outcomes are drawn packet
by packet from what each link loses, and chance loses one of ten million everywhere. A named link
counts as right if it is one of those that lose packets, with its direction; a dead switch is right
if the switch is named, and wrong if its links are.

`scale` times the localiser on 131,072 NICs and 8 planes: a million paths that lost packets, in CPU
time of one core. `alarms` is arithmetic.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from openmrc.fabric import Fabric, multiplane
from openmrc.fabric.ways import routes
from openmrc.ops import alarms, causes, evidence, schedule
from openmrc.ops.evidence import BACKGROUND, Evidence
from openmrc.ops.localise import Rules, Verdict, localise, suspected
from openmrc.units import MS, S

RATE_BPS = 100 * 10**9
PACKET_BYTES = 4096
QPS, EVS_PER_PLANE = 8, 16
LOAD = 0.5  # of the ports' rate that traffic takes
LOOKS = 20  # of the mapper's agents for suspects, in a second
SUSPECTS_MAX = 128  # links that get bursts at a time
DEAD = 1 - 1e-15


@dataclass(frozen=True, eq=False)
class Place:
    """A fabric with its probes and its traffic, drawn once for all trials."""

    fabric: Fabric
    schedule: schedule.Schedule
    probes: np.ndarray  # [turns, probes, hops]
    traffic: np.ndarray  # [paths, hops]
    crossed: np.ndarray  # [causes] paths of the traffic

    @classmethod
    def of(cls, nics: int, planes: int, down: int, seed: int) -> Place:
        fabric = multiplane(nics, planes, RATE_BPS, down, down, 0, 0)
        made = schedule.make(fabric)
        probes = np.stack([made.routes(turn) for turn in range(schedule.TURNS)])
        rng = np.random.default_rng(seed)
        pair = np.arange(nics * QPS)
        src = pair // QPS
        dst = (src + 1 + rng.integers(0, nics - 1, len(pair))) % nics
        n_evs = min(EVS_PER_PLANE, down)
        first = rng.integers(0, down, (len(pair), planes, 1))
        step = 2 * rng.integers(0, down // 2, (len(pair), planes, 1)) + 1
        uplink = (first + step * np.arange(n_evs)) % down
        plane = np.arange(planes)[:, None]
        evs = fabric.ev_base | plane << fabric.ev_plane_shift | uplink << fabric.ev_up0_shift
        shape = (len(pair), planes, n_evs)
        ends = (np.broadcast_to(end[:, None, None], shape).ravel() for end in (src, dst))
        paths = routes(fabric, *ends, np.broadcast_to(evs, shape).ravel())
        one = np.ones(len(paths), np.int64)
        crossed = evidence.of_paths(fabric, paths, one, 0 * one, 0, 1).crossed
        return cls(fabric, made, probes, paths, crossed)

    def packets(self, window_ps: int) -> int:
        """What each path of the traffic carries in such a time."""
        each = RATE_BPS * self.fabric.n_planes * self.fabric.n_nics * LOAD * window_ps / S
        return max(1, int(each / 8 / PACKET_BYTES / len(self.traffic)))


class Fault:
    """What each directed link loses, and who is to be named for it."""

    def __init__(self, place: Place, rate: float, causes_: list[int]) -> None:
        self.truth = set(causes_)
        self.log_through = np.zeros(place.fabric.n_ports + 1)
        for cause in causes_:
            ports = causes.links_of(place.fabric, cause)
            self.log_through[ports] += math.log1p(-min(rate, DEAD))

    def loss(self, paths: np.ndarray) -> np.ndarray:
        """What a packet loses its life by on each of these paths."""
        total = np.zeros(paths.shape[:-1])
        for hop in range(paths.shape[-1]):
            total += self.log_through[paths[..., hop]]
        return -np.expm1(total)


# --- what is seen


def actively(place: Place, fault: Fault, rng: Any, periods: int, bursts: bool) -> Evidence:
    """What probes see in so many periods, which end when the localiser is asked."""
    made, fabric = place.schedule, place.fabric
    loss = fault.loss(place.probes)
    turn, number = np.nonzero(loss)
    q = loss[turn, number]
    parts: list[Evidence] = []
    looks = min(LOOKS, periods) if bursts else 1
    done = 0
    for look in range(1, looks + 1):
        until = periods * look // looks
        span = until - done
        # A window begins with turn 0: partners come again in any order.
        sent = np.maximum((span - turn + schedule.TURNS - 1) // schedule.TURNS, 0)
        lost = rng.binomial(sent, q)
        by_chance = rng.poisson(BACKGROUND * made.n_probes * span)
        chance_turn = rng.integers(0, min(span, schedule.TURNS), by_chance)
        chance = rng.integers(0, made.n_probes, by_chance)
        some = lost > 0
        seen = evidence.of_probes(
            made,
            np.concatenate([turn[some], chance_turn]),
            np.concatenate([number[some], chance]),
            np.concatenate([lost[some], np.ones(by_chance, np.int64)]),
            span,
            done * made.period_ps,
        )
        if bursts and parts:
            before = evidence.joined(parts)
            found = localise(fabric, before)
            for port in suspected(fabric, before, found, most=SUSPECTS_MAX).tolist():
                burst = made.burst(port, schedule.BURST_MAX * span, look)
                gone = rng.random(len(burst)) < fault.loss(burst)
                times = (seen.from_ps, seen.until_ps)
                parts.append(evidence.of_burst(fabric, burst, gone, *times))
        parts.append(seen)
        done = until
    return evidence.joined(parts)


def passively(place: Place, fault: Fault, rng: Any, window_ps: int, dead: bool) -> Evidence:
    """What senders see of their paths. Of a dead one each loses a few packets, then uses it no
    more.
    """
    each = place.packets(window_ps)
    loss = fault.loss(place.traffic)
    rows = np.flatnonzero(loss)
    lost = rng.integers(1, 4, len(rows)) if dead else rng.binomial(each, loss[rows])
    sent = lost if dead else np.full(len(rows), each)
    by_chance = rng.integers(0, len(place.traffic), rng.poisson(BACKGROUND * each * len(loss)))
    by_chance = np.setdiff1d(by_chance, rows)
    crossed = place.crossed * each
    if dead:  # what was not sent on them
        for column in causes.of_routes(place.fabric, place.traffic[rows]):
            there = column >= 0
            crossed -= np.bincount(column[there], (each - sent)[there], len(crossed)).astype(int)
    some = lost > 0
    every = np.concatenate([rows[some], by_chance])
    n = len(every)
    one, whole = np.ones(len(by_chance), np.int64), np.full(len(by_chance), each)
    return evidence.of_lossy(
        place.traffic[every],
        np.concatenate([sent[some], whole]),
        np.concatenate([lost[some], one]),
        np.zeros(n, np.int64),
        np.full(n, window_ps),
        crossed,
        0,
        window_ps,
    )


# --- what is drawn


def a_link(place: Place, rng: Any, n: int = 1, tier: str = "any") -> list[int]:
    """So many directed links."""
    fabric = place.fabric
    of_nic = (fabric.port_nic >= 0) | (fabric.port_peer_nic >= 0)
    ports = np.arange(fabric.n_ports)
    if tier != "any":
        ports = ports[of_nic if tier == "nic" else ~of_nic]
    return [int(port) for port in rng.choice(ports, n, replace=False)]


def a_cable(place: Place, rng: Any) -> list[int]:
    """Both directions of a link."""
    (port,) = a_link(place, rng)
    return [port, int(place.fabric.port_reverse[port])]


def a_switch(place: Place, rng: Any) -> list[int]:
    return [place.fabric.n_ports + int(rng.integers(place.fabric.n_switches))]


def some_links(place: Place, rng: Any) -> list[int]:
    return a_link(place, rng, int(rng.integers(1, 21)))


CASES: dict[str, tuple[float, Callable[[Place, Any], list[int]], tuple[str, ...]]] = {
    "one direction dead": (1.0, a_link, ("probes, 10 ms", "traffic, 10 ms")),
    "cable cut": (1.0, a_cable, ("probes, 10 ms", "traffic, 10 ms")),
    "switch silent": (1.0, a_switch, ("probes, 10 ms", "traffic, 10 ms")),
    "0.1 % on 1 to 20 links": (0.001, some_links, ("probes, 1 s", "traffic, 1 s", "both, 1 s")),
    "0.5 % on one link": (0.005, a_link, ("probes, 1 s", "traffic, 10 ms")),
    "0.5 % on a NIC's link": (
        0.005,
        lambda place, rng: a_link(place, rng, 1, "nic"),
        ("probes, 1 s", "traffic, 10 ms"),
    ),
    "0.5 % between T0 and T1": (
        0.005,
        lambda place, rng: a_link(place, rng, 1, "t1"),
        ("probes, 1 s", "traffic, 10 ms"),
    ),
    "nothing broken": (0.0, lambda place, rng: [], ("probes, 1 s", "traffic, 1 s")),
}
WINDOWS = {"10 ms": 10 * MS, "1 s": 1 * S}


def trial(place: Place, rng: Any, case: str, how: str) -> tuple[set[int], list[Verdict], float]:
    """Who is to be named, the verdicts, and the localiser's CPU time."""
    rate, draw, _ = CASES[case]
    fault = Fault(place, rate, draw(place, rng))
    source, window = how.split(", ")
    window_ps = WINDOWS[window]
    parts = []
    if source in ("probes", "both"):
        periods = window_ps // place.schedule.period_ps
        parts.append(actively(place, fault, rng, periods, bursts=window == "1 s"))
    if source in ("traffic", "both"):
        parts.append(passively(place, fault, rng, window_ps, dead=rate == 1.0))
    seen = evidence.joined(parts)
    began = time.process_time()
    found = localise(place.fabric, seen)
    return fault.truth, found, time.process_time() - began


def score(outcomes: list[tuple[set[int], list[Verdict], float]]) -> dict[str, float | None]:
    """Precision, recall and F1 of all trials together; verdicts that name no place count apart."""
    right = wrong = missed = unsure = 0
    for truth, found, _ in outcomes:
        named = {verdict.cause for verdict in found if verdict.is_sure}
        unsure += len(found) - len(named)
        right += len(named & truth)
        wrong += len(named - truth)
        missed += len(truth - named)
    precision = right / (right + wrong) if right + wrong else None
    recall = right / (right + missed) if right + missed else None
    both = (precision or 0) + (recall or 0)
    return {
        "right": right,
        "wrong": wrong,
        "missed": missed,
        "one_of": unsure,
        "precision": precision,
        "recall": recall,
        "f1": 2 * (precision or 0) * (recall or 0) / both if both else None,
        "cpu_ms": 1e3 * float(np.median([took_s for *_, took_s in outcomes])),
    }


def measure(trials: int, seed: int, quick: bool) -> list[dict[str, Any]]:
    """One row for each fault and way of seeing it."""
    place = Place.of(64, 2, 8, seed) if quick else Place.of(1024, 8, 32, seed)
    rows = []
    for number, (case, (_, _, ways)) in enumerate(CASES.items()):
        for how in ways:
            rng = np.random.default_rng([seed, number])
            outcomes = [trial(place, rng, case, how) for _ in range(trials)]
            rows.append({"fault": case, "seen by": how, "trials": trials} | score(outcomes))
    return rows


def false_alarms() -> list[dict[str, Any]]:
    """Healthy links named in 10^6 hours of links, by what chance really loses and the window; the
    localiser takes it for one of ten million.
    """
    rows = []
    for background in (1e-7, 1e-6):
        for packets, window_ps in ((100, 10 * MS), (10_000, 1 * S)):
            losses = alarms.alarm(packets, BACKGROUND, Rules().alarm).losses
            chance = alarms.tail(packets, background, losses)
            rows.append(
                {
                    "background": background,
                    "window_ms": window_ps / MS,
                    "probes": packets,
                    "losses": losses,
                    "chance": chance,
                    "alarms": chance * 1e6 * alarms.windows_an_hour(window_ps),
                }
            )
    return rows


def scale(quick: bool, seed: int) -> dict[str, Any]:
    """CPU time of the localiser on the largest published fabric: 20 gray links, a silent switch."""
    nics, planes, down, rows = (512, 2, 16, 20_000) if quick else (131_072, 8, 256, 1_000_000)
    fabric = multiplane(nics, planes, RATE_BPS, down, down, 0, 0)
    rng = np.random.default_rng(seed)
    uplinks = np.flatnonzero(
        (fabric.port_switch >= 0) & (fabric.port_peer_switch > fabric.port_switch)
    )
    gray = rng.choice(uplinks, 20, replace=False)
    silent = int(rng.choice(np.flatnonzero(fabric.sw_tier == 1)))
    which = rng.integers(0, 21, rows)
    src, evs = np.empty(rows, np.int64), np.empty(rows, np.int64)
    for i, port in enumerate(gray.tolist()):
        mine, switch = np.flatnonzero(which == i), int(fabric.port_switch[port])
        src[mine] = rng.integers(int(fabric.sw_lo[switch]), int(fabric.sw_hi[switch]), len(mine))
        evs[mine] = fabric.ev(int(fabric.sw_plane[switch]), port - int(fabric.sw_first_up[switch]))
    mine = np.flatnonzero(which == 20)
    src[mine] = rng.integers(0, nics, len(mine))
    evs[mine] = fabric.ev(int(fabric.sw_plane[silent]), int(fabric.sw_index[silent]))
    dst = (src // down * down + down + rng.integers(0, nics - down, rows)) % nics
    lost = rng.integers(1, 4, rows)
    made = schedule.make(fabric)
    periods = max(1, 10**8 // made.n_probes)
    crossed = np.concatenate(made.crossed) * periods
    per_port = int(RATE_BPS * LOAD / 8 / PACKET_BYTES)
    # Traffic crosses links of one tier alike; a path crosses a T1 by two of its links.
    crossed[: fabric.n_ports] += per_port
    crossed[fabric.n_ports : -nics] += 2 * down * per_port
    crossed[-nics:] += 2 * planes * per_port
    paths = routes(fabric, src, dst, evs)
    of_silent = np.append(causes.links_of(fabric, fabric.n_ports + silent), fabric.n_ports + silent)
    gone = np.zeros(len(crossed))
    for column in causes.of_routes(fabric, paths[mine]):
        gone += np.bincount(column[column >= 0], lost[mine][column >= 0], len(gone))
    crossed[of_silent] = gone[of_silent]  # nobody sends over a silent switch for long
    seen = evidence.of_lossy(
        paths, lost, lost, np.zeros(rows, np.int64), np.full(rows, S),
        crossed, 0, S,
    )  # fmt: skip
    began = time.process_time()
    found = localise(fabric, seen)
    took_s = time.process_time() - began
    named = {verdict.cause for verdict in found if verdict.is_sure}
    return {
        "nics": nics,
        "directed_links": fabric.n_ports,
        "lossy_paths": rows,
        "probes": made.n_probes * periods,
        "all_found": named == {*gray.tolist(), fabric.n_ports + silent},
        "cpu_s": round(took_s, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small fabric, two trials a case")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--trials", type=int, help="of each case (default: 50)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    trials = arguments.trials or (2 if arguments.quick else 50)
    rows = measure(trials, arguments.seed, arguments.quick)
    odds, large = false_alarms(), scale(arguments.quick, arguments.seed)
    if arguments.json:
        print(json.dumps({"cases": rows, "alarms": odds, "scale": large}, indent=2))
        return
    for row in rows:
        shares = (row[key] for key in ("precision", "recall", "f1"))
        words = "  ".join("    -" if share is None else f"{share:5.3f}" for share in shares)
        print(
            f"{row['fault']:26} {row['seen by']:16} {words}   {row['wrong']:3} wrong,"
            f" {row['one_of']:3} one of several, {row['cpu_ms']:7.1f} ms"
        )
    print("healthy links named in 10^6 link-hours:")
    for row in odds:
        print(
            f"  chance loses {row['background']:.0e}, {row['probes']} probes in"
            f" {row['window_ms']:g} ms: from {row['losses']} losses on, {row['alarms']:.1e}"
        )
    print(
        f"{large['nics']} NICs, {large['directed_links']} directed links,"
        f" {large['lossy_paths']} paths that lost packets, {large['probes']:.1e} probes:"
        f" {large['cpu_s']} s, {'all' if large['all_found'] else 'not all'} found"
    )


if __name__ == "__main__":
    main()
