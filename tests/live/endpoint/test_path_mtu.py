"""Whether paths carry full packets is asked before the first one is sent (row 20)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from openmrc.errors import OpenMrcError
from openmrc.fabric.clos import multiplane
from openmrc.live.endpoint import path_mtu
from openmrc.live.endpoint.limits import Limits, Port
from openmrc.live.relay import Relay
from openmrc.verbs import Device, QpState, QueuePair, Status, exchange
from openmrc.verbs.line import ExchangeError
from tests.live.two import PATIENCE_S

SECRET = bytes(range(32))
PLANES, PMTU = 3, 4096
NARROW = 2000  # bytes of a frame, fewer than a full packet's


@contextmanager
def relayed(**limits: bool) -> Iterator[tuple[Relay, list[Device]]]:
    """Two devices, and between them what drops frames of a plane by their length."""
    relay = Relay(2, PLANES)
    fabric = multiplane(2, PLANES, 10 * 10**9, 1, 2, 500_000, 250_000)
    devices = []
    try:
        for nic in range(2):
            ports = [Port(end.fileno(), bytes(6)) for end in relay.ends[nic]]
            devices.append(Device(fabric, nic, ports, Limits(pmtu=PMTU, **limits), 1_000_000_000))
        yield relay, devices
    finally:
        for device in devices:
            device.close()
        relay.close()


def pairs_of(devices: list[Device]) -> list[QueuePair]:
    return [device.create_qp(device.create_cq()) for device in devices]


def connected(devices: list[Device]) -> list[QueuePair]:
    one, other = pairs_of(devices)
    one.connect(other.attributes)
    other.connect(one.attributes)
    return [one, other]


def test_wide_paths_are_found_so_and_nothing_is_left_of_the_question() -> None:
    with relayed() as (_, devices):
        one, other = connected(devices)
        for qp in (one, other):
            qp.check_path_mtu()
            assert qp.counters()["tx_packets"] == qp.counters()["rx_packets"] == 0
        # A machine that wakes late asks again, and only so many copies are answered at once: the
        # others count as what they look like, and as nothing else.
        for device, qp in zip(devices, (one, other), strict=True):
            refused = [port["refused"] for port in device.counters()["ports"]]
            unanswered = sum(port.pop("received before", 0) for port in refused)
            assert refused == [{}] * PLANES
            assert qp.counters()["dup"] == unanswered
        room = bytearray(3 * PMTU)
        sink = devices[1].reg_mr(room)
        source = devices[0].reg_mr(bytearray(b"x" * len(room)))
        one.post_write(1, source, remote_addr=sink.addr, rkey=sink.rkey)
        assert one.send_cq.wait(timeout=PATIENCE_S)[0].status == Status.SUCCESS
        assert room == b"x" * len(room)
        with pytest.raises(OpenMrcError, match="before the first request"):
            one.check_path_mtu()


def test_a_narrow_plane_is_named_with_the_remedy() -> None:
    with relayed() as (relay, devices):
        relay.trouble[1].longest = NARROW
        one, other = connected(devices)
        for qp in (one, other):
            with pytest.raises(OpenMrcError) as found:
                qp.check_path_mtu()
            line = str(found.value)
            assert line.startswith("plane 1, EV 0x")
            assert "plane 0" not in line
            assert "plane 2" not in line
            assert f"set the MTU to {PMTU + 132} or more" in line
            assert line.endswith("or open the device with pmtu=1024")


@pytest.mark.parametrize("planes", [[1], [0, 2], [0, 1, 2]])
def test_silence_says_nothing_of_the_mtu(planes: list[int]) -> None:
    """A plane that is cut, or all of them; and one known to be down is not asked."""
    with relayed() as (relay, devices):
        for plane in planes:
            relay.trouble[plane].cut = True
        one, _ = connected(devices)
        began = time.monotonic()
        one.check_path_mtu()
        assert time.monotonic() - began < PATIENCE_S
        devices[0].set_port(planes[0], False)
        asked = {path.plane for path in path_mtu._some_of_each_plane(one._host, one.index)}
        assert asked == set(range(PLANES)) - {planes[0]}


def test_a_peer_that_is_not_connected_yet_says_nothing() -> None:
    """Connected by hand: endpoints know each other by their first queue pairs, not the second."""
    with relayed() as (_, devices):
        connected(devices)
        one, other = pairs_of(devices)
        with pytest.raises(OpenMrcError, match="is in RESET"):
            one.check_path_mtu()
        one.connect(other.attributes)
        one.check_path_mtu()


def test_loss_is_not_taken_for_a_narrow_path() -> None:
    with relayed() as (relay, devices):
        for trouble in relay.trouble:
            trouble.drop = 0.2
        for qp in connected(devices):
            qp.check_path_mtu()


def test_a_narrow_plane_is_found_through_loss() -> None:
    with relayed() as (relay, devices):
        for trouble in relay.trouble:
            trouble.drop = 0.05
        relay.trouble[2].longest = NARROW
        with pytest.raises(OpenMrcError, match="plane 2, EV"):
            connected(devices)[0].check_path_mtu()


def test_both_ends_of_an_exchange_are_told() -> None:
    with relayed() as (relay, devices), exchange.Listener(0, SECRET) as listener:
        relay.trouble[0].longest = NARROW
        one, other = pairs_of(devices)
        said: list[str] = []

        def accept() -> None:
            with pytest.raises(ExchangeError) as refused:
                listener.accept(other)
            said.append(str(refused.value))

        thread = threading.Thread(target=accept)
        thread.start()
        with pytest.raises(OpenMrcError, match="plane 0, EV") as found:
            exchange.connect(one, "127.0.0.1", listener.port, SECRET)
        thread.join(PATIENCE_S)
        assert said == [f"as seen by the peer: {found.value}"]


def test_it_can_be_left_out() -> None:
    with relayed(check_mtu=False) as (relay, devices), exchange.Listener(0, SECRET) as listener:
        relay.trouble[0].longest = NARROW
        one, other = pairs_of(devices)

        def accept() -> None:
            with listener.accept(other) as peer:
                peer.wait(PATIENCE_S)

        thread = threading.Thread(target=accept)
        thread.start()
        with exchange.connect(one, "127.0.0.1", listener.port, SECRET):
            assert one.state == other.state == QpState.RTS
        thread.join(PATIENCE_S)
