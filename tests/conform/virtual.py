"""The kit against the live endpoint in virtual time (`kernel`).

`VirtualTarget` meets it as the kit meets an endpoint on a network, by datagrams with their iCRC.
But what is sent arrives at once, so that all that holds exactly in process is compared.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, NamedTuple

from openmrc.conform import datagram
from openmrc.conform.events import CORRUPT, FOREIGN, RIGHT
from openmrc.conform.network import DEFAULTS, QPN, NetworkTarget, Where
from openmrc.conform.run import Verdict, run
from openmrc.conform.script import Rule
from openmrc.conform.tester import RECEIVES, Tester, limits_of
from openmrc.conform.wires import Packet, is_right
from openmrc.engine import packet as pk
from openmrc.live.endpoint.peers import Reach
from openmrc.live.endpoint.state import SOURCE_BASE
from openmrc.verbs.attributes import QpAttributes
from tests.conform.kernel import PORT, RTT_PS, Datagram, End, Kernel

THERE, HERE = "10.77.1.{}", "10.77.2.{}"  # planes of the endpoint, and of the kit
PLANES_MAX = 4


class Wires:
    """The kit's end of the wire."""

    nic, cuts = 0, False

    def __init__(self, kernel: Kernel, n_planes: int, evs: int) -> None:
        self._kernel = kernel
        self.n_planes = n_planes
        ports = tuple(range(SOURCE_BASE + 100, SOURCE_BASE + 100 + evs))
        self.reach = tuple(Reach(HERE.format(k + 1), PORT, ports) for k in range(n_planes))

    def meet(self, remote: QpAttributes) -> None:
        """Store the addresses of the target."""
        self._there = [(one.address, one.port) for one in remote.planes]

    def evs(self, plane: int) -> tuple[int, ...]:
        """EVs on which the kit can send on a plane."""
        return self.reach[plane].sources

    def send(
        self, data: bytes, plane: int, number: int, traffic: int, _: int | None, wrong: int = RIGHT
    ) -> None:
        """Send BTH to padding, and its iCRC."""
        own = self.reach[(plane + (wrong == FOREIGN)) % self.n_planes]
        port = own.sources[number]
        crc = datagram.icrc(ip_address(own.address), port, ip_address(self._there[plane][0]), data)
        whole = data + (datagram.inverted(crc) if wrong == CORRUPT else crc)
        self._kernel.arrives(Datagram(whole, (own.address, port), self._there[plane], traffic))

    def receive(self, *_: Any) -> list[Packet]:
        """What the endpoint has sent to the kit since."""
        own = {(one.address, one.port): plane for plane, one in enumerate(self.reach)}
        found: list[list[Packet]] = [[] for _ in self.reach]
        sent, self._kernel.sent = self._kernel.sent, []
        for one in sent:
            plane, src, dst = own.get(one.dst), ip_address(one.src[0]), ip_address(one.dst[0])
            if plane is None or one.src[0] != self._there[plane][0]:
                continue
            if is_right(one.data, src, one.src[1], dst) and (packet := datagram.read(one.data)):
                kind, fields = packet
                more = {"ev": one.src[1], "traffic_class": one.traffic_class}
                found[plane].append((kind, {**fields, **more}, plane))
        return list(_merged(found))


def _merged(found: list[list[Packet]]) -> Iterator[Packet]:
    """Planes are read at one time: of what they have first, the oldest data is last."""
    queues = [deque(one) for one in found if one]
    while queues:
        first = min(queues, key=lambda queue: _turn(queue[0], queues))
        yield first.popleft()
        queues = [queue for queue in queues if queue]


def _turn(packet: Packet, queues: list[deque[Packet]]) -> int:
    """What is no new data comes at once, and of new data the one that no other is before."""
    kind, fields, _ = packet
    if kind != "data" or fields["rtx"]:
        return -1
    psns = [queue[0][1]["psn"] for queue in queues]
    return sum((fields["psn"] - psn & pk.PSN_MASK) < pk.PSN_HALF for psn in psns)


