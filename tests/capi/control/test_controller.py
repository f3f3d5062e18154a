"""A controller through the C API, over a fabric of two T1s a plane: what it configures is what
queue pairs do, and what it hears is what happened to them.
"""

from __future__ import annotations

import ctypes
import errno
import threading
from collections.abc import Iterator

import pytest

from openmrc.capi import layouts
from openmrc.capi.control import configuring, formats
from openmrc.capi.control import layouts as ctl_layouts
from openmrc.capi.control.layouts import NUMBERS
from openmrc.capi.control.structures import C, E, F
from openmrc.capi.linked import Api
from openmrc.capi.places import Block
from openmrc.wire.profile import Form
from tests.capi.control.ctl import (
    BAD,
    DENIED,
    GENERATED,
    GOOD,
    OFFLINE,
    ONLINE,
    QUERY_STATE,
    Ctl,
    number,
    put_ev,
    rows,
    wait_for,
)
from tests.capi.control.fixtures import PLANES, TO, controlled, transfer
from tests.capi.handles import Open, refused


@pytest.fixture
def ctl(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ctl]:
    with controlled(api, monkeypatch) as found:
        yield found


# --- device and ports


def test_the_device_says_what_may_be_configured(ctl: Ctl) -> None:
    a, supported = Block(ctl_layouts.DEVICE_ATTR), number()
    ctl.api.must("mrc_ctl_query_device_ex", ctl.there.context, ctl.mrc, a, supported)
    d = a.record
    assert (int(supported.record["value"]), int(d["phy_port_mask"])) == (1, 0b110)
    assert (int(d["ev"]["ev_count_align"]), int(d["ev"]["ev_fmt_mode_mask"])) == (PLANES, 1)
    assert int(d["opt_attr"]) == 0b110111  # all but "only contiguous ranges"
    names = (ctypes.c_char_p * 2).from_address(int(d["cc"]["algorithms"]))
    assert list(names) == [b"uet-1.0-nscc", None]
    ctl.form()
    ctl.explicit(1, ctl.evs(TO))
    before = int(d["ev"]["ev_free_count"])
    ctl.api.must("mrc_ctl_query_device", ctl.there.context, a)
    assert int(d["ev"]["ev_free_count"]) == before - len(ctl.evs(TO))


def port(ctl: Ctl, which: int, state: int | None = None) -> tuple[int, int]:
    a = Block(ctl_layouts.PORT_ATTR)
    a.record["port_admin_state"] = 9 if state is None else state
    verb = "query" if state is None else "modify"
    answer = ctl.api(f"mrc_ctl_{verb}_port", ctl.mrc, which, a, 1)
    return answer if state is not None or answer[1] else (int(a.record["port_admin_state"]), 0)


def state_of(ctl: Ctl, which: int) -> int:
    a = Block(layouts.PORT_ATTR)
    ctl.api.must("ibv_query_port", ctl.there.context, which, a)
    return int(a.record["state"])


def test_a_port_that_is_taken_down_is_told_to_peers_and_carries_nothing(ctl: Ctl) -> None:
    moving, theirs = transfer(ctl), ctl.fabric.device(TO)
    moving.write()
    assert [port(ctl, which) for which in (1, 2)] == [(1, 0), (1, 0)]
    assert port(ctl, 2, 0) == (0, 0)
    assert (port(ctl, 2), state_of(ctl, 2)) == ((0, 0), layouts.NUMBERS["IBV_PORT_DOWN"])
    peers = theirs._host.st.peer
    wait_for(lambda: int(peers[0].remote_mask) == 0b01)
    ctl.fabric.device(0).set_port(1, True)  # its link is fine: that is not the question
    before = moving.packets()
    moving.write(3)
    sent = {ev: n - before[ev] for ev, n in moving.packets().items()}
    assert {ev.port for ev, n in sent.items() if n} == {1}
    assert port(ctl, 2, 1) == (0, 0)
    wait_for(lambda: int(peers[0].remote_mask) == 0b11)
    assert state_of(ctl, 2) == layouts.NUMBERS["IBV_PORT_ACTIVE"]
    for which, state in ((0, 0), (3, 0), (1, 2)):
        refused(port(ctl, which, state), errno.EINVAL)


# --- EVs


