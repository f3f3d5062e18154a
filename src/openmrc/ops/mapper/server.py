"""The controller: agents connect to it, people and endpoints query it, and it only advises.

Two ports. Agents use the first (`words`), over connections that prove a secret as the exchange of
queue pairs does (`verbs.door`): the key of their NIC, with which an agent speaks for no other, or
the job's own secret, from which all keys follow. While an agent lives no other takes its place. The
second port is HTTP (`web`).

One thread owns the collector and the history; all others pass messages to it.
"""

from __future__ import annotations

import contextlib
import queue
import secrets as random
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from openmrc.errors import InputError, OpenMrcError
from openmrc.fabric import places as fabric_places
from openmrc.live.closing import Closing
from openmrc.ops import causes
from openmrc.ops.mapper import admission, metrics, words
from openmrc.ops.mapper.bursts import Count, Order
from openmrc.ops.mapper.collector import STALE_PS, Collector, Place, Said
from openmrc.ops.mapper.history import History, NoteRow, Row
from openmrc.ops.mapper.jobs import Jobs, reached
from openmrc.ops.mapper.page.data import of_history
from openmrc.ops.mapper.page.links import links
from openmrc.ops.mapper.web import Web
from openmrc.ops.schedule import Schedule
from openmrc.units import US, S
from openmrc.verbs import denylist
from openmrc.verbs import secret as secrets
from openmrc.verbs.denylist import Denylist, Entry
from openmrc.verbs.door import Door
from openmrc.verbs.line import FOREVER, PROOF_S, REFUSED, STRANGE, ExchangeError, Line

TICK_S = 0.1
IDLE_S = 1.0  # between two ticks while there is nothing to judge
RESTS = 0.5  # pause between two judgements, in multiples of the time that one takes
MAKE_AGAIN_S = 10.0  # interval at which the denylist is rewritten, so that it stays fresh
AGENTS_MAX = 1 << 17
END_S = 1.0  # for a judgement that is under way, at the end
PAGE_US = 86_400 * 10**6  # part of the history that the page shows
STREAMS_MAX = 64  # browsers that receive events
OPERATOR = "operator"  # who may do this has the token, and no other name
OPERATOR_S_MAX = 30 * 86_400
SAID_MAX = 4096  # messages of agents that wait for the collector
DENIED_RATE_MIN = 0.001  # a place that loses less stays in service
CLOSED: dict[str, Any] = {}  # queued when a connection ends
NOTHING = (-1, None)  # queued to end a wait


