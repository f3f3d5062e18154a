"""What tests share: repeatable properties, and a world without a simulator for everything that
stands above the engine.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import settings

from openmrc.run import figures, simulation
from openmrc.units import US

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # so that tests can import the vocabulary of their directory
    sys.path.insert(0, str(ROOT))

# A shell's job in the background ignores Ctrl-C, and so would every process that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# the same examples in every run: a failure here is a change of the code, not of the luck
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile once before the workers of xdist start, not once in each of them; side by side."""
    if getattr(session.config.option, "numprocesses", None):
        from openmrc.flow.warmup import warm_up_flows
        from openmrc.jit.warmup import warm_up
        from openmrc.live.endpoint.warmup import warm_up as live
        from openmrc.sim.warmup import warm_up_balance, warm_up_mrc, warm_up_roce

        print("compiling what is not on disk ...", flush=True)
        warm_up(live, warm_up_mrc, warm_up_roce, warm_up_balance, warm_up_flows)


class FakeWorld:
    """A world in which flow `i` takes `(i + 1) * fct_ps` on the first transport.

    Later transports are slower by `slower` each. The tests say what else goes wrong by setting
    the class attributes.
    """

    fct_ps = 10 * US
    slower = 2
    built: ClassVar[list[FakeWorld]]
    unfinished = 0  # the last flows that never complete
    failed = 0  # the last flows whose QP goes to error
    interrupt = False  # Ctrl-C in the second transport
    uncut = "8 NICs are few"  # why there is one shard

    def __init__(
        self,
        fabric: Any,
        traffic: Any,
        transport: Any,
        schedule: Any,
        seed: int,
        queues: Any = None,
        stop_ps: int | None = None,
        threads: int = 1,
    ) -> None:
        self.traffic, self.transport, self.stop_ps = traffic, transport, stop_ps
        self.fabric = fabric
        self.threads = threads
        self.built.append(self)
        self.number = len(self.built)
        self.bin_ps = 10 * US
        self.now_ps, self.loop_s, self.bytes_verified = 0, 0.5, 0
        self.sampled: tuple[int | None, int] | None = None

    def run(self, progress: Callable[[Any], None] | None = None) -> bool:
        n = len(self.traffic.msg_bytes)
        fct = self.fct_ps * (1 + (self.number - 1) * self.slower)
        self.start = np.zeros(n, np.int64)
        self.done = (1 + np.arange(n)) * fct
        lost = max(self.unfinished, self.failed)
        if lost:
            self.done[-lost:] = -1
        self.now_ps = int(self.done.max(initial=0))
        self.bytes_verified = int(self.traffic.msg_bytes[self.done >= 0].sum())
        if progress is not None:
            progress(run_progress(self.now_ps, n - lost, n))
        if self.interrupt and self.number == 2:
            raise KeyboardInterrupt
        return lost == 0

    def flows(self) -> dict[str, Any]:
        n = len(self.traffic.msg_bytes)
        failed = np.zeros(n, bool)
        if self.failed:
            failed[-self.failed :] = True
        return {
            "start_ps": self.start,
            "done_ps": self.done,
            "delivered_ps": self.delivered,
            "bytes": self.traffic.msg_bytes,
            "messages": self.traffic.msg_count,
            "src": self.traffic.qp_src[self.traffic.msg_qp],
            "dst": self.traffic.qp_dst[self.traffic.msg_qp],
            "qp": self.traffic.msg_qp,
            "retransmitted": np.full(n, self.number - 1),
            "failed": failed,
        }

    def calcs_ended_ps(self) -> Any:
        return np.zeros(0, np.int64)

    @property
    def delivered(self) -> Any:
        return np.where(self.done < 0, -1, self.done - US)

    @property
    def placed_ps(self) -> int:
        return int(self.delivered.max(initial=-1))

    def placed(self) -> dict[str, Any]:
        """Each flow in the first bin, all of it."""
        bins = max(int(self.now_ps // self.bin_ps), 1)
        kept = np.zeros((bins, len(self.done)), np.int64)
        kept[0] = self.traffic.msg_bytes
        return {"flow": kept}

    def errors(self) -> list[str]:
        return ["retry exceeded" if f else "" for f in self.flows()["failed"]]

    def qp_errors(self) -> list[str]:
        return [f"QP {q}: retry exceeded" for q in range(self.failed)]

    def counters(self) -> dict[str, int]:
        return dict.fromkeys((*figures.PACKETS, *figures.PATHS), self.number) | {
            "link_traversals": 4000
        }

    def pauses(self) -> list[Any]:
        return []

    def timeline(self) -> dict[str, Any]:
        n = max(1, self.now_ps // self.bin_ps)
        goodput = np.zeros(n, np.int64)
        goodput[:] = self.bytes_verified // n
        zero = np.zeros(n, np.int64)
        starts = np.arange(n) * self.bin_ps
        packets = dict.fromkeys(("retransmitted", "lost", "trimmed"), zero)
        return {"t_ps": starts, "goodput_bytes": goodput, **packets}

    def sample(self, qp: int | None, columns: int) -> None:
        self.sampled = (qp, columns)

    def samples(self) -> Any:
        return None

    def derived(self) -> dict[str, Any]:
        return {
            "base_rtt_ps": 8 * US,
            "bdp_bytes": 100_000,
            "max_window_bytes": 100_000,
            "queue_bytes": 100_000,
            "queue_last_hop_bytes": 150_000,
            "control_queue_bytes": 65_536,
            "data_packet_wire_bytes": 4262,
            "start_headers_bytes": 65_537,
        }


def run_progress(now_ps: int, flows_done: int, flows_total: int) -> Any:
    return SimpleNamespace(
        now_ps=now_ps,
        flows_done=flows_done,
        flows_total=flows_total,
        link_traversals=0,
        wall_s=0.0,
    )


@pytest.fixture
def fake_world(monkeypatch: pytest.MonkeyPatch) -> type[FakeWorld]:
    """Every run of the test happens in a fresh subclass of `FakeWorld`, which is returned."""

    class ThisWorld(FakeWorld):
        built: ClassVar[list[FakeWorld]] = []

    monkeypatch.setattr(simulation, "_world", ThisWorld)
    monkeypatch.setattr(simulation, "_compile", lambda *things: None)
    monkeypatch.setattr(simulation, "_witness", lambda world: None)
    monkeypatch.setattr(simulation, "perfect_ps", lambda *things: 10 * US)
    return ThisWorld
