"""Rounds of openmrc, TCP and MPTCP in one lab, and their ratios.

For each kind of stream a figure is the median of its rounds; ratios are of medians. What this
machine lacks is left out by name (`skipped`), never silently.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from openmrc.bench.lab import plain
from openmrc.bench.lab.curve import STEP_NS
from openmrc.bench.lab.rounds import Delivered, Stream, Times, delivered
from openmrc.errors import OpenMrcError
from openmrc.live.endpoint.pmtu import mtu_for
from openmrc.live.lab import Lab, LabSpec, run_lab
from openmrc.live.lab.namespaces import LabError
from openmrc.live.lab.needs import examine, lacking
from openmrc.live.lab.topology import OPENMRC
from openmrc.run.lab.spec import lab_spec
from openmrc.scenario.scenario import make_scenario
from openmrc.wire.framing import MRC_FRAMING

PLANES, RATE_MBPS, PMTU = 4, 100, 4096
ROUNDS = 5
TIMES = Times(warm=1.0, healthy=2.0, after=3.0)
NICS = (0, 3)  # under different T0s
STEP_MS = STEP_NS / 1e6  # the resolution of an outage
CEILING_BAR, OUTAGE_BAR = 0.9, 10.0
OURS, TCP, CUBIC, MPTCP = "openmrc", "tcp_default", "tcp_cubic", "mptcp"


def tables(rate_mbps: int = RATE_MBPS) -> dict[str, Any]:
    """Return the scenario of the lab: four hosts, four planes, the smallest fitting MTU."""
    return {
        "fabric": {
            "nics": 4,
            "planes": PLANES,
            "port_rate": f"{rate_mbps}Mbps",
            "t0_down": 2,
            "t0_up": 2,
        },
        "lab": {"switch": OPENMRC, "mtu": mtu_for(PMTU)},
        "transport": {"pmtu": PMTU},
        "workload": {"kind": "permutation", "size": "1MB"},  # never run
    }


@dataclass
class Found:
    """The results of the rounds of one kind of stream."""

    rounds: list[Delivered] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    short: int = 0  # rounds that do not count: MPTCP did not use every plane
    skipped: str = ""


def measure_lab(
    rounds: int = ROUNDS, times: Times = TIMES, rate_mbps: int = RATE_MBPS
) -> dict[str, Any]:
    """Bring the lab up, measure, and return the figures; `{"skipped": why}` if no lab is allowed.

    The caller must not have threads (`live.lab.isolation`).
    """
    if lacks := lacking(examine())[f"lab {OPENMRC}"]:
        return {"skipped": lacks[0]}
    spec = lab_spec(make_scenario(tables(rate_mbps)))
    with tempfile.TemporaryFile() as back:  # from the child process, whose memory is its own

        def work(lab: Lab) -> int:
            found = Measurement(lab, times).run(rounds)
            back.write(json.dumps(figures(found, spec, rounds, times)).encode())
            back.flush()
            return 0

        status = run_lab(spec, work)
        if status:
            raise OpenMrcError(f"bench live: the lab ended with status {status}")
        back.seek(0)
        result: dict[str, Any] = json.loads(back.read())
        return result


class Measurement:
    """All rounds in a lab that is up."""

    def __init__(self, lab: Lab, times: Times) -> None:
        self._lab, self._times = lab, times
        self._found = {kind: Found() for kind in (OURS, TCP, CUBIC, MPTCP)}

    def run(self, rounds: int) -> dict[str, Found]:
        """Run each kind in turn, round by round, so that other load on the machine affects all."""
        self._lab.begin()
        for number in range(rounds):
            plane = number % PLANES
            self._ours(plane)
            try:
                with plain.switched_on(self._lab, NICS):
                    self._kernels(plane)
            except LabError as error:
                for kind in (TCP, CUBIC, MPTCP):
                    self._found[kind].skipped = f"this machine cannot wrap plain IPv6: {error}"
        return self._found

    def _ours(self, plane: int) -> None:
        found, times = self._found[OURS], self._times
        stream = Stream(self._lab, NICS, ["openmrc.bench.lab.writes", str(times.total)])
        cut = stream.run(times, plane)
        said = stream.said
        found.about = {"pmtu_bytes": said["pmtu"], "base_rtt_us": said["base_rtt_us"]}
        found.rounds.append(delivered(said["completed"], said["started"], cut, times))

    def _kernels(self, plane: int) -> None:
        self._stream(TCP, "tcp", "default", None)
        self._stream(CUBIC, "tcp", "cubic", None)
        found = self._found[MPTCP]
        found.skipped = found.skipped or plain.mptcp_refusal(self._lab, NICS)
        self._stream(MPTCP, "mptcp", "default", plane)

    def _stream(self, kind: str, protocol: str, congestion: str, plane: int | None) -> None:
        """Run one stream of the kernel's; what it cannot do is recorded once."""
        found, times = self._found[kind], self._times
        if found.skipped:
            return
        seconds = times.total if plane is not None else times.warm + times.healthy
        words = ["openmrc.bench.lab.stream", protocol, congestion, plain.address(0, NICS[1])]
        stream = Stream(
            self._lab, NICS, [*words, str(seconds), str(times.warm + times.healthy / 2)]
        )
        try:
            cut = stream.run(times, plane)
        except OpenMrcError as error:
            found.skipped = str(error)
            return
        said = stream.said
        found.about = said.get("connection", {})
        subflows = found.about.get("subflows", PLANES)
        if found.about.get("fallback") or subflows != PLANES:
            found.short += 1  # it is not what it should be compared as
            return
        found.rounds.append(delivered(said["read"], said["started"], cut, times))


