"""Metrics are read as Prometheus reads them, and say what the devices count."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from typing import Any

import numpy as np
import pytest

from openmrc.engine import verdict
from openmrc.errors import InputError
from openmrc.live.endpoint import state
from openmrc.verbs import Status, exposition, metrics
from tests.live.two import PATIENCE_S, connected

MB = 1 << 20
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} ([0-9.e+-]+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def unescape(label: str) -> str:
    return re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), label)


def parse(body: str) -> tuple[dict[str, str], Samples]:
    """Types by name, and samples: every line must be one of the three kinds, in their order."""
    types: dict[str, str] = {}
    helped: set[str] = set()
    samples: Samples = {}
    assert body.endswith("\n")
    for line in body.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert name not in helped  # all of a name stands together
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name in helped
            assert kind in ("counter", "gauge", "histogram")
            types[name] = kind
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            name = list(types)[-1]
            if types[name] == "histogram":
                assert found[1].removeprefix(name) in ("_bucket", "_sum", "_count")
            else:
                assert found[1] == name
            assert found[1].endswith("_total") == (types[name] == "counter")
            labels = frozenset((key, unescape(text)) for key, text in LABEL.findall(found[2]))
            assert (found[1], labels) not in samples
            samples[found[1], labels] = float(found[3])
    return types, samples


def value(samples: Samples, name: str, **labels: Any) -> float:
    return samples[f"openmrc_{name}", frozenset((k, str(v)) for k, v in labels.items())]


def get(port: int, path: str = "/metrics", accept: str = "*/*") -> tuple[str, str]:
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


def test_what_is_scraped_is_what_was_counted() -> None:
    with (
        connected(planes=2) as (a, b),
        metrics.Server([a.device, b.device], 0) as server,
    ):
        sink = b.device.reg_mr(bytearray(MB))
        source = a.device.reg_mr(np.ones(MB, np.uint8))
        a.qp.post_write(1, source, remote_addr=sink.addr, rkey=sink.rkey)
        assert a.cq.wait(timeout=PATIENCE_S)[0].status == Status.SUCCESS
        body, kind = get(server.port)
        _, samples = parse(body)
        mine, theirs = {"nic": 0}, {"nic": 1}
        sent = value(samples, "qp_tx_packets_total", **mine)
        assert sent - value(samples, "qp_retransmitted_packets_total", **mine) == 256
        assert value(samples, "qp_rx_bytes_total", **theirs) == MB
        assert value(samples, "qps", **mine, state="RTS") == 1
        assert value(samples, "qps", **mine, state="ERROR") == 0
        for plane in range(2):
            labels = {"nic": 0, "plane": plane}
            assert value(samples, "port_up", **labels) == 1
            assert value(samples, "port_tx_bytes_total", **labels) > MB // 4
            n = sum(ev["plane"] == plane for ev in a.qp.evs())
            states = [
                value(samples, "ev_state", **mine, plane=plane, state=name)
                for name in ("GOOD", "SKIP", "ASSUMED_BAD", "DENIED")
            ]
            assert sum(states) == n
            # every packet of a plane crosses the NIC's own link, and nobody is under suspicion
            own = {"nic": 0, "link": f"nic 0 plane {plane} > t0"}
            on_it = sum(ev["packets"] for ev in a.qp.evs() if ev["plane"] == plane)
            assert value(samples, "link_packets_total", **own) == on_it
            assert value(samples, "link_paths", **own) == n
            assert value(samples, "link_suspect", **own) == 0
        of_paths = {
            (dict(labels)["plane"], dict(labels)["ev"]): n
            for (name, labels), n in samples.items()
            if name == "openmrc_path_packets_total" and ("nic", "0") in labels
        }
        assert of_paths == {
            (str(ev["plane"]), f"{ev['ev']:#010x}"): ev["packets"] for ev in a.qp.evs()
        }
        assert sum(of_paths.values()) == sent
    assert kind == "text/plain; version=0.0.4; charset=utf-8"


def test_paths_too_narrow_for_full_packets_are_counted() -> None:
    """One path of plane 1 has shown four times in a row that it loses 4,096 B; another, three
    times, which is no proof.
    """
    with connected(planes=2) as (a, _):
        st = a.device._host.st
        second = [i for i, e in enumerate(st.ev) if e.plane == 1 and e.state][:2]
        for number, (i, times) in enumerate(zip(second, (4, 3), strict=True), 1):
            st.blame[number].lost, st.blame[number].narrow = 4096, times
            st.ev[i].blame = number
        assert [ev["narrow_bytes"] for ev in a.qp.evs() if ev["narrow_bytes"]] == [4096]
        _, samples = parse(metrics.text([a.device]))
    for plane, n, payload in ((0, 0, 0), (1, 1, 4096)):
        labels = {"nic": 0, "plane": plane}
        assert value(samples, "narrow_paths", **labels) == n
        assert value(samples, "narrow_path_payload_bytes", **labels) == payload


def test_refusals_carry_their_reason() -> None:
    with connected(planes=1) as (a, _):
        a.device._host.ep.reason[0, state.VERDICTS + verdict.BAD_KEY] = 7
        types, samples = parse(metrics.text([a.device]))
    reason = "wrong rkey, out of bounds or no write right"
    assert value(samples, "port_refused_total", nic=0, plane=0, reason=reason) == 7
    assert types["openmrc_port_refused_total"] == "counter"


def test_labels_may_hold_anything() -> None:
    family = exposition.Family("openmrc_x", "gauge", "a \\ and\na line")
    ugly = 'C:\\new "one"\nand two, three}'
    family.add({"a": ugly, "b": 1}, 0.5)
    lines = list(family.lines())
    assert lines[0] == "# HELP openmrc_x a \\\\ and\\na line"
    _, samples = parse("\n".join(lines) + "\n")
    assert samples == {("openmrc_x", frozenset({("a", ugly), ("b", "1")})): 0.5}


def test_every_counter_of_a_device_is_there() -> None:
    with connected(planes=1) as (a, _):
        port = a.device.counters()["ports"][0]
        assert set(metrics.PORT) == set(port) - {"up", "refused"}
        assert set(metrics.DEVICE) == set(a.device.counters()) - {"ports"}
        assert set(metrics.QP) == set(a.qp.counters())


def test_what_a_queue_pair_counted_outlives_it() -> None:
    """A sum that fell would be taken for a counter that began anew."""
    with connected(planes=2) as (a, b):
        sink = b.device.reg_mr(bytearray(MB))
        source = a.device.reg_mr(np.ones(MB, np.uint8))
        a.qp.post_write(1, source, remote_addr=sink.addr, rkey=sink.rkey)
        assert a.cq.wait(timeout=PATIENCE_S)[0].status == Status.SUCCESS
        _, before = parse(metrics.text([a.device]))
        a.qp.destroy()
        _, after = parse(metrics.text([a.device]))
    name = "qp_tx_packets_total"
    assert value(before, name, nic=0) == value(after, name, nic=0) >= 256
    assert value(before, "qps", nic=0, state="RTS") == 1
    assert value(after, "qps", nic=0, state="RTS") == 0
    own = {"nic": 0, "link": "nic 0 plane 1 > t0"}
    assert value(after, "link_packets_total", **own) > 0
    assert value(after, "link_paths", **own) == value(after, "qp_cwnd_bytes", nic=0) == 0


def test_a_path_that_is_being_made_is_not_shown_and_stops_no_scrape() -> None:
    with connected(planes=1) as (a, _):
        n, host = len(a.qp.evs()), a.device._host
        record = host.st.ev[int(a.qp._q.ev0)]
        was, record.state = int(record.state), 0  # as between its plane's count and its own record
        _, samples = parse(metrics.text([a.device]))
        record.state = was
    assert sum(k for (name, _), k in samples.items() if name == "openmrc_ev_state") == n - 1


def test_only_metrics_are_served_and_only_on_a_port_that_is_free() -> None:
    with metrics.Server([], 0) as server:
        assert get(server.port, "/metrics?x=1")[0] == ""
        open_metrics = "application/openmetrics-text; version=1.0.0"
        body, kind = get(server.port, accept=f"{open_metrics}, text/plain;q=0.5")
        assert (body, kind) == ("# EOF\n", f"{open_metrics}; charset=utf-8")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(server.port, "/")
        head = urllib.request.Request(f"http://127.0.0.1:{server.port}/metrics", method="HEAD")
        with urllib.request.urlopen(head, timeout=PATIENCE_S) as answer:
            assert answer.read() == b""
        with pytest.raises(InputError, match=f"metrics port {server.port}: .*; name another"):
            metrics.Server([], server.port)
    with pytest.raises(InputError, match="metrics port 70000: 0 to 65535 is accepted"):
        metrics.Server([], 70_000)


def test_round_trips_are_sampled_of_queue_pairs_that_send() -> None:
    with connected(planes=2) as (a, b):
        shown = metrics.Collector([a.device, b.device])
        shown.sample()
        sink = b.device.reg_mr(bytearray(MB))
        source = a.device.reg_mr(np.ones(MB, np.uint8))
        a.qp.post_write(1, source, remote_addr=sink.addr, rkey=sink.rkey)
        assert a.cq.wait(timeout=PATIENCE_S)[0].status == Status.SUCCESS
        shown.sample()
        rtt_s = a.qp.rtt_us / 1e6
        shown.sample()  # nothing was sent since
        types, samples = parse(shown.text())
    assert types["openmrc_path_rtt_seconds"] == "histogram"
    assert value(samples, "path_rtt_seconds_count", nic=0) == 1
    assert value(samples, "path_rtt_seconds_count", nic=1) == 0
    assert value(samples, "path_rtt_seconds_sum", nic=0) == pytest.approx(rtt_s, rel=0.5)
