"""What a profile does to queue pairs: every value of congestion control, and how many EVs stay."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Iterator

import numpy as np
import pytest

from openmrc.capi.control import layouts as ctl_layouts
from openmrc.capi.control.formats import Ev
from openmrc.capi.control.structures import C
from openmrc.capi.linked import Api
from openmrc.capi.places import Block
from tests.capi.control.ctl import DENIED, GOOD, INIT, OFFLINE, ONLINE, Ctl
from tests.capi.control.fixtures import TO, controlled, transfer
from tests.capi.handles import refused

NAME = ctypes.create_string_buffer(b"uet-1.0-nscc")
CONFIG_BYTES = ctl_layouts.NSCC_CFG.dtype.itemsize
# Each value of the API, another than the device's own, and what the engine has in its place.
VALUES = {
    "disable_qa": (1, "without_qa", 1),
    "adjust_bytes_threshold": (33_000, "adjust_bytes", 33_000.0),
    "adjust_period_threshold": (44_000, "adjust_ps", 44_000_000),
    "base_rtt": (55_000, "base_rtt", 55_000_000),
    "eta": (0.25, "eta", 0.25),
    "fi": (3.5, "fi", 3.5),
    "fi_scale": (0.5, "fi_scale", 0.5),
    "gamma": (0.625, "gamma", 0.625),
    "max_md_jump": (0.375, "max_md_jump", 0.375),
    "max_cwnd": (66_000, "max_wnd", 66_000.0),
    "qa_gate": (7, "qa_gate", 7),
    "qa_threshold": (77_000, "qa_threshold", 77_000_000),
    "target_delay": (88_000, "target", 88_000_000),
}


@pytest.fixture
def ctl(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ctl]:
    with controlled(api, monkeypatch) as found:
        yield found


def config_of(ctl: Ctl, profile: int) -> Block:
    """A copy of the configuration of a profile."""
    shown, config = ctl.query("cc", profile, C["CONFIG"]), Block(ctl_layouts.NSCC_CFG)
    ctypes.memmove(config.address, int(shown["cc_config"]), CONFIG_BYTES)
    return config


def nscc(ctl: Ctl, profile: int, config: Block) -> None:
    given = {"algorithm": ctypes.addressof(NAME), "profile_state": OFFLINE}
    assert ctl.modify("cc", profile, C["STATE"] | C["ALGORITHM"], **given) == (0, 0)
    last = {"cc_config": config.address, "profile_state": ONLINE}
    assert ctl.modify("cc", profile, C["STATE"] | C["CONFIG"], **last) == (0, 0)


def test_every_value_reaches_the_engine_and_is_shown_again(ctl: Ctl) -> None:
    config = config_of(ctl, 0)
    assert set(VALUES) == set(ctl_layouts.NSCC_CFG.dtype.names or ())
    nscc(ctl, 5, config)
    moving = transfer(ctl, cc=5)
    records = ctl.fabric.device(0)._host.st.nscc
    own = records[int(ctl.fabric.device(0)._host.st.qp[0].cc)]
    for name, (value, field, expected) in VALUES.items():
        before = own.copy()
        assert before[field] != expected
        config.record[name] = value
        assert ctl.modify("cc", 5, C["CONFIG"], cc_config=config.address) == (0, 0)
        assert config_of(ctl, 5).record[name] == np.float32(value) if value < 1 else value
        changed = [other for other in own.dtype.names if own[other] != before[other]]
        assert (changed, own[field]) == ([field], expected)
    moving.write(2)  # with all of them


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, float("inf")) for name in ("eta", "fi", "fi_scale", "gamma", "max_md_jump")),
        *((name, -0.5) for name in ("eta", "fi", "fi_scale", "gamma", "max_md_jump")),
        ("max_md_jump", 1.5),
        ("qa_gate", 32),
        *((name, 0) for name in ("base_rtt", "max_cwnd", "target_delay")),
    ],
)
def test_a_value_without_a_meaning_changes_nothing(ctl: Ctl, name: str, value: float) -> None:
    config = config_of(ctl, 0)
    nscc(ctl, 5, config)
    before = config_of(ctl, 5).record.tobytes()
    config.record[name] = value
    refused(ctl.modify("cc", 5, C["CONFIG"], cc_config=config.address), errno.EINVAL)
    assert config_of(ctl, 5).record.tobytes() == before


def test_another_algorithm_or_none_at_an_address_is_refused(ctl: Ctl) -> None:
    for name in (b"uet-1.0", b"", b"x" * 200):
        room = ctypes.create_string_buffer(name)
        given = {"algorithm": ctypes.addressof(room), "profile_state": OFFLINE}
        answer = ctl.modify("cc", 5, C["STATE"] | C["ALGORITHM"], **given)
        refused(answer, errno.EINVAL)
    nscc(ctl, 5, config_of(ctl, 0))
    refused(ctl.modify("cc", 5, C["CONFIG"], cc_config=0), errno.EINVAL)
    shown = ctl.query("cc", 5, C["STATE"] | C["CUR_STATE"])
    assert (int(shown["profile_state"]), int(shown["cur_profile_state"])) == (ONLINE, ONLINE)


def test_as_many_profiles_of_congestion_control_as_there_are(ctl: Ctl) -> None:
    config, most = config_of(ctl, 0), 63
    for profile in range(1, most):
        nscc(ctl, profile, config)
    given = {"algorithm": ctypes.addressof(NAME), "profile_state": OFFLINE}
    refused(ctl.modify("cc", 99, C["STATE"] | C["ALGORITHM"], **given), errno.EINVAL)
    config.record["max_cwnd"] = 20_000
    for state in (OFFLINE, INIT):
        assert ctl.modify("cc", 7, C["STATE"], profile_state=state) == (0, 0)
    nscc(ctl, 99, config)
    small, other = transfer(ctl, cc=99), transfer(ctl, cc=8)
    qp = ctl.fabric.device(0)._host.st.qp
    assert qp.max_wnd[0] == 20_000 < qp.max_wnd[1]
    for each in (small, other):
        each.write()


def test_a_plane_keeps_as_many_evs_in_service_as_are_asked(ctl: Ctl) -> None:
    """A T1 that loses a quarter of its packets: its EV is left, unless all have to stay; but a
    controller's DENIED stands above that. Half would at times make the plane seem silent, and
    then nothing of it stays.
    """
    ctl.form()
    evs = ctl.evs(TO)
    moving = {}
    for profile, min_active in ((1, 0), (2, len(evs))):
        ctl.explicit(profile, evs, min_active=min_active)
        moving[profile] = transfer(ctl, ev=profile)
        moving[profile].write()
    [victim] = [ev for ev in evs if ev.port == 1 and _up(ctl, ev) == 0]
    ctl.fabric.lose("plane 0 t1 0", 0.25)
    good = dict.fromkeys(moving, 0)
    for _ in range(120):
        for profile, one in moving.items():
            one.write()
            good[profile] += ctl.array(profile)[victim] == GOOD
        if good[2] > good[1] + 8:
            break
    assert good[2] > good[1] + 8
    for profile, one in moving.items():
        assert ctl.state(profile, victim, DENIED) == (0, 0)
        before = one.packets()[victim]
        one.write(3)
        assert one.packets()[victim] == before


def _up(ctl: Ctl, ev: Ev) -> int:
    return int(ctl.fabric.fabric.hops(int.from_bytes(ev.value[:4], "big")).up0)
