"""Endpoint requests: what is asked, how many wait at once, and the status of ports."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from openmrc.capi.control import formats
from openmrc.capi.control import layouts as ctl_layouts
from openmrc.capi.control.probing import BATCH_MAX, OPEN_MAX
from openmrc.capi.linked import Api
from openmrc.wire import addresses
from tests.capi.control.ctl import STEV, Ctl, number, put_ev, rows, wait_for
from tests.capi.control.fixtures import TO, controlled, transfer

PROBE, PORT_STATUS = range(2)


@pytest.fixture
def ctl(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ctl]:
    with controlled(api, monkeypatch) as found:
        yield found


def requests(ctl: Ctl, evs: list[formats.Ev], to: int = TO, up: int = 0) -> np.ndarray:
    listed = rows(ctl_layouts.REQUEST, len(evs))
    own, there = (list(addresses.ipv6(nic, 0).packed) for nic in (0, to))
    for i, ev in enumerate(evs):
        row = listed[i]
        row["req_id"], row["ev_fmt_mode"] = 0xFFFF - i, STEV
        row["sgid"]["raw"], row["dgid"]["raw"] = own, there
        row["op"]["port_status_update"]["port_status"] = up
        put_ev(row["req_ev"], ev)
    return listed


def send(
    ctl: Ctl, listed: np.ndarray, op: int = PROBE, timeout_ms: float = 2000, tc: int = 0
) -> tuple[int, list[int]]:
    """The errno, and the numbers that were answered."""
    answers, n = rows(ctl_layouts.RESPONSE, max(len(listed), 1)), number()
    n.record["value"] = 77
    _, code = ctl.api(
        "mrc_ctl_ep_batch_send_wait", ctl.mrc, tc, op, listed.ctypes.data, len(listed),
        round(timeout_ms * 1e6), answers.ctypes.data, n,
    )  # fmt: skip
    return code, sorted(answers["req_id"][: int(n.record["value"])].tolist())


def test_the_status_of_ports_is_told_until_the_nic_tells_its_own(ctl: Ctl) -> None:
    moving, theirs, evs = transfer(ctl), ctl.fabric.device(TO), ctl.evs(TO)
    moving.write()
    mask = theirs._host.st.peer
    assert int(mask[0].remote_mask) == 0b11
    said = requests(ctl, evs[:1], up=0b010)  # port 1 alone; bits are 1-based
    assert send(ctl, said, PORT_STATUS) == (0, [0xFFFF])
    wait_for(lambda: int(mask[0].remote_mask) == 0b01)
    moving.write()  # the way back has one plane
    ctl.fabric.device(0).set_port(1, up=False)
    ctl.fabric.device(0).set_port(1, up=True)
    wait_for(lambda: int(mask[0].remote_mask) == 0b11)
    moving.write()


def test_a_batch_has_one_kind_and_as_many_requests_as_there_is_room_for(ctl: Ctl) -> None:
    ctl.fabric.device(TO)
    evs = ctl.evs(TO)
    one = requests(ctl, evs[:1])
    for op, code in ((2, errno.EINVAL), (-1, errno.EINVAL), (PROBE, 0)):
        assert send(ctl, one, op)[0] == code
    assert send(ctl, one[:0]) == (errno.EINVAL, [])
    assert send(ctl, requests(ctl, evs * (BATCH_MAX // len(evs) + 1))) == (errno.ENOMEM, [])
    assert send(ctl, one, tc=1) == (errno.ENOTSUP, [])
    control = ctl.fabric.fabric.dscps.control
    assert send(ctl, one, tc=control) == (0, [0xFFFF])
    full = requests(ctl, evs * (BATCH_MAX // len(evs)))
    assert send(ctl, full, timeout_ms=10_000) == (0, sorted(full["req_id"].tolist()))
    stranger = requests(ctl, evs[:1])
    stranger["sgid"]["raw"] = 7
    assert send(ctl, stranger) == (errno.EINVAL, [])


def test_null_is_refused(ctl: Ctl) -> None:
    one, answers, n = requests(ctl, ctl.evs(TO)[:1]), rows(ctl_layouts.RESPONSE, 1), number()
    at = (one.ctypes.data, answers.ctypes.data, n.address)
    for missing in range(3):
        req, rsp, told = (0 if i == missing else place for i, place in enumerate(at))
        name = "mrc_ctl_ep_batch_send_wait"
        answer = ctl.api(name, ctl.mrc, 0, PROBE, req, 1, 10**6, rsp, told)
        assert answer == (-1, errno.EINVAL)


def test_a_timeout_of_nothing_waits_for_nothing(ctl: Ctl) -> None:
    code, answered = send(ctl, requests(ctl, ctl.evs(TO)), timeout_ms=0)
    assert (code, answered) == (errno.ETIMEDOUT, [])


def test_so_many_requests_wait_at_once_and_their_room_comes_back(ctl: Ctl) -> None:
    evs = ctl.evs(TO)  # nobody is there
    assert OPEN_MAX == 2 * BATCH_MAX
    full = requests(ctl, evs * (BATCH_MAX // len(evs)))
    found: list[tuple[int, list[int]]] = []
    waiting = [
        threading.Thread(target=lambda: found.append(send(ctl, full, timeout_ms=700)))
        for _ in range(2)
    ]
    for one in waiting:
        one.start()
    codes = set[int]()

    def is_full() -> bool:
        codes.add(send(ctl, requests(ctl, evs[:1]), timeout_ms=1)[0])
        return errno.EAGAIN in codes

    wait_for(is_full)
    for one in waiting:
        one.join()
    assert found == [(errno.ETIMEDOUT, [])] * 2
    assert codes <= {errno.EAGAIN, errno.ETIMEDOUT}
    ctl.fabric.device(TO)
    assert send(ctl, full, timeout_ms=10_000)[0] == 0
