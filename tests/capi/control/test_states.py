"""States of EVs that a controller changes: what compiled code does, and what it leaves to Python,
for a caller are one call.
"""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from openmrc.capi import entry
from openmrc.capi.control import configuring, formats, states
from openmrc.capi.control import layouts as ctl_layouts
from openmrc.capi.control.formats import UNPOPULATED, Ev
from openmrc.capi.control.structures import E
from openmrc.capi.linked import Api
from openmrc.capi.places import Block
from openmrc.errors import OpenMrcError
from openmrc.jit import interpreted
from tests.capi.control.ctl import (
    BAD,
    DENIED,
    GOOD,
    INIT,
    MODIFY_STATE,
    OFFLINE,
    ONLINE,
    QUERY_STATE,
    Ctl,
    put_ev,
    rows,
    wait_for,
)
from tests.capi.control.fixtures import TO, controlled, transfer
from tests.capi.handles import Open, refused

HELD = {GOOD: "GOOD", BAD: "ASSUMED_BAD", DENIED: "DENIED"}
MAY = configuring.is_privileged()  # before a test says that it may


@pytest.fixture
def ctl(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ctl]:
    with controlled(api, monkeypatch) as found:
        yield found


def entries(*wanted: tuple[Ev, int], flags: int = 0) -> np.ndarray:
    listed = rows(ctl_layouts.ENTRY, len(wanted))
    for row, (ev, state) in zip(listed, wanted, strict=True):
        put_ev(row["ev"], ev)
        row["state"], row["flags"] = state, flags
    return listed


def change(ctl: Ctl, profile: int, *wanted: tuple[Ev, int], flags: int = 0) -> tuple[int, int]:
    return ctl.modify("ev", profile, E["EV_OP"], (MODIFY_STATE, entries(*wanted, flags=flags)))


def in_python(ctl: Ctl, profile: int, *wanted: tuple[Ev, int]) -> tuple[int, int]:
    """The same by the function of Python, to which the stub turns in doubt."""
    a, listed = Block(ctl_layouts.EV_ATTR), entries(*wanted)
    op = a.record["ev_op"]
    op["op"], op["entries"], op["entry_count"] = MODIFY_STATE, listed.ctypes.data, len(listed)
    asked = entry._answering(
        "mrc_ctl_modify_ev_profile", entry.controller.mrc_ctl_modify_ev_profile
    )
    code = -asked(ctl.mrc, profile, a.address, E["EV_OP"])
    return (-1 if code else 0), code


def quickly(ctl: Ctl, profile: int, *wanted: tuple[Ev, int]) -> int:
    """What compiled code says of the same."""
    assert entry.verbs.nic is not None
    host, listed = entry.verbs.nic.host, entries(*wanted)
    return int(
        states.change(
            host.ep,
            host.st,
            host.ways,
            entry.library.calls,
            profile,
            listed.ctypes.data,
            len(listed),
        )
    )


# --- one truth


@pytest.mark.parametrize("seed", range(3))
def test_both_ways_do_the_same_and_what_a_model_says(ctl: Ctl, seed: int) -> None:
    """Of random changes, a fifth of them wrong, in two profiles with queue pairs."""
    draw, evs = random.Random(seed), ctl.evs(TO)
    ctl.form()
    number = 1 << 63 | 5  # 64 bits
    for profile in (number, 2):
        ctl.explicit(profile, evs)
    pairs = [transfer(ctl, ev=number), transfer(ctl, ev=2)]
    strange = [formats.packed(0xDEAD, 32, 1), evs[0]._replace(port=3), UNPOPULATED]
    model = dict.fromkeys(evs, GOOD)
    for _ in range(60):
        wanted = []
        for _ in range(draw.choice((1, 1, 2, 5))):
            ev = draw.choice(strange) if draw.random() < 0.1 else draw.choice(evs)
            wanted.append((ev, 0x55 if draw.random() < 0.05 else draw.choice((GOOD, DENIED))))
        code = 0
        for ev, state in wanted:  # one after the other, up to the first that is wrong
            code = errno.EINVAL if state == 0x55 else 0 if ev in model else errno.ENOENT
            if code:
                break
            model[ev] = state
        quick, plain = change(ctl, number, *wanted), in_python(ctl, 2, *wanted)
        assert (quick[1], plain[1]) == (code, code), wanted
        assert ctl.array(number) == ctl.array(2) == model
        for pair in pairs:
            assert pair.states() == {ev: HELD[state] for ev, state in model.items()}


