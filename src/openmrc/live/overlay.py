"""Ports without a network: pairs of connected UDP sockets on loopback, a datagram a frame."""

from __future__ import annotations

import socket

ROOM_BYTES = 4 << 20  # asked for; the kernel gives what net.core.rmem_max allows


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two sockets, each of which receives what is sent on the other."""
    sockets = []
    for _ in range(2):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM_BYTES)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM_BYTES)
        one.bind(("127.0.0.1", 0))
        one.setblocking(False)
        sockets.append(one)
    first, second = sockets
    first.connect(second.getsockname())
    second.connect(first.getsockname())
    return first, second
