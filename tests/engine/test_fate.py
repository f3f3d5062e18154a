"""What becomes of a transmission as a table (engine/fate.py), and a story of each event."""

from __future__ import annotations

import ast
from pathlib import Path

import openmrc
from openmrc.engine import fate
from openmrc.engine import packet as pk
from openmrc.engine.ev import ASSUMED_BAD, GOOD
from openmrc.engine.fate import (
    CUT,
    DELIVERED,
    DOUBTED,
    EVENTS,
    EXPIRED,
    FATES,
    LATE,
    LOST,
    NEEDLESS,
    NONE,
    SENT,
    TRIED,
    TRIMMED,
)
from tests.engine.cases import long
from tests.engine.pair import OVERHEAD, Pair

NOMINAL = 4096 + OVERHEAD


def silent_pair(n: int = 40, us: float = 10) -> Pair:
    """`n` packets are out, and no answer of the receiver ever comes: the story plays it."""
    pair = Pair()
    pair.cut(src=1)
    pair.post(n * 4096)
    pair.advance(us=us)
    return pair


def fates(pair: Pair, seq: int) -> tuple[int, int]:
    """Of the latest transmission of a packet, and of the one before."""
    s = pair.slot(seq)
    return int(s.fate), int(s.before)


# --- the table


def test_every_fate_is_reached_from_sent() -> None:
    assert {after for event in EVENTS for after in (event.after, *event.before)} == set(FATES)
    reached = {SENT}
    for _ in EVENTS:
        reached |= {event.after for event in EVENTS if reached & set(event.before)}
    assert reached == set(FATES)
    assert all(event.after not in event.before for event in EVENTS)


def test_the_events_have_the_names_of_their_constants() -> None:
    for number, event in enumerate(EVENTS):
        assert getattr(fate, event.name.replace(" ", "_").upper()) == number


