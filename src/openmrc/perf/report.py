"""The output: perftest's tables, or one JSON object."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from openmrc.perf.ends import End
from openmrc.perf.figures import Bandwidth, Latency
from openmrc.perf.plan import BW
from openmrc.verbs.network import planes_of

RULE = "-" * 87
TITLES = {
    (BW, False): "RDMA_Write BW Test",
    (BW, True): "RDMA_Write Bidirectional BW Test",
}
LAT_TITLE = "RDMA_Write_With_Imm Latency Test"
BW_HEAD = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
LAT_HEAD = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]"
    "    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]"
)


class Report:
    """Collects the lines of one end; prints each at once, or everything as JSON at the end."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._end: End | None = None
        self._about: dict[str, Any] = {}
        self._rows: list[Bandwidth | Latency] = []

    def begin(self, end: End, role: str) -> None:
        """Both ends are connected."""
        plan, device = end.plan, end.device
        self._end = end
        self._about = {
            "test": plan.test,
            "role": role,
            "nic": device.nic,
            "peer_nic": end.peers[0].nic,
            "planes": device.n_planes,
            "mode": device.mode,
            "addresses": device.planes,
            "pmtu_bytes": device.pmtu,
            "pmtu_note": device.pmtu_note,
            "base_rtt_us": device.base_rtt_us,
            **{name: getattr(plan, name) for name in ("qps", "tx_depth", "bidirectional")},
        }
        if not self._as_json:
            print("\n".join(_heading(end)), flush=True)

    def row(self, found: Bandwidth | Latency | None) -> None:
        """One size was measured."""
        if found is None:
            return
        self._rows.append(found)
        if not self._as_json:
            print(bw_line(found) if isinstance(found, Bandwidth) else lat_line(found), flush=True)

    def finish(self, *, partial: bool) -> None:
        """All sizes were measured, or it was interrupted; nothing if it never began."""
        if self._end is None:
            return
        if not self._as_json:
            print(RULE, flush=True)
            return
        counters = {f"{qp.qp_num:#x}": qp.counters() for qp in self._end.qps}
        rows = [asdict(row) for row in self._rows]
        whole = {
            **self._about,
            "partial": partial,
            "rows": rows,
            "device": self._end.device.counters(),
            "queue_pairs": counters,
        }
        print(json.dumps(whole, indent=2), flush=True)


def _heading(end: End) -> list[str]:
    plan, device = end.plan, end.device
    title = TITLES.get((plan.test, plan.bidirectional), LAT_TITLE)
    pairs = [
        ("Device", f"nic {device.nic}", "Planes", str(device.n_planes)),
        ("Number of qps", str(plan.qps), "Transport type", "MRC"),
        ("Mtu", f"{device.pmtu}[B]", "Base RTT", f"{device.base_rtt_us:.1f}[us]"),
    ]
    if plan.test == BW:
        pairs.append(("TX depth", str(plan.tx_depth), "Report", "payload, Gb/sec"))
    lines = [RULE, f"{title:^87}".rstrip()]
    lines += [f" {a:15} : {b:14} {c:15} : {d}" for a, b, c, d in pairs]
    lines.append(RULE)
    reached = zip(device.planes, planes_of(end.peers[0].planes), strict=True)
    lines += [f" plane {k:<9} : {here} to {there}" for k, (here, there) in enumerate(reached)]
    mine, theirs = end.sink.remote, end.remote
    for qp, peer in zip(end.qps, end.peers, strict=True):
        own = qp.attributes
        for whose, one, memory in (("local", own, mine), ("remote", peer, theirs)):
            lines.append(
                f" {whose:6} address: NIC {one.nic} QPN {one.qp_num:#08x} PSN {one.psn:#08x}"
                f" RKey {memory.rkey:#010x} VAddr {memory.addr:#018x}"
            )
    return [*lines, RULE, BW_HEAD if plan.test == BW else LAT_HEAD]


def bw_line(row: Bandwidth) -> str:
    """A line of perftest's bandwidth table."""
    return (
        f" {row.bytes:<10} {row.iterations:<14} {row.bw_peak_gbps:<18.2f}"
        f" {row.bw_average_gbps:<20.2f} {row.msg_rate_mpps:.6f}"
    )


def lat_line(row: Latency) -> str:
    """A line of perftest's latency table."""
    return (
        f" {row.bytes:<7}{row.iterations:<15} {row.t_min_us:<14.2f} {row.t_max_us:<12.2f}"
        f" {row.t_typical_us:<18.2f} {row.t_avg_us:<14.2f} {row.t_stdev_us:<15.2f}"
        f" {row.p99_us:<22.2f} {row.p999_us:.2f}"
    )