@pytest.mark.skipif(not MAY or interpreted(), reason="it needs CAP_NET_ADMIN, and compiled code")
def test_a_change_waits_for_no_call_of_python(ctl: Ctl) -> None:
    """Whoever holds the interpreter's lock, or the library's, holds up others."""
    ctl.form()
    evs = ctl.evs(TO)
    ctl.explicit(1, evs)
    listed, a = entries((evs[0], DENIED)), Block(ctl_layouts.EV_ATTR)
    op = a.record["ev_op"]
    op["op"], op["entries"], op["entry_count"] = MODIFY_STATE, listed.ctypes.data, 1
    with entry._lock:
        done = threading.Event()

        def call() -> None:
            if ctl.api("mrc_ctl_modify_ev_profile", ctl.mrc, 1, a, E["EV_OP"]) == (0, 0):
                done.set()

        calling = threading.Thread(target=call, daemon=True)
        calling.start()
        assert done.wait(20)
    calling.join()
    assert ctl.array(1)[evs[0]] == DENIED


def test_a_controllers_word_waits_for_the_round_that_runs(ctl: Ctl) -> None:
    ctl.form()
    evs = ctl.evs(TO)
    ctl.explicit(1, evs)
    moving, host = transfer(ctl, ev=1), ctl.fabric.device(0)._host
    host._enter.call()
    try:
        assert quickly(ctl, 1, (evs[0], DENIED)) == states.BUSY
    finally:
        host._leave.call()
    assert ctl.array(1)[evs[0]] == GOOD
    assert quickly(ctl, 1, (evs[0], DENIED)) == states.DONE
    assert (ctl.array(1)[evs[0]], moving.states()[evs[0]]) == (DENIED, "DENIED")


def test_compiled_code_does_all_or_nothing_and_python_up_to_the_first_that_is_wrong(
    ctl: Ctl,
) -> None:
    ctl.form()
    evs = ctl.evs(TO)
    ctl.explicit(1, evs[:2])
    wrong = ((evs[0], DENIED), (evs[3], DENIED), (evs[1], DENIED))
    assert quickly(ctl, 1, *wrong) == states.ELSEWHERE
    assert ctl.array(1) == {evs[0]: GOOD, evs[1]: GOOD}
    assert quickly(ctl, 7, (evs[0], DENIED)) == states.ELSEWHERE  # no such profile
    refused(change(ctl, 1, *wrong), errno.ENOENT)
    assert ctl.array(1) == {evs[0]: DENIED, evs[1]: GOOD}


def test_all_copies_of_an_ev_have_one_state(ctl: Ctl) -> None:
    ctl.form()
    one, other = ctl.evs(TO)[:2]
    ctl.explicit(1, [one, other, one, other])
    moving = transfer(ctl, ev=1)
    moving.write()
    assert change(ctl, 1, (one, DENIED)) == (0, 0)
    before = moving.packets()
    moving.write(2)
    assert moving.states() == {one: "DENIED", other: "GOOD"}
    assert moving.packets()[one] == before[one]
    assert ctl.array(1) == {one: DENIED, other: GOOD}


# --- wrong calls


