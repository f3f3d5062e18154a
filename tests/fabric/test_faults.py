"""Stories of faults: what the schedule says, action by action."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.fabric import (
    Fabric,
    Fault,
    FaultSchedule,
    actions,
    compile_faults,
    fat_tree,
    multiplane,
)
from openmrc.fabric.places import links

US, MS, S = 10**6, 10**9, 10**12
FABRIC = multiplane(16, 4, 100 * 10**9, 4, 4, US, 0)
THREE = fat_tree(64, 100 * 10**9, 4, 4, US, 0, tiers=3)
LINK = "plane 3 t0 1 - t1 2"
SHORT = {
    actions.PORT_UP: "up",
    actions.PORT_DOWN: "down",
    actions.PORT_LOSS: "loss",
    actions.PORT_CORRUPT: "corrupt",
    actions.PORT_RATE: "rate",
    actions.PORT_MTU: "mtu",
    actions.PORT_DENY: "deny",
    actions.PORT_ALLOW: "allow",
    actions.REVIEW_PATHS: "review",
    actions.SWITCH_UP: "switch up",
    actions.SWITCH_DOWN: "switch down",
    actions.SWITCH_SILENT: "switch silent",
    actions.NIC_PORT_DOWN: "nic down",
    actions.NIC_PORT_UP: "nic up",
}


def story(*given_faults: Fault, horizon: int | None = None) -> list[tuple[int, str, int]]:
    """(microseconds, what happens, to how many): consecutive equal events are counted."""
    events = compile_faults(given_faults, FABRIC, horizon_ps=horizon).events
    told: list[tuple[int, str, int]] = []
    for event in events:
        at, what = int(event["at_ps"]) // US, SHORT[int(event["action"])]
        if told and told[-1][:2] == (at, what):
            told[-1] = (at, what, told[-1][2] + 1)
        else:
            told.append((at, what, 1))
    return told


def refused(*given_faults: Fault, fabric: Fabric = FABRIC) -> str:
    with pytest.raises(InputError) as error:
        compile_faults(given_faults, fabric)
    return str(error.value)


def ups_and_downs(schedule: FaultSchedule, fabric: Fabric = FABRIC) -> dict[int, list[int]]:
    """By directed port: when it goes down, up, down ..."""
    times: dict[int, list[int]] = {}
    for event in schedule.events[schedule.events["action"] <= actions.PORT_DOWN]:
        at = times.setdefault(int(event["target"]), [])
        assert (event["action"] == actions.PORT_DOWN) == (len(at) % 2 == 0)
        at.append(int(event["at_ps"]))
    return times


def test_a_link_goes_down_and_comes_back() -> None:
    assert story(Fault(5 * US, "link-down", LINK, for_ps=10 * US)) == [
        (5, "down", 2),
        (15, "up", 2),
    ]
    assert story(Fault(5 * US, "link-down", LINK), Fault(9 * US, "link-up", LINK)) == [
        (5, "down", 2),
        (9, "up", 2),
    ]


def test_one_direction_alone() -> None:
    schedule = compile_faults([Fault(0, "link-down", "plane 3 t0 1 > t1 2")], FABRIC)
    (port,) = schedule.events["target"].tolist()
    assert FABRIC.switch_name(int(FABRIC.port_switch[port])) == "plane 3 t0 1"
    assert FABRIC.link_name(port) == LINK


def test_nothing_breaks_without_faults() -> None:
    schedule = compile_faults([], FABRIC)
    assert (len(schedule.events), schedule.names) == (0, ())
    assert schedule.events.dtype == actions.EVENT


def test_a_link_held_down_twice_comes_up_with_the_last_hold() -> None:
    assert story(
        Fault(5 * US, "link-down", LINK, for_ps=10 * US),
        Fault(7 * US, "link-down", LINK, for_ps=20 * US),
    ) == [(5, "down", 2), (27, "up", 2)]


def test_a_returning_switch_leaves_a_cut_link_down() -> None:
    # The switch has 4 NICs and 4 T1s: 16 directed ports, 2 of them down already.
    assert story(
        Fault(5 * US, "link-down", LINK, for_ps=30 * US),
        Fault(7 * US, "switch-down", "plane 3 t0 1", for_ps=10 * US),
    ) == [
        (5, "down", 2),
        (7, "down", 14),
        (7, "switch down", 1),
        (7, "nic down", 4),
        (17, "up", 14),
        (17, "switch up", 1),
        (17, "nic up", 4),
        (35, "up", 2),
    ]


def test_an_up_releases_only_its_own_kind_of_hold() -> None:
    assert story(
        Fault(1 * US, "switch-down", "plane 3 t1 2"),
        Fault(2 * US, "link-down", LINK),
        Fault(3 * US, "link-up", LINK),
        Fault(4 * US, "switch-up", "plane 3 t1 2"),
    ) == [(1, "down", 8), (1, "switch down", 1), (4, "up", 8), (4, "switch up", 1)]


def test_an_up_of_some_of_the_links_leaves_the_others() -> None:
    assert story(
        Fault(1 * US, "port-down", "nic 5 plane *"),
        Fault(2 * US, "port-up", "nic 5 plane 2"),
        Fault(3 * US, "port-up", "nic 5 plane *"),
    ) == [
        (1, "down", 8),
        (1, "nic down", 4),
        (2, "up", 2),
        (2, "nic up", 1),
        (3, "up", 6),
        (3, "nic up", 3),
    ]


def test_a_hand_over_at_one_instant_does_not_blink() -> None:
    assert story(
        Fault(0, "link-down", LINK, for_ps=5 * US),
        Fault(5 * US, "link-down", LINK, for_ps=5 * US),
    ) == [(0, "down", 2), (10, "up", 2)]


def test_a_nic_notices_when_both_directions_are_down() -> None:
    nic_port = FABRIC.nic_port(5, 3)
    schedule = compile_faults([Fault(0, "link-down", "nic 5 plane 3")], FABRIC)
    assert schedule.events["target"].tolist() == [
        nic_port, FABRIC.port_reverse[nic_port], nic_port
    ]  # fmt: skip
    assert schedule.events["action"].tolist() == [1, 1, actions.NIC_PORT_DOWN]
    assert story(
        Fault(0, "link-down", "nic 5 plane 3 > t0", for_ps=5 * US),
        Fault(2 * US, "link-down", "nic 5 plane 3 < t0", for_ps=5 * US),
    ) == [
        (0, "down", 1),
        (2, "down", 1),
        (2, "nic down", 1),
        (5, "up", 1),
        (5, "nic up", 1),
        (7, "up", 1),
    ]


def test_a_silent_switch_stays_up_for_its_neighbours() -> None:
    switch = "plane 0 t1 3"
    assert story(Fault(1 * US, "switch-silent", switch, for_ps=US)) == [
        (1, "switch silent", 1),
        (2, "switch up", 1),
    ]
    assert story(Fault(1 * US, "switch-silent", switch), Fault(2 * US, "switch-up", switch)) == [
        (1, "switch silent", 1),
        (2, "switch up", 1),
    ]


def test_a_switch_that_is_down_and_silent_is_down_first() -> None:
    switch = "plane 0 t1 3"
    assert story(
        Fault(1 * US, "switch-silent", switch, for_ps=9 * US),
        Fault(2 * US, "switch-down", switch, for_ps=2 * US),
    ) == [
        (1, "switch silent", 1),
        (2, "down", 8),
        (2, "switch down", 1),
        (4, "up", 8),
        (4, "switch silent", 1),
        (10, "switch up", 1),
    ]


def test_the_latest_loss_on_a_link_decides() -> None:
    one_way = "nic 5 plane 3 > t0"
    schedule = compile_faults(
        [
            Fault(1, "link-loss", one_way, rate=0.1, for_ps=10),
            Fault(4, "link-loss", "nic 5 plane 3", rate=0.5, for_ps=2),
            Fault(8, "link-loss", one_way, rate=0.0),
        ],
        FABRIC,
    )
    up, down = FABRIC.nic_port(5, 3), int(FABRIC.port_reverse[FABRIC.nic_port(5, 3)])
    assert schedule.events[["at_ps", "target", "rate"]].tolist() == [
        (1, up, 0.1),
        (4, up, 0.5),
        (4, down, 0.5),
        (6, up, 0.1),
        (6, down, 0.0),
        (8, up, 0.0),
    ]
    assert set(schedule.events["action"].tolist()) == {actions.PORT_LOSS}


def test_marks_for_plots_name_the_beginning_and_the_end() -> None:
    schedule = compile_faults(
        [
            Fault(5, "link-down", LINK, for_ps=4),
            Fault(6, "link-loss", "nic 5 plane 0", rate=0.2, for_ps=1),
            Fault(8, "switch-silent", "plane 0 t1 3"),
        ],
        FABRIC,
    )
    assert schedule.names == (
        (5, f"link-down {LINK}"),
        (6, "link-loss 0.2 nic 5 plane 0"),
        (7, "link-loss over nic 5 plane 0"),
        (8, "switch-silent plane 0 t1 3"),
        (9, f"link-up {LINK}"),
    )


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault(0, "link-cut", LINK), "fault[0].kind: 'link-cut'; one of link-down, link-loss, "),
        (Fault(-1, "link-down", LINK), "fault[0].at: -1 ps; 0 or later is accepted"),
        (Fault(0, "link-down", LINK, for_ps=0), "fault[0].for: 0 ps; a time above 0"),
        (Fault(0, "link-up", LINK, for_ps=5), "fault[0].for: link-up happens once, and is an end;"),
        (
            Fault(0, "allow", "plane 0", mtbf_ps=5, mttr_ps=5),
            "fault[0].mtbf: allow happens once, and is an end; remove it",
        ),
        (
            Fault(0, "link-down", LINK, rate=0.5),
            "fault[0].rate: link-down has none, link-loss and link-corrupt may; remove it",
        ),
        (Fault(0, "link-loss", LINK), "fault[0].rate: is missing; link-loss needs a share of"),
        (Fault(0, "link-loss", LINK, rate=1.5), "fault[0].rate: 1.5; a share of packets from 0 to"),
        (Fault(0, "link-corrupt", LINK), "fault[0].rate: is missing; link-corrupt needs a share"),
        (Fault(0, "mtu", LINK), "fault[0].mtu: is missing; mtu needs the longest IP packet that"),
        (Fault(0, "mtu", LINK, mtu=67), "fault[0].mtu: 67 B; 68 to 65535 B is accepted"),
        (Fault(0, "link-loss", LINK, rate=0.1, mtu=99), "fault[0].mtu: link-loss has none, mtu"),
        (
            Fault(0, "link-corrupt", LINK, rate=0.1, burst=3),
            "fault[0].burst: link-corrupt has none, link-loss may; remove it",
        ),
        (
            Fault(0, "link-loss", LINK, rate=1.0, burst=3),
            "fault[0].burst: needs a rate above 0 and",
        ),
        (
            Fault(0, "link-loss", LINK, rate=0.5, burst=0.9),
            "fault[0].burst: 0.9; 1 packets or more at a",
        ),
        (
            Fault(0, "link-loss", LINK, rate=0.8, burst=3),
            "fault[0].burst: 3; 4 packets or more at a",
        ),
        (Fault(0, "link-slow", LINK), "fault[0].factor: is missing; link-slow needs what is left"),
        (Fault(0, "link-slow", LINK, factor=0.0009), "fault[0].factor: 0.0009; 0.001 to 1 is acc"),
        (Fault(0, "link-slow", LINK, factor=1.1), "fault[0].factor: 1.1; 0.001 to 1 is accepted"),
        (Fault(0, "link-down", LINK, period_ps=9), "fault[0].duty: is missing; period needs it"),
        (Fault(0, "link-down", LINK, duty=0.5), "fault[0].period: is missing; duty needs it"),
        (Fault(0, "link-down", LINK, mtbf_ps=9), "fault[0].mttr: is missing; mtbf needs it"),
        (Fault(0, "link-construction", LINK), "fault[0].mtbf: is missing; link-construction needs"),
        (
            Fault(0, "link-down", LINK, period_ps=9, duty=0.5, mtbf_ps=9, mttr_ps=9),
            "fault[0].period: does not go with mtbf; remove one of them",
        ),
        (
            Fault(0, "link-down", LINK, period_ps=9, duty=0.5, for_ps=9),
            "fault[0].for: does not go with period; duty and until say how long, so remove it",
        ),
        (
            Fault(0, "link-down", LINK, period_ps=9, duty=1.0),
            "fault[0].duty: 1.0; a share of the p",
        ),
        (
            Fault(0, "link-down", LINK, period_ps=9, duty=0.0),
            "fault[0].duty: 0.0; a share of the p",
        ),
        (
            Fault(0, "link-down", LINK, period_ps=9, duty=0.01),
            "fault[0].duty: 0.01 of 9ps; at least 1 ps of fault and 1 ps without is needed",
        ),
        (Fault(0, "link-down", LINK, mtbf_ps=0, mttr_ps=9), "fault[0].mtbf: 0 ps; a time above 0"),
        (
            Fault(0, "link-down", LINK, mtbf_ps=9, mttr_ps=9),
            "fault[0].until: is missing; what repeats needs an end, here or in stop.time",
        ),
        (
            Fault(0, "link-down", LINK, until_ps=9),
            "fault[0].until: only what has a period or an mt",
        ),
        (
            Fault(9, "link-down", LINK, mtbf_ps=9, mttr_ps=9, until_ps=9),
            "fault[0].until: 9ps; a time after at is accepted",
        ),
        (Fault(0, "link-down", LINK, seed=9), "fault[0].seed: nothing is random without share or"),
        (
            Fault(0, "link-down", LINK, share=0.0),
            "fault[0].share: 0.0; a share above 0 and up to 1",
        ),
        (
            Fault(0, "link-down", LINK, share=1.1),
            "fault[0].share: 1.1; a share above 0 and up to 1",
        ),
        (Fault(0, "link-down", LINK, share=0.1), "fault[0].share: 0.1 of 1 rounds to none; name"),
        (Fault(0, "link-down", LINK, links=2), "fault[0].links: link-down has none, transceiver-"),
        (
            Fault(0, "transceiver-down", LINK, links=2),
            "fault[0].links: the links of the transceiver are named; remove it",
        ),
        (
            Fault(0, "transceiver-down", "nic 0 transceiver 0", links=0),
            "fault[0].links: 0; 1 or mo",
        ),
        (
            Fault(0, "link-down", LINK, nics="3"),
            "fault[0].nics: link-down has none, deny and allow",
        ),
        (Fault(0, "deny", "plane 0", nics="0-16"), "fault[0].nics: there is no nic 16; 0 to 15 e"),
        (Fault(0, "deny", "nic 0"), "fault[0].where: 'nic 0': nothing that can be denied; \"plane"),
        (
            Fault(0, "link-down", f"{LINK}, plane 9 t0 1 - t1 2"),
            "fault[0].where: 'plane 9 t0 1 - t1 2': there is no plane 9; 0 to 3 exist",
        ),
        (
            Fault(0, "link-down", "nic * plane *", mtbf_ps=US, mttr_ps=US, until_ps=10**12),
            "fault[0].mtbf: makes about 1.3e+08 changes of ports until 1s; a schedule may have ",
        ),
        (  # sixteen ports and sixteen towards them for each of the switches
            Fault(0, "switch-down", "plane * t0 *", period_ps=US, duty=0.5, until_ps=10**12),
            "fault[0].period: makes about 5.1e+08 changes of ports until 1s; a schedule may have ",
        ),
        (
            Fault(0, "allow", "plane 0"),
            "fault[0].where: 'plane 0': nothing there is denied at that time by a fault without",
        ),
        (
            Fault(0, "link-down", "plane 9 t0 5 - t1 2"),
            "fault[0].where: 'plane 9 t0 5 - t1 2': there is no plane 9; 0 to 3 exist",
        ),
        (Fault(0, "switch-down", LINK), f"fault[0].where: '{LINK}': not a switch; "),
        (Fault(0, "port-down", LINK), f"fault[0].where: '{LINK}': not a NIC's port; "),
        (
            Fault(0, "link-up", LINK),
            f"fault[0].where: '{LINK}': nothing there is down at that time by a fault without",
        ),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(fault: Fault, message: str) -> None:
    assert refused(fault).startswith(message)


def test_what_is_rare_and_random_is_counted_as_often_as_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """64 links that flap once in a thousand seconds: 2 x 64 x 1 ms / 1000 s changes in 1 ms."""
    monkeypatch.setattr("openmrc.fabric.faults.EVENTS_MAX", 1e-3)
    rare = Fault(0, "link-down", "nic * plane *", mtbf_ps=1000 * S, mttr_ps=MS, until_ps=MS)
    assert not len(compile_faults([rare], FABRIC).events)
    with pytest.raises(InputError, match="changes of ports"):
        compile_faults([replace(rare, until_ps=10 * MS)], FABRIC)


# --- rates ------------------------------------------------------------------------------------


def test_each_thing_that_a_link_may_do_badly_is_one_action_and_its_end_another() -> None:
    one_way = "nic 5 plane 3 > t0"
    schedule = compile_faults(
        [
            Fault(1, "link-loss", one_way, rate=0.1, burst=4, for_ps=10),
            Fault(2, "link-corrupt", one_way, rate=0.01, for_ps=10),
            Fault(3, "link-slow", one_way, factor=0.1, for_ps=10),
            Fault(4, "mtu", one_way, mtu=1500, for_ps=10),
        ],
        FABRIC,
    )
    assert schedule.events[["at_ps", "action", "rate", "burst"]].tolist() == [
        (1, actions.PORT_LOSS, 0.1, 4.0),
        (2, actions.PORT_CORRUPT, 0.01, 0.0),
        (3, actions.PORT_RATE, 0.1, 0.0),
        (4, actions.PORT_MTU, 1500.0, 0.0),
        (11, actions.PORT_LOSS, 0.0, 0.0),
        (12, actions.PORT_CORRUPT, 0.0, 0.0),
        (13, actions.PORT_RATE, 1.0, 0.0),
        (14, actions.PORT_MTU, 65_535.0, 0.0),
    ]
    assert set(schedule.events["target"].tolist()) == {FABRIC.nic_port(5, 3)}


def test_the_latest_begun_decides_however_they_overlap() -> None:
    """Four factors: begun at 0, 10, 20 and 30; ending at 100, 25, 40 and 35."""
    slow = [(0, 100, 0.5), (10, 15, 0.4), (20, 20, 0.3), (30, 5, 0.2)]
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        faults = [
            Fault(
                slow[i][0], "link-slow", "nic 5 plane 3 > t0", for_ps=slow[i][1], factor=slow[i][2]
            )
            for i in order
        ]
        events = compile_faults(faults, FABRIC).events
        assert events[["at_ps", "rate"]].tolist() == [
            (0, 0.5), (10, 0.4), (20, 0.3), (30, 0.2), (35, 0.3), (40, 0.5), (100, 1.0)
        ]  # fmt: skip


def test_of_two_that_begin_together_the_later_in_the_list_decides() -> None:
    faults = [
        Fault(5, "link-loss", "nic 5 plane 3 > t0", rate=rate, for_ps=for_ps)
        for rate, for_ps in ((0.1, 10), (0.2, 5))
    ]
    for given_faults, told in (
        (faults, [(5, 0.2), (10, 0.1), (15, 0.0)]),
        (faults[::-1], [(5, 0.1), (15, 0.0)]),
    ):
        events = compile_faults(given_faults, FABRIC).events
        assert events[["at_ps", "rate"]].tolist() == told


def test_a_rate_that_does_not_change_is_no_action_and_factor_1_ends_a_slow_link() -> None:
    where = "nic 5 plane 3 > t0"
    events = compile_faults(
        [
            Fault(1, "link-slow", where, factor=0.5),
            Fault(2, "link-slow", where, factor=0.5, for_ps=4),
            Fault(9, "link-slow", where, factor=1.0),
            Fault(10, "link-slow", where, factor=1, for_ps=3),
        ],
        FABRIC,
    ).events
    assert events[["at_ps", "rate"]].tolist() == [(1, 0.5), (9, 1.0)]


# --- what repeats -----------------------------------------------------------------------------


def test_a_flapping_link_is_down_for_its_duty_of_each_period() -> None:
    flapping = Fault(5 * US, "link-down", LINK, period_ps=10 * US, duty=0.3, until_ps=26 * US)
    told = [(5, "down", 2), (8, "up", 2), (15, "down", 2), (18, "up", 2), (25, "down", 2)]
    assert story(flapping) == [*told, (26, "up", 2)]
    assert story(replace(flapping, until_ps=25 * US)) == told[:4]
    assert story(replace(flapping, until_ps=None), horizon=25 * US) == told[:4]
    assert story(flapping, horizon=17 * US) == [*told[:3], (17, "up", 2)]
    assert story(flapping, horizon=5 * US) == []


def test_every_kind_may_repeat() -> None:
    again: dict[str, Any] = {"period_ps": 10 * US, "duty": 0.5, "until_ps": 20 * US}
    assert story(Fault(0, "switch-silent", "plane 0 t1 3", **again)) == [
        (0, "switch silent", 1), (5, "switch up", 1), (10, "switch silent", 1), (15, "switch up", 1)
    ]  # fmt: skip
    assert story(Fault(0, "link-loss", "nic 5 plane 0", rate=0.5, **again)) == [
        (0, "loss", 2), (5, "loss", 2), (10, "loss", 2), (15, "loss", 2)
    ]  # fmt: skip
    assert [told[:2] for told in story(Fault(0, "deny", "plane 0", **again))] == [
        (0, "deny"), (0, "review"), (5, "allow"), (5, "review"),
        (10, "deny"), (10, "review"), (15, "allow"), (15, "review"),
    ]  # fmt: skip


CLASSES = {
    "links NIC-T0": (FABRIC, "link-down", "nic * plane *", 64 * 2),
    "links T0-T1": (FABRIC, "link-down", "plane * t0 * - t1 *", 4 * 4 * 4 * 2),
    "links T1-T2": (THREE, "link-down", "plane 0 t1 * - t2 *", 64 * 2),
    "T0s": (FABRIC, "switch-down", "plane * t0 *", 16 * 8 * 2),
    "T1s": (FABRIC, "switch-down", "plane * t1 *", 16 * 4 * 2),
    "T2s": (THREE, "switch-down", "plane 0 t2 *", 16 * 4 * 2),
    "NIC ports": (FABRIC, "port-down", "nic * plane *", 64 * 2),
    "transceivers": (FABRIC, "transceiver-down", "plane * t0 * transceiver *", 16 * 8 * 2),
}


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_of_components_fails_at_random_and_is_repaired(name: str) -> None:
    """Up for 30 us and down for 10 on average: of 4 ms a quarter. A thing's times are exponential,
    so its share of 100 rounds has a sigma of about 2.6 %; all things together vary much less.
    """
    fabric, kind, where, n_ports = CLASSES[name]
    fault = Fault(0, kind, where, mtbf_ps=30 * US, mttr_ps=10 * US, until_ps=4000 * US)
    times = ups_and_downs(compile_faults([fault], fabric))
    assert len(times) == n_ports
    down = [sum(at[1::2]) - sum(at[::2]) for at in times.values()]
    assert np.mean(down) / (4000 * US) == pytest.approx(0.25, abs=0.02)
    assert 0.1 < min(down) / (4000 * US) < max(down) / (4000 * US) < 0.4
    rounds = [len(at) / 2 for at in times.values()]
    assert np.mean(rounds) == pytest.approx(100, rel=0.05)
    assert max(at[-1] for at in times.values()) <= 4000 * US
    assert all((np.diff(at) > 0).all() for at in times.values())


def test_the_times_are_exponential() -> None:
    """Mean, standard deviation and median of 100,000 repairs and of as many failures."""
    fault = Fault(0, "link-down", "nic * plane *", mtbf_ps=3 * US, mttr_ps=US, until_ps=7000 * US)
    up, down = [], []
    for at in ups_and_downs(compile_faults([fault], FABRIC)).values():
        down += np.diff(at)[::2].tolist()
        up += np.diff(at)[1::2].tolist()
    assert len(down) > 200_000
    for lengths, mean in ((up, 3 * US), (down, US)):
        assert np.mean(lengths) == pytest.approx(mean, rel=0.01)
        assert np.std(lengths) == pytest.approx(mean, rel=0.01)
        assert np.median(lengths) == pytest.approx(mean * np.log(2), rel=0.01)


def test_what_is_drawn_follows_the_seed() -> None:
    def failures(seed: int, own: int | None = None, before: int = 0) -> dict[int, list[int]]:
        fault = Fault(
            0, "port-down", "nic * plane *", mtbf_ps=30 * US, mttr_ps=US, until_ps=99 * US, seed=own
        )
        first = [Fault(5, "switch-silent", "plane 0 t1 0")] * before
        return ups_and_downs(compile_faults([*first, fault], FABRIC, seed))

    assert failures(1) == failures(1)
    assert failures(1) != failures(2)
    assert failures(1) != failures(1, before=1), "each fault of a list draws for itself"
    assert failures(1, own=7) == failures(2, own=7) == failures(1, own=7, before=1)
    assert failures(1, own=7) != failures(1, own=8)
    two = compile_faults(
        [
            Fault(0, "link-down", where, mtbf_ps=30 * US, mttr_ps=US, until_ps=99 * US)
            for where in ("nic 0 plane *", "nic 1 plane *")
        ],
        FABRIC,
    )
    times = ups_and_downs(two)
    assert times[FABRIC.nic_port(0, 0)] != times[FABRIC.nic_port(1, 0)]


def test_a_share_of_the_places_is_drawn_and_rounded() -> None:
    for share, n in ((0.005, 0), (0.01, 1), (0.5, 32), (1.0, 64)):
        fault = Fault(0, "link-down", "plane * t0 * - t1 *", share=share)
        if n == 0:
            assert refused(fault) == "fault[0].share: 0.005 of 64 rounds to none; name more places"
            continue
        assert story(fault) == [(0, "down", 2 * n)]
    half = Fault(0, "link-down", "plane * t0 * - t1 *", share=0.5)
    a, b = (set(compile_faults([half], FABRIC, seed).events["target"].tolist()) for seed in (1, 2))
    assert a != b


def test_a_hall_under_construction_begins_as_it_goes_on() -> None:
    """A fifth of the links are down at the start and, on average, at any time."""
    fault = Fault(
        7 * US,
        "link-construction",
        "plane * t0 * - t1 *, nic * plane *",
        mtbf_ps=40 * US,
        mttr_ps=10 * US,
        until_ps=1007 * US,
    )
    schedule = compile_faults([fault], FABRIC)
    times = ups_and_downs(schedule)
    assert len(times) == 2 * 128
    for at in (7, 8, 100, 500, 1000, 1006):
        down = [np.searchsorted(t, at * US, side="right") % 2 for t in times.values()]
        assert np.sum(down) / 2 == pytest.approx(128 / 5, abs=4 * np.sqrt(128 * 0.2 * 0.8))
    assert all(t[-1] <= 1007 * US and len(t) % 2 == 0 for t in times.values())
    assert schedule.names == (
        (7 * US, "link-construction plane * t0 * - t1 *, nic * plane *"),
        (1007 * US, "link-construction over plane * t0 * - t1 *, nic * plane *"),
    )


def test_marks_of_what_repeats_are_two_however_often_it_does() -> None:
    schedule = compile_faults(
        [
            Fault(0, "link-down", LINK, period_ps=10 * US, duty=0.3, until_ps=95 * US),
            Fault(0, "link-slow", LINK, factor=0.1, share=1.0, for_ps=200 * US),
        ],
        FABRIC,
    )
    assert schedule.names == (
        (0, f"link-down every 10us {LINK}"),
        (0, f"link-slow 0.1 1 of {LINK}"),
        (93 * US, f"link-up {LINK}"),
        (200 * US, f"link-slow over {LINK}"),
    )
    (first, _) = compile_faults(
        [Fault(0, "port-down", "nic * plane *", mtbf_ps=US, mttr_ps=US, until_ps=9 * US)], FABRIC
    ).names
    assert first[1] == "port-down at random nic * plane *"


# --- transceivers -----------------------------------------------------------------------------


def test_a_transceiver_takes_all_links_that_are_named() -> None:
    where = ("nic 4 plane 3", "nic 5 plane 3, nic 6 plane 3", LINK)
    assert story(Fault(5 * US, "transceiver-down", where, for_ps=US)) == [
        (5, "down", 8),
        (5, "nic down", 3),
        (6, "up", 8),
        (6, "nic up", 3),
    ]
    times = ups_and_downs(
        compile_faults(
            [Fault(0, "transceiver-down", where, mtbf_ps=US, mttr_ps=US, until_ps=50 * US)], FABRIC
        )
    )
    assert len(times) == 8
    assert len({tuple(at) for at in times.values()}) == 1, "its links fail together"


def test_transceivers_with_a_number_fail_one_by_one() -> None:
    where = "plane 3 t0 1 transceiver *"
    again: dict[str, Any] = {"mtbf_ps": US, "mttr_ps": US, "until_ps": 50 * US}
    for each, groups in ((2, 4), (3, 4), (4, 2), (None, 2)):
        fault = Fault(0, "transceiver-down", where, links=each, **again)
        times = ups_and_downs(compile_faults([fault], FABRIC))
        assert len(times) == 16
        assert len({tuple(at) for at in times.values()}) == groups
    assert story(
        Fault(1 * US, "transceiver-down", "nic 5 transceiver 0"),
        Fault(2 * US, "transceiver-up", "nic 5 transceiver 1", links=2),
        Fault(3 * US, "link-up", "nic 5 plane *"),
    ) == [
        (1, "down", 8),
        (1, "nic down", 4),
        (2, "up", 4),
        (2, "nic up", 2),
        (3, "up", 4),
        (3, "nic up", 2),
    ]


# --- denylists --------------------------------------------------------------------------------


def test_a_denylist_names_ports_and_the_nics_it_is_for() -> None:
    schedule = compile_faults(
        [
            Fault(1, "deny", "plane 3 t0 1 > t1 2", for_ps=5),
            Fault(2, "deny", "plane 3 t0 1 > t1 2", nics="0-3, 7", for_ps=5),
            Fault(2, "deny", "plane 1", nics="0-3,7"),
        ],
        FABRIC,
    )
    (port,) = links(FABRIC, "plane 3 t0 1 > t1 2").tolist()
    assert schedule.groups.shape == (2, 16)
    assert schedule.groups[0].all()
    assert np.flatnonzero(schedule.groups[1]).tolist() == [0, 1, 2, 3, 7]
    rows = schedule.events[["at_ps", "action", "group", "target"]].tolist()
    assert rows == [
        (1, actions.PORT_DENY, 0, port),
        (1, actions.REVIEW_PATHS, 0, 0),
        *((2, actions.PORT_DENY, 1, FABRIC.nic_port(nic, 1)) for nic in range(16)),
        (2, actions.PORT_DENY, 1, port),
        (2, actions.REVIEW_PATHS, 0, 0),
        (6, actions.PORT_ALLOW, 0, port),
        (6, actions.REVIEW_PATHS, 0, 0),
        (7, actions.PORT_ALLOW, 1, port),
        (7, actions.REVIEW_PATHS, 0, 0),
    ]


def test_a_denial_is_lifted_for_those_it_was_for() -> None:
    lists = [
        Fault(1 * US, "deny", "plane 3 t1 2"),
        Fault(2 * US, "deny", "plane 3 t1 2", nics="0"),
        Fault(3 * US, "deny", "plane 3 t1 2", for_ps=9 * US),
        Fault(4 * US, "allow", "plane 3 t1 2"),
    ]
    assert story(*lists) == [
        (1, "deny", 4),
        (1, "review", 1),
        (2, "deny", 4),
        (2, "review", 1),
        (12, "allow", 4),
        (12, "review", 1),
    ]
    assert refused(*lists, Fault(5 * US, "allow", "plane 3 t1 2", nics="1")).startswith(
        "fault[4].where: 'plane 3 t1 2': nothing there is denied at that time"
    )


def test_as_many_groups_of_nics_as_a_port_has_bits_for() -> None:
    lists = [Fault(0, "deny", "plane 0", nics=f"{n}") for n in range(15)]
    assert compile_faults(lists, FABRIC).groups.shape == (16, 16)
    assert refused(*lists, Fault(0, "deny", "plane 0", nics="15")).startswith(
        "fault[15].nics: '15': one more set of NICs; 15 beside all of them may have denylists"
    )


# --- all of them ------------------------------------------------------------------------------

PLACES = {
    "link-down": [LINK, "plane 3 t0 1 > t1 *", "nic 5 plane 3 < t0", "nic * plane 3"],
    "port-down": ["nic 5 plane 3", "nic 5 plane *"],
    "switch-down": ["plane 3 t0 1", "plane * t1 2"],
    "switch-silent": ["plane 3 t0 1", "plane * t1 2"],
}
ANY_FAULT = st.sampled_from(sorted(PLACES)).flatmap(
    lambda kind: st.builds(
        Fault,
        at_ps=st.integers(0, 50),
        kind=st.just(kind),
        where=st.sampled_from(PLACES[kind]),
        for_ps=st.integers(1, 50),
    )
)


@given(st.lists(ANY_FAULT, max_size=6))
def test_states_alternate_and_end_as_they_began(some: list[Fault]) -> None:
    events = compile_faults(some, FABRIC).events
    assert (np.diff(events["at_ps"]) >= 0).all()
    port_down = np.zeros(FABRIC.n_ports, bool)
    nic_down = np.zeros(64, bool)
    switch_state = np.full(FABRIC.n_switches, actions.SWITCH_UP)
    for at_ps in np.unique(events["at_ps"]):
        for _, action, _, target, _, _ in events[events["at_ps"] == at_ps].tolist():
            if action in (actions.PORT_DOWN, actions.PORT_UP):
                assert port_down[target] != (action == actions.PORT_DOWN)
                port_down[target] = action == actions.PORT_DOWN
            elif action in (actions.NIC_PORT_DOWN, actions.NIC_PORT_UP):
                assert nic_down[target] != (action == actions.NIC_PORT_DOWN)
                nic_down[target] = action == actions.NIC_PORT_DOWN
            else:
                assert switch_state[target] != action
                switch_state[target] = action
        assert (nic_down == (port_down[:64] & port_down[FABRIC.port_reverse[:64]])).all()
    assert not port_down.any()
    assert not nic_down.any()
    assert (switch_state == actions.SWITCH_UP).all()
