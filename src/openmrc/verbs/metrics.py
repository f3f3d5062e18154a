"""Counters of devices for Prometheus: its text format (version 0.0.4), and a server for it.

    with metrics.Server([device], 9400) as server:       # http://127.0.0.1:9400/metrics
        ...

Every sample carries `nic`; those of ports `plane` as well, those of queue pairs `qp`, its number in
decimal. Whoever scrapes reads the endpoint's own counts: nothing is collected in between.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from openmrc.engine.ev import EV_STATES
from openmrc.errors import InputError
from openmrc.live.closing import Closing

if TYPE_CHECKING:
    from openmrc.verbs.device import Device
    from openmrc.verbs.qp import QueuePair

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATH = "/metrics"
LOOPBACK = "127.0.0.1"
PORTS = 65_536
COUNTER, GAUGE = "counter", "gauge"
PREFIX = "openmrc_"

DEVICE = {
    "loops": ("loops_total", "Rounds of the endpoint's loop."),
    "sleeps": ("sleeps_total", "Rounds that ended in a wait."),
    "events_lost": ("events_lost_total", "Asynchronous events that nobody took in time."),
}
PORT = {
    "rx_packets": ("port_rx_packets_total", "Frames received."),
    "rx_bytes": ("port_rx_bytes_total", "Bytes of frames received."),
    "tx_packets": ("port_tx_packets_total", "Frames sent."),
    "tx_bytes": ("port_tx_bytes_total", "Bytes of frames sent."),
    "tx_lost": ("port_tx_lost_packets_total", "Frames that a port that is gone lost."),
    "blocked": ("port_blocked_total", "Times that the socket had no room."),
    "unstamped": ("port_unstamped_total", "Probes and requests that came without time stamp."),
}
QP = {
    "tx_packets": ("qp_tx_packets_total", "Data packets sent."),
    "tx_bytes": ("qp_tx_bytes_total", "Payload bytes sent, again or for the first time."),
    "rx_packets": ("qp_rx_packets_total", "Data packets placed."),
    "rx_bytes": ("qp_rx_bytes_total", "Payload bytes placed."),
    "rtx": ("qp_retransmitted_packets_total", "Data packets sent again."),
    "dup": ("qp_duplicate_packets_total", "Data packets that had come before."),
    "sack": ("qp_sacks_total", "SACKs sent."),
    "nack": ("qp_nacks_total", "NACKs sent."),
    "probe": ("qp_probes_total", "Probes sent."),
    "false": ("qp_false_alarms_total", "Packets judged lost that were not."),
    "inferred": ("qp_inferred_lost_packets_total", "Packets judged lost by inference."),
    "timeouts": ("qp_timed_out_packets_total", "Packets that a timeout covered."),
    "paths_bad": ("qp_paths_bad_total", "EVs that were judged bad."),
    "paths_revived": ("qp_paths_revived_total", "EVs that came back."),
    "paths_skipped": ("qp_paths_skipped_total", "Turns that EVs were left out."),
    "cwnd_bytes": ("qp_cwnd_bytes", "Congestion window."),
    "inflight_bytes": ("qp_inflight_bytes", "Bytes sent and not known to have arrived."),
}


@dataclass
class Family:
    """All samples of one name, with what it means."""

    name: str
    kind: str
    help: str
    samples: list[tuple[dict[str, object], float]] = field(default_factory=list)

    def add(self, labels: Mapping[str, object], value: float) -> None:
        """One sample more."""
        self.samples.append((dict(labels), value))

    def lines(self) -> Iterator[str]:
        """As Prometheus reads it."""
        yield f"# HELP {self.name} {_escape_help(self.help)}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.samples:
            pairs = ",".join(f'{key}="{_escape(str(text))}"' for key, text in labels.items())
            yield f"{self.name}{{{pairs}}} {_number(value)}"


def text(devices: Iterable[Device]) -> str:
    """Everything that these devices count, as the body of an answer to Prometheus."""
    families: dict[str, Family] = {}
    for device in devices:
        _of_device(families, device)
    return "".join(line + "\n" for family in families.values() for line in family.lines())


def _family(families: dict[str, Family], name: str, meaning: str) -> Family:
    kind = COUNTER if name.endswith("_total") else GAUGE  # Prometheus' own convention
    name = PREFIX + name
    return families.setdefault(name, Family(name, kind, meaning))


def _of_device(families: dict[str, Family], device: Device) -> None:
    own = {"nic": device.nic}
    counters = device.counters()
    rtt = _family(families, "base_rtt_seconds", "Round trip that all timers follow.")
    rtt.add(own, device.base_rtt_us / 1e6)
    pmtu = _family(families, "pmtu_bytes", "Payload of a full packet.")
    pmtu.add(own, device.pmtu)
    for key, what in DEVICE.items():
        _family(families, *what).add(own, counters[key])
    for plane, port in enumerate(counters["ports"]):
        labels = {**own, "plane": plane}
        _family(families, "port_up", "1 if the port is up.").add(labels, port["up"])
        for key, what in PORT.items():
            _family(families, *what).add(labels, port[key])
        refused = _family(
            families, "port_refused_total", "Frames that were not for the engine, and why."
        )
        for reason, n in port["refused"].items():
            refused.add({**labels, "reason": reason}, n)
    for qp in device.queue_pairs:
        _of_qp(families, own, qp)


def _of_qp(families: dict[str, Family], own: Mapping[str, object], qp: QueuePair) -> None:
    labels = {**own, "qp": qp.qp_num}
    state = _family(families, "qp_state", "1 for the state that the queue pair is in.")
    for one in type(qp.state):
        state.add({**labels, "state": one.name}, one == qp.state)
    counters = qp.counters()
    for key, what in QP.items():
        _family(families, *what).add(labels, counters[key])
    evs = _family(families, "qp_evs", "EVs of the queue pair in each state.")
    packets = _family(families, "qp_ev_packets_total", "Data packets sent on an EV.")
    count: dict[tuple[int, str], int] = {}
    for ev in qp.evs():
        place = (ev["plane"], ev["state"])
        count[place] = count.get(place, 0) + 1
        packets.add({**labels, "plane": ev["plane"], "ev": f"{ev['ev']:#010x}"}, ev["packets"])
    for plane in sorted({plane for plane, _ in count}):
        for name in EV_STATES.values():  # those without any as well: a graph needs its zeros
            evs.add({**labels, "plane": plane, "state": name}, count.get((plane, name), 0))


def _escape(label: str) -> str:
    return label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _escape_help(words: str) -> str:
    return words.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    return repr(value) if isinstance(value, float) else str(int(value))


class Server(Closing):
    """Serves the counters of devices at `http://HOST:PORT/metrics`, on a thread of its own.

    `port` 0 takes any; `port` says which. Loopback alone unless told otherwise: there is no
    protection. `InputError` where the port cannot be had.
    """

    def __init__(self, devices: Sequence[Device], port: int, host: str = LOOPBACK) -> None:
        if not 0 <= port < PORTS:
            raise InputError(f"metrics port {port}: 0 to {PORTS - 1} is accepted")
        shown = list(devices)

        class Handler(_Handler):
            """Knows the devices."""

            def body(self) -> bytes:
                return text(shown).encode()

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise InputError(f"metrics port {port}: {error.strerror}; name another") from None
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="mrc metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """One question: what are the counts."""

    timeout = 10.0  # of a connection on which nothing is asked

    def body(self) -> bytes:
        """What is answered."""
        raise NotImplementedError

    def do_GET(self) -> None:
        """Answer, or 404."""
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, f"only {PATH} is here")
            return
        body = self.body()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *values: object) -> None:
        """Say nothing on standard error."""
