"""The upper tester of the project's own live endpoint: it posts, and reports completions, for a kit
that captures the wire (docs/conformance.md).

For each rule a device is opened with the rule's settings, and closed when the kit leaves.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from openmrc.conform.network import CONTENT, HELD_S, REGION_BYTES
from openmrc.errors import InputError, OpenMrcError
from openmrc.jit.warmup import announcement, is_cached
from openmrc.live.endpoint.limits import Limits
from openmrc.live.endpoint.warmup import warm_up
from openmrc.say import say
from openmrc.units import S
from openmrc.verbs import Device, Opcode, QpState, RemoteRegion, Status, hostfile
from openmrc.verbs import secret as secrets
from openmrc.verbs.attributes import QpAttributes
from openmrc.verbs.door import Door
from openmrc.verbs.line import FOREVER, REFUSED, ExchangeError, Line

RECEIVES = 64  # posted, unless a rule says otherwise
LOOK_S = 0.001
# Limits of a device: the rules rely on them.
LIMITS: dict[str, Any] = {
    "qps": 2,
    "pmtu": 1024,
    "send_depth": 256,
    "linear_cnt": 2,
    "exp_cnt": 1,
    "sack_bytes": 16_384,
    "burst": 1,
    "check_mtu": False,
}
Open = Callable[[int, dict[str, Any]], Any]  # a `Device`, or what has its methods
_FIELDS = {field.name for field in fields(Limits)}


class _End(Exception):
    """No kit will connect again."""


def serve(opened: Open, secret: bytes, port: int, listening: Callable[[int], None]) -> None:
    """Serve kits, one after the other, until one says that it was the last; `listening(port)` is
    called once they can connect. `opened(n_planes, limits)` opens the device of a rule.
    """
    if not is_cached("live"):  # a connected kit must not wait for the compiler
        say(announcement("live endpoints", "about a minute"))
        warm_up()
    secrets.check(secret)
    server = socket.create_server(("", port))
    listening(int(server.getsockname()[1]))
    with Door(server, lambda _: secret) as door:
        while (line := door.next(FOREVER)) is not None:
            with contextlib.closing(line), contextlib.suppress(OSError, ExchangeError):
                try:
                    _serve_one(opened, line)
                except _End:
                    return


def on_network(planes: Sequence[str]) -> Open:
    """Devices on the first of these planes of an ordinary network."""
    return lambda n, limits: Device.on_network(planes[:n], **limits)


def on_host(path: str | None) -> Open:
    """Devices of a host of a fabric, with all of its planes. The round trip is the kit's from the
    start: a window follows from it, and rules count packets.
    """

    def opened(n: int, limits: dict[str, Any]) -> Device:
        with hostfile.attached(path, **limits) as at:
            if n != len(at.ports):
                raise InputError(f"with: {n} planes; this host has {len(at.ports)}")
            rtt_ps = round(HELD_S * S)
            device = Device(at.fabric, at.nic, at.ports, at.limits, rtt_ps, at.mode)
            device.adopt([one.detach() for one in at.sockets])
        return device

    return opened


def _serve_one(opened: Open, line: Line) -> None:
    """Serve one rule; an error is reported to the kit, and ends nothing here."""
    told = line.receive()
    try:
        asked = told["extra"]["conformance"]
        if asked.get("end"):
            raise _End
        settings = dict(asked["with"])
        with opened(settings.get("planes", 2), limits_of(settings)) as device:
            Tester(device, line, told, settings.get("receives", RECEIVES)).run()
    except ExchangeError:
        raise
    except OpenMrcError as error:
        line.send({REFUSED: str(error)})
    except (KeyError, TypeError, IndexError, ValueError):
        line.send({REFUSED: "this is the upper tester of `mrc conformance`, and follows its words"})


def limits_of(settings: Mapping[str, int]) -> dict[str, Any]:
    """Return the limits of a device for the settings of a rule; `InputError` for a setting that it
    lacks.
    """
    planes, evs = settings.get("planes", 2), settings.get("evs", 4)
    limits = {**LIMITS, "evs_active": planes * evs, "evs_backup": 0}
    for name, value in settings.items():
        if name in ("planes", "evs", "receives"):
            continue
        if name not in _FIELDS:
            raise InputError(f"with: a device has no {name}")
        kind = type(getattr(Limits(), name))
        limits[name] = kind(value)
    return limits


class Tester:
    """One exchange and its rule."""

    def __init__(self, device: Any, line: Line, told: Mapping[str, Any], receives: int) -> None:
        self._line = line
        self._cq = device.create_cq()
        self._qp = device.create_qp(self._cq)
        self._room = np.zeros(REGION_BYTES, np.uint8)
        self._sink = device.reg_mr(self._room)
        self._source = device.reg_mr(np.frombuffer(bytearray(CONTENT), np.uint8))
        self._there = RemoteRegion(**told["regions"][0])
        self._device, self._receives = device, 0
        own = {"qp": self._qp.attributes.as_dict(), "regions": [asdict(self._sink.remote)]}
        line.send({**own, "extra": None})
        self._qp.connect(QpAttributes(**told["qp"]))
        self._posted = self._received = 0
        self._post_receives(receives)
        self._failed = False

    def run(self) -> None:
        """Measure, then do what the kit requests until it leaves."""
        self._line.send({"connected": True})
        self._line.receive()
        self._line.receive()  # "measured"
        self._qp.measure_rtt()
        self._line.send({"measured": True})
        rto_us = int(self._qp._q.rto) // 1_000_000
        self._line.send({"rtt_us": int(self._device.base_rtt_us), "rto_us": rto_us})
        asked: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        listener = threading.Thread(target=self._listen, args=(asked.put,), daemon=True)
        listener.start()
        while True:
            while not asked.empty():
                if (one := asked.get()) is None:
                    return
                self._do(one)
            self._tell()

    def _listen(self, put: Callable[[dict[str, Any] | None], None]) -> None:
        with contextlib.suppress(OSError, ExchangeError):
            while True:
                put(self._line.receive())
        put(None)

    def _post_receives(self, n: int) -> None:
        """Post receives until `n` wait."""
        for _ in range(n - (self._receives - self._received)):
            self._qp.post_recv(self._receives)
            self._receives += 1

    def _do(self, word: Mapping[str, Any]) -> None:
        """Do one action of an application or an operator."""
        if "post" in word:
            to: dict[str, Any] = {"remote_addr": self._there.addr, "rkey": self._there.rkey}
            with contextlib.suppress(OpenMrcError):  # a failed queue pair accepts nothing
                if "imm" in word:
                    number, n = self._posted, word["post"]
                    self._qp.post_write_imm(number, self._source, 0, n, imm_data=word["imm"], **to)
                else:
                    self._qp.post_write(self._posted, self._source, 0, word["post"], **to)
            self._posted += 1
        elif "receives" in word:
            self._post_receives(word["receives"])
        elif "port" in word:
            self._device.set_port(word["port"], word["up"])
        elif "read" in word:
            data = self._room[word["read"] : word["read"] + word["bytes"]].tobytes()
            self._line.send({"read": word["read"], "hex": data.hex()})

    def _tell(self) -> None:
        """Report what has completed since, and whether the queue pair has failed."""
        for done in self._cq.wait(16, LOOK_S):
            if done.status != Status.SUCCESS:
                continue
            if done.opcode == Opcode.RDMA_WRITE:
                self._line.send({"completion": done.wr_id})
            else:
                self._line.send({"receive": self._received, "imm": done.imm_data})
                self._received += 1
        if self._qp.state == QpState.ERROR and not self._failed:
            self._failed = True
            self._line.send({"error": self._qp.error.replace(" ", "-")})
