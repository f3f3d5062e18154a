"""The coordinator of a run in a lab: connects agents, starts them, and collects their reports.

It runs in the lab's root namespace, which every host reaches over the management network, and
refuses peers that do not know the lab's secret. Agents never talk to each other.
"""

from __future__ import annotations

import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from openmrc.errors import OpenMrcError
from openmrc.live.lab import Lab, commands, hosts
from openmrc.live.lab.namespaces import ROOT
from openmrc.live.lab.topology import MANAGEMENT_ROUTER
from openmrc.live.lab.totals import Totals
from openmrc.printable import LINES, printable
from openmrc.run.lab.plan import Plan
from openmrc.say import counted, say
from openmrc.verbs.door import STRANGERS_MAX, Door
from openmrc.verbs.line import ExchangeError, Line

START_IN_NS = 200_000_000  # from the message to the start: every agent has received it by then
COME_S = 120.0  # for agents to load their code, on a busy machine
LOOK_S = 0.1
QUIET_S = 2.0  # after a failure: no progress anywhere for this long
NS_PER_S, PS_PER_NS = 1_000_000_000, 1000

Told = Callable[[int, int, int], None]  # ps since the start, messages ended, link traversals


@dataclass
class Heard:
    """The outcome of one run; it can be pickled."""

    rtt_us: dict[int, float | None] = field(default_factory=dict)  # by host that measured
    flows: list[tuple[Any, ...]] = field(default_factory=list)
    received: list[tuple[int, int, bool]] = field(default_factory=list)
    samples: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)  # by host
    qps: list[dict[str, Any]] = field(default_factory=list)
    devices: dict[int, dict[str, Any]] = field(default_factory=dict)
    accounts: dict[int, dict[str, list[Any]]] = field(default_factory=dict)  # by host (`account`)
    queue_drops: list[int] = field(default_factory=list)  # by directed port, with accounts
    astray: int = 0  # bytes written outside of every message
    totals: list[tuple[int, Totals]] = field(default_factory=list)  # of the switches, by time
    ended_ps: int = 0
    interrupted: bool = False


