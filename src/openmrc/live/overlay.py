"""Wires without a network: pairs of connected sockets, one end for a switch, one for a NIC.

One datagram is one frame. The two kinds differ only when a socket is full:

    udp      UDP on 127.0.0.1: a frame that finds the receiver's buffer full is lost, as on a wire
    local    AF_UNIX, SOCK_SEQPACKET: the sender must wait (EAGAIN); and a quarter faster
"""

from __future__ import annotations

import socket
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError

BUFFER_BYTES = 4 * 1024 * 1024  # Linux grants as much as net.core.rmem_max and wmem_max allow
KINDS = ("udp", "local")


class Overlay(NamedTuple):
    """Ends of `n` wires: `switch[i]` and `endpoint[i]` are connected; int32 descriptors.

    The caller closes them (`os.close`).
    """

    switch: npt.NDArray[np.int32]
    endpoint: npt.NDArray[np.int32]


def overlay_ports(n: int, kind: str = "udp") -> Overlay:
    """Return `n` wires. Raises `InputError` for another kind, or if no more can be opened."""
    if kind not in KINDS:
        raise InputError(f"overlay: {kind!r} is not a kind of wire; {' or '.join(KINDS)} is")
    made: list[socket.socket] = []
    try:
        for _ in range(n):
            made += pair() if kind == "udp" else _local_pair()
    except OSError as error:
        for end in made:
            end.close()
        raise InputError(
            f"overlay: {2 * n} sockets cannot be opened: {error.strerror}; build a smaller fabric,"
            " or raise the limit (ulimit -n)"
        ) from None
    ends = np.array([end.detach() for end in made], np.int32).reshape(n, 2)
    return Overlay(ends[:, 0].copy(), ends[:, 1].copy())


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two UDP sockets on loopback, connected to each other."""
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        for end in (one, other):
            _set_up(end)
            end.bind(("127.0.0.1", 0))
        one.connect(other.getsockname())
        other.connect(one.getsockname())
    except OSError:
        one.close()
        other.close()
        raise
    return one, other


def _local_pair() -> tuple[socket.socket, socket.socket]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    _set_up(one)
    _set_up(other)
    return one, other


def _set_up(end: socket.socket) -> None:
    end.setblocking(False)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
