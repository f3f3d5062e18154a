"""The switches' loop on its own thread, in real time.

Bounds are generous: the machine may be busy, and a loop that is not scheduled for some milliseconds
is late by as much. What is exact is tested with time given by hand, in the other files.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmrc.errors import InputError
from openmrc.fabric import actions
from openmrc.fabric.faults import compile_faults
from openmrc.fabric.kinds import Fault
from openmrc.fabric.queues import Queues
from openmrc.jit import interpreted
from openmrc.live.overlay import overlay_ports, pair
from openmrc.wire import frame, pcap
from openmrc.wire.srv6 import CARRIER_AT
from tests.live.switch.switching import (
    MS,
    PATIENCE_S,
    Rig,
    collected,
    decoded,
    drained,
    event,
    on_wire_ps,
    small,
    until,
)

ROOT = Path(__file__).resolve().parents[3]
SLOW = 20 * 10**6  # bit/s
TRIES = 3  # of what a busy machine spoils now and then


@pytest.mark.parametrize("kind", ["udp", "local"])
def test_frames_cross_a_running_fabric_on_every_path(kind: str) -> None:
    with Rig(kind=kind) as rig:
        rig.switches.start()
        fabric = rig.fabric
        for src in range(4):
            for plane in range(2):
                for up in range(2):
                    ev = fabric.ev(plane, up)
                    rig.send(src, plane, rig.frame(src, (src + 2) % 4, ev, psn=up))
        for nic in range(4):
            for plane in range(2):
                got = collected(rig, nic, plane, 2)
                assert sorted(int(decoded(data)[1].psn) for data in got) == [0, 1]
        rig.switches.stop()
        assert rig.drops() == {}
        rig.check_conserved()


def frames_take_s() -> float:
    """How long 0.3 s of frames take on a slow link."""
    with Rig(small(rate_bps=SLOW), Queues(queue_bytes=10**6, queue_last_hop_bytes=10**6)) as rig:
        data = rig.frame(0, 1)
        n = int(0.3 * 10**12 / on_wire_ps(data, SLOW))
        rig.switches.start()
        started = time.monotonic()
        rig.send(0, 0, *[data] * n)
        collected(rig, 1, 0, n)
        return time.monotonic() - started


def test_a_slow_link_is_never_faster_than_its_rate_and_not_much_slower() -> None:
    """Lateness does not add up; what a busy machine adds, it does not add every time."""
    took_s = [frames_take_s()]
    while took_s[-1] > 0.6 and len(took_s) < TRIES:
        took_s.append(frames_take_s())
    assert 0.3 <= min(took_s) <= 0.6


def test_an_action_is_effective_when_it_returns() -> None:
    with Rig() as rig:
        rig.switches.start()
        port = rig.fabric.nic_port(0, 0)
        for i in range(20):
            rig.act(actions.PORT_DOWN, port)
            rig.send(0, 0, rig.frame(0, 1, psn=i))
            until(lambda i=i: rig.drops() == {"link_down": i + 1})  # type: ignore[misc]
            rig.act(actions.PORT_UP, port)
            rig.send(0, 0, rig.frame(0, 1, psn=i))
            (got,) = collected(rig, 1, 0, 1)
            assert decoded(got)[1].psn == i


def test_many_threads_may_act_at_once() -> None:
    with Rig() as rig:
        rig.switches.start()

        def flap(port: int) -> None:
            for _ in range(100):
                rig.act(actions.PORT_DOWN, port)
                rig.act(actions.PORT_UP, port)

        threads = [threading.Thread(target=flap, args=(port,)) for port in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert rig.switches.net.port.up.all()
        # more actions than the loop has room for at once
        rig.switches.act(np.concatenate([event(actions.PORT_DOWN, 0)] * 5000))
        assert not rig.switches.net.port.up[0]


def late_frames() -> list[float]:
    """A switch is silent from 100 to 300 ms: the times of frames, 80 ms or more from these, that
    arrived or not as they should not. A loop that is not scheduled for a moment reads them late.
    """
    with Rig() as rig:
        schedule = compile_faults(
            [Fault(kind="switch-silent", where="plane 0 t0 0", at_ps=100 * MS, for_ps=200 * MS)],
            rig.fabric,
        )
        rig.switches.start(schedule)
        started = time.monotonic()
        sent: list[float] = []
        while time.monotonic() - started < 0.45:
            rig.send(0, 0, rig.frame(0, 1, psn=len(sent), payload=0))
            sent.append(time.monotonic() - started)
            time.sleep(0.004)
        time.sleep(0.05)
        arrived = {int(decoded(data)[1].psn) for data in rig.got(1, 0)}
        due = [at for psn, at in enumerate(sent) if psn not in arrived]
        late = [at for at in due if at < 0.02 or at > 0.38]
        late += [at for psn, at in enumerate(sent) if psn in arrived and 0.18 < at < 0.22]
        # once more, from now on, while it runs
        rig.switches.play(schedule)
        time.sleep(0.15)
        rig.send(0, 0, rig.frame(0, 1))
        until(lambda: rig.drops()["switch_down"] > len(sent) - len(arrived))
        return late


def test_the_loop_carries_out_the_schedule_by_itself() -> None:
    assert any(late_frames() == [] for _ in range(TRIES))


def test_an_idle_loop_sleeps() -> None:
    with Rig() as rig:
        rig.switches.start()
        time.sleep(0.05)
        before = rig.switches.counters().turns
        time.sleep(0.3)
        assert rig.switches.counters().turns - before <= 2


def test_on_slow_links_frames_are_handled_together() -> None:
    """A grain of 20 ms: 100 frames that take 46 ms take some turns, not the 300 of its events."""
    with Rig(small(rate_bps=SLOW), grain_ns=20_000_000) as rig:
        rig.switches.start()
        data = rig.frame(0, 1)
        started = time.monotonic()
        rig.send(0, 0, *[data] * 100)
        collected(rig, 1, 0, 100)
        took = time.monotonic() - started
        assert rig.switches.counters().turns <= took / 0.02 + 6
        assert rig.drops() == {}
        # and once nothing is inside, a frame is read at once: it wakes the loop
        before = rig.switches.counters().turns
        time.sleep(0.1)
        assert rig.switches.counters().turns - before <= 2


def test_the_grain_follows_from_the_round_trip() -> None:
    """A 32nd of it, where that is what a sleep is exact to, and 50 us at most."""
    grains = []
    for rate_bps in (10**11, 10**9, 200 * 10**6, 10**7):
        with Rig(small(rate_bps=rate_bps)) as rig:
            grains.append(int(rig.switches.net.ctl[0].grain_ns))
    assert grains[:2] == [0, 0]
    assert 20_000 < grains[2] < 25_000
    assert grains[3] == 50_000


@pytest.mark.parametrize("kind", ["udp", "local"])
def test_a_nic_that_is_gone_costs_nothing(kind: str) -> None:
    """What is for it is lost and counted; the loop neither ends nor spins."""
    with Rig(kind=kind) as rig:
        rig.switches.start()
        gone = int(rig.ends.endpoint[rig.fabric.nic_port(1, 0)])
        os.close(gone)
        rig.ends.endpoint[rig.fabric.nic_port(1, 0)] = os.open("/dev/null", os.O_RDONLY)
        for _ in range(10):
            rig.send(0, 0, rig.frame(0, 1))
            rig.send(0, 0, rig.frame(0, 3))
        assert len(collected(rig, 3, 0, 10)) == 10
        if kind == "local":  # UDP takes a frame for nobody like any other
            until(lambda: rig.drops() == {"send_error": 10})
        time.sleep(0.05)
        before = rig.switches.counters().turns
        time.sleep(0.2)
        assert rig.switches.counters().turns - before <= 4


def test_start_and_stop_leave_nothing_behind() -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    with Rig() as rig:
        files, threads = open_files(), threading.active_count()
        for _ in range(5):
            rig.switches.start()
            with pytest.raises(InputError, match="is already running"):
                rig.switches.start()
            rig.send(0, 0, rig.frame(0, 1))
            collected(rig, 1, 0, 1)
            rig.switches.stop()
            rig.switches.stop()
            assert threading.active_count() == threads
        assert open_files() == files
        rig.switches.close()
        assert open_files() == files - 3
        rig.switches.close()
    before = open_files()
    for kind in ("udp", "local"):
        with Rig(kind=kind) as rig:
            rig.switches.start()
    assert open_files() == before


def test_frames_inside_a_stopped_loop_go_on_when_it_is_started_again() -> None:
    """0.4 s of frames: the thread that stops the loop may be late by a good part of that."""
    with Rig(small(rate_bps=SLOW // 100)) as rig:
        rig.switches.start()
        rig.send(0, 0, *[rig.frame(0, 1, psn=i) for i in range(8)])
        until(lambda: rig.switches.counters().received.sum() == 8)
        rig.switches.stop()
        inside = rig.switches.counters().in_flight
        rig.check_conserved()
        rig.switches.start()
        assert len(collected(rig, 1, 0, 8)) == 8
        assert inside > 0


def test_a_capture_holds_every_frame_of_its_links_as_it_was_there() -> None:
    stream = io.BytesIO()
    with Rig(rules=Queues(queue_bytes=10**6, queue_last_hop_bytes=10**6)) as rig:
        rig.switches.start()
        rig.send(0, 0, rig.frame(0, 3, psn=99))  # before the capture
        collected(rig, 3, 0, 1)
        before_ns = time.time_ns()
        tap = rig.switches.tap(["nic 0 plane 0", "plane 0 t0 0 - t1 *"], stream)
        with pytest.raises(InputError, match="a capture is running"):
            rig.switches.tap(["nic 0 plane 0"], stream)
        rig.send(0, 0, *[rig.frame(0, 3, rig.fabric.ev(0, i % 2), psn=i) for i in range(100)])
        collected(rig, 3, 0, 100)
        tap.close()
        tap.close()
        after_ns = time.time_ns()
        rig.send(0, 0, rig.frame(0, 3, psn=99))  # behind it
        collected(rig, 3, 0, 1)
        assert (tap.captured, tap.lost) == (200, 0)
        # and another one, of the beginnings of frames
        short = rig.switches.tap([rig.fabric.nic_port(0, 0)], io.BytesIO(), snap=60)
        short.close()

    stream.seek(0)
    found = list(pcap.Reader(stream, "capture"))
    by_link: dict[str, list[int]] = {}
    for captured in found:
        code, p, _ = decoded(captured.data)
        assert code == frame.OK
        assert captured.time_ns is not None
        assert before_ns - 10**9 < captured.time_ns < after_ns + 10**9
        by_link.setdefault(captured.interface, []).append(int(p.psn))
        first = captured.data[CARRIER_AT + 4 : CARRIER_AT + 6]
        assert (first[0] >> 5 == 1) == ("t1" in captured.interface)  # a T1's uSID, once shifted
    assert by_link == {
        "nic 0 plane 0 > t0": list(range(100)),
        "plane 0 t0 0 > t1 0": list(range(0, 100, 2)),
        "plane 0 t0 0 > t1 1": list(range(1, 100, 2)),
    }
    times = [captured.time_ns or 0 for captured in found]
    assert times == sorted(times)


def test_what_a_capture_cannot_keep_up_with_is_counted() -> None:
    with Rig(rules=Queues(queue_bytes=10**8, queue_last_hop_bytes=10**8)) as rig:
        tap = rig.switches.tap(["nic 0 plane 0 > t0"], io.BytesIO())
        tap._closing.set()  # nobody drains the ring
        tap._thread.join()
        n = 0
        while n < 3000:
            rig.send(0, 0, *[rig.frame(0, 1, payload=0)] * 500)
            n += 500
            rig.run()
            assert len(rig.got(1, 0)) == 500
        assert tap.lost == 3000 - len(rig.switches.net.tapped)


def test_wires_without_a_network() -> None:
    one, other = pair()
    with one, other:
        one.send(b"there")
        other.send(b"back")
        assert (other.recv(100), one.recv(100)) == (b"there", b"back")
    for kind in ("udp", "local"):
        ends = overlay_ports(3, kind)
        for i in range(3):
            os.write(ends.switch[i], bytes([i]) * 9000)
            os.write(ends.endpoint[i], bytes([i]))
        for i in range(3):
            assert drained(int(ends.endpoint[i])) == [bytes([i]) * 9000]
            assert drained(int(ends.switch[i])) == [bytes([i])]
            os.close(ends.switch[i])
            os.close(ends.endpoint[i])
    with pytest.raises(InputError, match=r"^overlay: 'tcp' is not a kind of wire; udp or local"):
        overlay_ports(1, "tcp")


def test_a_local_wire_pushes_back_and_a_flood_loses_nothing() -> None:
    """A sender that writes whenever it may is held to the rate of its link."""
    n = 3000
    with Rig(small(rate_bps=10**9)) as rig:
        rig.switches.start()
        fd = int(rig.ends.endpoint[rig.fabric.nic_port(0, 0)])
        frames = [rig.frame(0, 1, psn=i, payload=4096) for i in range(n)]
        sent, refused = 0, 0
        got: list[int] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(got) < n and time.monotonic() < deadline:
            try:
                while sent < n:
                    os.write(fd, frames[sent])
                    sent += 1
            except BlockingIOError:
                refused += 1
                time.sleep(0.001)
            got += [int(decoded(data)[1].psn) for data in rig.got(1, 0)]
        assert got == list(range(n))
        assert refused > 0
        assert rig.drops() == {}
        assert rig.switches.counters().socket_lost.sum() == 0


def test_nics_that_stand_still_do_not_stop_the_others() -> None:
    """Three of four NICs read nothing; their frames never take all buffers."""
    with Rig(frames=256) as rig:
        rig.switches.start()
        flooded = rig.frame(0, 2, payload=8000)
        for _ in range(100):
            for src, dst in ((0, 2), (3, 1), (2, 0)):
                fd = rig.ends.endpoint[rig.fabric.nic_port(src, 0)]
                with contextlib.suppress(BlockingIOError):
                    for _ in range(50):
                        os.write(fd, flooded if src == 0 else rig.frame(src, dst, payload=8000))
            if rig.drops().get("receiver_full", 0) > 300:
                break
            time.sleep(0.02)
        assert rig.drops()["receiver_full"] > 300
        rig.send(0, 1, rig.frame(0, 3, rig.fabric.ev(1, 0)))
        assert len(collected(rig, 3, 1, 1)) == 1


def test_the_example_of_the_documents_runs(capsys: pytest.CaptureFixture[str]) -> None:
    block = re.findall(r"```python\n(.*?)```", (ROOT / "docs/live.md").read_text(), re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(compile(block, "docs/live.md", "exec"), names)
    for fd in (*names["ends"].switch, *names["ends"].endpoint):
        os.close(fd)
    assert capsys.readouterr().out.startswith("{'queue_full': 0, ")


@pytest.mark.skipif(interpreted(), reason="measures compiled code")
def test_the_benchmark_runs_and_loses_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/switches.py", "--quick", "--json", "--only", "local"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(done.stdout)["local"]
    assert list(figures) == ["4096 B", "0 B", "paced", "exact"]
    assert all(run["lost"] == 0 and run["kpps"] > 0.5 for run in figures.values())


VETH = """
import os, socket, sys
sys.path.insert(0, sys.argv[1])
import openmrc.live.switch.switches as switches
from tests.live.switch import switching

