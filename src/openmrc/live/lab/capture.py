"""Captures packets on links between Linux's switches, by packet sockets on their ports.

Frames of a switch's own port are captured after shaper and filter, when they leave. Frames of a NIC
are captured as they arrive, before a fault of that direction drops them.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

NS_PER_S = 10**9
ETH_P_ALL = 3
SOL_PACKET, PACKET_OUTGOING = 263, 4
SO_TIMESTAMPNS = 35  # from the kernel's headers; the socket module does not name it in Python 3.11
FRAME_BYTES_MAX = 65_536 + 14
BUFFER_BYTES = 4 << 20
POLL_S = 0.1


@dataclass
class Source:
    """A packet socket in the calling thread's namespace that sees one directed port."""

    number: int  # of the capture's interface
    interface: str
    outgoing: bool  # captures what the interface sends, else what it receives
    socket: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self.socket.bind((self.interface, ETH_P_ALL))
        self.socket.setblocking(False)


class Tap:
    """Passes (number, time in ns, frame) of every source on until it is closed."""

    def __init__(self, sources: Sequence[Source], sink: Callable[[int, int, bytes], None]) -> None:
        self._sources = sources
        self._sink = sink
        self._open = True
        self._selector = selectors.DefaultSelector()
        for source in sources:
            self._selector.register(source.socket, selectors.EVENT_READ, source)
        self._thread = threading.Thread(target=self._run, name="tap", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Deliver the frames received so far, and stop."""
        self._open = False
        self._thread.join()
        for source in self._sources:
            self._drain(source)
            source.socket.close()
        self._selector.close()

    def _run(self) -> None:
        while self._open:
            for key, _ in self._selector.select(POLL_S):
                self._drain(key.data)

    def _drain(self, source: Source) -> None:
        while True:
            try:
                frame, control, _, address = source.socket.recvmsg(FRAME_BYTES_MAX, 64)
            except (BlockingIOError, OSError):  # no more frames, or the link is down for now
                return
            if (address[2] == PACKET_OUTGOING) == source.outgoing:
                self._sink(source.number, _time_ns(control), frame)


def _time_ns(control: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
            seconds, ns = struct.unpack("qq", data[:16])
            return int(seconds * NS_PER_S + ns)
    return 0
