"""Each NACK code has its own reaction (MRC 2.8, row 26)."""

from __future__ import annotations

import pytest

from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.engine.ev import GOOD, SKIP
from tests.engine.pair import OVERHEAD, US, Pair

NOMINAL = 4096 + OVERHEAD
RESOURCE = {
    "NO_BITMAP": pk.NACK_NO_BITMAP,
    "NO_PKT_BUFFER": pk.NACK_NO_PKT_BUFFER,
    "NO_RESOURCE": pk.NACK_NO_RESOURCE,
    "PSN_OOR_WINDOW": pk.NACK_PSN_OOR_WINDOW,
}
ALL = {
    "TRIMMED": pk.NACK_TRIMMED,
    "TRIMMED_LASTHOP": pk.NACK_TRIMMED_LASTHOP,
    **RESOURCE,
}


def refused(reason: int, seq: int = 5) -> tuple[Pair, int, float]:
    """Twenty packets are out, one is refused; the EV it took, and the window before."""
    pair = Pair(planes=2, evs=8)
    pair.post(20 * 4096)
    pair.advance(us=5)
    ev = int(pair.slot(seq).ev)
    window = float(pair.q.cwnd)
    pair.nack(seq, reason)
    return pair, ev, window


@pytest.mark.parametrize("reason", ALL.values(), ids=ALL)
def test_the_packet_is_sent_again_at_once_on_another_ev(reason: int) -> None:
    pair, ev, _ = refused(reason)
    (again,) = pair.packets("rtx")
    assert again.at == pair.now
    assert pair.seq(again.p) == 5
    assert again.p.klass == pk.CLASS_RETRANSMIT
    assert int(again.p.ev) != int(pair.st.ev[ev].value)
    pair.drive()
    pair.run_out()
    assert pair.error() == "no error"


def test_trimmed_skips_the_ev_and_cuts_the_window() -> None:
    pair, ev, window = refused(pk.NACK_TRIMMED)
    assert pair.st.ev[ev].state == SKIP
    assert pair.q.cwnd == window - NOMINAL
    assert pair.q.n_epochs == 0
    assert pair.q.n_inferred == 0


def test_row_26_a_last_hop_trim_cuts_the_window_and_keeps_the_ev_good() -> None:
    pair, ev, window = refused(pk.NACK_TRIMMED_LASTHOP)
    assert pair.st.ev[ev].state == GOOD
    assert pair.q.cwnd == window - NOMINAL
    assert pair.q.n_epochs == pair.q.n_skips == 0


@pytest.mark.parametrize("reason", RESOURCE.values(), ids=RESOURCE)
def test_resource_nacks_keep_ev_and_window_and_charge(reason: int) -> None:
    pair, ev, window = refused(reason)
    assert pair.st.ev[ev].state == GOOD
    assert pair.q.cwnd == window
    assert pair.q.n_epochs == 1


def test_an_unexpected_event_is_the_end_of_the_qp() -> None:
    pair, _, _ = refused(pk.NACK_UNEXP_EVENT)
    assert pair.error() == "remote operation error"
    assert pair.q.error_at == pair.now
    assert pair.sent["rtx"] == 0


@pytest.mark.parametrize("reason", ALL.values(), ids=ALL)
def test_a_nack_about_what_is_already_received_sends_nothing(reason: int) -> None:
    pair = Pair()
    pair.cut(src=1)
    pair.post(20 * 4096)
    pair.advance(us=5)
    pair.sack(8)
    pair.nack(5, reason, entropy=pair.ev(0, 0))
    assert pair.sent["rtx"] == 0


def test_a_late_nack_about_an_earlier_transmission_sends_nothing() -> None:
    pair, ev, _ = refused(pk.NACK_TRIMMED)
    first = int(pair.st.ev[ev].value)
    assert int(pair.st.ev[int(pair.slot(5).ev)].value) != first
    pair.nack(5, pk.NACK_TRIMMED, entropy=first)
    assert pair.sent["rtx"] == 1


def test_a_nack_about_a_retransmission_sends_it_once_more() -> None:
    pair, _, _ = refused(pk.NACK_TRIMMED)
    pair.nack(5, pk.NACK_TRIMMED)
    assert pair.sent["rtx"] == 2


@pytest.mark.parametrize("seq", [-1, 20])
def test_a_nack_outside_what_is_outstanding_does_nothing(seq: int) -> None:
    pair = Pair()
    pair.post(20 * 4096)
    pair.advance(us=5)
    pair.nack(seq, pk.NACK_TRIMMED, entropy=1)
    assert pair.sent["rtx"] == 0
    assert pair.q.lost == 0


def test_a_trimmed_packet_is_nacked_and_never_placed() -> None:
    pair = Pair()
    pair.trim(seq=3)
    pair.trim(seq=7, last_hop=True)
    pair.post(20 * 4096)
    pair.drive()
    pair.assert_intact()
    nacks = [(int(x.p.reason), pair.seq(x.p)) for x in pair.packets("nack")]
    assert nacks == [(pk.NACK_TRIMMED, 3), (pk.NACK_TRIMMED_LASTHOP, 7)]
    assert pair.sent["rtx"] == 2
    assert pair.q.n_false == 0


def test_a_nack_reflects_psn_entropy_and_timestamp() -> None:
    pair = Pair()
    pair.trim(seq=3)
    pair.post(20 * 4096)
    pair.drive()
    (nack,) = pair.packets("nack")
    data = pair.packets("data")[3]
    assert (nack.p.psn, nack.p.entropy) == (data.p.psn, data.p.ev)
    assert nack.p.timestamp == data.p.timestamp
    assert nack.p.klass == pk.CLASS_CONTROL


def test_a_trimmed_duplicate_is_sacked_not_nacked() -> None:
    """MRC 5.7: the packet is here already."""
    pair = Pair()
    pair.post(20 * 4096)
    pair.drive()
    answers = pair.inject(1, pk.WRITE_MIDDLE, psn=pair.psn(3), flag_bits=pk.TRIMMED)
    assert [int(p.opcode) for p in answers] == [pk.SACK, pk.ACKNOWLEDGE]


def test_lost_nacks_are_survived() -> None:
    pair = Pair()
    pair.trim(next=10)
    pair.cut(kind="nack")
    pair.post(100 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.dropped["nack"] == 10
    assert pair.q.n_epochs == 0
    assert pair.now < 200 * US


def test_a_trim_of_every_first_transmission() -> None:
    pair = Pair()
    pair.trim(next=10_000, kind="data")
    pair.post(100 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.sent["rtx"] == pair.sent["nack"] == 100
    assert pair.q.state == es.RTS
