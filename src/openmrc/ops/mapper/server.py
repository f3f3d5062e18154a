"""The controller: agents connect to it, people and endpoints query it, and it only advises.

Two ports. Agents use the first (`words`), over connections that prove the job's secret as the
exchange of queue pairs does. The second is HTTP: every request carries a token derived from the
secret, as `Authorization: Bearer TOKEN` or, for a browser, as `?token=`; with a certificate it is
HTTPS.

    GET  /denylist                      the document of `denylist`
    POST /denylist                      {"where", "reason", "for_s"}: an operator's own entry
    GET  /state                         what loses probes now, and whose agents are silent
    GET  /history?since_us=&until_us=   what lost probes
    GET  /jobs                          which jobs run or ran, and what each lost
    POST /jobs                          what a job's device has counted (`jobs`)
    GET  /admission?nics=0-7            which nodes are fit for a job, and why others are not
    GET  /                              the page (`page`); /page.json is what it shows
    GET  /events                        the state, again after every change (server-sent events)

One thread owns the collector and the history; all others pass messages to it.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import queue
import secrets
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from openmrc.errors import InputError, OpenMrcError
from openmrc.fabric import places as fabric_places
from openmrc.live.closing import Closing
from openmrc.ops.mapper import admission, words
from openmrc.ops.mapper.collector import Collector, Count, Order, Place, Said
from openmrc.ops.mapper.history import History, Row
from openmrc.ops.mapper.jobs import Jobs, reached
from openmrc.ops.mapper.page.data import of_history
from openmrc.ops.mapper.page.html import html
from openmrc.ops.schedule import Schedule
from openmrc.units import US
from openmrc.verbs import denylist
from openmrc.verbs.denylist import Denylist, Entry, token
from openmrc.verbs.exchange import SERVER, Line

TICK_S = 0.1
IDLE_S = 1.0  # between two ticks while there is nothing to judge
RESTS = 0.5  # pause between two judgements, in multiples of the time that one takes
MAKE_AGAIN_S = 10.0  # interval at which the denylist is rewritten, so that it stays fresh
AGENTS_MAX = 1 << 17
STRANGERS_MAX = 1024  # connections that have not joined yet
BODY_MAX = 1 << 16
PAGE_US = 86_400 * 10**6  # part of the history that the page shows
STREAMS_MAX = 64  # browsers that receive events
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
        self._schedule, self._secret, self._history, self._say = schedule, secret, history, say
        self._zero_ns = time.monotonic_ns()
        self._zero_us = time.time_ns() // 1000
        self._collector = Collector(schedule, 0, secrets.randbelow(words.NUMBER_MAX // 2))
        self._inbox: queue.Queue[tuple[int, Any]] = queue.Queue(SAID_MAX)
        self._lines: dict[int, Line] = {}
        self._strangers = threading.Semaphore(STRANGERS_MAX)
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
        self._server = socket.create_server((host, port), family=family)
        self.port = int(self._server.getsockname()[1])
        self._http = _Server((host, http_port), self, token(secret), family)
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self.http_port = int(self._http.server_address[1])
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True)
            for work in (self._accept, self._work, self._http.serve_forever)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the threads, and close connections and history."""
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._server.close()
        with self._lock:
            for line in self._lines.values():
                line.close()
        with contextlib.suppress(queue.Full):
            self._inbox.put_nowait(NOTHING)
        self._threads[1].join()
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
        """Add an operator's own entry."""
        now_us = self._now_us()
        if isinstance(for_s, bool) or not isinstance(for_s, (int, float)):
            raise InputError("for_s: seconds are accepted")
        if not 0 < for_s <= OPERATOR_S_MAX:
            raise InputError(f"for_s: {for_s!r:.40}: up to {OPERATOR_S_MAX} s are accepted")
        row = {
            "where": where,
            "reason": reason,
            "source": "operator",
            "since_us": now_us,
            "until_us": now_us + round(for_s * 1e6),
        }
        entry = denylist.entry(self._schedule.fabric, row)
        with self._lock:
            if len(self._own) >= denylist.ENTRIES_MAX // 2:
                raise InputError("denylist: it is full")
            self._own.append(entry)
            self._make_denylist(now_us)
            return self._denylist.as_json()

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
            silent = self._collector.silent(self._now_ps())
        content = of_history(self._schedule.fabric, rows, now_us, self._title, jobs)
        return content | {"live": True, "silent": silent}

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

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._server.accept()
            except OSError:  # closed; or out of descriptors, which others give back
                self._closing.wait(TICK_S)
                continue
            if len(self._lines) >= AGENTS_MAX or not self._strangers.acquire(blocking=False):
                connection.close()
                continue
            try:
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            except RuntimeError:  # no more threads
                self._strangers.release()
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        """Serve one agent until it leaves or sends an invalid message."""
        line, nic = Line(connection), -1
        try:
            try:
                nic = self._greet(line)
            finally:
                self._strangers.release()
            while nic >= 0:
                self._inbox.put((nic, words.read(line.receive_patiently(), self._schedule)))
        except (OSError, ValueError, OpenMrcError):
            pass
        finally:
            line.close()
            if nic >= 0:
                self._inbox.put((nic, (CLOSED, line)))

    def _greet(self, line: Line) -> int:
        """Let an agent prove the secret, and join; returns its NIC, or -1 if it is refused."""
        line.authenticate(self._secret, SERVER)
        try:
            nic = words.read_join(line.receive(), self._schedule)
        except InputError as error:
            line.send({"refused": str(error)})
            return -1
        line.send({"welcome": 1})
        self._inbox.put((nic, line))
        return nic

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
        if isinstance(what, Line):
            self._lines[nic] = what
            self._periods[nic] = 0
            self._collector.join(now_ps, nic)
            self._history.agent(nic, self._now_us(), True)
            self._tell_streams()
        elif isinstance(what, tuple) and what[0] is CLOSED:
            if self._lines.get(nic) is what[1]:
                del self._lines[nic]
                self._collector.leave(nic)
                self._history.agent(nic, self._now_us(), False)
                self._say(f"nic {nic}: its agent is gone")
                self._tell_streams()
        elif isinstance(what, words.Counted):
            self._collector.counted(now_ps, nic, what.report)
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
            except (OSError, ValueError):
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
            if place.rate >= DENIED_RATE_MIN
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


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, where: tuple[str, int], controller: Controller, token_: str, family: int
    ) -> None:
        self.address_family = family
        self.controller, self.token = controller, token_
        super().__init__(where, _Request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of connections: a browser may leave at any time."""


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    server_version, sys_version = "openmrc", ""

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def _answer(self, method: str) -> None:
        server = cast(_Server, self.server)
        try:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query, max_num_fields=16)
        except ValueError:
            return self._send(400, {"error": "no address"})
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        given = given or query.get("token", [""])[0]
        if not hmac.compare_digest(given.encode(), server.token.encode()):
            return self._send(401, {"error": "the token does not follow from the job's secret"})
        try:
            self._do(server.controller, method, parts.path, query)
        except InputError as error:
            self._send(400, {"error": str(error)})
        return None

    def _do(
        self, controller: Controller, method: str, path: str, query: dict[str, list[str]]
    ) -> None:
        def number(key: str, default: int | None) -> int | None:
            text = query.get(key, [""])[0]
            if not text:
                return default
            if not text.isascii() or not text.isdigit() or len(text) > 18:
                raise InputError(f"{key}: a whole number is accepted")
            return int(text)

        if (method, path) == ("POST", "/denylist"):
            row = self._body()
            found = controller.deny(row.get("where"), row.get("reason"), row.get("for_s"))
            return self._send(200, found)
        if (method, path) == ("POST", "/jobs"):
            return self._send(200, controller.hear_job(self._body()))
        if method != "GET":
            return self._send(405, {"error": "GET is accepted"})
        if path == "/denylist":
            return self._send(200, controller.denied())
        if path == "/state":
            return self._send(200, controller.state())
        if path == "/history":
            since_us = number("since_us", 0) or 0
            return self._send(200, controller.past(since_us, number("until_us", None)))
        if path == "/jobs":
            return self._send(200, controller.jobs())
        if path == "/admission":
            return self._send(200, controller.admit(query.get("nics", ["*"])[0]))
        if path == "/events":
            return self._stream(controller)
        if path == "/page.json":
            return self._send(200, controller.page())
        if path == "/":
            return self._write("text/html; charset=utf-8", html(controller.page()).encode())
        return self._send(404, {"error": "there is no such page"})

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        is_number = length.isascii() and length.isdigit() and len(length) < 10
        if not is_number or int(length) > BODY_MAX:
            self.close_connection = True
            raise InputError(f"a body of up to {BODY_MAX} bytes is accepted")
        try:
            row = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise InputError("the body is no JSON") from None
        if not isinstance(row, dict):
            raise InputError("the body: an object of JSON is accepted")
        return row

    def _send(self, status: int, content: Any) -> None:
        self._write("application/json", json.dumps(content).encode(), status)

    def _write(self, kind: str, data: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, controller: Controller) -> None:
        stream = controller.listen()
        if stream is None:
            return self._send(503, {"error": f"{STREAMS_MAX} listen already"})
        try:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.close_connection = True
            while True:
                self.wfile.write(f"data: {json.dumps(controller.state())}\n\n".encode())
                self.wfile.flush()
                try:
                    stream.get(timeout=5)
                except queue.Empty:
                    continue
        except OSError:
            pass
        finally:
            controller.leave(stream)
        return None
