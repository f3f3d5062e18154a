"""Who may: a thread without CAP_NET_ADMIN learns the device, and changes nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest

from openmrc.capi import devices
from openmrc.capi.control import configuring
from openmrc.capi.control import layouts as ctl_layouts
from openmrc.capi.control.structures import C, E, F
from openmrc.capi.linked import Api
from openmrc.capi.places import Block
from openmrc.fabric.clos import multiplane
from openmrc.verbs.inside import Inside
from tests.capi.control.ctl import DENIED, GOOD, OFFLINE, Ctl
from tests.capi.handles import Open, refused

NOBODY = 65534
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not configuring.is_privileged(), reason="only root can become nobody"
)


@pytest.fixture
def ctl(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ctl]:
    with Inside(multiplane(4, 2, 10**9, 2, 2, 0, 0)) as fabric:
        monkeypatch.setenv("OPENMRC_HOST", "within this process")
        monkeypatch.setattr(devices, "opened", lambda _: fabric.device(0))
        there = Open(api)
        yield Ctl(there, fabric)
        api("ibv_close_device", there.context)


@pytest.fixture
def nobody(ctl: Ctl) -> Iterator[Ctl]:
    """The controller of a process that was root, and has become nobody."""
    ctl.form()
    ctl.explicit(1, ctl.evs(3))
    os.seteuid(NOBODY)
    yield ctl
    os.seteuid(0)


def test_nobody_changes_a_state(nobody: Ctl) -> None:
    """Neither by compiled code nor by Python; and what root has set stays."""
    first = nobody.evs(3)[0]
    refused(nobody.state(1, first, DENIED), errno.EPERM)
    refused(nobody.state(0, first, DENIED), errno.EPERM)
    refused(nobody.replace(1, [(first, first)], state=DENIED), errno.EPERM)
    os.seteuid(0)
    assert nobody.array(1)[first] == GOOD
    assert nobody.state(1, first, DENIED) == (0, 0)
    os.seteuid(NOBODY)
    refused(nobody.state(1, first, GOOD), errno.EPERM)


def test_nobody_configures_or_asks(nobody: Ctl) -> None:
    port = Block(ctl_layouts.PORT_ATTR)
    for name in ("mrc_ctl_query_port", "mrc_ctl_modify_port"):
        refused(nobody.api(name, nobody.mrc, 1, port, 1), errno.EPERM)
    for kind, mask in (("ev_fmt", F["STATE"]), ("ev", E["STATE"]), ("cc", C["STATE"])):
        refused(nobody.modify(kind, 9, mask, profile_state=OFFLINE), errno.EPERM)
        answer, _ = nobody._profile("query", kind, 9, mask, None, {})
        refused(answer, errno.EPERM)
    refused(nobody.api("mrc_ctl_create_ev_event_cq", nobody.mrc, 8, 0, 0, 0), errno.EPERM)
    assert nobody.probe(nobody.evs(3), 3)[0] == errno.EPERM
    a = Block(ctl_layouts.DEVICE_ATTR)
    assert nobody.api("mrc_ctl_query_device", nobody.there.context, a) == (0, 0)
    assert int(a.record["ev"]["ev_max_profiles"]) == 256