def figures(found: dict[str, Found], spec: LabSpec, rounds: int, times: Times) -> dict[str, Any]:
    """Return all figures for JSON."""
    rate_bps = int(spec.fabric.port_rate_bps[0])
    frame = MRC_FRAMING.data_bytes(PMTU)
    ceiling = PLANES * rate_bps * PMTU / frame
    result: dict[str, Any] = {
        "planes": PLANES,
        "rate_mbps": rate_bps / 1e6,
        "mtu_bytes": spec.settings.mtu,
        "wire_bytes": frame,
        "ceiling_mbps": round(ceiling / 1e6, 1),
        "rounds": rounds,
        "healthy_s": times.healthy,
        "after_s": times.after,
        **{kind: _row(of) for kind, of in found.items()},
    }
    result["ratios"] = ratios(result)
    result["bars"] = {"ceiling": CEILING_BAR, "outage": OUTAGE_BAR}
    return result


def ratios(result: dict[str, Any]) -> dict[str, float]:
    """Return openmrc's goodput over that of each other, and MPTCP's outage over openmrc's; without
    those that were not measured.
    """
    ours = result[OURS]
    found = {"ceiling": ours["goodput_mbps"] / result["ceiling_mbps"]}
    for kind in (TCP, CUBIC, MPTCP):
        if "goodput_mbps" in result[kind]:
            found[kind] = ours["goodput_mbps"] / result[kind]["goodput_mbps"]
    theirs = result[MPTCP].get("outage_ms")
    if theirs is not None and ours["outage_ms"] is not None:
        found["outage"] = theirs / max(ours["outage_ms"], STEP_MS)
    return {name: round(value, 3) for name, value in found.items()}


def _row(found: Found) -> dict[str, Any]:
    if found.short and not found.rounds:
        found.skipped = f"never on all planes: {found.about}"
    if found.skipped:
        return {"skipped": found.skipped}
    row: dict[str, Any] = {
        "rounds": len(found.rounds),
        "goodput_mbps": round(statistics.median(one.bps for one in found.rounds) / 1e6, 1),
    }
    if found.rounds[0].cut:
        row["outage_ms"] = _median([one.outage_ms for one in found.rounds])
        row["outages_ms"] = [one.outage_ms for one in found.rounds]
    return row | found.about


def _median(values: Sequence[float | None]) -> float | None:
    """The median, where None is longer than any outage observed."""
    middle = statistics.median_high(float("inf") if v is None else v for v in values)
    return None if middle == float("inf") else middle
