"""Fields of control packets that readers of MRC take differently, and what both ends agreed on."""

from __future__ import annotations

from openmrc.engine import packet as pk
from openmrc.engine import setup
from openmrc.engine import state as es
from tests.engine.pair import Pair


def test_row_30_each_answer_repeats_the_psn_that_it_is_about() -> None:
    """SACK: cack_psn. ACK: the last packet of the newest message that it covers. Probe: none."""
    pair = Pair(first_psn=pk.PSN_MASK - 2)  # wraps on the way
    pair.drop(seq=3)
    for size in (3 * 4096, 100, 0, 2 * 4096):
        pair.post(size)
    pair.drive()
    pair.run_out()
    sacks, acks = pair.packets("sack"), pair.packets("ack")
    assert sacks
    assert all(x.p.psn == x.p.cack_psn for x in sacks)
    last = [pair.psn(seq) for seq in (2, 3, 4, 6)]  # of messages 0, 1, 2, 3
    assert {int(x.p.msn) for x in acks} >= {0, 3}
    assert all(x.p.psn == last[int(x.p.msn)] for x in acks)
    assert last[:2] == [pk.PSN_MASK, 0]


def test_row_30_a_nak_and_a_nack_say_which_packet_they_refuse() -> None:
    pair = Pair()
    pair.post(4096)
    pair.drive()
    region = pair.st.region[1]
    wrong = {"psn": pair.psn(1), "rkey": 1, "va": int(region.va), "msn": 1, "src": 0}
    [nak] = pair.inject(1, pk.WRITE_ONLY, **wrong)
    assert (nak.reason, nak.psn) == (pk.AETH_NAK_ACCESS_ERROR, pair.psn(1))
    pair = Pair(mpr=512)
    [nack] = pair.inject(1, pk.WRITE_ONLY, psn=pair.psn(512))
    assert (nack.opcode, nack.reason) == (pk.NACK, pk.NACK_PSN_OOR_WINDOW)
    assert nack.psn == pair.psn(512)


def test_row_31_a_probe_without_time_stamp_is_answered() -> None:
    pair = Pair()
    [sack] = pair.inject(1, pk.PROBE, ack_offset=77, flag_bits=pk.UNSTAMPED)
    assert (sack.opcode, sack.ack_offset, sack.timestamp) == (pk.SACK, 77, 0)
    assert sack.flag_bits & pk.PROBE_ANSWER


def test_row_32_a_port_mask_is_in_the_status_and_not_in_a_probe_of_a_way_back() -> None:
    pair = Pair(planes=2)
    pair.port(0, 1, up=False)
    pair.post(2_000_000)
    pair.run_out()
    requests = pair.packets("request")
    masks = {op: {int(x.p.imm) for x in requests if x.p.reason == op} for op in (0, 1)}
    assert masks == {pk.OP_PORT_STATUS: {0b01}, pk.OP_EV_PROBE: {0}}


def test_who_sends_no_trim_nacks_gets_nothing_that_may_be_trimmed() -> None:
    """MRC 1.9: TRIM_NACK, in one direction."""
    pair = Pair(trim_nack=False)
    pair.drop(seq=3)
    pair.post(20 * 4096)
    pair.drive()
    assert all(x.p.flag_bits & pk.NO_TRIM for x in pair.packets("data", "rtx"))
    header = {"psn": pair.psn(20), "flag_bits": pk.TRIMMED | pk.ACK_REQ}
    assert pair.inject(1, pk.WRITE_ONLY, **header) == []
    pair.r.untrimmable = 0  # the other direction, whose receiver would answer
    pair.post(4096, src=1)
    pair.drive()
    assert not any(x.p.flag_bits & pk.NO_TRIM for x in pair.packets("data", src=1))


def test_a_dynamic_mpr_counts_only_if_both_ends_enable_it() -> None:
    """MRC 1.9: DYNAMIC_MPR, in both directions."""
    pair = Pair(mpr=512, dynamic_mpr=1)
    pair.q.dynamic_mpr = pair.r.dynamic_mpr = 0  # as a peer without it leaves a queue pair
    pair.set_mpr(128)
    pair.post(40 * 4096)
    pair.drive()
    assert {int(x.p.mpr) for x in pair.packets("sack")} == {0}
    assert pair.q.mpr == 512


def test_the_states_have_the_numbers_of_ibverbs() -> None:
    assert (es.RESET, es.INIT, es.RTR, es.RTS, es.ERROR) == (0, 1, 2, 3, 6)


def test_a_receiver_asks_for_penalties_and_lets_the_window_be_restored() -> None:
    """The window is cut while they last, and is whole again with the first SACK after them."""
    pair = Pair()
    pair.post(200_000)
    pair.drive()
    whole = float(pair.q.cwnd)
    pair.advance(20)
    setup.set_penalty(pair.st, pair.n_qps, 127)
    begun = pair.now
    pair.post(200_000)
    pair.drive()
    assert {int(one.p.penalty) for one in pair.packets("sack", since=begun)} == {127}
    assert pair.q.cwnd < 0.6 * whole
    setup.set_penalty(pair.st, pair.n_qps, 0)
    pair.post(4096)
    pair.drive()
    assert pair.packets("sack")[-1].p.penalty == pk.RESTORE
    assert pair.q.cwnd >= whole
