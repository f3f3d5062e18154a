"""Stories of faults: what the schedule says, action by action."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.fabric import Fault, actions, compile_faults, multiplane

US = 10**6
FABRIC = multiplane(16, 4, 100 * 10**9, 4, 4, US, 0)
LINK = "plane 3 t0 1 - t1 2"
SHORT = {
    actions.PORT_UP: "up",
    actions.PORT_DOWN: "down",
    actions.PORT_LOSS: "loss",
    actions.SWITCH_UP: "switch up",
    actions.SWITCH_DOWN: "switch down",
    actions.SWITCH_SILENT: "switch silent",
    actions.NIC_PORT_DOWN: "nic down",
    actions.NIC_PORT_UP: "nic up",
}


def story(*given_faults: Fault) -> list[tuple[int, str, int]]:
    """(microseconds, what happens, to how many): consecutive equal events are counted."""
    events = compile_faults(given_faults, FABRIC).events
    told: list[tuple[int, str, int]] = []
    for event in events:
        at, what = int(event["at_ps"]) // US, SHORT[int(event["action"])]
        if told and told[-1][:2] == (at, what):
            told[-1] = (at, what, told[-1][2] + 1)
        else:
            told.append((at, what, 1))
    return told


def refused(fault: Fault) -> str:
    with pytest.raises(InputError) as error:
        compile_faults([fault], FABRIC)
    return str(error.value)


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
        (Fault(0, "link-up", LINK, for_ps=5), "fault[0].for: link-up has no duration; remove it"),
        (Fault(0, "link-down", LINK, rate=0.5), "fault[0].rate: link-down has no rate; remove it"),
        (Fault(0, "link-loss", LINK), "fault[0].rate: None; a probability of 0 to 1 is needed"),
        (Fault(0, "link-loss", LINK, rate=1.5), "fault[0].rate: 1.5; a probability of 0 to 1"),
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
        for _, action, target, _ in events[events["at_ps"] == at_ps].tolist():
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
