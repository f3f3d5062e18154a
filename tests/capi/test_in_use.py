"""Objects in use: every pairing of what is destroyed with what still uses it, in any order; and a
child of fork, in which nothing of its parent's is there.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import random

import numpy as np
import pytest

from openmrc.capi import layouts
from openmrc.capi.calls import MRC_CALLS, NOTHING, PLAIN, VERBS_CALLS
from openmrc.capi.layouts import NUMBERS, Struct
from openmrc.capi.places import Block
from tests.capi.handles import TO_INIT, WRITES, Open, Peer, refused
from tests.verbs.forked import forked

SINK = 1 << 20
# Each object, what destroys it, and the objects that keep it: the conventions of ibverbs.
OBJECTS: dict[str, tuple[str, set[str]]] = {
    "domain": ("ibv_dealloc_pd", {"memory", "sending", "idle"}),
    "memory": ("ibv_dereg_mr", {"sending"}),
    "other memory": ("ibv_dereg_mr", set()),
    "hint": ("mrc_destroy_qp_hint", {"sending"}),
    "send queue": ("mrc_destroy_cq", {"sending", "idle"}),
    "receive queue": ("mrc_destroy_cq", {"sending"}),
    "channel": ("mrc_destroy_comp_channel", {"receive queue"}),
    "sending": ("mrc_destroy_qp", set()),
    "idle": ("mrc_destroy_qp", set()),
    "context": (
        "mrc_destroy_context",
        {"hint", "send queue", "receive queue", "channel", "sending", "idle"},
    ),
}


def place() -> Block:
    return Block(Struct("", (("uint64_t", "value"),)))


class Everything:
    """One of each object; the queue pair "sending" has requests that nobody acknowledges."""

    def __init__(self, there: Open, peer: Peer) -> None:
        self.there, self.peer = there, peer
        api, channel = there.api, place()
        api.must("mrc_create_comp_channel", there.mrc, channel)
        told = int(channel.record["value"])
        self.memory = np.zeros(SINK, np.uint8)
        at = self.memory.ctypes.data
        self.handles = {
            "context": there.mrc,
            "domain": there.pd,
            "send queue": there.cq,
            "channel": told,
            "receive queue": api.must("mrc_create_cq", there.mrc, 8, 0, told, 0),
            "hint": api.must("mrc_create_qp_hint", there.mrc, Block(layouts.HINT_INIT_ATTR)),
            # the same bytes, of which a request names one key
            "memory": api.must("ibv_reg_mr", there.pd, at, SINK, WRITES),
            "other memory": api.must("ibv_reg_mr", there.pd, at, SINK, WRITES),
            "idle": there.qp(),
        }
        api.must("ibv_dereg_mr", there.mr)
        attr = there.init_attr()
        attr.record["recv_cq"] = self.handles["receive queue"]
        self.handles["sending"] = api.must("mrc_create_qp", there.mrc, attr)
        there.connect(self.handles["sending"], peer, hint=self.handles["hint"])
        assert self.send() == (0, 0)

    def send(self) -> tuple[int, int]:
        mr = self.there.seen(self.handles["memory"], layouts.MR)
        buffer = (self.memory.ctypes.data, SINK // 2, int(mr["lkey"]))
        return self.there.send(self.handles["sending"], buffer)

    def destroy(self, name: str) -> tuple[int, int]:
        return self.there.api(OBJECTS[name][0], self.handles[name])


@pytest.mark.parametrize("seed", range(6))
def test_an_object_goes_when_nothing_uses_it_in_whatever_order(
    there: Open, peer: Peer, seed: int
) -> None:
    every, rng = Everything(there, peer), random.Random(seed)
    left, busy = set(OBJECTS), 0
    while left:
        name = rng.choice(sorted(left))
        if OBJECTS[name][1] & left:
            refused(every.destroy(name), errno.EBUSY)
            busy += 1
        else:
            assert every.destroy(name) == (0, 0), name
            left.remove(name)
            refused(every.destroy(name), errno.EINVAL)
    assert busy > 0


@pytest.mark.parametrize("used", sorted(OBJECTS))
def test_each_pairing(there: Open, peer: Peer, used: str) -> None:
    """With all others gone but the one that uses it, and those that this one needs."""
    for user in sorted(OBJECTS[used][1]):
        every = Everything(Open(there.api), peer)
        kept = {used, user}
        while more := {name for name, (_, by) in OBJECTS.items() if by & kept and name not in kept}:
            kept |= more
        left = set(OBJECTS) - kept
        while free := [name for name in sorted(left) if not OBJECTS[name][1] & (left | kept)]:
            assert every.destroy(free[0]) == (0, 0)
            left.discard(free[0])
        refused(every.destroy(used), errno.EBUSY)
        assert every.destroy(user) == (0, 0)
        there.api.must("ibv_close_device", every.there.context)


def test_memory_is_in_use_until_its_requests_are_flushed(there: Open, peer: Peer) -> None:
    every = Everything(there, peer)
    refused(every.destroy("memory"), errno.EBUSY)
    assert every.send() == (0, 0)  # nothing has changed
    assert there.step(every.handles["sending"], "ERR") == (0, 0)
    assert every.destroy("memory") == (0, 0)
    assert every.destroy("sending") == (0, 0)


def test_memory_is_free_when_its_requests_are_complete(there: Open, peer: Peer) -> None:
    every = Everything(there, peer)
    sink = peer.device.reg_mr(bytearray(SINK))
    theirs = peer.device.create_qp(peer.device.create_cq())
    there.meet(every.handles["idle"], theirs, peer)
    mr = there.api.must("ibv_reg_mr", there.pd, every.memory.ctypes.data, SINK, WRITES)
    buffer = (every.memory.ctypes.data, SINK, int(there.seen(mr, layouts.MR)["lkey"]))
    to = (sink.addr, sink.rkey)
    assert there.send(every.handles["idle"], buffer, to=to) == (0, 0)
    assert int(there.take()["status"]) == NUMBERS["IBV_WC_SUCCESS"]
    assert there.api("ibv_dereg_mr", mr) == (0, 0)  # both queue pairs are still there
    refused(every.destroy("memory"), errno.EBUSY)


def test_closing_a_context_takes_what_is_in_it(there: Open, peer: Peer) -> None:
    """As closing a NIC's device does, with requests under way, and while another context lives."""
    api, own = there.api, Open(there.api)
    every = Everything(own, peer)
    mapped = mmap.mmap(-1, SINK)
    view = np.frombuffer(mapped, np.uint8)
    mr = api.must("ibv_reg_mr", own.pd, view.ctypes.data, SINK, WRITES)
    key = int(own.seen(mr, layouts.MR)["lkey"])
    assert own.send(every.handles["sending"], (view.ctypes.data, SINK, key)) == (0, 0)
    assert api("ibv_close_device", own.context) == (0, 0)
    del view
    mapped.close()  # nobody reads it any more
    for name in OBJECTS:
        refused(every.destroy(name), errno.EINVAL)
    refused(api("ibv_close_device", own.context), errno.EINVAL)
    assert there.step(there.qp(), "INIT", TO_INIT) == (0, 0)  # the other one goes on


