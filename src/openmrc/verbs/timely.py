"""An HTTP server that nobody can hold: every connection has a deadline, and a place to lose.

A thread serves each connection, and the TLS handshake is its work too, so a silent caller holds
none but its own. A request must be whole within `REQUEST_S`, however often a byte of it comes; then
the connection is cut, which ends the thread. Where there is no room for another, in the server or
in the process (descriptors), the one that has shown no right to be here for longest is cut first.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from openmrc.verbs.door import FULL, FULL_S

REQUEST_S = 10.0  # for the handshake and a whole request, or between two
ANSWER_S = 30.0  # for the answer to one whose caller may ask
OPEN_MAX = 256  # connections
LOOK_S = 0.1  # between two looks at the deadlines


class TimelyServer(ThreadingHTTPServer):
    """The server at `where`; handlers derive from `TimelyRequest`. With `tls` it is HTTPS."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        where: tuple[str, int],
        handler: type[TimelyRequest],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
        self._tls = tls
        self._guard = threading.Lock()
        # By connection, the oldest first: its deadline (None: it has none), whether it may ask.
        self._open: dict[socket.socket, tuple[float | None, bool]] = {}
        super().__init__(where, handler)

    def serve(self) -> None:
        """Serve until `shutdown`."""
        self.serve_forever(LOOK_S)

    def allow(self, connection: socket.socket, seconds: float | None, known: bool) -> None:
        """Give a connection so much time from now on; `known` says whether it may ask."""
        until = None if seconds is None else time.monotonic() + seconds
        with self._guard:
            if connection in self._open:
                self._open[connection] = until, known

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection, for which there is room then."""
        try:
            connection, address = super().get_request()
        except OSError as error:
            if error.errno in FULL and not self._make_room():
                time.sleep(FULL_S)
            raise
        if len(self._open) >= OPEN_MAX and not self._make_room():
            connection.close()
            raise OSError("no room")
        if self._tls is not None:
            try:
                connection = self._tls.wrap_socket(
                    connection, server_side=True, do_handshake_on_connect=False
                )
            except (OSError, ValueError) as error:  # it has left already
                connection.close()
                raise OSError(str(error)) from None
        with self._guard:
            self._open[connection] = time.monotonic() + REQUEST_S, False
        return connection, address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a thread for a connection, if there can be another."""
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, at its end."""
        with self._guard:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut the connections whose time is up."""
        now = time.monotonic()
        with self._guard:
            for connection, (until, _) in self._open.items():
                if until is not None and until <= now:
                    _cut(connection)

    def server_close(self) -> None:
        """Stop listening, and cut every connection."""
        super().server_close()
        with self._guard:
            for connection in self._open:
                _cut(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of connections: a caller may leave at any time."""

    def _make_room(self) -> bool:
        """Cut the oldest connection that has shown no right to be here; whether there was one."""
        with self._guard:
            for connection, (_, known) in self._open.items():
                if not known:
                    _cut(connection)
                    del self._open[connection]  # its thread closes it at once
                    return True
        return False


def _cut(connection: socket.socket) -> None:
    """End both directions, whichever thread uses them and whether or not TLS is above."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class TimelyRequest(BaseHTTPRequestHandler):
    """Requests of one connection."""

    server: TimelyServer
    server_version, sys_version = "openmrc", ""
    timeout = ANSWER_S  # of one write; the server's deadlines are the true ones

    def setup(self) -> None:
        """Shake hands first, if there is TLS."""
        super().setup()
        if isinstance(self.connection, ssl.SSLSocket):
            self.connection.do_handshake()

    def handle_one_request(self) -> None:
        """Serve one request, whose time begins now."""
        self.server.allow(self.connection, REQUEST_S, known=False)
        super().handle_one_request()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