def test_queue_pairs_use_the_evs_of_their_profile_and_no_denied_one(ctl: Ctl) -> None:
    ctl.form()
    evs = ctl.evs(TO)
    ctl.explicit(1, evs[:2])  # one path a plane
    moving = transfer(ctl, ev=1)
    moving.write(2)
    assert set(moving.packets()) == set(evs[:2])
    assert all(moving.packets().values())
    assert ctl.state(1, evs[0], DENIED) == (0, 0)
    before = moving.packets()[evs[0]]
    moving.write(2)
    later = transfer(ctl, ev=1)  # the next queue pair never uses it
    later.write(2)
    assert (moving.packets()[evs[0]], later.packets()[evs[0]]) == (before, 0)
    assert ctl.array(1) == {evs[0]: DENIED, evs[1]: GOOD}
    assert ctl.state(1, evs[0], GOOD) == (0, 0)
    later.write(2)
    assert later.packets()[evs[0]] > 0
    refused(ctl.state(1, evs[3], DENIED), errno.ENOENT)


def test_evs_are_replaced_while_a_transfer_runs(ctl: Ctl) -> None:
    ctl.form()
    evs = ctl.evs(TO)
    ctl.explicit(1, evs[:2])
    moving = transfer(ctl, ev=1)
    for turn in range(6):
        moving.post()
        olds, news = (evs[:2], evs[2:]) if turn % 2 == 0 else (evs[2:], evs[:2])
        assert ctl.replace(1, list(zip(olds, news, strict=True))) == (0, 0)
        moving.finish()
        assert set(moving.packets()) == set(news)
    refused(ctl.replace(1, [(evs[0], evs[3])]), errno.EINVAL)  # it would change its port


def test_generated_evs_stay_within_their_fields(ctl: Ctl) -> None:
    form = Form.of(ctl.fabric.fabric)
    plane, up = form.widths
    bits = [32 - form.bits, plane, up, form.low_bits]  # the first and the last are fixed
    widths = rows(ctl_layouts.FMT_FIELD, 4)
    widths["width"] = bits
    mask = F["STATE"] | F["MODE"] | F["OP"]
    given = {"profile_state": OFFLINE, "ev_fmt_mode": 1}
    assert ctl.modify("ev_fmt", 14, mask, (0, widths), **given) == (0, 0)
    assert ctl.modify("ev_fmt", 14, F["STATE"], profile_state=ONLINE) == (0, 0)
    fields = rows(ctl_layouts.FIELD, 4)
    fields["width"], fields["mask"] = bits, [0, (1 << plane) - 1, (1 << up) - 1, 0]
    fields["max_val"] = [0, PLANES - 1, 1, 0]
    fields["init_val"][3] = form.low
    names = ("STATE", "MODE", "FMT_ID", "COUNT", "MIN_ACTIVE", "EVENT_MASK", "EV_FIELDS_OP")
    mask = sum(E[name] for name in names)
    given = {"profile_state": OFFLINE, "ev_mode": GENERATED, "ev_fmt_profile_id": 14}
    op = (0, fields, "ev_fields_op")
    assert ctl.modify("ev", 2, mask, op, ev_count=4, **given) == (0, 0)
    assert ctl.modify("ev", 2, E["STATE"], profile_state=ONLINE) == (0, 0)
    shown = rows(ctl_layouts.FIELD, 8)
    told = ctl.query("ev", 2, E["EV_FIELDS_OP"] | E["COUNT"], (1, shown, "ev_fields_op"))
    assert (int(told["ev_count"]), int(told["ev_fields_op"]["field_count"])) == (4, 4)
    assert shown[:4].tolist() == fields.tolist()
    moving = transfer(ctl, ev=2)
    moving.write(2)
    assert set(moving.packets()) == set(ctl.evs(TO))  # all there are, as they are in a packet