class Coordinator:
    """One run: `run` does all of it. `stopping` says whether the user wants to end it."""

    def __init__(
        self,
        lab: Lab,
        plan: Plan,
        stop_ps: int | None,
        stopping: Callable[[], bool],
        tell: Told,
    ) -> None:
        self._lab, self._plan, self._stop_ps = lab, plan, stop_ps
        self._stopping, self._tell = stopping, tell
        self._nics = sorted(plan.jobs)
        self._lines: dict[int, Line] = {}
        self._inbox: queue.Queue[tuple[int, dict[str, Any]]] = queue.Queue()
        self.heard = Heard()

    def run(self) -> Heard:
        """Start the agents, let them do their jobs, and return their reports."""
        with self._agents():
            self._exchange_attributes()
            self._measure()
            if self._stopping():
                self.heard.interrupted = True
                return self.heard
            self._start()
            self._wait_for_the_end()
            self._collect()
        return self.heard

    def say(self, words: str) -> None:
        """Print a message for the user."""
        say(words)

    # --- the agents' processes ---------------------------------------------------------------

    @contextmanager
    def _agents(self) -> Iterator[None]:
        lab = self._lab
        with lab.namespaces.inside(ROOT):
            server = socket.create_server((str(MANAGEMENT_ROUTER), 0))
        address, port = server.getsockname()
        ended = threading.Event()
        running = []
        for rank, nic in enumerate(self._nics):
            words = [sys.executable, "-m", "openmrc.run.lab.agent", address, str(port)]
            words.append(hosts.keep_file(self._plan.jobs[nic]))
            running.append(lab.command(self._nics, rank, words, _to_stderr, _to_stderr))
        watcher = threading.Thread(
            target=commands.watch, args=(running, lambda: int(ended.is_set())), daemon=True
        )
        watcher.start()
        try:
            with server:
                self._welcome(server, running)
            yield
        finally:
            for line in self._lines.values():
                line.close()
            watcher.join(LOOK_S)
            ended.set()  # those that did not leave by themselves are ended
            watcher.join()

    def _welcome(self, server: socket.socket, running: list[Any]) -> None:
        """Accept each agent's connection, and its identity."""
        until, secret = time.monotonic() + COME_S, bytes.fromhex(self._lab.spec.secret)
        door = Door(server, lambda _: secret, max(2 * len(self._nics), STRANGERS_MAX))
        while len(self._lines) < len(self._nics):
            for command in running:
                if command.status is not None:
                    raise OpenMrcError(f"{command.host}: its agent ended with {command.status}")
            if time.monotonic() > until:
                raise OpenMrcError(f"agents did not come within {COME_S:g} s; is the machine busy?")
            if (line := door.next(time.monotonic() + LOOK_S)) is None:
                continue
            try:
                first = line.receive()
            except ExchangeError:
                line.close()
                continue
            self._lines[int(first["nic"])] = line
            self._inbox.put((int(first["nic"]), first))

    # --- before the start --------------------------------------------------------------------

    def _exchange_attributes(self) -> None:
        """Send every agent its peers' attributes of queue pairs and memory."""
        said = dict(self._inbox.get_nowait() for _ in self._nics)
        for nic in self._nics:
            qps = self._plan.jobs[nic]["qps"]
            self._lines[nic].send(
                {
                    "qps": {one["qp"]: said[one["peer"]]["qps"][str(one["qp"])] for one in qps},
                    "regions": {one["peer"]: said[one["peer"]]["region"] for one in qps},
                }
            )
        for nic in self._nics:
            self._lines[nic].receive()

    def _measure(self) -> None:
        """Measure the idle round trip, one host after the other."""
        for nic in self._nics:
            self._lines[nic].send({"measure": True})
            self.heard.rtt_us[nic] = self._lines[nic].receive()["rtt_us"]

    def _start(self) -> None:
        self.say(f"{counted(len(self._nics), 'agent')} ready; the run begins.")
        self._start_ns = time.monotonic_ns() + START_IN_NS
        for nic in self._nics:
            self._lines[nic].send({"start_ns": self._start_ns})
        for nic in self._nics:
            threading.Thread(target=self._listen, args=(nic,), daemon=True).start()
        time.sleep(max(self._start_ns - time.monotonic_ns(), 0) / NS_PER_S)
        self._lab.begin()

    def _listen(self, nic: int) -> None:
        """On a thread: queue an agent's messages; an empty one when it has disconnected."""
        try:
            while True:
                self._inbox.put((nic, self._lines[nic].receive()))
        except (OSError, ValueError, ExchangeError):
            self._inbox.put((nic, {}))

    # --- the run -----------------------------------------------------------------------------

    def _now_ps(self) -> int:
        return (time.monotonic_ns() - self._start_ns) * PS_PER_NS

    def _wait_for_the_end(self) -> None:
        """Return when all is done, the time is up, no more can arrive, or the user asks."""
        state = {nic: {"done": 0, "failed": 0, "idle": False} for nic in self._nics}
        last, changed_at, look_at = 0, time.monotonic(), 0.0
        n = self._plan.traffic.n_msgs
        while True:
            self._lab.check()
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + LOOK_S
                totals = self._lab.totals()
                self.heard.totals.append((self._now_ps(), totals))
                self._tell(self._now_ps(), last, totals.link_traversals)
            try:
                nic, message = self._inbox.get(timeout=LOOK_S)
                if not message:
                    raise OpenMrcError(f"h{nic}: its agent is gone")
                state[nic] = message
            except queue.Empty:
                pass
            ended = sum(one["done"] + one["failed"] for one in state.values())
            if ended != last:
                last, changed_at = ended, time.monotonic()
            failed = any(one["failed"] for one in state.values())
            idle = all(one["idle"] for one in state.values())
            stuck = failed and idle and time.monotonic() - changed_at > QUIET_S
            over = self._stop_ps is not None and self._now_ps() >= self._stop_ps
            self.heard.interrupted = self._stopping()
            if last == n or stuck or over or self.heard.interrupted:
                break
        self.heard.ended_ps = self._now_ps()

    # --- afterwards --------------------------------------------------------------------------

    def _collect(self) -> None:
        for nic in self._nics:
            self._lines[nic].send({"finish": True})
        left = set(self._nics)
        while left:
            nic, message = self._inbox.get()
            if not message:
                raise OpenMrcError(f"h{nic}: its agent is gone before it reported")
            if self._note(nic, message):
                left.remove(nic)
        self.heard.totals.append((self.heard.ended_ps, self._lab.totals()))
        if self.heard.accounts:
            self.heard.queue_drops = self._lab.queue_drops().tolist()
        for nic in self._nics:
            self._lines[nic].send({"leave": True})

    def _note(self, nic: int, message: dict[str, Any]) -> bool:
        """Store a part of a report; True if it was the last one."""
        heard = self.heard
        heard.flows += [tuple(row) for row in message.get("flows", ())]
        heard.received += [tuple(row) for row in message.get("received", ())]
        heard.samples.setdefault(nic, []).extend(tuple(row) for row in message.get("samples", ()))
        for name, rows in message.get("account", {}).items():
            heard.accounts.setdefault(nic, {}).setdefault(name, []).extend(rows)
        if "qp" in message:
            heard.qps.append(message["qp"] | {"nic": nic})
        if "end" not in message:
            return False
        heard.devices[nic] = message["end"]
        heard.astray += message["astray"]
        return True


def _to_stderr(data: bytes) -> None:
    sys.stderr.write(printable(data.decode(errors="replace"), LINES))
    sys.stderr.flush()