def test_wrong_changes_are_refused_with_their_reason(ctl: Ctl) -> None:
    ctl.form()
    evs = ctl.evs(TO)
    ctl.explicit(1, evs)
    fine = (evs[0], DENIED)
    refused(change(ctl, 1, fine, flags=2), errno.EINVAL)
    refused(change(ctl, 9, fine), errno.EINVAL)  # the profile is in INIT
    refused(change(ctl, 1, *[fine] * (states.ENTRIES_MAX + 1)), errno.E2BIG)
    for state in (0, GOOD | DENIED, 8, -1 << 31):
        refused(change(ctl, 1, (evs[0], state)), errno.EINVAL)
    a = Block(ctl_layouts.EV_ATTR)
    for op, at, n in ((MODIFY_STATE, 0, 1), (MODIFY_STATE, a.address, 0), (4, a.address, 1)):
        a.record["ev_op"]["op"], a.record["ev_op"]["entries"] = op, at
        a.record["ev_op"]["entry_count"] = n
        answer = ctl.api("mrc_ctl_modify_ev_profile", ctl.mrc, 1, a, E["EV_OP"])
        refused(answer, errno.EINVAL)
    refused(ctl.api("mrc_ctl_modify_ev_profile", ctl.mrc, 1, 0, E["EV_OP"]), errno.EINVAL)
    for context in (0, ctl.there.context, ctl.mrc + 1, ctl.there.cq, 1 << 40):
        listed = entries(fine)
        a.record["ev_op"]["op"], a.record["ev_op"]["entries"] = MODIFY_STATE, listed.ctypes.data
        a.record["ev_op"]["entry_count"] = 1
        answer = ctl.api("mrc_ctl_modify_ev_profile", context, 1, a, E["EV_OP"])
        refused(answer, errno.EINVAL)
    assert set(ctl.array(1).values()) == {GOOD}


def test_a_context_that_was_destroyed_changes_nothing(ctl: Ctl) -> None:
    ctl.form()
    evs = ctl.evs(TO)
    ctl.explicit(1, evs)
    other = Ctl(Open(ctl.api), ctl.fabric)
    assert change(other, 1, (evs[0], DENIED)) == (0, 0)
    ctl.api.must("mrc_destroy_cq", other.there.cq)
    ctl.api.must("mrc_destroy_context", other.mrc)
    refused(change(other, 1, (evs[0], GOOD)), errno.EINVAL)
    again = ctl.api.must("mrc_create_context", other.there.context, 0)
    assert again != other.mrc  # though it stands in the same place
    refused(change(other, 1, (evs[0], GOOD)), errno.EINVAL)
    assert ctl.array(1)[evs[0]] == DENIED
    ctl.api.must("ibv_close_device", other.there.context)


def test_a_device_has_room_for_so_many_contexts(ctl: Ctl) -> None:
    made = [ctl.api.must("mrc_create_context", ctl.there.context, 0) for _ in range(1023)]
    refused(ctl.api("mrc_create_context", ctl.there.context, 0), errno.ENOMEM)
    ctl.api.must("mrc_destroy_context", made.pop(500))
    made.append(ctl.api.must("mrc_create_context", ctl.there.context, 0))
    assert len(set(made)) == 1023


# --- what a state is


def test_a_profile_of_random_paths_keeps_what_is_said_of_any_ev(ctl: Ctl) -> None:
    """Also of EVs that no queue pair has: a later one may draw them."""
    evs = ctl.evs(TO)
    absent = formats.packed(0x1234, 32, 1)
    assert change(ctl, 0, (evs[0], DENIED), (absent, DENIED)) == (0, 0)
    assert ctl.array(0) == {evs[0]: DENIED, absent: DENIED}
    moving = transfer(ctl)
    assert ctl.array(0) == {**dict.fromkeys(evs, GOOD), evs[0]: DENIED, absent: DENIED}
    moving.write(2)
    assert moving.packets()[evs[0]] == 0
    assert change(ctl, 0, (absent, GOOD)) == (0, 0)
    assert absent not in ctl.array(0)
    listed = entries((absent, 0))
    answer, _ = ctl._profile("query", "ev", 0, E["EV_OP"], (QUERY_STATE, listed), {})
    refused(answer, errno.ENOENT)
    refused(change(ctl, 0, (absent._replace(port=9), DENIED)), errno.ENOENT)
    assert change(ctl, 0, (evs[0], GOOD)) == (0, 0)
    assert moving.states()[evs[0]] == "GOOD"


def test_an_ev_in_its_own_place_has_the_state_that_is_asked(ctl: Ctl) -> None:
    """REPLACE says a state, too."""
    ctl.form()
    evs = ctl.evs(TO)
    ctl.explicit(1, evs)
    moving, queue = transfer(ctl, ev=1), ctl.queue()
    for state in (DENIED, GOOD):
        assert ctl.replace(1, [(evs[0], evs[0])], state=state) == (0, 0)
        assert (ctl.array(1)[evs[0]], moving.states()[evs[0]]) == (state, HELD[state])
    assert ctl.events(queue) == []  # a controller's own word is no event
    assert ctl.replace(1, [(evs[0], evs[0])], state=BAD) == (0, 0)
    told: list[tuple[int, Ev, int, int]] = []

    def is_back() -> bool:  # it is probed
        told.extend(ctl.events(queue))
        return [one[1:3] for one in told] == [(evs[0], BAD), (evs[0], GOOD)]

    wait_for(is_back)
    moving.write()