class Controller(Closing):
    """Collects agents' reports and answers requests, on threads of its own, until it is closed."""

    def __init__(
        self,
        schedule: Schedule,
        secret: bytes,
        history: History,
        port: int = 0,
        http_port: int = 0,
        host: str = "",
        tls: ssl.SSLContext | None = None,
        say: Callable[[str], None] = lambda _: None,
        title: str = "fabric",
    ) -> None:
        self._title = title
        self.failure: Exception | None = None  # the error that ended the judging, if there was one
        self._schedule, self._history, self._say = schedule, history, say
        self._secret = secrets.check(secret)
        self._zero_ns = time.monotonic_ns()
        self._zero_us = time.time_ns() // 1000
        self._collector = Collector(schedule, 0, random.randbelow(words.NUMBER_MAX // 2))
        self._inbox: queue.Queue[tuple[int, Any]] = queue.Queue(SAID_MAX)
        self._lines: dict[int, Line] = {}
        self._down: dict[int, tuple[int, ...]] = {}
        self._periods: dict[int, int] = {}
        self._keys: dict[int, int] = {}  # of places in the history, by cause
        self._streams: list[queue.Queue[bytes]] = []
        self._own: list[Entry] = []
        self._jobs = Jobs(schedule.fabric)
        self._recent: deque[dict[str, Any]] = deque(maxlen=1000)
        before = history.last_denylist()
        kept = (
            Denylist() if before is None else denylist.read(schedule.fabric, before)
        )  # the entries of the last controller are no longer maintained
        self._denylist = Denylist(kept.version).changed([], self._now_us())
        self._made_s = 0.0
        self._lock = threading.Lock()
        history.close_open()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server = socket.create_server((host, port), family=family)
        self.port = int(server.getsockname()[1])
        self._door = Door(server, self._secret_for)
        try:
            self._http = Web((host, http_port), self, secrets.token(secret), tls)
        except OSError:
            self._door.close()
            raise
        self.http_port = int(self._http.server_address[1])
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True)
            for work in (self._accept, self._work, self._http.serve)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the threads, and close all connections, whatever these wait for."""
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._threads[0].join()
        self._door.close()
        for line in tuple(self._lines.values()):
            line.close()
        with contextlib.suppress(queue.Full):
            self._inbox.put_nowait(NOTHING)
        self._threads[1].join(END_S)
        if not self._threads[1].is_alive():
            self._keep_jobs(self._now_us())

    # --- requests

    def state(self) -> dict[str, Any]:
        """Return the current state."""
        with self._lock:
            now_ps = self._now_ps()
            return {
                "now_us": self._now_us(),
                "agents": sorted(self._collector.heard_ps),
                "silent": self._collector.silent(now_ps),
                "places": [self._shown(place) for place in self._collector.places.values()],
                "denylist": self._denylist.version,
            }

    def denied(self) -> dict[str, Any]:
        """Return the denylist."""
        with self._lock:
            return self._denylist.as_json()

    def deny(self, where: Any, reason: Any, for_s: Any) -> dict[str, Any]:
        """Add an operator's own entry, in place of that of the same place; with 0 s withdraw it."""
        now_us = self._now_us()
        if isinstance(for_s, bool) or not isinstance(for_s, (int, float)):
            raise InputError("for_s: seconds are accepted")
        if not 0 <= for_s <= OPERATOR_S_MAX:
            raise InputError(f"for_s: {for_s!r:.40}: up to {OPERATOR_S_MAX} s are accepted")
        row = {
            "where": where,
            "reason": reason,
            "source": OPERATOR,
            "since_us": now_us,
            "until_us": now_us + round(for_s * 1e6),
        }
        entry = denylist.entry(self._schedule.fabric, row)
        with self._lock:
            own = [one for one in self._own if one.where != entry.where]
            if len(own) >= denylist.ENTRIES_MAX // 2:
                raise InputError("denylist: it is full")
            if for_s or len(own) < len(self._own):
                self._write_down("denied" if for_s else "lifted", entry.where, entry.reason)
            self._own = [*own, entry] if for_s else own
            self._make_denylist(now_us)
            return self._denylist.as_json()

    def note(self, where: Any, text: Any) -> dict[str, Any]:
        """Record that an operator knows of a place, and what there is to say of it."""
        if not isinstance(text, str) or len(text) > denylist.WORDS_MAX:
            raise InputError(f"text: up to {denylist.WORDS_MAX} characters are accepted")
        if not isinstance(where, str) or not 0 < len(where) <= denylist.WORDS_MAX:
            raise InputError(f"where: 1 to {denylist.WORDS_MAX} characters are accepted")
        try:
            links(self._schedule.fabric, where)
        except InputError as error:
            raise error.at(f"where = {where!r}") from None
        with self._lock:
            return self._write_down("acknowledged", where, text)._asdict()

    def _write_down(self, what: str, where: str, text: str) -> NoteRow:
        row = NoteRow(self._now_us(), OPERATOR, what, where, text)
        self._history.note(row)
        self._tell_streams()
        return row

    def admit(self, text: str) -> list[dict[str, Any]]:
        """Return whether these NICs' nodes are fit for a job."""
        fabric = self._schedule.fabric
        nics = fabric_places.nics(fabric, text).tolist()
        with self._lock:
            now_ps = self._now_ps()
            silent = set(self._collector.silent(now_ps))
            places: list[Place] = list(self._collector.places.values())
            found = [
                admission.judge(
                    fabric,
                    admission.Known(
                        nic, nic not in silent, self._periods.get(nic, 0), self._down.get(nic, ())
                    ),
                    places,
                )
                for nic in nics
            ]
            told = [asdict(one) for one in found]
            self._history.admission(self._now_us(), told)
        return told

    def past(self, since_us: int, until_us: int | None) -> dict[str, Any]:
        """Return what lost probes in this time."""
        with self._lock:
            rows = self._history.places(since_us, until_us)
        return {"places": [row._asdict() for row in rows]}

    def metrics(self, content_type: str) -> str:
        """Return the body of an answer to Prometheus."""
        with self._lock:
            day = self._history.places(self._now_us() - PAGE_US)
        return metrics.text(self.state(), day, content_type)

    def hear_job(self, row: dict[str, Any]) -> dict[str, Any]:
        """Process the counts of a job's device."""
        with self._lock:
            self._jobs.hear(self._now_us(), row)
        return {"heard": True}

    def jobs(self) -> dict[str, Any]:
        """Return the jobs of the last day, and the places that may have affected each."""
        with self._lock:
            since_us = self._now_us() - PAGE_US
            self._keep_jobs(self._now_us())
            rows, jobs = self._history.places(since_us), self._history.jobs(since_us)
        fabric = self._schedule.fabric
        return {"jobs": [one._asdict() | {"places": reached(fabric, one, rows)} for one in jobs]}

    def page(self) -> dict[str, Any]:
        """Return the content of the page."""
        with self._lock:
            now_us = self._now_us()
            self._keep_jobs(now_us)
            jobs = self._history.jobs(now_us - PAGE_US)
            rows = self._history.places(now_us - PAGE_US)
            notes = self._history.notes(now_us - PAGE_US)
            silent = self._collector.silent(self._now_ps())
            denied = self._denylist.as_json()
        content = of_history(self._schedule.fabric, rows, now_us, self._title, jobs, notes)
        return content | {"live": True, "silent": silent, "denylist": denied["entries"]}

    def listen(self) -> queue.Queue[bytes] | None:
        """Return a queue that gets the state after every change; None if there are too many."""
        with self._lock:
            if len(self._streams) >= STREAMS_MAX:
                return None
            stream: queue.Queue[bytes] = queue.Queue(16)
            self._streams.append(stream)
        return stream

    def leave(self, stream: queue.Queue[bytes]) -> None:
        """Remove such a queue."""
        with self._lock:
            self._streams.remove(stream)

    # --- agents

    def _secret_for(self, hello: dict[str, Any]) -> bytes:
        """The key of the NIC that a caller names, or the job's secret if it names none."""
        if (nic := hello.get("nic")) is None:
            return self._secret
        if type(nic) is not int or not 0 <= nic < self._schedule.fabric.n_nics:
            raise ExchangeError(STRANGE)
        return secrets.of_agent(self._secret, nic)

    def _accept(self) -> None:
        while not self._closing.is_set():
            line = self._door.next(time.monotonic() + TICK_S)
            if line is None:
                continue
            line.until = time.monotonic() + PROOF_S  # to join
            try:
                threading.Thread(target=self._serve, args=(line,), daemon=True).start()
            except RuntimeError:  # no more threads
                line.close()

    def _serve(self, line: Line) -> None:
        """Serve one agent until it leaves or sends an invalid message."""
        nic = -1
        try:
            nic = self._greet(line)
            while nic >= 0:
                self._inbox.put((nic, words.read(line.receive_patiently(), self._schedule, nic)))
        except OpenMrcError:
            pass
        finally:
            line.close()
            if nic >= 0:
                self._inbox.put((nic, (CLOSED, line)))

    def _greet(self, line: Line) -> int:
        """Let an agent join; returns its NIC, or -1 if it is refused."""
        try:
            nic = words.read_join(line.receive(), self._schedule)
            if line.hello.get("nic", nic) != nic:
                raise InputError(f"nic {nic}: the key is that of nic {line.hello['nic']}")
            self._join(nic, line)
        except InputError as error:
            line.send({REFUSED: str(error)})
            return -1
        line.until = FOREVER
        line.send({"welcome": 1})
        return nic

    def _join(self, nic: int, line: Line) -> None:
        with self._lock:
            now_ps, before = self._now_ps(), self._lines.get(nic)
            if before is not None and not before.closed and self._collector.hears(now_ps, nic):
                raise InputError(
                    f"nic {nic}: its agent is connected; end that one, or wait until it has said"
                    f" nothing for {STALE_PS // S} s"
                )
            if before is None and len(self._lines) >= AGENTS_MAX:
                raise InputError(f"nic {nic}: {AGENTS_MAX} agents are connected already")
            if before is not None:
                before.close()
            self._lines[nic] = line
            self._periods[nic] = 0
            self._collector.join(now_ps, nic)
            self._history.agent(nic, self._now_us(), True)
            self._tell_streams()

    def _work(self) -> None:
        try:
            self._judge_until_closed()
        except Exception as error:  # the process ends then, instead of serving nothing
            self.failure = error

    def _judge_until_closed(self) -> None:
        rested = 0.0
        while not self._closing.is_set():
            said = self._waiting()
            with self._lock:
                for nic, what in said:
                    self._take(nic, what)
                began = time.monotonic()
                if began < rested:
                    continue
                self._carry_out(self._collector.tick(self._now_ps()))
                if began - self._made_s > MAKE_AGAIN_S:
                    self._make_denylist(self._now_us())
                    self._keep_jobs(self._now_us())
                    self._history.forget(self._now_us())
            now = time.monotonic()
            rested = now + RESTS * (now - began)

    def _waiting(self) -> list[tuple[int, Any]]:
        """All queued messages, as soon as there are any, or none after a while."""
        found = []
        wait_s = IDLE_S if self._collector.idle else 0.001 if self._collector.waits else TICK_S
        try:
            found.append(self._inbox.get(timeout=wait_s))
            while True:
                found.append(self._inbox.get_nowait())
        except queue.Empty:
            return found

    def _take(self, nic: int, what: Any) -> None:
        now_ps = self._now_ps()
        if isinstance(what, tuple) and what[0] is CLOSED:
            if self._lines.get(nic) is what[1]:
                del self._lines[nic]
                self._collector.leave(nic)
                self._history.agent(nic, self._now_us(), False)
                self._say(f"nic {nic}: its agent is gone")
                self._tell_streams()
        elif isinstance(what, words.Counted):
            self._collector.bursts.counted(now_ps, nic, what.report)
        elif isinstance(what, words.Reported):
            if self._down.get(nic, ()) != what.down:
                self._down[nic] = what.down
                self._say(f"nic {nic}: ports down on planes {list(what.down)}")
            self._periods[nic] = self._periods.get(nic, 0) + what.report.periods
            self._order(self._collector.hear(now_ps, nic, what.report, what.down))

    def _order(self, orders: Sequence[Order | Count]) -> None:
        of_nic: dict[int, list[dict[str, Any]]] = {}
        for order in orders:
            message = words.ordered(order)
            for nic in order.to:
                of_nic.setdefault(nic, []).append(message)
        for nic, messages in of_nic.items():
            if (line := self._lines.get(nic)) is None:
                continue
            try:
                line.send(*messages)
            except ExchangeError:
                line.close()  # its thread does the rest

    def _carry_out(self, said: Said) -> None:
        self._order(said.orders)
        for place in said.changed:
            key = self._history.place(self._keys.get(place.cause), self._row(place))
            self._keys[place.cause] = key
            shown = self._shown(place)
            self._recent.append(shown)
            self._say(_sentence(place))
            if place.until_ps is not None:
                del self._keys[place.cause]
        if said.changed:
            self._make_denylist(self._now_us())
            self._tell_streams()

    # --- answers

    def _keep_jobs(self, now_us: int) -> None:
        for row in (*self._jobs.over(now_us), *self._jobs.rows()):
            self._history.job(row)

    def _make_denylist(self, now_us: int) -> None:
        self._made_s = time.monotonic()
        for cause, key in self._keys.items():  # how much they lost since they were named
            if cause in self._collector.places:
                self._history.place(key, self._row(self._collector.places[cause]))
        self._own = [one for one in self._own if one.until_us is None or one.until_us > now_us]
        found = [
            Entry(
                place.where,
                self._us(place.since_ps),
                None,
                f"loses {100 * place.rate:.2g} % of probes",
                "mapper",
            )
            for place in self._collector.places.values()
            if place.rate >= DENIED_RATE_MIN and place.kind != causes.NIC  # whom no path avoids
        ]
        made = self._denylist.changed([*found, *self._own], now_us)
        if len(made.entries) > denylist.ENTRIES_MAX:
            return
        if made.version != self._denylist.version:
            self._history.denylist(made.as_json())
        self._denylist = made

    def _tell_streams(self) -> None:
        for stream in self._streams:
            if not stream.full():
                stream.put_nowait(b"changed")

    def _row(self, place: Place) -> Row:
        until_us = None if place.until_ps is None else self._us(place.until_ps)
        return Row(
            place.where, place.kind, self._us(place.since_ps), self._us(place.last_ps), until_us,
            self._us(place.named_ps), place.rate, place.lost, place.crossed, place.nats,
            int(place.withdrawn),
        )  # fmt: skip

    def _shown(self, place: Place) -> dict[str, Any]:
        return self._row(place)._asdict()

    def _us(self, at_ps: int) -> int:
        return self._zero_us + at_ps // US

    def _now_ps(self) -> int:
        return (time.monotonic_ns() - self._zero_ns) * 1000

    def _now_us(self) -> int:
        return self._us(self._now_ps())


def _sentence(place: Place) -> str:
    if place.withdrawn:
        return f"{place.where}: blamed no more, what it is part of is"
    if place.until_ps is not None:
        return f"{place.where}: loses nothing any more"
    how = "lets nothing through" if place.rate > 0.99 else f"loses {100 * place.rate:.2g} %"
    return f"{place.where}: {how}, found {(place.named_ps - place.since_ps) / 1e9:.0f} ms after"