class Heard(NamedTuple):
    """What the upper tester has in place of a connection."""

    send: Callable[[dict[str, Any]], None]


class VirtualTarget(NetworkTarget):
    """A live endpoint in virtual time as a `run.Target`."""

    settle_ps = 0
    local_evs = True

    def __init__(self, settings: Mapping[str, int]) -> None:
        def opened(names: Sequence[str], evs: int) -> Any:
            has = {**DEFAULTS, **settings}
            addresses = [THERE.format(k + 1) for k in range(has["planes"])]
            self._end = End(addresses, {"trimming": True, **limits_of(has)})
            self._wires = Wires(self._end.kernel, len(names), evs)
            return contextlib.nullcontext(self._wires)

        names = tuple(HERE.format(k + 1) for k in range(PLANES_MAX))
        super().__init__(Where(names, patience_ps=0, opened=opened), settings)

    def _connect(self, where: Where) -> None:
        """In place of an exchange: device and upper tester are here."""
        self._open.callback(self._end.close)
        heard: Any = Heard(self._hears)
        receives = self._settings.get("receives", RECEIVES)
        with self._end.kernel.running():
            self._tester = Tester(self._end.device, heard, self._about(), receives)
        self._times = RTT_PS, int(self._tester._qp._q.rto)
        self._runs()

    def _hears(self, word: dict[str, Any]) -> None:
        """The upper tester says something."""
        if "qp" in word:
            self._take_about(word)
        else:
            self._take(word)

    @property
    def now_ps(self) -> int:
        """The time."""
        return self._end.kernel.now_ps

    @property
    def heard_ps(self) -> int:
        """All that came until then is in `log`."""
        return self._end.kernel.now_ps

    def receives(self, n: int) -> None:
        """The application has this many receives posted."""
        self._ask({"receives": n})

    def port(self, number: int, up: bool) -> None:
        """A port goes down or comes up."""
        self._ask({"port": number, "up": up})

    def advance(self, until_ps: int) -> None:
        """Let time pass until the endpoint has something to do, at most until `until_ps`."""
        self._end.kernel.now_ps = max(min(until_ps, self._end.due_ps), self.now_ps)
        self._runs()

    def _ask(self, word: Mapping[str, Any]) -> None:
        with self._end.kernel.running():
            self._tester._do(word)
        self._runs()

    def _put(self, kind: str, fields: Mapping[str, int], plane: int, number: int) -> None:
        if "entropy" in fields:
            fields = {**fields, "entropy": _port_of(fields["entropy"])}
        super()._put(kind, fields, plane, number)
        self._runs()

    def _runs(self) -> None:
        """The endpoint's loop goes round, and the kit reads what it has sent."""
        with self._end.kernel.running():
            self._end.runs()
            for kind, fields, plane in self._receive(0):
                if fields["dest_qpn"] in (QPN, pk.ENDPOINT_QPN):
                    ev = plane << 16 | fields["ev"] - SOURCE_BASE + 1
                    self._note(kind, {**fields, "plane": plane, "ev": ev})
            told = -1
            while told < len(self.log):  # it takes a few completions at a time
                told = len(self.log)
                self._tester._tell()
        room = self._tester._room
        for _, at, payload in list(self._unseen):
            self._take({"read": at, "hex": room[at : at + len(payload)].tobytes().hex()})


def _port_of(ev: int) -> int:
    """The source port that an EV of the endpoint is."""
    return SOURCE_BASE + (ev - 1 & 0xFFFF) if ev else 0


def verdict(rule: Rule, always: Sequence[Rule] = ()) -> Verdict:
    """Run one rule, beside those that hold `always`."""
    made: list[VirtualTarget] = []

    def make(settings: Mapping[str, int]) -> Any:
        made.append(VirtualTarget(settings))
        return made[-1]

    try:
        return run(rule, make, always)
    finally:
        for one in made:
            one.close()
