"""The process on two hosts for TCP and MPTCP: rank 0 sends as fast as it can, rank 1 reads.

    python -m openmrc.bench.lab.stream PROTOCOL CONGESTION ADDRESS SECONDS LOOK_AT

PROTOCOL is tcp or mptcp, CONGESTION a congestion control of the kernel or "default"; ADDRESS is
rank 1's. Each prints lines of JSON: rank 0 `started` (ns of CLOCK_MONOTONIC) and, LOOK_AT seconds
later, the kernel's report on the connection; rank 1 at the end the curve of what it has read.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any

PROTOCOLS = {"tcp": socket.IPPROTO_TCP, "mptcp": 262}  # IPPROTO_MPTCP
PORT = 7480
ROOM_BYTES = 1 << 18
SAMPLE_NS = 2_000_000  # between two points of the curve, at least
PATIENCE_S = 20.0
LOOK_S = 0.2  # timeout of a send that waits for room
SOL_MPTCP, MPTCP_INFO, MPTCP_INFO_BYTES = 284, 1, 16
FALLBACK = 1  # of struct mptcp_info's flags: it is plain TCP after all
SUBFLOWS_MAX = 8
NAME_BYTES = 16
POINTS_A_LINE = 1000
NS_PER_S = 1_000_000_000


def say(**what: Any) -> None:
    """Print one line of JSON."""
    print(json.dumps(what), flush=True)


def say_curve(name: str, points: Sequence[tuple[int, int]]) -> None:
    """Print lines of JSON short enough for a lab to pass on whole."""
    for first in range(0, len(points), POINTS_A_LINE):
        say(**{name: points[first : first + POINTS_A_LINE]})


def read(protocol: int) -> None:
    """Accept one connection and read it to its end."""
    room, total, curve = bytearray(ROOM_BYTES), 0, list[tuple[int, int]]()
    # It listens to the end: further subflows of MPTCP arrive as connections do.
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM, protocol) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("::", PORT))
        server.listen(SUBFLOWS_MAX)
        server.settimeout(PATIENCE_S)
        connection, _ = server.accept()
        with connection:
            connection.settimeout(PATIENCE_S)
            got = -1
            while got:
                got = connection.recv_into(room)
                now, total = time.monotonic_ns(), total + max(got, 0)
                if not curve or now - curve[-1][0] >= SAMPLE_NS or not got:
                    curve.append((now, total))
    say_curve("read", curve)


def write(address: str, protocol: int, congestion: str, seconds: float, look_at: float) -> None:
    """Connect and send for `seconds`."""
    connection = connect(address, protocol, congestion)
    with connection:
        connection.settimeout(LOOK_S)
        started, data, looked = time.monotonic_ns(), bytes(ROOM_BYTES), False
        say(started=started)
        while (passed := time.monotonic_ns() - started) < seconds * NS_PER_S:
            with contextlib.suppress(TimeoutError):  # an outage: the buffer is full
                connection.send(data)
            if not looked and passed >= look_at * NS_PER_S:
                looked = True
                say(connection=about(connection, protocol))


def connect(address: str, protocol: int, congestion: str) -> socket.socket:
    """Connect, retrying until the other end listens."""
    until = time.monotonic() + PATIENCE_S
    while True:
        one = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, protocol)
        if congestion != "default":
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        try:
            one.settimeout(PATIENCE_S)
            one.connect((address, PORT))
        except OSError:
            one.close()
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
            continue
        return one


def about(connection: socket.socket, protocol: int) -> dict[str, Any]:
    """The kernel's report: congestion control and, for MPTCP, the number of subflows."""
    name = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, NAME_BYTES)
    found: dict[str, Any] = {"congestion": name.rstrip(b"\0").decode()}
    if protocol == PROTOCOLS["mptcp"]:
        info = connection.getsockopt(SOL_MPTCP, MPTCP_INFO, MPTCP_INFO_BYTES)
        (flags,) = struct.unpack_from("=I", info, 8)
        found["subflows"] = 1 + info[0]  # the kernel counts those in addition to the first
        found["fallback"] = bool(flags & FALLBACK)
    return found


def main(words: Sequence[str]) -> int:
    """Run this rank's part."""
    protocol, congestion, address, seconds, look_at = words
    try:
        if os.environ["OPENMRC_RANK"] == "1":
            read(PROTOCOLS[protocol])
        else:
            write(address, PROTOCOLS[protocol], congestion, float(seconds), float(look_at))
    except OSError as error:
        say(error=f"{protocol}, {congestion}: {error.strerror or error}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