def test_objects_of_two_contexts_do_not_mix(there: Open) -> None:
    api, other = there.api, Open(there.api)
    for name, value in (("pd", other.pd), ("send_cq", other.cq), ("recv_cq", other.cq)):
        attr = there.init_attr()
        attr.record[name] = value
        refused(api("mrc_create_qp", there.mrc, attr), errno.EINVAL)
    channel = place()
    api.must("mrc_create_comp_channel", other.mrc, channel)
    channel_handle = int(channel.record["value"])
    refused(api("mrc_create_cq", there.mrc, 8, 0, channel_handle, 0), errno.EINVAL)
    api.must("ibv_close_device", other.context)


# --- fork


def test_in_a_child_of_fork_there_is_no_device(there: Open, peer: Peer) -> None:
    every, api = Everything(there, peer), there.api
    given = {"mrc_destroy_qp": every.handles["sending"], "ibv_dereg_mr": every.handles["memory"],
             "mrc_poll_cq": there.cq, "ibv_close_device": there.context}  # fmt: skip

    def child() -> None:
        for call in (*MRC_CALLS, *VERBS_CALLS):
            words = [given.get(call.name, 0), *[0] * (len(call.parameters) - 1)]
            returned, code = api(call.name, *words[: len(call.parameters)])
            if call.answers == PLAIN:
                assert not call.result.endswith("*") or ctypes.string_at(returned) == b"unknown"
            elif call.answers != NOTHING:
                assert code == errno.ENODEV, call.name
        assert there.receive(every.handles["sending"])[1] == every.send()[1] == errno.ENODEV

    # what a child does with its copy of the handles changes nothing here
    with forked(child):
        refused(every.destroy("memory"), errno.EBUSY)
    assert every.send() == (0, 0)
    assert every.destroy("sending") == (0, 0)
    assert every.destroy("memory") == (0, 0)
