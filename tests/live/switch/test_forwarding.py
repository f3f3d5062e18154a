"""Frames cross the switches of a fabric exactly as their carriers say."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.fabric.clos import fat_tree
from openmrc.fabric.model import Fabric
from openmrc.wire import addresses, frame
from openmrc.wire.srv6 import CARRIER_AT, HOP_LIMIT_AT, USIDS_AT
from tests.live.switch.switching import HOP_LIMIT, US, Rig, decoded, on_wire_ps, small

THREE_TIERS = fat_tree(8, 10**9, 2, 2, US, US // 2, tiers=3)


@pytest.mark.parametrize("fabric", [small(), THREE_TIERS], ids=["multiplane", "three tiers"])
def test_every_path_of_a_fabric_ends_at_its_nic(fabric: Fabric) -> None:
    with Rig(fabric) as rig:
        n = 0
        for src in range(fabric.n_nics):
            for dst in set(range(fabric.n_nics)) - {src}:
                for plane in range(fabric.n_planes):
                    for i in range(fabric.n_paths(src, dst, plane)):
                        _one_path(rig, src, dst, fabric.ev_of_path(src, dst, plane, i), n)
                        n += 1
        assert rig.drops() == {}
        c = rig.switches.counters()
        assert c.received.sum() == c.delivered.sum() == n
        assert c.in_flight == 0


def _one_path(rig: Rig, src: int, dst: int, ev: int, psn: int) -> None:
    """It arrives there alone, after exactly the time of its links, changed as a switch does."""
    fabric = rig.fabric
    plane, route = fabric.hops(ev).plane, fabric.route(src, dst, ev)
    before = rig.switches.counters().packets
    sent = rig.frame(src, dst, ev, psn)
    rig.send(src, plane, sent)
    started = rig.now
    ended = rig.run()
    arrived = rig.all_got()
    assert list(arrived) == [(dst, plane)]
    (got,) = arrived[dst, plane]

    switches = [int(fabric.port_peer_switch[port]) for port in route[:-1]]
    way = sum(int(fabric.port_delay_ps[port]) for port in route)
    way += sum(int(fabric.sw_delay_ps[switch]) for switch in switches)
    service = sum(on_wire_ps(sent, int(fabric.port_rate_bps[port])) for port in route)
    assert ended - started == way + service
    used = np.flatnonzero(rig.switches.counters().packets - before)
    assert used.tolist() == sorted(route)

    code, p, e = decoded(got)
    assert (code, p.psn, p.ev) == (frame.OK, psn, ev)
    assert e.hop_limit == HOP_LIMIT - len(switches)
    assert e.dst_mac.tobytes().hex(":") == addresses.nic_mac(dst, plane)
    assert e.src_mac.tobytes().hex(":") == addresses.switch_mac(switches[-1])
    assert _front(got) == rig._speller.nic[dst].usid
    changed = {i for i, (a, b) in enumerate(zip(sent, got, strict=True)) if a != b}
    assert changed <= {*range(12), HOP_LIMIT_AT, *range(CARRIER_AT, CARRIER_AT + 16)}


def _front(data: bytes) -> int:
    """The uSID in front of a carrier."""
    at = CARRIER_AT + USIDS_AT
    return int.from_bytes(data[at : at + 2])


def test_frames_whose_destination_is_the_carrier_are_forwarded() -> None:
    with Rig() as rig:
        rig.send(0, 1, rig.frame(0, 3, rig.fabric.ev(1, 1), srv6_in=False))
        rig.run()
        (got,) = rig.got(3, 1)
        assert _front(got) == rig._speller.nic[3].usid


def _edited(data: bytes, at: int, *values: int) -> bytes:
    return data[:at] + bytes(values) + data[at + len(values) :]


def test_what_cannot_be_forwarded_is_counted_by_reason_and_at_its_switch() -> None:
    with Rig() as rig:
        good = rig.frame(0, 3)
        wrong = {
            "not_mine": _edited(good, CARRIER_AT, 0x20, 0x02),
            "end_of_carrier": _edited(good, CARRIER_AT + 4, *good[CARRIER_AT + 4 :][:2], 0, 0),
            "no_route": _edited(good, CARRIER_AT + 4, 0x1F, 0xFF),
            "hop_limit": _edited(good, HOP_LIMIT_AT, 1),
            "bad_frame": _edited(good, 12, 0x08, 0x00),
            "too_long": bytes(9100),
        }
        rig.send(0, 0, *wrong.values())
        rig.run()
        assert rig.drops() == dict.fromkeys(wrong, 1)
        assert rig.all_got() == {}
        entry = int(rig.fabric.port_peer_switch[rig.fabric.nic_port(0, 0)])
        at_t0 = rig.switches.counters().by_switch()[entry]["dropped"]
        assert {reason for reason, n in at_t0.items() if n} == set(wrong)
        (busy,) = rig.switches.counters().by_port()
        assert busy["port"] == "nic 0 plane 0 > t0"
        rig.check_conserved()


def test_any_bytes_are_forwarded_or_counted() -> None:
    """Random bytes, frames cut short or with random bytes in them: no crash, nothing lost."""
    rng = np.random.default_rng(5)
    with Rig() as rig:
        n = 0
        for _ in range(60):
            for _ in range(20):
                data = bytearray(rig.frame(0, 3, payload=int(rng.integers(0, 300))))
                if rng.random() < 0.3:
                    data = bytearray(rng.bytes(int(rng.integers(1, 400))))
                elif rng.random() < 0.5:
                    del data[int(rng.integers(1, len(data))) :]
                for _ in range(int(rng.integers(0, 4))):
                    data[int(rng.integers(0, len(data)))] = int(rng.integers(0, 256))
                rig.send(0, 0, bytes(data))
                n += 1
            rig.run()
            rig.all_got()
        c = rig.switches.counters()
        assert c.received.sum() == n
        assert c.in_flight == 0
        assert c.delivered.sum() > 0
        assert c.drops["bad_frame"] > 0
        rig.check_conserved()


def test_bytes_behind_the_received_ones_are_never_read() -> None:
    """A buffer holds an older, longer frame; what is behind a short one decides nothing."""
    with Rig(frames=64) as rig:
        whole = rig.frame(0, 3)
        for _ in range(3):
            rig.send(0, 0, *[whole] * 60)
            rig.run()
            assert len(rig.got(3, 0)) == 60
        rig.send(0, 0, *[whole[:53]] * 100)
        rig.run()
        assert rig.drops() == {"bad_frame": 100}
