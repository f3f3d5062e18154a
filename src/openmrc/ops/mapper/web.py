"""The controller's HTTP: the page for people, JSON for programs, and who may ask.

Every request carries the token that follows from the job's secret, as `Authorization: Bearer
TOKEN`; for a browser, the page asks for it once and keeps it in a cookie, which only reads. An
address never carries it: addresses are written to logs and histories.

    GET  /denylist                      the document of `denylist`
    POST /denylist                      {"where", "reason", "for_s"}: an operator's entry; 0: none
    POST /notes                         {"where", "text"}: an operator knows of it
    GET  /state                         what loses probes now, and whose agents are silent
    GET  /history?since_us=&until_us=   what lost probes
    GET  /metrics                       the same for Prometheus (`metrics`)
    GET  /jobs                          which jobs run or ran, and what each lost
    POST /jobs                          what a job's device has counted (`jobs`)
    GET  /admission?nics=0-7            which nodes are fit for a job, and why others are not
    GET  /                              the page (`page`); /page.json is what it shows
    GET  /events                        the state, again after every change (server-sent events)
    POST /login                         the page's form: a token for a cookie
"""

from __future__ import annotations

import hmac
import json
import queue
import ssl
from typing import Any, Protocol, cast
from urllib.parse import parse_qs, urlsplit

from openmrc.errors import InputError
from openmrc.ops.mapper.page.html import html, login
from openmrc.verbs.exposition import negotiated
from openmrc.verbs.timely import ANSWER_S, TimelyRequest, TimelyServer

BODY_MAX = 1 << 16
FIELDS_MAX = 16
STREAM_S = 5.0  # between two events without a change
HTML = "text/html; charset=utf-8"
NO_TOKEN = "the token does not follow from the job's secret; mrc secret --token prints it"
IN_ADDRESS = (
    "a token in an address is written to logs and histories, and is not accepted: send it as"
    " Authorization: Bearer TOKEN, or log in at /"
)


class Asked(Protocol):
    """A controller (`server`), as far as requests ask it."""

    def denied(self) -> dict[str, Any]:
        """The denylist."""

    def deny(self, where: Any, reason: Any, for_s: Any) -> dict[str, Any]:
        """Add an operator's own entry, and return the denylist."""

    def note(self, where: Any, text: Any) -> dict[str, Any]:
        """Record that an operator knows of a place."""

    def state(self) -> dict[str, Any]:
        """The current state."""

    def past(self, since_us: int, until_us: int | None) -> dict[str, Any]:
        """What lost probes in this time."""

    def metrics(self, content_type: str) -> str:
        """The body of an answer to Prometheus."""

    def jobs(self) -> dict[str, Any]:
        """The jobs of the last day."""

    def hear_job(self, row: dict[str, Any]) -> dict[str, Any]:
        """Process the counts of a job's device."""

    def admit(self, text: str) -> list[dict[str, Any]]:
        """Whether these NICs' nodes are fit for a job."""

    def page(self) -> dict[str, Any]:
        """The content of the page."""

    def listen(self) -> queue.Queue[bytes] | None:
        """A queue that gets a word after every change; None if there are too many."""

    def leave(self, stream: queue.Queue[bytes]) -> None:
        """Remove such a queue."""