def test_an_ev_that_is_denied_while_it_is_bad_is_good_afterwards(ctl: Ctl) -> None:
    ctl.form()
    evs = ctl.evs(TO)
    ctl.explicit(1, evs)
    moving, queue, dead = transfer(ctl, ev=1), ctl.queue(), evs[0]
    plane_t1 = ctl.fabric.fabric.hops(int.from_bytes(dead.value[:4], "big"))
    ctl.fabric.lose(f"plane 0 t1 {plane_t1.up0}", 1.0)
    told: list[tuple[int, Ev, int, int]] = []

    def heard() -> bool:
        moving.write()
        told.extend(one for one in ctl.events(queue) if one[1] == dead)
        return bool(told)

    wait_for(heard)
    assert ctl.array(1)[dead] == BAD
    assert change(ctl, 1, (dead, DENIED)) == (0, 0)
    moving.write(2)
    assert [one[2] for one in ctl.events(queue) if one[1] == dead] == []
    ctl.fabric.heal(f"plane 0 t1 {plane_t1.up0}")
    assert change(ctl, 1, (dead, GOOD)) == (0, 0)
    assert (ctl.array(1)[dead], moving.states()[dead]) == (GOOD, "GOOD")
    before = moving.packets()[dead]
    moving.write(2)
    assert moving.packets()[dead] > before
    assert change(ctl, 1, (dead, BAD)) == (0, 0)  # what it becomes now is told again
    again = wait_for(lambda: [one for one in ctl.events(queue) if one[1] == dead])
    assert again[0][2] == BAD


def test_what_a_queue_pair_held_to_be_bad_ends_with_it(ctl: Ctl) -> None:
    """One queue pair is enough for ASSUMED_BAD; when the last that holds it so is gone, it is GOOD,
    and that is a change, too.
    """
    ctl.form()
    evs = ctl.evs(TO)
    ctl.explicit(1, evs)
    first, second, queue = transfer(ctl, ev=1), transfer(ctl, ev=1), ctl.queue()
    ctl.fabric.lose("plane 0 t1 *", 1.0)  # its probes are not answered
    assert change(ctl, 1, (evs[0], BAD)) == (0, 0)
    assert wait_for(lambda: ctl.events(queue))[0][1:3] == (evs[0], BAD)
    ctl.api.must("mrc_destroy_qp", first.qp)
    assert ctl.array(1)[evs[0]] == BAD
    ctl.api.must("mrc_destroy_qp", second.qp)
    assert ctl.array(1)[evs[0]] == GOOD
    assert (evs[0], GOOD) in [one[1:3] for one in ctl.events(queue)]


