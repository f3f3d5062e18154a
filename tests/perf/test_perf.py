"""`mrc perf` over loopback: figures that fit together, both ends, and whoever leaves early."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from openmrc.cli.command import main
from openmrc.errors import InputError, OpenMrcError
from openmrc.perf import channel, ends, run
from openmrc.perf.bandwidth import check
from openmrc.perf.channel import Channel, PeerGoneError
from openmrc.perf.figures import bandwidth, latency, peak_rate
from openmrc.perf.plan import BW, LAT, Plan
from openmrc.perf.report import Report
from openmrc.perf.watch import Look, line, notices
from openmrc.verbs import Device, QpState
from openmrc.verbs.cabled import cabled
from tests.live.two import PATIENCE_S

SECRET = bytes(range(32))


def measured(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["perf", *options, "--overlay", "2", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


# --- figures ----------------------------------------------------------------------------------


def test_the_peak_is_the_best_stretch() -> None:
    """Posted at once, completed after 10, 20, 30 and then all at 31 ns: four in 31."""
    assert peak_rate([0, 0, 0, 0], [10, 20, 30, 31]) == pytest.approx(4 / 31e-9)
    assert peak_rate([0, 5, 30, 30], [10, 20, 31, 70]) == pytest.approx(1e9)  # the third alone
    assert peak_rate([0, 1], []) == 0.0


def test_bandwidth_is_payload_over_time() -> None:
    row = bandwidth(1000, 500, 0.001, [0], [1_000_000])
    assert row.bw_average_gbps == pytest.approx(4.0)
    assert row.bw_peak_gbps == row.bw_average_gbps  # a peak is never below
    assert row.msg_rate_mpps == pytest.approx(0.5)
    assert row.plus(row).bw_average_gbps == pytest.approx(8.0)


def test_latencies_are_half_round_trips() -> None:
    row = latency(2, [2000 * i for i in range(1000, 0, -1)])
    assert row is not None
    assert (row.t_min_us, row.t_typical_us, row.t_max_us) == (1.0, 500.0, 1000.0)
    assert (row.p99_us, row.p999_us) == (990.0, 999.0)
    assert row.t_avg_us == pytest.approx(500.5)
    assert row.t_stdev_us == pytest.approx(288.675, abs=0.001)
    assert latency(2, []) is None


def test_the_line_of_a_second() -> None:
    a = Look(10.0, 0, 1000, 5, [0, 0], [4, 4], [0, 0], [[], []], 60)
    b = Look(12.0, 500_000_000, 1000, 8, [250_000_000, 500_000_000], [4, 4], [0, 3], [[], []], 60)
    assert line(a, b, 7.0) == (
        "   7 s  2.00 Gb/s out  0.00 in  lost 3  planes 1.00 2.00  EVs bad 0/4 3/4"
    )


def test_a_plane_that_loses_full_packets_only_is_told_once() -> None:
    a = Look(10.0, 0, 0, 0, [0, 0], [4, 4], [0, 3], [[], []], 60)
    b = Look(11.0, 0, 0, 0, [0, 0], [4, 4], [0, 3], [[], [4096, 2048]], 60)
    assert notices(a, b) == ["plane 1: 2 of 4 paths pass 60 B and lose 2,048 B of data: MTU?"]
    assert notices(b, b) == notices(a, a) == []


# --- both ends in one process -------------------------------------------------------------------


def test_bandwidth_over_loopback(capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(capsys, "write_bw", "--size", "8KiB", "--iters", "300", "--qps", "2")
    [row] = found["rows"]
    assert (row["bytes"], row["iterations"]) == (8192, 600)
    rate = row["msg_rate_mpps"] * 1e6 * 8192 * 8 / 1e9
    assert row["bw_average_gbps"] == pytest.approx(rate)
    assert row["bw_peak_gbps"] >= row["bw_average_gbps"] > 0
    assert not found["partial"]
    sent = sum(qp["tx_packets"] - qp["rtx"] for qp in found["queue_pairs"].values())
    assert sent == 1200  # two packets a message, each known to be there
    assert sum(qp["rx_packets"] for qp in found["queue_pairs"].values()) == 0


def test_both_directions(capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(capsys, "write_bw", "-s", "4096", "-n", "200", "-b", "-t", "8")
    assert found["rows"][0]["iterations"] == 400
    [qp] = found["queue_pairs"].values()
    assert qp["rx_packets"] == 200


def test_a_duration_ends(capsys: pytest.CaptureFixture[str]) -> None:
    started = time.monotonic()
    found = measured(capsys, "write_bw", "--duration", "0.3", "-s", "65536")
    assert time.monotonic() - started < PATIENCE_S
    assert found["rows"][0]["iterations"] > 0


def test_bandwidth_between_addresses(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary network: planes by their addresses, the secret from the environment."""
    heard: queue.Queue[int] = queue.Queue()

    def serve() -> None:
        with Device.on_network(["127.0.4.1", "127.0.4.2"], **ends.LIMITS) as device:
            run._serve(device, BW, 0, SECRET, False, heard.put)

    other = threading.Thread(target=serve)
    other.start()
    monkeypatch.setenv("OPENMRC_SECRET", SECRET.hex())
    words = ["perf", "write_bw", "127.0.0.1", "--port", str(heard.get(timeout=PATIENCE_S))]
    planes = ["--planes", "127.0.5.1,127.0.5.2", "--udp-port", "4900", "--rate", "1Gbps"]
    assert main([*words, *planes, "-n", "50", "-s", "64KiB", "--json"]) == 0
    other.join(PATIENCE_S)
    found = json.loads(capsys.readouterr().out)
    assert (found["mode"], found["planes"], found["pmtu_bytes"]) == ("ip", 2, 8192)
    assert found["addresses"] == ["127.0.5.1 port 4900", "127.0.5.2 port 4900"]
    assert found["rows"][0]["iterations"] == 50
    assert 0 < found["rows"][0]["bw_average_gbps"] < 2.0  # two planes of 1 Gb/s
    assert all(port["tx_packets"] for port in found["device"]["ports"])