def port(name):
    one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    one.setsockopt(263, 23, 1)  # not what is sent here
    one.setblocking(False)
    one.bind((name, 0x86DD))
    return one.detach()

switching.overlay_ports = lambda n, kind: switching.Overlay(
    [port(f"s{i}") for i in range(n)], [port(f"h{i}") for i in range(n)]
)
with switching.Rig() as rig:
    rig.switches.start()
    for first in range(0, 50, 5):  # a socket's buffer may hold no more than a dozen of these
        for psn in range(first, first + 5):
            rig.send(0, 1, rig.frame(0, 3, rig.fabric.ev(1, psn % 2), psn=psn, payload=8000))
        got = switching.collected(rig, 3, 1, 5)
        assert sorted(int(switching.decoded(data)[1].psn) for data in got) == [
            *range(first, first + 5)
        ]
    assert rig.drops() == {}
    os.system("ip link set h0 down")
    rig.send(1, 0, rig.frame(1, 0))  # to a port that is down: lost, and the loop goes on
    rig.send(1, 0, rig.frame(1, 3))
    assert len(switching.collected(rig, 3, 0, 1)) == 1
print("crossed")
"""


def test_packet_sockets_on_virtual_ethernets() -> None:
    """The same loop on real interfaces, in a network of its own, without root."""
    links = "\n".join(
        f"link add s{i} mtu 9000 type veth peer name h{i} mtu 9000\nlink set s{i} up\n"
        f"link set h{i} up"
        for i in range(8)
    )
    script = 'echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6; ip -batch - && exec "$@"'
    try:
        allowed = subprocess.run(
            ["unshare", "-Urn", "ip", "link"], capture_output=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("packet sockets NOT TESTED: unshare (util-linux) is not installed")
    if allowed.returncode:
        pytest.skip(f"packet sockets NOT TESTED: {allowed.stderr.decode().strip()}")
    done = subprocess.run(
        ["unshare", "-Urn", "sh", "-c", script, "sh", sys.executable, "-c", VETH, str(ROOT)],
        input=links.encode(),
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.stdout == b"crossed\n", done.stderr.decode()[-3000:]