class Web(TimelyServer):
    """The HTTP server of a controller."""

    def __init__(
        self,
        where: tuple[str, int],
        controller: Asked,
        token: str,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.controller, self.token, self.is_secure = controller, token, tls is not None
        super().__init__(where, _Request, tls)

    @property
    def cookie(self) -> str:
        """The name of the cookie: a host's ports share all cookies."""
        return f"openmrc-{self.server_address[1]}"


class _Request(TimelyRequest):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # noqa: N802  # named by http.server
        self._answer("GET")

    def do_POST(self) -> None:  # noqa: N802  # named by http.server
        self._answer("POST")

    def _answer(self, method: str) -> None:
        server = cast(Web, self.server)
        try:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query, max_num_fields=FIELDS_MAX)
        except ValueError:
            return self._refuse(400, "no address")
        if "token" in query:
            return self._refuse(400, IN_ADDRESS)
        try:
            if (method, parts.path) == ("POST", "/login"):
                return self._login(server)
            if not self._is_token(self._given(method)):
                is_browser = "Authorization" not in self.headers
                if is_browser and (method, parts.path) == ("GET", "/"):
                    return self._write(HTML, login().encode(), 401)
                return self._refuse(401, NO_TOKEN)
            server.allow(self.connection, ANSWER_S, known=True)
            self._do(server.controller, method, parts.path, query)
        except InputError as error:
            self._send(400, {"error": str(error)})
        return None

    def _given(self, method: str) -> str:
        """The token of this request. A cookie only reads: another page could make a browser send
        it.
        """
        name = cast(Web, self.server).cookie
        if (header := self.headers.get("Authorization")) is not None or method != "GET":
            return (header or "").removeprefix("Bearer ").strip()
        for one in self.headers.get("Cookie", "").split(";"):
            key, _, value = one.strip().partition("=")
            if key == name:
                return value
        return ""

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), cast(Web, self.server).token.encode())

    def _login(self, server: Web) -> None:
        """Exchange the token of the page's form for a cookie."""
        try:
            form = parse_qs(self._content().decode(), max_num_fields=FIELDS_MAX)
        except ValueError:
            raise InputError("the body: a form is accepted") from None
        given = form.get("token", [""])[0].strip()
        if not self._is_token(given):
            return self._write(HTML, login(NO_TOKEN).encode(), 401)
        secure = "; Secure" if server.is_secure else ""
        cookie = f"{server.cookie}={server.token}; HttpOnly; SameSite=Strict; Path=/{secure}"
        return self._write(HTML, b"", 303, {"Set-Cookie": cookie, "Location": "/"})

    def _do(self, controller: Asked, method: str, path: str, query: dict[str, list[str]]) -> None:
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
        if (method, path) == ("POST", "/notes"):
            row = self._body()
            return self._send(200, controller.note(row.get("where"), row.get("text")))
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
        if path == "/metrics":
            kind = negotiated(self.headers.get("Accept", ""))
            return self._write(kind, controller.metrics(kind).encode())
        if path == "/events":
            return self._stream(controller)
        if path == "/page.json":
            return self._send(200, controller.page())
        if path == "/":
            return self._write(HTML, html(controller.page()).encode())
        return self._send(404, {"error": "there is no such page"})

    def _content(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        is_number = length.isascii() and length.isdigit() and len(length) < 10
        if not is_number or int(length) > BODY_MAX:
            self.close_connection = True
            raise InputError(f"a body of up to {BODY_MAX} bytes is accepted")
        return self.rfile.read(int(length))

    def _body(self) -> dict[str, Any]:
        try:
            row = json.loads(self._content())
        except (ValueError, RecursionError):
            raise InputError("the body is no JSON") from None
        if not isinstance(row, dict):
            raise InputError("the body: an object of JSON is accepted")
        return row

    def _refuse(self, status: int, why: str) -> None:
        """Answer a caller of whom nothing more is heard: its body, if any, is not read."""
        self.close_connection = True
        self._send(status, {"error": why})

    def _send(self, status: int, content: Any) -> None:
        self._write("application/json", json.dumps(content).encode(), status)

    def _write(
        self, kind: str, data: bytes, status: int = 200, more: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": len(data), "Cache-Control": "no-store"}
        if self.close_connection:
            headers["Connection"] = "close"
        for name, value in (headers | (more or {})).items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, controller: Asked) -> None:
        stream = controller.listen()
        if stream is None:
            return self._send(503, {"error": "too many listen already"})
        try:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.close_connection = True
            self.server.allow(self.connection, None, known=True)
            while True:
                self.wfile.write(f"data: {json.dumps(controller.state())}\n\n".encode())
                self.wfile.flush()
                try:
                    stream.get(timeout=STREAM_S)
                except queue.Empty:
                    continue
        except OSError:
            pass
        finally:
            controller.leave(stream)
        return None