def test_a_silent_switch_is_heard_denied_and_healed(ctl: Ctl) -> None:
    """On profile 0, in which queue pairs draw their own paths."""
    assert ctl.modify("ev", 0, E["EVENT_MASK"], ev_event_mask=GOOD | BAD) == (0, 0)
    moving, queue = transfer(ctl), ctl.queue()
    moving.write()
    evs = set(ctl.array(0))
    assert evs == set(ctl.evs(TO))
    f = ctl.fabric.fabric
    [ev] = (one for one in evs if one.port == 2 and f.hops(wire(one))[1] == 1)
    ctl.fabric.lose("plane 1 t1 1", 1.0)
    told: list[tuple[int, formats.Ev, int, int]] = []

    def heard() -> bool:
        moving.write()
        told.extend(ctl.events(queue))
        # On a busy machine a healthy path may be left for a moment, and is taken back: so may this
        # one have been before it fell silent.
        return [one[2] for one in told if one[1] == ev][-1:] == [BAD]

    wait_for(heard)
    assert {one[0] for one in told} == {0}
    assert ctl.array(0)[ev] == BAD
    assert ctl.state(0, ev, DENIED) == (0, 0)
    later = transfer(ctl)
    later.write(3)
    assert later.packets()[ev] == 0
    ctl.fabric.heal("plane 1 t1 1")
    assert ctl.state(0, ev, GOOD) == (0, 0)

    def is_used() -> bool:
        later.write()
        return later.packets()[ev] > 0

    wait_for(is_used)


def wire(ev: formats.Ev) -> int:
    return int.from_bytes(ev.value[:4], "big")


def test_what_a_path_becomes_again_is_told_too_and_what_had_no_room_is_counted(ctl: Ctl) -> None:
    ctl.form()
    evs = ctl.evs(TO)
    ctl.explicit(1, evs)
    moving, small, all_of_it = transfer(ctl, ev=1), ctl.queue(1), ctl.queue()
    for ev in (evs[0], evs[1]):
        assert ctl.state(1, ev, BAD) == (0, 0)
    both = wait_for(lambda: ctl.events(all_of_it))
    while len(both) < 4:  # each is probed, and is back
        both += wait_for(lambda: ctl.events(all_of_it))
    assert sorted(one[1:3] for one in both) == sorted(
        (ev, state) for ev in evs[:2] for state in (GOOD, BAD)
    )
    assert {one[3] for one in both} == {0}
    [first] = ctl.events(small)
    assert first == both[0]
    assert ctl.state(1, evs[2], BAD) == (0, 0)
    [after] = wait_for(lambda: ctl.events(small))
    assert (after[1], after[3]) == (evs[2], 3)
    moving.write()


def test_a_channel_tells_of_events(ctl: Ctl) -> None:
    channel = number()
    channel = Block(layouts.Struct("", (("uint64_t", "value"),)))
    ctl.api.must("mrc_create_comp_channel", ctl.mrc, channel)
    told = int(channel.record["value"])
    ctl.form()
    ctl.explicit(1, ctl.evs(TO))
    queue, moving = ctl.queue(channel=told), transfer(ctl, ev=1)
    ctl.api.must("mrc_req_notify_cq", queue, 0)
    assert ctl.state(1, ctl.evs(TO)[0], BAD) == (0, 0)
    found = Block(layouts.Struct("", (("uint64_t", "value"),)))
    ctl.api.must("mrc_get_cq_event", told, found, 0)  # it waits
    assert int(found.record["value"]) == queue
    refused(ctl.api("mrc_destroy_comp_channel", told), errno.EBUSY)
    ctl.api("mrc_ack_cq_events", queue, 1)
    ctl.api.must("mrc_destroy_cq", queue)
    ctl.api.must("mrc_destroy_comp_channel", told)
    moving.write()


def test_a_plane_that_delivers_keeps_as_many_evs_as_are_asked(ctl: Ctl) -> None:
    ctl.form()
    ctl.explicit(1, ctl.evs(TO), min_active=4)
    moving = transfer(ctl, ev=1)
    moving.write()
    planes = ctl.fabric.device(0)._host.st.plane
    assert planes.keep[:PLANES].tolist() == [100] * PLANES


# --- congestion control


