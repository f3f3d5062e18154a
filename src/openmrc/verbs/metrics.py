"""Counters of devices for Prometheus: its text format or OpenMetrics, and a server for them.

    with metrics.Server([device], 9400) as server:       # http://127.0.0.1:9400/metrics
        ...

Every sample carries `nic`. The number of samples does not grow with queue pairs or EVs: queue pairs
are summed, EVs counted by plane and state, and at most `PATHS_SHOWN` paths and `LINKS_SHOWN` links
of a NIC are named. A scrape reads the endpoint's own counts; only round trips are sampled in
between, because the endpoint keeps no history of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from openmrc.engine import ev
from openmrc.errors import InputError
from openmrc.live.closing import Closing
from openmrc.verbs import linksums
from openmrc.verbs.exposition import (
    COUNTER,
    ENDINGS,
    GAUGE,
    HISTOGRAM,
    INFO,
    TEXT,
    Family,
    Histogram,
    negotiated,
    render,
)
from openmrc.verbs.status import QpState
from openmrc.verbs.tally import Path, PathSum
from openmrc.verbs.timely import TimelyRequest, TimelyServer
from openmrc.version import __version__

if TYPE_CHECKING:
    from openmrc.verbs.device import Device

PATH = "/metrics"
LOOPBACK = "127.0.0.1"
PORTS = 65_536
PREFIX = "openmrc_"
SAMPLE_S = 1.0  # between two samples of round trips
# From a microsecond to a second.
RTT_BOUNDS_S = (*(float(f"{d}e{power}") for power in range(-6, 0) for d in (1, 2, 5)), 1.0)
US_PER_S = 1e6

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
    "trial": ("qp_trials_total", "Packets that tried a path which passed only smaller ones."),
    "false": ("qp_false_alarms_total", "Packets judged lost that were not."),
    "inferred": ("qp_inferred_lost_packets_total", "Packets judged lost by inference."),
    "timeouts": ("qp_timed_out_packets_total", "Packets that a timeout covered."),
    "paths_bad": ("qp_paths_bad_total", "EVs that were judged bad."),
    "paths_revived": ("qp_paths_revived_total", "EVs that came back."),
    "paths_skipped": ("qp_paths_skipped_total", "Turns that EVs were left out."),
    "cwnd_bytes": ("qp_cwnd_bytes", "Congestion windows."),
    "inflight_bytes": ("qp_inflight_bytes", "Bytes sent and not known to have arrived."),
}


LINK = {
    "packets": ("link_packets_total", "Data packets sent on paths over a direction of a link."),
    "paths": ("link_paths", "Paths of the NIC that cross it."),
    "bad": ("link_bad_paths", "Those of them that a queue pair holds for bad."),
    "suspect": ("link_suspect", "1 if bad paths cross it and no good one does."),
}


class Collector:
    """Turns the counts of devices into families; call `sample` now and then."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = list(devices)
        self._links = [
            None if device.fabric is None else linksums.links_of(device.fabric, device.nic)
            for device in self._devices
        ]
        self._rtt = [Histogram(RTT_BOUNDS_S) for _ in self._devices]
        self._sent: dict[tuple[int, int], int] = {}  # by device and queue pair, at the last sample

    def sample(self) -> None:
        """Observe the round trip of every queue pair that has sent since the last time."""
        sent: dict[tuple[int, int], int] = {}
        for number, (device, histogram) in enumerate(zip(self._devices, self._rtt, strict=True)):
            for qp in device.queue_pairs:
                key = (number, qp.qp_num)
                sent[key] = qp.counters()["tx_packets"]
                if sent[key] > self._sent.get(key, 0):
                    histogram.observe(qp.rtt_us / US_PER_S)
        self._sent = sent

    def text(self, content_type: str = TEXT) -> str:
        """Return all counts of the devices, as a body of this type."""
        return render(self.families(), content_type)

    def families(self) -> list[Family]:
        """Return all counts of the devices."""
        found: dict[str, Family] = {}
        if self._devices:
            info = _family(found, "build_info", "The version of openmrc.")
            info.add({"version": __version__}, 1)
        for device, links, histogram in zip(self._devices, self._links, self._rtt, strict=True):
            _of_device(found, device)
            _of_queue_pairs(found, device, links)
            rtt = _family(
                found,
                "path_rtt_seconds",
                "Smoothed round trips of queue pairs, one sample a second of each that sends.",
            )
            rtt.add({"nic": device.nic}, histogram)
        return list(found.values())


def text(devices: Iterable[Device], content_type: str = TEXT) -> str:
    """Everything that these devices count, as the body of an answer to Prometheus."""
    return Collector(list(devices)).text(content_type)


