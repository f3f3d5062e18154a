"""The process on a host: it sends and receives what its job says, and reports the outcome.

    python -m openmrc.run.lab.agent ADDRESS PORT JOB

It talks to the coordinator (`coordinator`) over the management network, in lines of
`verbs.exchange`, and to its peers over the fabric alone. Times are CLOCK_MONOTONIC, which all
processes of a machine share; in reports, picoseconds since the common start.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import select
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from openmrc import verbs
from openmrc.errors import OpenMrcError
from openmrc.run.lab.account import Account
from openmrc.say import say
from openmrc.verbs.line import FOREVER, TIMEOUT_S, Line, call

PS_PER_NS = 1000
SAMPLE_NS = 20_000_000  # between two samples of placed payload
TELL_NS = 100_000_000  # between two messages to the coordinator
ROWS_A_LINE = 4000  # rows of a report


def payload(seed: int, message: int, length: int) -> Any:
    """Return the bytes of a message; both ends know them."""
    return np.random.default_rng([seed, message]).integers(0, 256, length, np.uint8)


class Agent:
    """One host's part of a run."""

    def __init__(self, job: dict[str, Any], device: verbs.Device, line: Line) -> None:
        self._job, self._device, self._line = job, device, line
        depth = job["depth"]
        self._cq = device.create_cq(job["limits"]["cq_depth"])
        self._qps = {
            one["qp"]: device.create_qp(self._cq, None, depth, depth) for one in job["qps"]
        }
        self._sends_on = {one["qp"] for one in job["qps"] if one["sends"]}
        self._peer = {one["qp"]: one["peer"] for one in job["qps"]}
        self._mr = self._memory(job["sends"], True)
        self._inbox = self._memory(job["receives"], False)
        self._remote: dict[int, verbs.RemoteRegion] = {}
        self._row = {m: i for i, m in enumerate(job["sends"]["message"])}
        self._left = list(job["sends"]["releases"])
        n = len(self._row)
        self._start_ps, self._done_ps = [-1] * n, [-1] * n
        self._retransmitted, self._errors = [0] * n, [""] * n
        self._delivered_ps: dict[int, int] = {}
        self._counted = dict.fromkeys(self._qps, 0)  # retransmissions, up to the last completion
        self._waiting: dict[int, deque[int]] = {qp: deque() for qp in self._qps}
        self._posted = dict.fromkeys(self._qps, 0)
        self._due: list[tuple[int, int]] = []  # (ns since the start, row), a heap
        self._samples: list[tuple[int, int, int]] = []
        self._n_done = self._n_failed = 0
        self._account: Account | None = None  # since the start, if one is kept

    def _memory(self, messages: dict[str, list[int]], own: bool) -> verbs.MemoryRegion:
        """The bytes of all messages sent, or room for all received, with every page touched."""
        where = messages["from" if own else "to"]
        ends = [at + n for at, n in zip(where, messages["bytes"], strict=True)]
        buffer = np.empty(max(ends, default=0) + 64, np.uint8)
        buffer.fill(0)
        if own:
            for m, at, n in zip(messages["message"], where, messages["bytes"], strict=True):
                buffer[at : at + n] = payload(self._job["seed"], m, n)
        return self._device.reg_mr(buffer)

    # --- before the start --------------------------------------------------------------------

    def meet(self) -> None:
        """Send the attributes of the queue pairs to peers, receive theirs, connect."""
        self._line.send(
            {
                "nic": self._job["nic"],
                "qps": {qp: end.attributes.as_dict() for qp, end in self._qps.items()},
                "region": asdict(self._inbox.remote),
            }
        )
        told = self._line.receive()
        self._remote = {int(nic): verbs.RemoteRegion(**one) for nic, one in told["regions"].items()}
        for qp, end in self._qps.items():
            end.connect(verbs.QpAttributes(**told["qps"][str(qp)]))
        receives = self._job["receives"]
        told_on = list(zip(receives["qp"], receives["told"], strict=True))
        for qp, end in self._qps.items():
            n = sum(imm for at, imm in told_on if at == qp)
            for _ in range(min(n, self._job["depth"])):
                end.post_recv(qp)
        self._line.send({"connected": True})

    def measure(self) -> None:
        """In this host's turn, measure the idle round trip to its first peer."""
        self._line.receive()
        qp = min(self._qps)
        self._line.send({"rtt_us": self._qps[qp].measure_rtt()})

    # --- the run -----------------------------------------------------------------------------

    def run(self) -> None:
        """Run from the common start until the coordinator ends it."""
        self._start_ns = int(self._line.receive()["start_ns"])
        if self._job["limits"]["account"]:
            self._account = Account(self._device, self._qps, self._sends_on, self._start_ns)
        for row, releases in enumerate(self._left):
            if releases <= 0:
                self._schedule(row, 0, False)
        time.sleep(max(self._start_ns - time.monotonic_ns(), 0) / 1e9)
        tell_at = sample_at = 0
        while True:
            now = self._now_ns()
            if now >= sample_at:
                self._samples.append(self._sample(now))
                sample_at = (now // SAMPLE_NS + 1) * SAMPLE_NS
            if now >= tell_at:
                self._tell()
                tell_at = now + TELL_NS
            due = self._due[0][0] if self._due else sample_at
            wait_s = max(min(due, sample_at) - now, 0) / 1e9
            words = self._line.fileno()
            ready, _, _ = select.select([self._cq.fileno(), words], [], [], wait_s)
            if words in ready:
                self._line.receive()
                break
            while taken := self._cq.poll():
                for done in taken:
                    self._complete(done)
            self._post_due()
        self._samples.append(self._sample(self._now_ns()))

    def _now_ns(self) -> int:
        return time.monotonic_ns() - self._start_ns

    def _schedule(self, row: int, now: int, released: bool) -> None:
        sends = self._job["sends"]
        at = sends["start_ps"][row] // PS_PER_NS
        if released:
            at = max(at, now + sends["compute_ps"][row] // PS_PER_NS)
        heapq.heappush(self._due, (at, row))

    def _release(self, messages: Sequence[int], now: int) -> None:
        for m in messages:
            row = self._row[m]
            self._left[row] -= 1
            if self._left[row] == 0:
                self._schedule(row, now, True)

    def _post_due(self) -> None:
        now = self._now_ns()
        while self._due and self._due[0][0] <= now:
            _, row = heapq.heappop(self._due)
            self._start_ps[row] = self._now_ns() * PS_PER_NS
            qp = self._job["sends"]["qp"][row]
            self._waiting[qp].append(row)
            self._post(qp)

    def _post(self, qp: int) -> None:
        """Post waiting requests, as far as the queue has room."""
        sends, end, waiting = self._job["sends"], self._qps[qp], self._waiting[qp]
        there = self._remote[self._peer[qp]]
        while waiting and self._posted[qp] < self._job["depth"]:
            row = waiting.popleft()
            where = {
                "offset": sends["from"][row],
                "length": sends["bytes"][row],
                "remote_addr": there.addr + sends["to"][row],
                "rkey": there.rkey,
            }
            self._posted[qp] += 1
            if sends["told"][row]:
                end.post_write_imm(row, self._mr, imm_data=sends["message"][row], **where)
            else:
                end.post_write(row, self._mr, **where)

    def _complete(self, done: verbs.WorkCompletion) -> None:
        now = self._now_ns()
        if done.opcode == verbs.Opcode.RECV_RDMA_WITH_IMM:
            if done.status == verbs.Status.SUCCESS and done.imm_data is not None:
                self._received(done.wr_id, done.imm_data, now)
            return
        row = done.wr_id
        qp = self._job["sends"]["qp"][row]
        end = self._qps[qp]
        self._posted[qp] -= 1
        retransmitted = end.counters()["rtx"]
        self._retransmitted[row] = retransmitted - self._counted[qp]
        self._counted[qp] = retransmitted
        if done.status == verbs.Status.SUCCESS:
            self._done_ps[row] = now * PS_PER_NS
            self._n_done += 1
            message = self._job["sends"]["message"][row]
            self._release(self._job["on_sent"].get(str(message), ()), now)
        else:
            self._errors[row] = end.error or done.status.name
            self._n_failed += 1
        self._post(qp)

    def _received(self, qp: int, message: int, now: int) -> None:
        self._delivered_ps[message] = now * PS_PER_NS
        self._qps[qp].post_recv(qp)
        self._release(self._job["on_received"].get(str(message), ()), now)

    def _sample(self, now: int) -> tuple[int, int, int]:
        """Time, payload bytes placed here, packets retransmitted from here, so far."""
        if self._account is not None:
            self._account.take(now * PS_PER_NS)
        placed = again = 0
        for qp, end in self._qps.items():
            counted = end.counters()
            if qp in self._sends_on:
                again += counted["rtx"]
            else:
                placed += counted["rx_bytes"]
        return now * PS_PER_NS, placed, again

    def _tell(self) -> None:
        """Report progress; idle: nothing is posted, or will be at a known time."""
        idle = not self._due and not any(self._posted.values())
        self._line.send({"done": self._n_done, "failed": self._n_failed, "idle": idle})

    # --- afterwards --------------------------------------------------------------------------

    def report(self) -> None:
        """Send the whole report, in lines of limited length."""
        sends = self._job["sends"]["message"]
        columns = (sends, self._start_ps, self._done_ps, self._retransmitted, self._errors)
        self._rows("flows", list(zip(*columns, strict=True)))
        self._rows("received", list(self._verify()))
        self._rows("samples", self._samples)
        if self._account is not None:
            for name, rows in self._account.report().items():
                for first in range(0, len(rows), ROWS_A_LINE):
                    self._line.send({"account": {name: rows[first : first + ROWS_A_LINE]}})
        for qp, end in self._qps.items():
            one = {"qp": qp, "qpn": end.qp_num, "sends": qp in self._sends_on, "error": end.error}
            used = [ev for ev in end.evs() if ev["packets"]]
            told = ("ev", "narrow", "lost_bytes", "packets", "blamed")
            paths = [[ev[key] for key in told] for ev in used]
            known = {"paths": paths, "probe_bytes": self._device.probe_bytes}
            self._line.send({"qp": {**one, **known, **end.counters()}})
        self._line.send({"end": self._device.counters(), "astray": self._astray()})

    def _rows(self, name: str, rows: Sequence[Any]) -> None:
        for first in range(0, len(rows), ROWS_A_LINE):
            self._line.send({name: rows[first : first + ROWS_A_LINE]})

    def _verify(self) -> Iterator[tuple[int, int, bool]]:
        """For each message to this host: when its arrival was reported, and whether it is
        complete.
        """
        view = self._inbox.view
        receives = self._job["receives"]
        for m, at, n in zip(receives["message"], receives["to"], receives["bytes"], strict=True):
            here = view[at : at + n]
            whole = np.array_equal(here, payload(self._job["seed"], m, n))
            yield m, self._delivered_ps.get(m, -1), whole

    def _astray(self) -> int:
        """Bytes written between the messages; some packets for these may still be in flight."""
        view, receives, end, found = self._inbox.view, self._job["receives"], 0, 0
        for at, n in sorted(zip(receives["to"], receives["bytes"], strict=True)):
            found += int(np.count_nonzero(view[end:at]))
            end = at + n
        return found + int(np.count_nonzero(view[end:]))


def main(arguments: Sequence[str]) -> int:
    """Do the job in the file JOB for the coordinator at ADDRESS, PORT."""
    address, port, file = arguments
    job = json.loads(Path(file).read_text(encoding="utf-8"))
    secret = bytes.fromhex(os.environ["OPENMRC_SECRET"])
    until = time.monotonic() + TIMEOUT_S
    try:
        with (
            contextlib.closing(call(address, int(port), secret, until)) as line,
            verbs.Device.open(**job["limits"]) as device,
        ):
            line.until = FOREVER
            agent = Agent(job, device, line)
            agent.meet()
            agent.measure()
            agent.run()
            agent.report()
            line.receive()  # until all have reported, peers may still ask
    except (OpenMrcError, OSError) as error:
        say(f"agent: {error}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
