"""Captures of a live fabric: copies of frames in a ring that a thread writes to a file.

A frame is captured when its port puts it on the wire, with its due time. The loop never waits for
the file: frames that find the ring full are not captured, but counted (`Tap.lost`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from openmrc.jit import inlined, inner, records
from openmrc.live.switch.state import TAPPED
from openmrc.live.syscalls import PS_PER_NS, copy
from openmrc.wire.pcap import Writer

RING_FRAMES = 2048
DRAIN_S = 0.005  # between two reads of the ring: at 400 kpps it is full then


@inner
def note(net, f, now):
    """Copy a frame that a port is sending, or count it as lost to the capture."""
    ctl = net.ctl[0]
    ring = net.tapped.shape[0]
    if ctl.tap_written - ctl.tap_read >= ring:
        ctl.tap_lost += 1
        return
    place = ctl.tap_written % ring
    t = net.tapped[place]
    t.at = now
    t.port = f.port
    t.length = f.length
    t.kept = min(int(f.length), int(ctl.tap_snap))
    _copy(net, place, int(f.room), int(t.kept))
    ctl.tap_written += 1


@inlined
def _copy(net, place, room, n):
    to, source = net.tap_bytes[place], net.pool[room]
    copy(to.ctypes.data, source.ctypes.data, n)


class Tap:
    """A capture in progress, made by `Switches.tap`; `close` calls `end`, after which no frame is
    captured, and writes the rest.

    `captured` and `lost` count frames. The caller closes the stream, after this.
    """

    def __init__(
        self, net: Any, ports: Any, stream: BinaryIO, names: Any, end: Callable[[], None]
    ) -> None:
        self.captured = 0
        self._net, self._end = net, end
        self._interface = np.full(len(net.port), -1, np.int64)
        self._interface[ports] = np.arange(len(ports))
        self._writer = Writer(stream, names)
        self._offset_ns = time.time_ns() - time.monotonic_ns()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mrc-tap", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """Frames that found the ring full."""
        return int(self._net.ctl[0].tap_lost)

    def close(self) -> None:
        """End the capture; may be called twice."""
        if not self._closing.is_set():
            self._end()
            self._closing.set()
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(DRAIN_S):
            self._drain()
        self._drain()

    def _drain(self) -> None:
        net = self._net
        ctl = net.ctl[0]
        ring = len(net.tapped)
        zero_ns = int(ctl.started_ns) + self._offset_ns
        for number in range(int(ctl.tap_read), int(ctl.tap_written)):
            t = net.tapped[number % ring]
            data = net.tap_bytes[number % ring, : int(t.kept)].tobytes()
            time_ns = zero_ns + int(t.at) // PS_PER_NS
            self._writer.write(int(self._interface[t.port]), time_ns, data, int(t.length))
            ctl.tap_read = number + 1
            self.captured += 1


def ring(snap_bytes: int) -> tuple[Any, Any]:
    """Return the buffers of a capture: `Net.tapped` and `Net.tap_bytes`."""
    return records(RING_FRAMES, TAPPED), np.zeros((RING_FRAMES, snap_bytes), np.uint8)