def test_latency_over_loopback(capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(capsys, "write_lat", "-n", "50", "-s", "10000")
    [row] = found["rows"]
    assert row["iterations"] == 50
    order = [row[key] for key in ("t_min_us", "t_typical_us", "p99_us", "p999_us", "t_max_us")]
    assert order == sorted(order)
    assert order[0] > 1  # four threads were woken on the way
    timed = measured(capsys, "write_lat", "-D", "0.2")
    assert timed["rows"][0]["iterations"] > 1


def test_a_table_like_perftests(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["perf", "write_bw", "--overlay", "1", "-n", "20", "-a", "-t", "2"]) == 0
    out = capsys.readouterr().out.splitlines()
    head = next(i for i, words in enumerate(out) if words.startswith(" #bytes"))
    assert out[head].split("  ")[0] == " #bytes"
    rows = [words.split() for words in out[head + 1 : -1]]
    assert [int(row[0]) for row in rows] == [2**i for i in range(1, 24)]
    assert {len(row) for row in rows} == {5}
    assert {row[1] for row in rows} == {"20"}
    assert sum("address: NIC" in words for words in out) == 2
    assert main(["perf", "write_lat", "--overlay", "1", "-n", "5"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out[-2].split()) == 9


def test_metrics_while_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    bodies: list[str] = []

    def scrape() -> None:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and not bodies:
            said.append(capsys.readouterr().err)
            if at := re.search(r"http://\S+/metrics", "".join(said)):
                with urllib.request.urlopen(at[0], timeout=PATIENCE_S) as answer:
                    bodies.append(answer.read().decode())
            time.sleep(0.02)

    said: list[str] = []
    thread = threading.Thread(target=scrape)
    thread.start()
    assert main(["perf", "write_bw", "--overlay", "1", "-D", "1", "--metrics", "0"]) == 0
    thread.join()
    assert 'openmrc_port_tx_bytes_total{nic="0",plane="0"}' in bodies[0]
    assert 'openmrc_port_tx_bytes_total{nic="1",plane="0"}' in bodies[0]


# --- two ends that meet ---------------------------------------------------------------------------


def meet(plan: Plan, serve: Any, measure: Any) -> list[BaseException]:
    """Run both ends; what ended the server."""
    ready, errors, at = threading.Event(), list[BaseException](), list[int]()

    def listening(port: int) -> None:
        at.append(port)
        ready.set()

    with cabled(1, **ends.LIMITS) as (a, b):

        def work() -> None:
            try:
                serve(b, listening)
            except OpenMrcError as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        assert ready.wait(PATIENCE_S)
        measure(a, at[0])
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    return errors


def test_the_server_prints_what_the_client_found(capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(BW, (4096,), 50, 0.0)
    common = run.Common(as_json=True)
    errors = meet(
        plan,
        lambda device, listening: run._serve(device, BW, 0, SECRET, False, listening, Report(True)),
        lambda device, port: run._as_client(device, plan, "127.0.0.1", port, SECRET, common),
    )
    assert errors == []
    text = capsys.readouterr().out
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text.rstrip()):
        one, at = decoder.raw_decode(text, at)
        found.append(one)
        at += 1
    assert {one["role"] for one in found} == {"client", "server"}
    assert found[0]["rows"] == found[1]["rows"]


def test_a_client_that_measures_something_else_is_told() -> None:
    plan = Plan(LAT, (2,), 50, 0.0)
    common = run.Common(as_json=True)

    def measure(device: Any, port: int) -> None:
        with pytest.raises(PeerGoneError, match=r"the server at 127\.0\.0\.1 is gone"):
            run._as_client(device, plan, "127.0.0.1", port, SECRET, common)

    [error] = meet(
        plan,
        lambda device, listening: run._serve(device, BW, 0, SECRET, False, listening, Report(True)),
        measure,
    )
    assert "the client measures write_lat, this server write_bw: start the same" in str(error)


def test_a_client_that_leaves_ends_the_server() -> None:
    plan = Plan(BW, (4096,), 50, 0.0)

    def leave(device: Any, port: int) -> None:
        with ends.client(device, plan, "127.0.0.1", port, SECRET):
            pass

    [error] = meet(
        plan,
        lambda device, listening: run._serve(device, BW, 0, SECRET, False, listening),
        leave,
    )
    assert isinstance(error, PeerGoneError)


@pytest.fixture
def channels() -> Iterator[tuple[Channel, Channel]]:
    """Client and server, ready; a silent peer is given up after 50 ms."""
    with cabled(2, linear_cnt=2, exp_cnt=1) as devices:
        client, server = map(Channel, devices)
        client.qp.connect(server.qp.attributes)
        server.qp.connect(client.qp.attributes)
        server.start(client.region.remote, "the client at 10.0.0.9", server=True)
        client.start(server.region.remote, "the server", server=False)
        yield client, server


def test_a_client_whose_host_vanishes_ends_the_server(
    channels: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "ASK_S", 0.05)
    client, server = channels
    client.qp.modify(QpState.ERROR)  # it says nothing and answers nothing
    with pytest.raises(PeerGoneError) as gone:
        server.receive()
    assert str(gone.value) == (
        "the client at 10.0.0.9 is gone: retry counter exceeded (nothing comes from it: is its"
        " host down, or are all paths cut?)"
    )


def test_a_server_whose_host_vanishes_is_named_to_who_sends(
    channels: tuple[Channel, Channel],
) -> None:
    """Retries of its own queue pairs end before those of the channel."""
    client, server = channels
    server.qp.modify(QpState.ERROR)
    client._ask()
    [done] = client._cq.wait(1, PATIENCE_S)
    end: Any = SimpleNamespace(qps=[client.qp], number={done.qp_num: 0}, channel=client)
    with pytest.raises(PeerGoneError, match=r"^the server is gone: retry counter exceeded \(noth"):
        check(end, done)


def test_a_client_that_is_silent_ends_the_server_before_its_retries_do(
    channels: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a round trip was long when it was measured, retries take long, too."""
    monkeypatch.setattr(channel, "ASK_S", 0.05)
    monkeypatch.setattr(channel, "GONE_S", 0.0)
    _, server = channels
    monkeypatch.setattr(server, "_take", lambda timeout: None)  # no answer
    monkeypatch.setattr(server, "_heard", iter([1, 2, 3, 3]).__next__)  # and in the end nothing
    with pytest.raises(PeerGoneError, match=r"is gone: silent for 0 s \(nothing comes from"):
        server.receive()
    assert server.qp.state == QpState.RTS


def test_who_waits_asks_and_a_peer_that_is_there_may_take_its_time(
    channels: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "ASK_S", 0.02)
    client, server = channels
    before = client.qp.counters()["rx_packets"]
    late = threading.Timer(0.5, client.send, [{"size": 0}])
    late.start()
    assert server.receive() == {"size": 0}
    late.join()
    assert client.qp.counters()["rx_packets"] - before >= 5  # of some 25
    assert client.qp.state == server.qp.state == QpState.RTS


def test_a_client_says_what_it_waits_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends, "WORD_S", 0.1)
    monkeypatch.setattr(ends, "SERVER_S", 0.6)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # and does not listen
        port = free.getsockname()[1]
        with cabled(1) as (device, _), pytest.raises(OpenMrcError) as error:
            run._as_client(device, Plan(BW, (64,), 1, 0.0), "127.0.0.1", port, SECRET, run.Common())
    assert capsys.readouterr().err == (
        f"Waiting for a server at 127.0.0.1 port {port}, up to 0.6 s.\n"
    )
    assert str(error.value) == (
        f"127.0.0.1 port {port}: Connection refused; a server serves one client: start mrc perf"
        f" write_bw there, with --port {port} and the same secret"
    )


def test_a_port_that_is_taken_is_named_with_the_remedy() -> None:
    with socket.create_server(("", 0)) as taken, cabled(1) as (device, _):
        port = taken.getsockname()[1]
        with pytest.raises(InputError) as error, ends.server(device, port, SECRET, print):
            pass
    assert str(error.value) == (
        f"--port {port}: Address already in use; end what listens there (ss -tlnp sport = {port}),"
        " or name another port at both ends"
    )


def test_ctrl_c_prints_what_there_is() -> None:
    command = [sys.executable, "-m", "openmrc.cli", "perf", "write_bw", "--overlay", "1"]
    with subprocess.Popen(
        [*command, "-D", "60", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    ) as process:
        assert process.stderr is not None
        while "Gb/s out" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    found = json.loads(out)
    assert found["partial"]
    assert found["rows"][0]["iterations"] > 0


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("write_bw --size 5", "--size without HOST: the client says it, the server follows"),
        ("write_bw -b", "--bidirectional without HOST"),
        ("write_bw h -n 3 -D 3", "both --iters and --duration; name one or the other"),
        ("write_bw h -a -s 3", "both --all and --size; name one or the other"),
        ("write_bw h --overlay 2", "both --overlay and HOST; the overlay has no other end"),
        ("write_bw --overlay 1 --port 5", "both --overlay and --port"),
        ("write_bw h --secret xx", "--secret xx: cannot be read (No such file or directory)"),
        (
            "write_bw --planes lo --secret " + "ab" * 16,
            "--secret: names no file that can be read; name a",
        ),
        ("write_bw h --port 0", "--port 0: 1 to 65535 is accepted"),
        ("write_bw --overlay 1 --planes lo", "both --overlay and --planes"),
        ("write_bw h --rate 1Gbps", "--rate without --planes: a host file says it"),
        ("write_bw h --udp-port 5", "--udp-port without --planes"),
        ("write_bw h --planes lo --rate fast", "--rate: 'fast'"),
        (
            "write_bw h --planes lo",
            "no secret: both ends need the same; name its file with --secret",
        ),
        ("write_lat --overlay 2 --size 10q", "--size: '10q': 'q' is not a unit of size"),
        ("write_lat --overlay 2 --size 0", "--size 0: 1 to "),
        ("write_lat --overlay 2 --duration -1", "--duration -1: 0.01 or more"),
        ("write_lat --overlay 2 --iters 0", "--iters 0: 1 to 100,000,000 is accepted"),
        ("write_lat --overlay 9", "--overlay: 9 planes: 1 to 8 are accepted"),
        ("write_bw --overlay 2 --ranks", "both --overlay and --ranks"),
        ("write_bw h --ranks", "both --ranks and HOST; name one or the other"),
        ("write_bw --ranks", "--ranks: takes two hosts of a lab; mrc lab LAB.toml --hosts 0,1"),
        ("write_lat --overlay 1 --qps 2", "unrecognized arguments: --qps"),
        ("write_bw --overlay 2 -q 64", "--qps 64: 1 to 63 is accepted"),
        ("write_bw --overlay 2 -t 257", "--tx-depth 257: 1 to 256 is accepted"),
        ("write_bw --overlay 2 -q 63 -s 1GiB", "up to 4 GiB of buffers are accepted"),
        ("write_bw", "no host file: name one, or set OPENMRC_HOST"),
        ("read_bw", "invalid choice: 'read_bw'"),
    ],
)
def test_bad_options_are_refused_in_one_line(
    options: str,
    why: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENMRC_HOST", raising=False)
    monkeypatch.delenv("OPENMRC_HOSTS", raising=False)
    assert main(["perf", *options.split()]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("mrc: ")
    assert why in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("told", [None, {"test": BW}, [1]])
def test_a_plan_that_is_none_is_refused(told: Any) -> None:
    with pytest.raises(InputError, match="no `mrc perf` of this version"):
        Plan.of(told)
    good = Plan(BW, (4096,), 50, 0.0)
    assert Plan.of(json.loads(json.dumps(good.as_dict()))) == good
    with pytest.raises(InputError, match="the peer's plan is not understood"):
        Plan.of({**good.as_dict(), "sizes": "many"})
    with pytest.raises(InputError, match="--qps 0: 1 to 63"):
        Plan.of({**good.as_dict(), "qps": 0})
