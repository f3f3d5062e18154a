"""Calls that are wrong: each is refused with the errno that the API gives it, and harms nobody."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from openmrc.capi import layouts
from openmrc.capi.calls import CTL_CALLS, MRC_CALLS, NOTHING, PLAIN, VERBS_CALLS
from openmrc.capi.layouts import NUMBERS, Struct
from openmrc.capi.linked import Api
from openmrc.capi.places import Block
from tests.capi.handles import TO_INIT, WRITES, Open, refused

PATIENCE_S = 20  # for the loop, on a busy machine


def test_null_is_refused_by_every_function(api: Api) -> None:
    known = (errno.EINVAL, errno.ENODEV)
    for call in (*MRC_CALLS, *CTL_CALLS, *VERBS_CALLS):
        if call.answers in (PLAIN, NOTHING) or call.name == "ibv_get_device_list":
            continue
        returned, code = api(call.name, *[0] * len(call.parameters))
        assert code in known, call.name
        expected = {"code": code, "minus": -1, "null": 0, "negative": -code}[call.answers]
        assert returned == expected, call.name


def test_without_a_device_the_list_is_empty(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENMRC_HOST", "OPENMRC_INTERFACES"):
        monkeypatch.delenv(name, raising=False)
    from openmrc.capi import entry

    monkeypatch.setattr(entry.verbs, "_device", None)
    count = Block(Struct("", (("int", "n"),)))
    devices = api.must("ibv_get_device_list", count)
    assert count.record["n"] == 0
    assert ctypes.c_uint64.from_address(devices).value == 0
    api.must("ibv_free_device_list", devices)


def test_a_handle_of_another_kind_is_found_out(there: Open) -> None:
    api, qp = there.api, there.qp()
    refused(api("mrc_destroy_qp", there.cq), errno.EINVAL)
    refused(api("mrc_destroy_cq", qp), errno.EINVAL)
    refused(api("mrc_poll_cq", qp, 1, there.at), errno.EINVAL)
    refused(api("mrc_post_send", there.cq, 0, there.bad), errno.EINVAL)
    refused(api("mrc_get_qpn", qp + 1, there.bad), errno.EINVAL)
    refused(api("mrc_create_cq", there.context, 8, 0, 0, 0), errno.EINVAL)


def test_what_was_destroyed_is_gone(there: Open) -> None:
    api, qp = there.api, there.qp()
    assert there.step(qp, "INIT", TO_INIT) == (0, 0)
    assert there.receive(qp) == (0, 0)
    assert api("mrc_destroy_qp", qp) == (0, 0)
    refused(api("mrc_destroy_qp", qp), errno.EINVAL)
    refused(there.receive(qp), errno.EINVAL)
    refused(api("mrc_query_qp", qp, 0, 0, 0, 0, 0), errno.EINVAL)
    # its receive was flushed, and nobody is told of a queue pair that is gone
    wc = Block(layouts.WC)
    assert api("mrc_poll_cq", there.cq, 1, wc) == (0, 0)
    assert api("mrc_destroy_cq", there.cq) == (0, 0)
    refused(api("mrc_poll_cq", there.cq, 1, wc), errno.EINVAL)
    refused(api("mrc_destroy_cq", there.cq), errno.EINVAL)


def test_what_is_in_use_stays(there: Open) -> None:
    api, qp = there.api, there.qp()
    refused(api("mrc_destroy_cq", there.cq), errno.EBUSY)
    refused(api("mrc_destroy_context", there.mrc), errno.EBUSY)
    refused(api("ibv_dealloc_pd", there.pd), errno.EBUSY)
    api.must("mrc_destroy_qp", qp)
    api.must("mrc_destroy_cq", there.cq)
    api.must("mrc_destroy_context", there.mrc)
    api.must("ibv_dereg_mr", there.mr)
    api.must("ibv_dealloc_pd", there.pd)
    refused(api("ibv_dereg_mr", there.mr), errno.EINVAL)


def test_states_have_an_order(there: Open) -> None:
    api, qp = there.api, there.qp()
    wr = Block(layouts.SEND_WR)
    refused(there.receive(qp), errno.EINVAL)
    refused(there.step(qp, "RTS"), errno.EINVAL)
    refused(there.step(qp, "RTR"), errno.EINVAL)
    assert there.step(qp, "INIT", TO_INIT) == (0, 0)
    refused(there.step(qp, "INIT", TO_INIT), errno.EINVAL)
    refused(api("mrc_post_send", qp, wr, there.bad), errno.EINVAL)
    assert there.bad.record["where"] == wr.address
    everything = NUMBERS["IBV_QP_AV"] | NUMBERS["IBV_QP_DEST_QPN"] | NUMBERS["IBV_QP_RQ_PSN"]
    refused(there.step(qp, "RTR", everything), errno.EINVAL)  # no GID
    refused(there.step(qp, "RTR", everything & ~NUMBERS["IBV_QP_AV"]), errno.EINVAL)
    assert there.step(qp, "ERR") == (0, 0)
    refused(there.step(qp, "RTR", everything), errno.EINVAL)


def test_requests_have_limits(there: Open) -> None:
    qp = there.qp()
    assert there.step(qp, "INIT", TO_INIT) == (0, 0)
    refused(there.receive(qp, num_sge=2), errno.EINVAL)
    for number in range(4):
        assert there.receive(qp, wr_id=number) == (0, 0)
    refused(there.receive(qp), errno.ENOMEM)
    other = there.qp()
    assert there.step(other, "INIT", TO_INIT) == (0, 0)
    for number in range(4):
        assert there.receive(other, wr_id=number) == (0, 0)
    third = there.qp()
    assert there.step(third, "INIT", TO_INIT) == (0, 0)
    refused(there.receive(third), errno.ENOMEM)  # eight completions may come: the queue is full


def test_a_request_has_as_many_buffers_as_agreed_and_all_of_them_registered(there: Open) -> None:
    """In ERROR, where a request that is right is flushed."""
    api, attr = there.api, there.init_attr()
    attr.record["cap"]["max_send_sge"], attr.record["cap"]["max_inline_data"] = 3, 64
    qp = api.must("mrc_create_qp", there.mrc, attr)
    assert int(attr.record["cap"]["max_send_sge"]) == 3
    there.step(qp, "INIT", TO_INIT)
    there.step(qp, "ERR")
    key = int(there.seen(there.mr, layouts.MR)["lkey"])
    unregistered = np.zeros(64, np.uint8).ctypes.data
    good, elsewhere = (there.at, 32, key), (unregistered, 32, key)
    inline = NUMBERS["IBV_SEND_INLINE"]
    assert there.send(qp, good, good, good) == (0, 0)
    refused(there.send(qp, good, good, good, good), errno.EINVAL)
    refused(there.send(qp, good, elsewhere), errno.EINVAL)
    refused(there.send(qp, (there.at, 4097, key)), errno.EINVAL)
    assert there.send(qp, elsewhere, good, flags=inline) == (0, 0)  # no key is asked for
    refused(there.send(qp, good, good, good, flags=inline), errno.EINVAL)  # 96 bytes
    refused(there.send(qp, (0, 8, 0), flags=inline), errno.EINVAL)
    assert there.send(qp, flags=inline) == (0, 0)
    wc = Block(layouts.WC)
    for _ in range(3):
        until = time.monotonic() + PATIENCE_S
        while (n := api.must("mrc_poll_cq", there.cq, 1, wc)) == 0:
            assert time.monotonic() < until
            os.sched_yield()
        assert (n, int(wc.record["status"])) == (1, NUMBERS["IBV_WC_WR_FLUSH_ERR"])
    assert api("mrc_poll_cq", there.cq, 1, wc) == (0, 0)


def test_memory_and_sizes_that_are_not_there(there: Open) -> None:
    api = there.api
    refused(api("ibv_reg_mr", there.pd, there.at, 0, WRITES), errno.EINVAL)
    refused(api("ibv_reg_mr", there.pd, 4096, 4096, WRITES), errno.EFAULT)
    refused(api("ibv_reg_mr", there.pd, there.at, 4096, 2), errno.EINVAL)
    refused(api("ibv_reg_mr", there.mr, there.at, 4096, WRITES), errno.EINVAL)
    refused(api("mrc_create_cq", there.mrc, 0, 0, 0, 0), errno.EINVAL)
    refused(api("mrc_create_cq", there.mrc, 1 << 20, 0, 0, 0), errno.EINVAL)
    for name, more in (("max_send_sge", 17), ("max_recv_sge", 17), ("max_inline_data", 1025)):
        a = there.init_attr()
        a.record["cap"][name] = more
        refused(api("mrc_create_qp", there.mrc, a), errno.EINVAL)
    a = there.init_attr()
    a.record["pd"] = there.at
    refused(api("mrc_create_qp", there.mrc, a), errno.EINVAL)
    refused(api("ibv_query_gid", there.context, 2, 0, there.at), errno.EINVAL)
    refused(api("ibv_query_gid", there.context, 1, 16, there.at), errno.EINVAL)


def test_what_a_device_holds_has_an_end(there: Open) -> None:
    api, most = there.api, 256
    for _ in range(most):
        there.qp()
    refused(api("mrc_create_qp", there.mrc, there.init_attr()), errno.ENOMEM)


def test_flushed_receives_are_completions(there: Open) -> None:
    api, qp = there.api, there.qp()
    there.step(qp, "INIT", TO_INIT)
    assert there.receive(qp, wr_id=11) == (0, 0)
    assert there.step(qp, "ERR") == (0, 0)
    wc = Block(layouts.WC)
    assert api("mrc_poll_cq", there.cq, 1, wc) == (1, 0)
    told = {name: int(wc.record[name]) for name in ("wr_id", "status", "opcode")}
    assert told == {"wr_id": 11, "status": NUMBERS["IBV_WC_WR_FLUSH_ERR"], "opcode": 129}
    assert api("mrc_poll_cq", there.cq, 1, wc) == (0, 0)


@contextmanager
def all_at_once(n: int, work: Any) -> Iterator[None]:
    threads = [threading.Thread(target=work, args=(i,)) for i in range(n)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    yield


def test_threads_share_a_queue(there: Open) -> None:
    api, mrc = there.api, there.mrc
    cq = api.must("mrc_create_cq", mrc, 512, 0, 0, 0)
    attr = there.init_attr()
    attr.record["recv_cq"] = cq
    attr.record["cap"]["max_recv_wr"] = 400
    qp = api.must("mrc_create_qp", mrc, attr)
    there.step(qp, "INIT", TO_INIT)
    posted: list[tuple[int, int]] = []

    def post(number: int) -> None:
        bad = Block(Struct("", (("uint64_t", "where"),)))
        for k in range(100):
            wr = Block(layouts.RECV_WR)
            wr.record["wr_id"] = 100 * number + k
            posted.append(api("mrc_post_recv", qp, wr, bad))

    with all_at_once(4, post):
        assert posted == [(0, 0)] * 400
    refused(there.receive(qp), errno.ENOMEM)
    there.step(qp, "ERR")
    taken: list[int] = []

    def poll(_: int) -> None:
        wc = Block(layouts.WC)
        while api("mrc_poll_cq", cq, 1, wc)[0] == 1:
            taken.append(int(wc.record["wr_id"]))

    with all_at_once(4, poll):
        assert sorted(taken) == list(range(400))


def test_a_channel_tells_once_of_what_was_asked(there: Open) -> None:
    api = there.api
    place = Block(Struct("", (("uint64_t", "value"),)))
    api.must("mrc_create_comp_channel", there.mrc, place)
    channel = int(place.record["value"])
    api.must("mrc_get_comp_channel_fd", channel, place)
    cq = api.must("mrc_create_cq", there.mrc, 8, 77, channel, 0)
    refused(api("mrc_destroy_comp_channel", channel), errno.EBUSY)
    refused(api("mrc_req_notify_cq", there.cq, 0), errno.EINVAL)
    attr = there.init_attr()
    attr.record["recv_cq"] = cq
    qp = api.must("mrc_create_qp", there.mrc, attr)
    there.step(qp, "INIT", TO_INIT)
    there.receive(qp)
    api.must("mrc_req_notify_cq", cq, 0)
    there.step(qp, "ERR")  # a completion
    context = Block(Struct("", (("uint64_t", "value"),)))
    api.must("mrc_get_cq_event", channel, place, context)
    assert (int(place.record["value"]), int(context.record["value"])) == (cq, 77)
    api.must("mrc_ack_cq_events", cq, 1)
    api.must("mrc_destroy_qp", qp)
    api.must("mrc_destroy_cq", cq)
    api.must("mrc_destroy_comp_channel", channel)


def test_hints_are_kept(there: Open) -> None:
    api, mrc = there.api, there.mrc
    init, back = Block(layouts.HINT_INIT_ATTR), Block(layouts.HINT_ATTR)
    init.record["attr"]["num_send_peers"] = 5
    hint = api.must("mrc_create_qp_hint", mrc, init)
    peers = NUMBERS["MRC_QP_HINT_NUM_SEND_PEERS"]
    api.must("mrc_query_qp_hint", hint, back, peers)
    assert int(back.record["num_send_peers"]) == 5
    refused(api("mrc_query_qp_hint", hint, back, 0), errno.EINVAL)
    refused(api("mrc_query_qp_hint", mrc, back, peers), errno.EINVAL)
    api.must("mrc_destroy_qp_hint", hint)
    refused(api("mrc_destroy_qp_hint", hint), errno.EINVAL)


def test_events_are_waited_for_unless_the_descriptor_does_not_wait(there: Open) -> None:
    event = Block(layouts.MRC_ASYNC_EVENT)
    context = layouts.CONTEXT.dtype
    room = (ctypes.c_char * context.itemsize).from_address(there.context)
    descriptor = int(np.frombuffer(memoryview(room), context)["async_fd"][0])
    os.set_blocking(descriptor, False)
    refused(there.api("mrc_get_async_event", there.mrc, event), errno.EAGAIN)
    os.set_blocking(descriptor, True)
    from openmrc.capi import entry

    assert entry.verbs.nic is not None
    entry.verbs.nic.device.set_port(0, False)
    assert there.api("mrc_get_async_event", there.mrc, event) == (0, 0)
    assert int(event.record["event_type"]) == NUMBERS["IBV_EVENT_PORT_ERR"]
    assert int(event.record["element"]["port_num"]) == 1
