"""A controller on an ordinary network, where an EV is the number of a source port of the device."""

from __future__ import annotations

import errno
from typing import Any, cast

import numpy as np
import pytest

from openmrc.capi import entry, layouts
from openmrc.capi.control import configuring, formats
from openmrc.capi.control import layouts as ctl_layouts
from openmrc.capi.control.formats import UNPOPULATED, Ev
from openmrc.capi.control.layouts import NUMBERS
from openmrc.capi.control.structures import E, F
from openmrc.capi.places import Block
from openmrc.verbs import QueuePair
from tests.capi.control.ctl import DENIED, EXPLICIT, GOOD, OFFLINE, ONLINE, Ctl, number, rows
from tests.capi.handles import WRITES, Open, Peer, refused

UDP, FORM = NUMBERS["MRC_CTL_EV_FMT_MODE_UDP"], 4
ROOM = 1 << 16


@pytest.fixture
def ctl(there: Open, monkeypatch: pytest.MonkeyPatch) -> Ctl:
    monkeypatch.setattr(configuring, "is_privileged", lambda: True)
    found = Ctl(there, cast(Any, None))  # there is no fabric
    widths = rows(ctl_layouts.FMT_FIELD, 1)
    widths["width"] = 16
    mask = F["STATE"] | F["MODE"] | F["OP"]
    given = {"profile_state": OFFLINE, "ev_fmt_mode": UDP}
    assert found.modify("ev_fmt", FORM, mask, (0, widths), **given) == (0, 0)
    assert found.modify("ev_fmt", FORM, F["STATE"], profile_state=ONLINE) == (0, 0)
    return found


class Written:
    """A queue pair with a profile, and writes to the peer."""

    def __init__(self, ctl: Ctl, peer: Peer, profile: int) -> None:
        self.ctl, there = ctl, ctl.there
        self.qp, device = there.qp(), peer.device
        self.theirs: QueuePair = device.create_qp(device.create_cq())
        there.meet(self.qp, self.theirs, peer, profiles=(profile, 0))
        self.memory = np.arange(ROOM, dtype=np.uint8)
        mr = there.api.must("ibv_reg_mr", there.pd, self.memory.ctypes.data, ROOM, WRITES)
        self.key = int(there.seen(mr, layouts.MR)["lkey"])
        self.sink = device.reg_mr(bytearray(ROOM))

    def write(self, times: int) -> None:
        part = (self.memory.ctypes.data, ROOM, self.key)
        for _ in range(times):
            answer = self.ctl.there.send(self.qp, part, to=(self.sink.addr, self.sink.rkey))
            assert answer == (0, 0)
            assert int(self.ctl.there.take()["status"]) == 0
        assert bytes(self.sink.buffer) == self.memory.tobytes()

    def packets(self) -> dict[Ev, int]:
        """How many packets each source port has carried."""
        found = number()
        self.ctl.api.must("mrc_get_qpn", self.qp, found)
        assert entry.verbs.nic is not None
        own = entry.verbs.nic.device.queue_pairs
        [pair] = [one for one in own if one.qp_num == int(found.record["value"])]
        return {formats.packed(e["ev"], 16, e["plane"] + 1): e["packets"] for e in pair.evs()}


def explicit(ctl: Ctl, profile: int, evs: list[Ev]) -> tuple[int, int]:
    mask = sum(E[n] for n in ("STATE", "MODE", "FMT_ID", "COUNT", "MIN_ACTIVE", "EVENT_MASK"))
    given = {"ev_mode": EXPLICIT, "ev_fmt_profile_id": FORM, "ev_count": len(evs)}
    assert ctl.modify("ev", profile, mask, profile_state=OFFLINE, **given) == (0, 0)
    answer = ctl.replace(profile, [(UNPOPULATED, one) for one in evs])
    if answer == (0, 0):
        return ctl.modify("ev", profile, E["STATE"], profile_state=ONLINE)
    return answer


def test_source_ports_are_given_denied_and_allowed(ctl: Ctl, peer: Peer) -> None:
    a = Block(ctl_layouts.DEVICE_ATTR)
    ctl.api.must("mrc_ctl_query_device", ctl.there.context, a)
    assert (int(a.record["ev"]["ev_fmt_mode_mask"]), int(a.record["ev"]["ev_max_width"])) == (
        UDP,
        16,
    )
    Written(ctl, peer, 0).write(1)
    known = sorted(ctl.array(0))  # those that the device has drawn
    four = known[:4]
    assert explicit(ctl, 1, four) == (0, 0)
    mine = Written(ctl, peer, 1)
    mine.write(4)
    before = mine.packets()
    assert (sorted(before), all(before.values())) == (four, True)
    assert ctl.state(1, four[0], DENIED) == (0, 0)
    denied = mine.packets()[four[0]]
    mine.write(8)
    assert mine.packets()[four[0]] == denied
    assert ctl.array(1) == {**dict.fromkeys(four, GOOD), four[0]: DENIED}
    assert ctl.state(1, four[0], GOOD) == (0, 0)
    mine.write(8)
    assert mine.packets()[four[0]] > denied


def test_what_is_no_source_port_of_the_device_is_refused(ctl: Ctl, peer: Peer) -> None:
    Written(ctl, peer, 0).write(1)
    known = sorted(ctl.array(0))
    for profile, wrong in (
        (2, formats.packed(80, 16, 1)),
        (3, formats.packed(0xC0DE, 32, 1)),  # more bits than the format has
        (4, known[0]._replace(port=2)),
    ):
        refused(explicit(ctl, profile, [known[0], wrong]), errno.EINVAL)
        assert known[0] in ctl.array(profile)  # entries before the first that is wrong are done
    mask = E["STATE"] | E["MODE"] | E["FMT_ID"] | E["COUNT"] | E["EV_FIELDS_OP"]
    fields = rows(ctl_layouts.FIELD, 1)
    fields["width"], fields["mask"], fields["max_val"] = 16, 0xFFFF, 0xFFFF
    generated = {"ev_mode": 4, "ev_fmt_profile_id": FORM, "ev_count": 2, "profile_state": OFFLINE}
    refused(ctl.modify("ev", 5, mask, (0, fields, "ev_fields_op"), **generated), errno.EINVAL)
    widths = rows(ctl_layouts.FMT_FIELD, 1)
    widths["width"] = 16
    given = {"profile_state": OFFLINE, "ev_fmt_mode": NUMBERS["MRC_CTL_EV_FMT_MODE_STEV"]}
    mask = F["STATE"] | F["MODE"] | F["OP"]
    refused(ctl.modify("ev_fmt", 6, mask, (0, widths), **given), errno.EINVAL)