def test_a_window_obeys_its_profile(ctl: Ctl) -> None:
    kept = ctl.query("cc", 0, C["CONFIG"] | C["ALGORITHM"] | C["STATE"])
    assert ctypes.string_at(int(kept["algorithm"])) == b"uet-1.0-nscc"
    config = Block(ctl_layouts.NSCC_CFG)
    ctypes.memmove(config.address, int(kept["cc_config"]), 52)
    most = int(config.record["max_cwnd"])
    config.record["max_cwnd"] = 20_000
    name = ctypes.create_string_buffer(b"uet-1.0-nscc")
    first = C["STATE"] | C["ALGORITHM"]
    given = {"algorithm": ctypes.addressof(name), "profile_state": OFFLINE}
    assert ctl.modify("cc", 5, first, **given) == (0, 0)
    last = {"cc_config": config.address, "profile_state": ONLINE}
    assert ctl.modify("cc", 5, C["STATE"] | C["CONFIG"], **last) == (0, 0)
    small, own = transfer(ctl, cc=5), transfer(ctl)
    qp = ctl.fabric.device(0)._host.st.qp
    assert (qp.max_wnd[0], qp.max_wnd[1]) == (20_000, most)
    for each in (small, own):
        each.write(2)
        assert qp.cwnd[0] <= 20_000
    refused(ctl.modify("cc", 5, C["STATE"], profile_state=OFFLINE), errno.EBUSY)
    config.record["max_cwnd"] = 40_000
    assert ctl.modify("cc", 5, C["CONFIG"], cc_config=config.address) == (0, 0)
    assert qp.max_wnd[0] == 40_000
    small.write(2)
    for wrong, value in (("eta", float("nan")), ("max_cwnd", 0), ("gamma", -1.0)):
        bad = Block(ctl_layouts.NSCC_CFG)
        ctypes.memmove(bad.address, config.address, 52)
        bad.record[wrong] = value
        refused(ctl.modify("cc", 5, C["CONFIG"], cc_config=bad.address), errno.EINVAL)


def test_without_an_algorithm_the_window_stays(ctl: Ctl) -> None:
    assert ctl.modify("cc", 6, C["STATE"] | C["ALGORITHM"], profile_state=OFFLINE) == (0, 0)
    assert ctl.modify("cc", 6, C["STATE"], profile_state=ONLINE) == (0, 0)
    moving = transfer(ctl, cc=6)
    moving.write(3)
    q = ctl.fabric.device(0)._host.st.qp[0]
    assert q.cwnd == q.max_wnd


# --- probes


def test_probes_are_answered_on_their_port_and_lost_ones_are_missing(ctl: Ctl) -> None:
    evs = ctl.evs(TO)
    ctl.fabric.device(TO)  # no queue pair leads there
    code, found = ctl.probe(evs, TO)
    assert code == 0
    assert sorted((which, port) for which, port, _ in found) == [
        (i, ev.port) for i, ev in enumerate(evs)
    ]
    assert all(0 < rtt < 2e9 for _, _, rtt in found)
    ctl.fabric.lose("plane 1 t1 1", 1.0)
    f = ctl.fabric.fabric
    dead = {i for i, ev in enumerate(evs) if ev.port == 2 and f.hops(wire(ev))[1] == 1}
    code, found = ctl.probe(evs, TO, timeout_ms=300)
    assert code == errno.ETIMEDOUT
    assert {which for which, _, _ in found} == set(range(len(evs))) - dead


def test_a_nic_with_queue_pairs_answers_each_probe_on_its_path(ctl: Ctl) -> None:
    """Else half of the answers would be lost with a path that nobody asked of."""
    moving, evs = transfer(ctl), [ev for ev in ctl.evs(TO) if ev.port == 1]
    f = ctl.fabric.fabric
    dead = {i for i, ev in enumerate(evs) if f.hops(wire(ev))[1] == 1}
    assert 0 < len(dead) < len(evs)
    ctl.fabric.lose("plane 0 t1 1", 1.0)
    for _ in range(8):
        code, found = ctl.probe(evs, TO, timeout_ms=50)
        assert code == errno.ETIMEDOUT
        assert {which for which, _, _ in found} == set(range(len(evs))) - dead
    moving.write()


def test_wrong_requests_are_refused(ctl: Ctl) -> None:
    evs = ctl.evs(TO)
    ctl.fabric.device(TO)
    assert ctl.probe(evs[:1], 0)[0] == errno.EINVAL  # itself
    assert ctl.probe(evs[:1], 9)[0] == errno.EINVAL  # no NIC of the fabric
    assert ctl.probe(evs[:2], TO, req_id=7)[0] == errno.EINVAL  # twice the same
    assert ctl.probe(evs[:1], TO, ev_fmt_mode=2)[0] == errno.ENOTSUP
    assert ctl.probe([evs[0]._replace(port=3)], TO)[0] == errno.EINVAL
    assert ctl.probe(evs * 300, TO)[0] == errno.ENOMEM


