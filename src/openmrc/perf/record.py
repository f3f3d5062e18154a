"""What a client's paths lost while it measured, as a results directory for `mrc why`.

The account is that of a lab's senders (`run.lab.account`), kept by this end alone: what the other
end sends nobody tells, nor what queues dropped.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Self

import numpy as np

from openmrc.errors import InputError
from openmrc.perf.ends import End
from openmrc.units import NS, US, S

ROOM = 2**16  # records of the account, between two looks
TAKE_S = 0.02  # between two looks at what the engine told
NAME = "perf"


class Recording:
    """Context manager: keeps the account of an end, and writes it to a directory."""

    def __init__(self, end: End, directory: Path) -> None:
        from openmrc.run.lab.account import Account

        if end.device.fabric is None:
            raise InputError("--out: an ordinary network has no places to name; leave it out")
        self._end, self._directory = end, directory
        self._start_ns, self._over = time.monotonic_ns(), threading.Event()
        qps = dict(enumerate(end.qps))
        self._account = Account(end.device, qps, qps.keys(), self._start_ns)
        self._thread = threading.Thread(target=self._run, name="mrc perf record", daemon=True)

    def _now_ps(self) -> int:
        return (time.monotonic_ns() - self._start_ns) * NS

    def _run(self) -> None:
        while not self._over.wait(TAKE_S):
            self._account.take(self._now_ps())

    def __enter__(self) -> Self:
        self._account.take(0)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        self._thread.join()
        end_ps = self._now_ps()
        self._account.take(end_ps)
        self._save(end_ps, partial=kind is not None)

    def _save(self, end_ps: int, *, partial: bool) -> None:
        from openmrc.report.result import Result
        from openmrc.run.lab.account import testimony
        from openmrc.run.lab.results import of_queue_pairs
        from openmrc.run.outcome import TransportResult
        from openmrc.run.perfect import perfect_ps
        from openmrc.scenario.scenario import make_scenario
        from openmrc.scenario.transports import RoceSection
        from openmrc.sim.mrc.derive import derive
        from openmrc.traffic.traffic import make_traffic
        from openmrc.verbs import hostfile

        device, peer = self._end.device, self._end.peers[0].nic
        fabric = device.fabric
        assert fabric is not None
        counters = [qp.counters() for qp in self._end.qps]
        sent_bytes = np.array([each["tx_bytes"] for each in counters], np.int64)
        n = len(counters)
        traffic = make_traffic(
            "stream", fabric.n_nics, np.full(n, device.nic), np.full(n, peer), np.arange(n),
            np.maximum(sent_bytes, 1),
        )  # fmt: skip
        stream = {"kind": "stream", "src": device.nic, "dst": peer}
        stream["size"] = f"{max(int(sent_bytes.sum()), 1)}B"
        scenario = make_scenario(
            {"name": NAME, "fabric": hostfile.read()["fabric"], "workload": stream}
        )
        section = scenario.transports[0]
        assert not isinstance(section, RoceSection)
        derived = derive(fabric, section.build(), scenario.fabric.queues(), 1)
        rtt_ps = round(device.base_rtt_us * US)
        again = np.array([each["rtx"] for each in counters], np.int64)
        reports = {device.nic: self._account.report()}
        run = TransportResult(
            name=section.name,
            flows={
                "src": traffic.msg_src, "dst": traffic.msg_dst, "qp": traffic.msg_qp,
                "bytes": traffic.msg_total_bytes, "messages": np.ones(n, np.int32),
                "start_ps": np.zeros(n, np.int64), "done_ps": np.full(n, end_ps),
                "delivered_ps": np.full(n, end_ps), "retransmitted": again,
                "failed": np.zeros(n, np.bool_),
            },
            flow_errors=[""] * n,
            qp_errors=[f"QP {qp.qp_num:#08x}: {qp.error}" for qp in self._end.qps if qp.error],
            counters=of_queue_pairs(counters) | {"link_traversals": 0},
            timeline={
                "t_ps": np.zeros(1, np.int64), "goodput_bytes": sent_bytes.sum(keepdims=True),
                "retransmitted": again.sum(keepdims=True), "lost": np.zeros(1, np.int64),
                "trimmed": np.zeros(1, np.int64),
            },
            bin_ps=end_ps,
            derived=derived.as_dict(),
            ideal_ps=perfect_ps(fabric, traffic, scenario.transport(0)),
            now_ps=end_ps,
            loop_s=end_ps / S,
            bytes_verified=0,
            placed_ps=end_ps,
            testimony=testimony(fabric, traffic, reports, end_ps, rtt_ps),
        )  # fmt: skip
        Result(scenario, (run,), partial=partial, wall_s=end_ps / S).save(self._directory)
