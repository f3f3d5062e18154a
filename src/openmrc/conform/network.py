"""An implementation on an ordinary network as a target, in real time, by plain UDP.

The kit is the client of an exchange for each rule; the target's end of its connection is the *upper
tester*, which posts, and reports completions (docs/conformance.md). Without an exchange attributes
come from a file, and the application's side is out of reach. Each plane of the kit is an address of
this host with a few source ports. The EVs of a rule stand for those ports.

The kit answers the EV probes by which the target measures the round trip `HELD_S` late. So the
times of rules are long compared with the delays of a busy machine, and of a kit in Python.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openmrc.conform import datagram, wires
from openmrc.conform.events import (
    DELIVERED,
    DONE,
    FAILED,
    FOREIGN,
    FRAME,
    MISDIRECTED,
    PAYLOAD,
    RECEIVED,
    Event,
)
from openmrc.conform.run import FAIL, NotApplicable, Verdict, rto_ps, run
from openmrc.conform.script import Rule
from openmrc.engine import packet as pk
from openmrc.engine.parameters import PMTUS
from openmrc.errors import InputError
from openmrc.fabric.dscp import DEFAULT, Dscps
from openmrc.reading import BROKEN, fault, read_bytes
from openmrc.units import MS, US, S
from openmrc.verbs.attributes import QpAttributes
from openmrc.verbs.line import CLIENT, REFUSED, VERSION, ExchangeError, Line
from openmrc.wire import layout

HELD_S = 0.04  # delay of answers to EV probes: the base round trip
PATIENCE_PS = 20 * MS  # in addition to a rule's time: both ends wait for a scheduler
SETTLE_PS = 3 * MS  # the same for packets that must not arrive
PAUSES_S = (0.0, 1.0, 4.0)  # before each: what stalls a machine lasts
CONNECT_S = 1.0  # until a target listens
FILE_S = 60.0  # until the attributes of a target are available
LOOK_S = 0.002  # between looks at memory
READS = 64  # of packets, at each look: their bytes must not fill the line
EVS = 4  # source ports of a plane
QPN, PEER_PSN = 0x00BEEF, 0xFF_FFFC
REGION_VA, RKEY, REGION_BYTES = 1 << 32, 0x1234_5678, 1 << 20
# What the target's application writes, always from the start of the kit's region on.
CONTENT = (bytes(range(251)) * (REGION_BYTES // 251 + 1))[:REGION_BYTES]
Opened = contextlib.AbstractContextManager[Any]  # of `wires.Wires`, or the like
DEFAULTS = {"planes": 2, "evs": EVS, "mpr": 512, "max_wimm": 128, "trim_nack": 1, "dynamic_mpr": 0}


@dataclass(frozen=True)
class Where:
    """The planes of this host from which an implementation is reached, and where it listens for
    exchanges, or the file that has its attributes; the kit's are written beside it.
    """

    planes: tuple[str, ...]
    host: str = ""
    port: int = 0
    secret: bytes = b""
    attributes: Path | None = None
    patience_ps: int = PATIENCE_PS
    dscps: Dscps = DEFAULT
    connect_s: float = CONNECT_S
    opened: Callable[[Sequence[str], int], Opened] = wires.opened  # `planes`, EVs on each

    @property
    def kits(self) -> Path:
        """The file of the kit's attributes."""
        assert self.attributes is not None
        return self.attributes.with_name(self.attributes.name + ".kit")

    def __str__(self) -> str:
        return f"{self.host} port {self.port}" if self.attributes is None else f"{self.attributes}"


def verdict(rule: Rule, where: Where, always: Sequence[Rule] = ()) -> Verdict:
    """Run one rule, beside those that hold `always`; again if it fails, because the machine may
    have stalled: a real fault fails each time.
    """
    found: Verdict | None = None
    for pause_s in PAUSES_S:
        time.sleep(pause_s)
        with contextlib.ExitStack() as stack:

            def make(settings: Mapping[str, int], stack: contextlib.ExitStack = stack) -> Any:
                target = NetworkTarget(where, settings)
                stack.callback(target.close)
                return target

            try:
                found = run(rule, make, always)
            except ConnectionError as error:
                found = Verdict(rule, FAIL, f"the target left: {error}", rule.steps[-1])
            except ExchangeError:
                if found is None:
                    raise
                break  # it has left since
        if found.outcome != FAIL and not found.breaches:
            break
    assert found is not None
    return found


