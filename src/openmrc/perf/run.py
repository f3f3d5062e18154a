"""Server, client, or both in one process: from a plan to the output."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from openmrc.errors import InputError, OpenMrcError
from openmrc.perf import bandwidth, ends, latency, record
from openmrc.perf.figures import Bandwidth, Latency
from openmrc.perf.plan import LAT, Plan
from openmrc.perf.report import Report
from openmrc.perf.watch import Watch
from openmrc.say import say
from openmrc.verbs import Device, metrics
from openmrc.verbs.cabled import cabled, prepare

FAILED, INTERRUPTED = 1, 130  # exit statuses
LEAVE_S = 10.0  # for the other end of an overlay to end


@dataclass(frozen=True)
class Planes:
    """Options of a device on an ordinary network: interfaces or addresses, and their parameters."""

    names: tuple[str, ...]
    udp_port: int | None = None
    rate_bps: int | None = None
    dscp: str = ""


@dataclass(frozen=True)
class Common:
    """Options that both ends have."""

    as_json: bool = False
    spin: bool = False
    metrics_port: int | None = None
    planes: Planes | None = None
    out: Path | None = None  # of a client: a results directory

    def device(self) -> Device:
        """The device of this end."""
        limits = ends.LIMITS | ({} if self.out is None else {"account": record.ROOM})
        if self.planes is None:
            return Device.open(spin=self.spin, **limits)
        given = self.planes
        return Device.on_network(
            given.names,
            port=given.udp_port,
            rate_bps=given.rate_bps,
            dscp=given.dscp,
            spin=self.spin,
            **limits,
        )


class Stop:
    """Whether Ctrl-C was pressed: a measurement then ends and prints what it has. The second one is
    KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        """True after the first Ctrl-C."""
        return self.asked

    @contextmanager
    def on_interrupt(self) -> Iterator[None]:
        """Handle Ctrl-C within the block. Only a main thread receives signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def heard(number: int, frame: FrameType | None) -> None:
            if self.asked:
                raise KeyboardInterrupt
            self.asked = True

        usual = signal.signal(signal.SIGINT, heard)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, usual)


def client(plan: Plan, host: str, port: int, secret: bytes, common: Common) -> int:
    """Measure against a server; return the exit status."""
    prepare()
    with common.device() as device, _metrics([device], common):
        return _as_client(device, plan, host, port, secret, common)


def server(test: str, port: int, secret: bytes, common: Common) -> int:
    """Serve one client; return the exit status."""
    prepare()
    with common.device() as device, _metrics([device], common):

        def listening(at: int) -> None:
            say(f"Waiting for a client to connect to port {at}.")

        _serve(device, test, port, secret, common.spin, listening, Report(common.as_json))
        return 0


def overlay(plan: Plan, planes: int, secret: bytes, common: Common) -> int:
    """Run both ends in this process, over loopback; return the client's exit status."""
    prepare()
    with ExitStack() as stack:
        devices = stack.enter_context(cabled(planes, spin=common.spin, **ends.LIMITS))
        stack.enter_context(_metrics(devices, common))
        ready = threading.Event()
        ports: list[int] = []

        def listening(at: int) -> None:
            ports.append(at)
            ready.set()

        other = _OtherEnd(
            lambda: _serve(devices[1], plan.test, 0, secret, common.spin, listening), ready
        )
        stack.callback(other.join)
        ready.wait()
        other.check()
        try:
            return _as_client(devices[0], plan, metrics.LOOPBACK, ports[0], secret, common)
        except OpenMrcError:
            other.check()
            raise


class _OtherEnd:
    """The server of an overlay, on a thread."""

    def __init__(self, work: Callable[[], None], ready: threading.Event) -> None:
        self._error: OpenMrcError | None = None
        self._thread = threading.Thread(target=self._run, args=(work, ready), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], None], ready: threading.Event) -> None:
        try:
            work()
        except OpenMrcError as error:
            self._error = error
        finally:
            ready.set()

    def check(self) -> None:
        """Raise the error that ended it, unless the client left."""
        if self._error is not None and isinstance(self._error, InputError):
            raise self._error

    def join(self) -> None:
        """Wait until it has left."""
        self._thread.join(LEAVE_S)


@contextmanager
def _metrics(devices: tuple[Device, ...] | list[Device], common: Common) -> Iterator[None]:
    if common.metrics_port is None:
        yield
        return
    with metrics.Server(devices, common.metrics_port) as serving:
        say(f"Metrics are at http://{metrics.LOOPBACK}:{serving.port}{metrics.PATH}.")
        yield


@contextmanager
def _reported(end: ends.End, report: Report, role: str, stop: Stop) -> Iterator[None]:
    """Begin and finish the report of an end, which is partial if something stopped it."""
    if end.device.pmtu_note:  # a note for the user, once it is connected
        say(end.device.pmtu_note)
    report.begin(end, role)
    try:
        yield
    except (KeyboardInterrupt, OpenMrcError):
        report.finish(partial=True)
        raise
    report.finish(partial=stop())


def _as_client(
    device: Device, plan: Plan, host: str, port: int, secret: bytes, common: Common
) -> int:
    report, stop = Report(common.as_json), Stop()
    with (
        ends.client(device, plan, host, port, secret) as end,
        _reported(end, report, "client", stop),
        stop.on_interrupt(),
        Watch(end, say),
        nullcontext() if common.out is None else record.Recording(end, common.out),
    ):
        for size in plan.sizes:
            if plan.test == LAT:
                report.row(latency.run_client(end, size, stop, common.spin))
            else:
                report.row(bandwidth.run_client(end, size, stop))
            if stop():
                break
        end.channel.send({"size": 0})
    return INTERRUPTED if stop() else 0


def _serve(
    device: Device,
    test: str,
    port: int,
    secret: bytes,
    spin: bool,
    listening: Callable[[int], None],
    report: Report | None = None,
) -> None:
    """Follow one client; nothing is printed without a report."""
    with ends.server(device, port, secret, listening) as end:
        if end.plan.test != test:
            raise InputError(
                f"the client measures {end.plan.test}, this server {test}: start the same"
            )
        if report is None:
            _follow(end, spin, None)
            return
        with _reported(end, report, "server", Stop()), Watch(end, say):
            _follow(end, spin, report)


def _follow(end: ends.End, spin: bool, report: Report | None) -> None:
    """Do what the client requests, size by size; 0 is the end."""
    while size := int(end.channel.receive()["size"]):
        found: Bandwidth | Latency | None
        if end.plan.test == LAT:
            found = latency.run_server(end, size, spin)
        else:
            found = bandwidth.run_server(end, size)
        if report is not None:
            report.row(found)