def test_others_call_while_a_batch_waits(ctl: Ctl) -> None:
    evs = ctl.evs(TO)  # and nobody is there
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(ctl.probe(evs, TO, 500)[0]))
    waiting.start()
    while waiting.is_alive():
        assert port(ctl, 1) == (1, 0)
        if len(found) == 0:
            waiting.join(0.05)
    assert found == [errno.ETIMEDOUT]


# --- who may


def test_without_the_capability_nothing_is_told_or_done(
    ctl: Ctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = ctl.queue()
    monkeypatch.setattr(configuring, "is_privileged", lambda: False)
    refused(port(ctl, 1), errno.EPERM)
    refused(port(ctl, 1, 0), errno.EPERM)
    refused(ctl.modify("ev_fmt", 1, F["STATE"], profile_state=OFFLINE), errno.EPERM)
    refused(ctl.modify("ev", 0, E["EVENT_MASK"]), errno.EPERM)
    refused(ctl.modify("cc", 1, C["STATE"], profile_state=OFFLINE), errno.EPERM)
    refused(ctl.api("mrc_ctl_create_ev_event_cq", ctl.mrc, 8, 0, 0, 0), errno.EPERM)
    assert ctl.probe(ctl.evs(TO), TO)[0] == errno.EPERM
    assert ctl.events(queue) == []  # it is there already
    assert (
        ctl.api("mrc_ctl_query_device", ctl.there.context, Block(ctl_layouts.DEVICE_ATTR))[1] == 0
    )


def test_two_contexts_share_the_device(ctl: Ctl) -> None:
    ctl.form()
    other = Ctl(Open(ctl.api), ctl.fabric)
    other.explicit(1, ctl.evs(TO)[:2])
    moving = transfer(ctl, ev=1)
    moving.write()
    assert set(moving.packets()) == set(other.evs(TO)[:2])
    refused(other.modify("ev", 1, E["STATE"], profile_state=OFFLINE), errno.EBUSY)
    ctl.api.must("mrc_destroy_qp", moving.qp)
    assert other.modify("ev", 1, E["STATE"], profile_state=OFFLINE) == (0, 0)
    ctl.api.must("ibv_close_device", other.there.context)


def test_wrong_arrays_and_masks_are_refused(ctl: Ctl) -> None:
    ctl.form()
    evs = ctl.evs(TO)
    ctl.explicit(1, evs)
    both = E["EV_OP"] | E["EV_FIELDS_OP"]
    for mask in (0, 1 << 20, both, E["VENDOR_CFG"]):
        refused(ctl.modify("ev", 1, mask), errno.EINVAL)
    refused(ctl.modify("ev", 1, E["EV_OP"]), errno.EINVAL)  # no entries
    short = rows(ctl_layouts.ENTRY, 2)
    a, record = ctl._profile("query", "ev", 1, E["EV_OP"], (3, short), {})
    refused(a, errno.E2BIG)
    assert int(record["ev_op"]["entry_count"]) == len(evs)
    listed = rows(ctl_layouts.ENTRY, 1)
    put_ev(listed[0]["ev"], formats.packed(0xDEAD, 32, 1))
    a, _ = ctl._profile("query", "ev", 1, E["EV_OP"], (QUERY_STATE, listed), {})
    refused(a, errno.ENOENT)
    refused(ctl.modify("ev", 1, E["STATE"], profile_state=9), errno.EINVAL)
    refused(ctl.modify("ev", 1, E["CUR_STATE"], cur_profile_state=OFFLINE), errno.EINVAL)
    qp = ctl.there.qp()
    m, v = Block(layouts.MRC_QP_ATTR), Block(layouts.QP_ATTR)
    m.record["profile"]["ev_profile_id"] = 77  # it is in INIT
    v.record["qp_state"], v.record["port_num"] = layouts.NUMBERS["IBV_QPS_INIT"], 1
    answer = ctl.api("mrc_modify_qp", qp, v, 1, m, layouts.NUMBERS["MRC_QP_EV_PROFILE_ID"])
    refused(answer, errno.EINVAL)


assert NUMBERS["MRC_CTL_OPT_CAP_EP_OP_EV_PROBE"] == 32