def test_a_queue_pair_goes_though_the_loop_has_ended(
    ctl: Ctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctl.form()
    evs = ctl.evs(TO)
    ctl.explicit(1, evs)
    moving, queue = transfer(ctl, ev=1), ctl.queue()
    ctl.fabric.lose("plane 0 t1 *", 1.0)
    assert change(ctl, 1, (evs[0], BAD)) == (0, 0)
    assert wait_for(lambda: ctl.events(queue))[0][1:3] == (evs[0], BAD)

    def ended(function: object) -> None:
        raise OpenMrcError("the device's loop has ended")

    monkeypatch.setattr(ctl.fabric.device(0)._host, "between", ended)
    assert ctl.api("mrc_destroy_qp", moving.qp) == (0, 0)


def test_a_controllers_words_meet_replacements_and_a_transfer(ctl: Ctl) -> None:
    """Two threads of a controller at once, while bytes move: what each said last holds."""
    ctl.form()
    evs = ctl.evs(TO)
    ctl.explicit(1, evs[:2])
    moving = transfer(ctl, ev=1)
    wrong: list[tuple[int, int]] = []

    def deny() -> None:
        for turn in range(301):
            answer = change(ctl, 1, (evs[0], GOOD if turn % 2 else DENIED))
            if answer != (0, 0):
                wrong.append(answer)

    def replace() -> None:
        for turn in range(31):
            answer = ctl.replace(1, [(evs[1], evs[3]) if turn % 2 == 0 else (evs[3], evs[1])])
            if answer != (0, 0):
                wrong.append(answer)

    threads = [threading.Thread(target=one) for one in (deny, replace)]
    for one in threads:
        one.start()
    while any(one.is_alive() for one in threads):
        moving.write()
    for one in threads:
        one.join()
    assert wrong == []
    assert ctl.array(1) == {evs[0]: DENIED, evs[3]: GOOD}
    assert moving.states() == {evs[0]: "DENIED", evs[3]: "GOOD"}
    before = moving.packets()[evs[0]]
    moving.write(2)
    assert moving.packets()[evs[0]] == before


# --- profiles


def test_a_profile_that_ended_takes_its_states_with_it(ctl: Ctl) -> None:
    ctl.form()
    evs = ctl.evs(TO)
    ctl.explicit(1, evs)
    assert change(ctl, 1, (evs[0], DENIED)) == (0, 0)
    for state in (OFFLINE, INIT):
        assert ctl.modify("ev", 1, E["STATE"], profile_state=state) == (0, 0)
    refused(change(ctl, 1, (evs[0], GOOD)), errno.EINVAL)
    ctl.explicit(1, evs)
    assert set(ctl.array(1).values()) == {GOOD}


def test_as_many_profiles_as_there_are_and_the_last_is_obeyed(ctl: Ctl) -> None:
    ctl.form()
    evs = ctl.evs(TO)[:2]
    for profile in range(1, 256):
        ctl.explicit(profile, evs)
    mask = sum(E[n] for n in ("STATE", "MODE", "FMT_ID", "COUNT"))
    given = {"ev_mode": 2, "ev_fmt_profile_id": 13, "ev_count": 2, "profile_state": OFFLINE}
    refused(ctl.modify("ev", 256, mask, **given), errno.EINVAL)
    moving = transfer(ctl, ev=255)
    assert quickly(ctl, 255, (evs[0], DENIED)) == states.DONE
    assert (moving.states()[evs[0]], ctl.array(254)[evs[0]]) == ("DENIED", GOOD)
    for state in (OFFLINE, INIT):
        assert ctl.modify("ev", 7, E["STATE"], profile_state=state) == (0, 0)
    ctl.explicit(256, evs)
    assert quickly(ctl, 256, (evs[1], DENIED)) == states.DONE
    assert quickly(ctl, 7, (evs[1], DENIED)) == states.ELSEWHERE


def test_a_change_while_it_is_offline_holds_when_it_is_online(ctl: Ctl) -> None:
    ctl.form()
    evs = ctl.evs(TO)
    ctl.explicit(1, evs)
    assert ctl.modify("ev", 1, E["STATE"], profile_state=OFFLINE) == (0, 0)
    assert change(ctl, 1, (evs[0], DENIED)) == (0, 0)
    assert ctl.modify("ev", 1, E["STATE"], profile_state=ONLINE) == (0, 0)
    moving = transfer(ctl, ev=1)
    assert moving.states()[evs[0]] == "DENIED"


def test_the_structures_are_where_compiled_code_reads_them() -> None:
    listed = entries((Ev(bytes(range(32)), 200), DENIED), flags=1)
    room = listed.view(np.uint8)
    assert bytes(room[:32]) == bytes(range(32))
    assert room[states.PORT_AT] == 200
    wanted = room[states.WANTED_AT : states.WANTED_AT + 8].view(states.WANTED)[0]
    assert (int(wanted["state"]), int(wanted["flag_bits"])) == (DENIED, 1)
    row = np.array([(-1, DENIED, 7, bytes(range(32)))], states.ROW)
    head = row.view(np.uint8)[: states.HEAD_BYTES].view(states.HEAD)[0]
    assert head.tolist() == (-1, DENIED, 7)
    assert bytes(row.view(np.uint8)[states.HEAD_BYTES : states.ROW_BYTES]) == bytes(range(32))