def _family(families: dict[str, Family], name: str, meaning: str) -> Family:
    kind = HISTOGRAM if name == "path_rtt_seconds" else GAUGE
    for one in (COUNTER, INFO):
        kind = one if name.endswith(ENDINGS[one]) else kind  # Prometheus' convention
    name = PREFIX + name
    return families.setdefault(name, Family(name, kind, meaning))


def _of_device(families: dict[str, Family], device: Device) -> None:
    own = {"nic": device.nic}
    counters = device.counters()
    rtt = _family(families, "base_rtt_seconds", "Round trip that all timers follow.")
    rtt.add(own, device.base_rtt_us / US_PER_S)
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


def _of_queue_pairs(
    families: dict[str, Family], device: Device, links: linksums.Links | None
) -> None:
    own, sums = {"nic": device.nic}, device.sums()
    states = _family(families, "qps", "Queue pairs in each state.")
    for state in QpState:  # also states without queue pairs: a graph needs the zeros
        states.add({**own, "state": state.name}, sums.states.get(state.name, 0))
    for key, what in QP.items():
        _family(families, *what).add(own, sums.counters.get(key, 0))
    _of_evs(families, own, device.n_planes, sums.paths)
    busiest = _family(families, "path_packets_total", "Data packets sent on the busiest paths.")
    for path in linksums.busiest(sums.paths):
        labels = {**own, "peer": path.peer, "plane": path.plane, "ev": f"{path.ev:#010x}"}
        busiest.add(labels, sums.paths[path].packets)
    if links is None or device.fabric is None:
        return
    of_links = linksums.by_link(links, sums.paths)
    for link in linksums.shown(of_links):
        labels = {**own, "link": device.fabric.port_name(link)}
        for key, what in LINK.items():
            _family(families, *what).add(labels, getattr(of_links[link], key))


def _of_evs(
    families: dict[str, Family],
    own: Mapping[str, object],
    n_planes: int,
    paths: Mapping[Path, PathSum],
) -> None:
    count: dict[tuple[int, str], int] = {}
    for path, counted in paths.items():
        for state, n in counted.states.items():
            count[path.plane, state] = count.get((path.plane, state), 0) + n
    evs = _family(families, "ev_state", "EVs of all queue pairs in each state.")
    narrow = _family(
        families, "narrow_paths", "Paths that pass small packets and lose larger ones: MTU?"
    )
    least = _family(
        families, "narrow_path_payload_bytes", "Payload of the smallest packet they lose, else 0."
    )
    for plane in range(n_planes):
        for name in ev.EV_STATES.values():
            evs.add({**own, "plane": plane, "state": name}, count.get((plane, name), 0))
        lost = [paths[path].narrow_bytes for path in paths if path.plane == plane]
        lost = [n_bytes for n_bytes in lost if n_bytes > 0]
        narrow.add({**own, "plane": plane}, len(lost))
        least.add({**own, "plane": plane}, min(lost, default=0))


class Server(Closing):
    """Serves the counters of devices at `http://HOST:PORT/metrics`, on a thread of its own.

    `port` 0 takes any free one; `port` says which. It listens on loopback by default, because there
    is no protection. `InputError` if the port is not available.
    """

    def __init__(self, devices: Sequence[Device], port: int, host: str = LOOPBACK) -> None:
        if not 0 <= port < PORTS:
            raise InputError(f"metrics port {port}: 0 to {PORTS - 1} is accepted")
        shown = Collector(devices)

        class Handler(_Handler):
            """Handler bound to the devices."""

            def body(self, content_type: str) -> bytes:
                return shown.text(content_type).encode()

        try:
            self._server = _Sampling((host, port), Handler)
        except OSError as error:
            raise InputError(f"metrics port {port}: {error.strerror}; name another") from None
        self._server.collector = shown
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve, name="mrc metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Sampling(TimelyServer):
    """Samples round trips between requests."""

    collector: Collector | None = None
    _due_s = 0.0

    def service_actions(self) -> None:
        """Sample, if it is time; called after every request, and twice a second without."""
        super().service_actions()
        if self.collector is not None and time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + SAMPLE_S
            self.collector.sample()


class _Handler(TimelyRequest):
    """Answers one request: the counts."""

    def body(self, content_type: str) -> bytes:
        """Return the body of the response."""
        raise NotImplementedError

    def do_GET(self) -> None:  # noqa: N802  # named by http.server
        """Respond with the counts, or 404."""
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, f"only {PATH} is here")
            return
        content_type = negotiated(self.headers.get("Accept", ""))
        body = self.body(content_type)
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815