class NetworkTarget:
    """An implementation as a `run.Target`."""

    settle_ps = SETTLE_PS

    def __init__(self, where: Where, settings: Mapping[str, int]) -> None:
        self.name, self.patience_ps, self._dscps = str(where), where.patience_ps, where.dscps
        self.blind = frozenset({DONE, RECEIVED, DELIVERED, FAILED} if where.attributes else ())
        self.pmtu = PMTUS[0]
        self.log: list[Event] = []
        self._heard_ps = self._sent_ps = 0
        self._settings = {**DEFAULTS, **settings}
        if self._settings["planes"] > len(where.planes):
            raise InputError(f"with: {self._settings['planes']} planes; {len(where.planes)} here")
        evs = max(EVS, self._settings["evs"])
        self._begun_ns = time.monotonic_ns()
        self._open = contextlib.ExitStack()
        self._ready = False
        self._line: Line | None = None
        self._held: list[tuple[float, dict[str, int], int, int]] = []
        self._unseen: list[tuple[int, int, bytes]] = []  # psn, offset and bytes of data sent
        self._ports: dict[int, int] = {}  # source port of the kit -> EV that a rule gave it
        self._sent = 0
        self._looked_at = 0.0
        try:
            names = where.planes[: self._settings["planes"]]
            self._wires = self._open.enter_context(where.opened(names, evs))
            self._wake = os.eventfd(0, os.EFD_NONBLOCK)
            self._open.callback(os.close, self._wake)
            self._said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
            if where.attributes is None:
                self._connect(where)
            else:
                self._read(where)
        except BaseException:
            self.close()
            raise

    # --- set-up ------------------------------------------------------------------------------

    def _about(self) -> dict[str, Any]:
        own = [{"addr": REGION_VA, "length": REGION_BYTES, "rkey": RKEY}]
        return {"qp": self._attributes().as_dict(), "regions": own}

    def _take_about(self, told: Mapping[str, Any]) -> None:
        """Store what the target says about itself."""
        try:
            remote = QpAttributes(**told["qp"])
        except (KeyError, TypeError) as error:
            raise ExchangeError(f"the target's attributes are not understood: {error}") from None
        try:
            remote.check()
        except InputError as error:
            raise ExchangeError(f"the target's attributes: {error}") from None
        self._wires.meet(remote)
        self.flow_psn = {"requester": remote.psn, "responder": PEER_PSN}
        self._qpn = remote.qp_num
        self.region = {"requester": (REGION_VA, RKEY, REGION_BYTES), "responder": _region(told)}

    def _read(self, where: Where) -> None:
        """Without an exchange: wait until the target's attributes have been written."""
        assert where.attributes is not None
        try:
            where.kits.write_text(json.dumps(self._about()))
        except OSError as error:
            raise ExchangeError(f"{where.kits}: {error.strerror}; name a file") from None
        until = time.monotonic() + FILE_S
        while not where.attributes.exists():
            if time.monotonic() > until:
                raise ExchangeError(f"{where.attributes}: nobody wrote it within {FILE_S:g} s")
            time.sleep(LOOK_S)
        try:
            told = json.loads(read_bytes(where.attributes, "the attributes of a target"))
            self._take_about(told)
            self._times = int(told["rtt_us"]) * US, int(told["rto_us"]) * US
        except BROKEN as error:
            raise ExchangeError(f"{where.attributes}: {fault(error)}") from None

    def _connect(self, where: Where) -> None:
        line = Line.to(where.host, where.port, where.connect_s)
        self._open.callback(line.close)
        self._line = line
        line.authenticate(where.secret, CLIENT)
        if line.version != VERSION:
            raise ExchangeError(f"the target speaks version {line.version}, the kit {VERSION}")
        line.send({**self._about(), "extra": {"conformance": {"with": self._settings}}})
        self._take_about(_heard(line))
        answering = threading.Thread(target=self._answer_measuring, daemon=True)
        answering.start()
        for word in ("connected", "measured"):
            line.send({word: True})
            _heard(line)
        times = _heard(line)
        self._times = int(times["rtt_us"]) * US, int(times["rto_us"]) * US
        self._ready = True
        answering.join()
        listening = threading.Thread(target=self._listen, args=(line,), daemon=True)
        listening.start()
        self._open.callback(listening.join)
        self._open.callback(line.close)  # first: it ends the thread that listens

    def _attributes(self) -> QpAttributes:
        has = self._settings
        return QpAttributes(
            nic=self._wires.nic,
            qp_num=QPN,
            psn=PEER_PSN,
            pmtu=self.pmtu,
            mpr=has["mpr"],
            max_wimm=has["max_wimm"],
            send_depth=64,
            trim_nack=bool(has["trim_nack"]),
            dynamic_mpr=bool(has["dynamic_mpr"]),
            planes=self._wires.reach,
        )

    def _answer_measuring(self) -> None:
        """During the exchange, answer EV probes late, and packets below the window at once."""
        while not self._ready:
            for kind, fields, plane in self._receive(0.001):
                if kind == "request":
                    self._held.append((time.monotonic() + HELD_S, fields, plane, 0))
                elif kind == "data":
                    self._answer_size(fields, plane)
            for one in [each for each in self._held if each[0] <= time.monotonic()]:
                self._held.remove(one)
                self._put("response", {"op": one[1]["op"], "id": one[1]["id"]}, one[2], 0)

    def _answer_size(self, fields: Mapping[str, int], plane: int) -> None:
        cack = (self.flow_psn["requester"] - 1) & pk.PSN_MASK
        stamp = {"tx_timestamp": fields["tx_timestamp"], "entropy": fields["ev"]}
        self._put("sack", {"cack_psn": cack, "sack_offset": 1, **stamp}, plane, 0)

    def close(self) -> None:
        """Leave the target."""
        self._ready = True
        self._open.close()

    # --- the methods of run.Target --------------------------------------------------------------

    @property
    def now_ps(self) -> int:
        """The time since the kit connected to the target, ps."""
        return (time.monotonic_ns() - self._begun_ns) * 1000

    @property
    def heard_ps(self) -> int:
        """All that came until then is in `log`."""
        return self._heard_ps

    @property
    def rtt_ps(self) -> int:
        """The base round trip as the target reports it, ps."""
        return self._times[0]

    @property
    def rto_ps(self) -> int:
        """The retransmission timeout as the target reports it, if it can be, ps."""
        return rto_ps(self._times[1], self._times[0])

    def send(self, kind: str, given: Mapping[str, int]) -> None:
        """Send a packet of the kit."""
        if _cut(given) and not self._wires.cuts:
            raise NotApplicable("nothing trims in an ordinary network")
        ev = given.get("ev", 0)
        plane = given.get("plane", ev >> 16 if "ev" in given else 0) % self._wires.n_planes
        own = self._wires.evs(plane)
        number = (ev - 1 if ev else 0) % len(own)
        self._ports[own[number]] = ev
        fields = dict(given)
        if kind == "probe":
            fields.setdefault("tx_timestamp", 0)
        self._put(kind, fields, plane, number)

    def post(self, length: int, imm: int | None) -> None:
        """The application writes `length` bytes to the kit's memory, with what the kit has sent
        received: the line to the upper tester is another way, and may be faster.
        """
        until_ps = self._sent_ps + min(self.patience_ps, PATIENCE_PS)
        while self.now_ps < until_ps:
            self.advance(until_ps)
        self._ask({"post": length} | ({} if imm is None else {"imm": imm}))

    def receives(self, n: int) -> None:
        """The application has this many receives posted."""
        self._ask({"receives": n})
        time.sleep(PATIENCE_PS / S)

    def port(self, number: int, up: bool) -> None:
        """A port goes down or comes up."""
        self._ask({"port": number, "up": up})
        time.sleep(SETTLE_PS / S)

    def advance(self, until_ps: int) -> None:
        """Let time pass until a packet arrives, at most until `until_ps`."""
        begun_ps = self.now_ps
        wait_s = max(until_ps - begun_ps, 0) / S
        seen = len(self.log)
        for kind, fields, plane in self._receive(min(wait_s, LOOK_S)):
            if fields["dest_qpn"] in (QPN, pk.ENDPOINT_QPN):
                self._note(kind, {**fields, "plane": plane})
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        while not self._said.empty():
            self._take(self._said.get())
        self._heard_ps = begun_ps
        if (
            self._unseen
            and self._line
            and len(self.log) == seen
            and time.monotonic() > self._looked_at + LOOK_S
        ):
            self._looked_at = time.monotonic()
            now, later = self._unseen[:READS], self._unseen[READS:]
            for _, at, payload in now:
                self._line.send({"read": at, "bytes": len(payload)})
            self._unseen = later + now

    def _put(self, kind: str, fields: Mapping[str, int], plane: int, number: int) -> None:
        """Send a packet from source port `number` of a plane; its payload is unique."""
        self._sent += 1
        payload = b""
        if length := fields.get("length", 0) if kind == "data" else 0:
            payload = random.Random(self._sent).randbytes(length)
            va, _, room = self.region["responder"]
            at = fields["va"] - va
            if 0 <= at <= room - length:
                self._unseen.append((fields["psn"], at, payload))
        to = pk.ENDPOINT_QPN if kind in ("request", "response") else self._qpn
        wrong = fields.get(FRAME, 0)
        if wrong == FOREIGN and self._wires.n_planes == 1:
            raise NotApplicable("it has one address")
        to ^= wrong == MISDIRECTED
        data = datagram.build(kind, fields, to, payload)
        klass = fields.get("class", pk.CLASS_DATA if kind in ("data", "probe") else 0)
        dscp = self._dscps.control if klass == pk.CLASS_CONTROL else self._dscps.no_trim
        traffic = dscp << 2 | (layout.ECN_CE if fields.get("ce") else layout.ECN_ECT0)
        cut_to = None
        if _cut(fields):
            cut_to = self._dscps.trimmed if fields.get("trimmed") else self._dscps.trimmed_lasthop
        self._wires.send(data, plane, number, traffic, cut_to, wrong)
        self._sent_ps = self.now_ps

    def _receive(self, wait_s: float) -> list[tuple[str, dict[str, int], int]]:
        """Return the packets that arrived, after at most `wait_s`: kind, fields, and the plane."""
        found = []
        for kind, fields, plane in self._wires.receive(wait_s, self._wake):
            dscp, rtx, table = fields["traffic_class"] >> 2, fields["rtx"], self._dscps
            classes = {table.control: pk.CLASS_CONTROL, table.trimmable_retx: pk.CLASS_RETRANSMIT}
            fallback = pk.CLASS_RETRANSMIT if rtx else pk.CLASS_DATA
            fields["class"] = classes.get(dscp, fallback)
            fields["no_trim"] = int(dscp == table.no_trim)
            fields["ce"] = int(fields.pop("traffic_class") & 3 == layout.ECN_CE)
            if "entropy" in fields:
                fields["entropy"] = self._ports.get(fields["entropy"], fields["entropy"])
            if kind == "data":
                at = fields["va"] - REGION_VA
                right = zlib.crc32(CONTENT[at : at + fields["length"]]) if at >= 0 else -1
                fields[PAYLOAD] = int(fields.pop("payload_crc") == right)
            if kind == "sack" and fields["pr"]:
                fields["ack_psn_offset"] &= 0xFFFF
            found.append((kind, fields, plane))
        return found

    # --- the upper tester ------------------------------------------------------------------------

    def _ask(self, word: Mapping[str, Any]) -> None:
        """Request an action of the target's application or operator."""
        if self._line is None:
            raise NotApplicable("there is no upper tester to " + next(iter(word)))
        self._line.send(dict(word))

    def _listen(self, line: Line) -> None:
        """On a thread: process the upper tester's messages, until either end closes."""
        with contextlib.suppress(OSError, ValueError, ExchangeError):
            while True:
                self._said.put(line.receive())
                os.eventfd_write(self._wake, 1)

    def _take(self, told: Mapping[str, Any]) -> None:
        if "completion" in told:
            self._note(DONE, {"id": told["completion"]})
        elif "receive" in told:
            self._note(RECEIVED, {"id": told["receive"], "imm": told["imm"]})
        elif "error" in told:
            self._note(FAILED, {"reason": told["error"]})
        elif "read" in told:
            va = self.region["responder"][0] + told["read"]
            found = told["read"], bytes.fromhex(told["hex"])
            for one in [each for each in self._unseen if each[1:] == found]:
                self._unseen.remove(one)
                self._note(DELIVERED, {"psn": one[0], "va": va})

    def _note(self, kind: str, fields: Mapping[str, Any]) -> None:
        self.log.append(Event(self.now_ps, kind, dict(fields)))


def end(where: Where) -> None:
    """Tell the upper tester of a target that no kit will connect again."""
    with contextlib.closing(Line.to(where.host, where.port, CONNECT_S)) as line:
        line.authenticate(where.secret, CLIENT)
        line.send({"extra": {"conformance": {"end": True}}})


def _cut(fields: Mapping[str, int]) -> bool:
    return bool(fields.get("trimmed") or fields.get("trimmed_lasthop"))


def _heard(line: Line) -> dict[str, Any]:
    told = line.receive()
    if (why := told.get(REFUSED)) is not None:
        raise InputError(str(why))
    return told


def _region(told: Mapping[str, Any]) -> tuple[int, int, int]:
    try:
        [one] = told["regions"]
        return int(one["addr"]), int(one["rkey"]), int(one["length"])
    except (KeyError, TypeError, ValueError):
        raise ExchangeError(
            "the target does not offer one region, for the kit to write to"
        ) from None