@long
def test_nothing_but_the_table_assigns_a_fate() -> None:
    """But for a new packet, whose slot has no transmission yet."""
    found = []
    root = Path(openmrc.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            if stored and ast.unparse(node) in ("s.fate", "s.before"):
                found.append(path.relative_to(root).as_posix())
    assert found == ["engine/fate.py"] * 4 + ["engine/requester.py"]


# --- a story of each event


def test_a_packet_that_arrives_is_delivered() -> None:
    pair = silent_pair(1, us=5)
    assert (fates(pair, 0), pair.q.inflight) == ((SENT, NONE), NOMINAL)
    pair.sack(0)
    assert (fates(pair, 0), pair.q.inflight) == ((DELIVERED, NONE), 0)


def test_a_trimmed_packet_waits_and_goes_again() -> None:
    pair = silent_pair()
    pair.q.cwnd = pair.q.pkt  # full, so nothing goes again at once
    pair.nack(1, pk.NACK_TRIMMED)
    assert (fates(pair, 1), pair.q.lost, pair.q.inflight) == ((TRIMMED, NONE), 1, 39 * NOMINAL)
    pair.q.cwnd = pair.q.max_wnd
    pair.advance(us=1)
    assert (fates(pair, 1), pair.q.lost) == ((SENT, TRIMMED), 0)
    assert (pair.q.inflight, pair.q.inflight_again) == (40 * NOMINAL, NOMINAL)


def test_a_trimmed_packet_of_which_a_copy_has_come_need_not_go_again() -> None:
    pair = silent_pair()
    pair.q.cwnd = pair.q.pkt
    pair.nack(1, pk.NACK_TRIMMED)
    pair.sack(1)
    assert (fates(pair, 1), pair.q.lost) == ((DELIVERED, NONE), 0)
    assert pair.q.n_false == 0


def test_an_overdue_packet_is_lost_once_something_sent_later_has_come() -> None:
    pair = silent_pair()
    pair.sack(0, got={2}, trigger=2)
    pair.until(lambda: pair.q.n_inferred > 0)
    ev = int(pair.slot(1).before_ev)
    assert (fates(pair, 1), pair.q.n_inferred) == ((SENT, CUT), 1)
    assert pair.st.ev[ev].state == ASSUMED_BAD
    left = {pair.seq(x.p): x.at for x in pair.packets("data")}
    sent_at = int(pair.slot(1).sent_at) - 1000 * int(pair.slot(1).before_ns)
    assert left[1] - 1000 < sent_at <= left[1]


def test_a_lost_packet_that_comes_after_all_is_late() -> None:
    pair = silent_pair()
    pair.sack(0, got={2}, trigger=2)
    pair.until(lambda: pair.q.n_inferred > 0)
    ev, cwnd = int(pair.slot(1).before_ev), float(pair.q.cwnd)
    pair.sack(2)  # too early to be an answer to what has just left again
    assert (fates(pair, 1), pair.q.n_false) == ((NEEDLESS, LATE), 1)
    assert pair.st.ev[ev].state == GOOD
    assert pair.q.cwnd > cwnd


def test_a_late_packet_gives_the_window_back_what_its_own_loss_took() -> None:
    """Of two losses on one plane the first cuts the window (`nscc.on_loss`); the second is late."""
    pair = silent_pair()
    pair.sack(0, got={2, 4}, trigger=4)
    pair.until(lambda: pair.q.n_inferred == 2)
    assert (fates(pair, 1), fates(pair, 3)) == ((SENT, CUT), (SENT, LOST))
    cwnd = float(pair.q.cwnd)
    pair.sack(0, got={2, 3, 4}, trigger=3)
    assert (fates(pair, 3), pair.q.n_false) == ((NEEDLESS, LATE), 1)
    assert pair.q.cwnd < cwnd + pair.q.pkt
    pair.sack(4, trigger=1)
    assert (fates(pair, 1), pair.q.n_false) == ((NEEDLESS, LATE), 2)
    assert pair.q.cwnd >= cwnd + pair.q.pkt


def test_a_packet_that_waits_as_lost_and_comes_is_late_and_does_not_go_again() -> None:
    pair = silent_pair()
    pair.q.cwnd = pair.q.pkt
    pair.sack(0, got={2}, trigger=2)
    pair.q.cwnd = pair.q.pkt
    pair.until(lambda: pair.q.n_inferred > 0)
    assert fates(pair, 1) == (LOST, NONE)
    before = int(pair.q.lost)
    pair.sack(2)
    assert (fates(pair, 1), pair.q.lost, pair.q.n_false) == ((LATE, NONE), before - 1, 1)


def test_what_is_overdue_at_the_end_goes_again_in_doubt() -> None:
    """Nobody pays for it yet; it had come, as an answer shows that is too early for the copy."""
    pair = silent_pair(1)
    pair.until(lambda: pair.sent["rtx"] == 1)
    assert (fates(pair, 0), pair.q.n_bad, pair.q.n_inferred) == ((SENT, DOUBTED), 0, 0)
    pair.sack(0)
    assert (fates(pair, 0), pair.q.n_false, pair.q.n_inferred) == ((NEEDLESS, DELIVERED), 1, 0)


def test_what_is_in_doubt_is_lost_once_something_sent_later_has_come() -> None:
    pair = silent_pair(1)
    pair.until(lambda: pair.sent["rtx"] == 1)
    pair.q.evidence_at = int(pair.packets("data")[0].at) + 1
    pair.sack(-1)
    assert (fates(pair, 0), pair.q.n_bad, pair.q.n_inferred) == ((SENT, CUT), 1, 1)


def test_after_an_rto_what_is_in_flight_and_what_is_in_doubt_has_expired() -> None:
    pair = Pair(evs=4)
    pair.cut()
    pair.post(4096)
    pair.advance(ps=pair.rto - 1)
    assert fates(pair, 0) == (SENT, DOUBTED)
    pair.advance(ps=1)
    assert pair.q.n_timeouts == 1
    assert fates(pair, 0) == (SENT, EXPIRED), "the copy; the first transmission is forgotten"
    assert pair.q.n_bad == 2


def test_a_packet_that_tries_a_path_goes_again_at_once() -> None:
    """A path that loses full packets and passes probes (row 11)."""
    pair = Pair(planes=1, evs=4, rate_gbps=10)
    pair.cut(ev=pair.ev(0, 2), above=0)
    pair.post(900 * 4096)
    pair.until(lambda: pair.q.tried == 1)
    trial = [x for x in pair.packets("data") if x.p.ev == pair.ev(0, 2)][-1]
    pair.until(lambda: pair.q.lost == 0)
    assert fates(pair, pair.seq(trial.p)) == (SENT, TRIED)
    assert pair.q.n_trial == 1
