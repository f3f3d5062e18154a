"""The retransmission timeout and the limit of retries (row 9)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from openmrc.engine import fate
from openmrc.engine import packet as pk
from openmrc.engine import state as es
from tests.engine.cases import long
from tests.engine.pair import FOREVER, US, Pair

RESOURCE = (
    pk.NACK_NO_BITMAP,
    pk.NACK_NO_PKT_BUFFER,
    pk.NACK_NO_RESOURCE,
    pk.NACK_PSN_OOR_WINDOW,
)


def epochs(pair: Pair, until_us: float) -> list[int]:
    """Advance; the times at which charges were made."""
    times: list[int] = []
    end = pair.now + int(until_us * US)
    while pair.now < end and pair.q.state == es.RTS:
        before = int(pair.q.n_epochs)
        pair.advance(ps=min(pair.next_at() - pair.now, end - pair.now))
        if pair.q.n_epochs > before:
            times.append(pair.now)
    return times


@pytest.mark.parametrize(
    ("rto_exponent", "rtt_us", "rto_ps"),
    [(8, 8, 262_144_000), (14, 8, 16_777_216_000), (0, 8, 56_000_000), (8, 40, 280_000_000)],
    ids=["simulator", "live", "floor", "slow path"],
)
def test_row_09_rto_is_the_larger_of_the_setting_and_four_delays(
    rto_exponent: int, rtt_us: int, rto_ps: int
) -> None:
    """4 x (T + 0.75 T) = 7 T is the floor."""
    assert Pair(rto_exponent=rto_exponent, rtt_us=rtt_us).rto == rto_ps


@long
def test_row_09_an_expiry_covers_hundreds_of_packets_and_charges_once() -> None:
    """Every path dies while 160 packets are out: all are sent again, one charge is made."""
    pair = Pair(planes=4, rtt_us=20, evs=8)
    pair.cut(src=1)
    pair.post(160 * 4096)
    pair.advance(us=15)
    pair.sack(0)
    assert pair.q.nxt == 160
    pair.advance(ps=pair.rto - 1)
    assert pair.q.n_epochs == 0
    pair.advance(ps=1)
    assert pair.q.n_timeouts == 159
    assert pair.q.n_epochs == pair.q.epoch == 1
    pair.heal()
    pair.drive()
    pair.assert_intact()
    assert pair.q.epoch == 0
    assert pair.q.n_epochs == 1
    assert pair.sent["rtx"] == 72 + 159, "copies, and all of which no answer told in time"


def test_row_09_an_expiry_covers_a_burst_that_took_a_while_to_send() -> None:
    """Dead from the start: the packets sent in the 14 us after the first do not wait for the next
    epoch.
    """
    pair = Pair(planes=4, rtt_us=20, evs=8)
    pair.cut()
    pair.post(160 * 4096)
    pair.advance(us=15)
    assert pair.q.nxt == 160
    pair.advance(ps=pair.rto - pair.now)
    assert pair.q.n_timeouts == 160
    assert pair.q.n_epochs == 1


def test_row_09_linear_then_doubling() -> None:
    pair = Pair(rto_exponent=6, linear_cnt=3, exp_cnt=4)
    pair.cut()
    pair.post(4096)
    times = epochs(pair, 3000)
    assert [t // pair.rto for t in times] == [1, 2, 3, 5, 9, 17, 33]
    assert all(t % pair.rto == 0 for t in times)


@pytest.mark.parametrize(("linear", "exponential", "rtos"), [(7, 10, 2053), (7, 7, 261)])
def test_row_09_retry_exceeded_after_exactly(linear: int, exponential: int, rtos: int) -> None:
    """7 + 10 (simulated) and 7 + 7 (live)."""
    pair = Pair(rto_exponent=6, linear_cnt=linear, exp_cnt=exponential, evs=1, checked=False)
    pair.cut()
    pair.post(4096)
    pair.drive(errors=True)
    assert pair.error() == "retry counter exceeded"
    assert pair.q.error_at == rtos * pair.rto
    assert pair.q.n_epochs == linear + exponential
    assert pair.q.n_timeouts == linear + exponential
    assert pair.sent["rtx"] == linear + exponential, "one is the copy that asks"


def test_row_09_an_error_is_final_and_silent() -> None:
    pair = Pair(rto_exponent=6, linear_cnt=1, exp_cnt=0)
    pair.cut()
    pair.post(40 * 4096)
    pair.drive(errors=True)
    assert pair.q.error_at == pair.rto
    sent = sum(pair.sent.values())
    pair.heal()
    assert not pair.post(4096)
    assert pair.deadline(0) == es.NEVER
    pair.advance(us=1000)
    assert pair.sent["sack"] == 0
    assert sum(pair.sent.values()) == sent


def test_row_09_an_answer_in_the_last_epoch_saves_the_qp() -> None:
    pair = Pair(rto_exponent=6, linear_cnt=2, exp_cnt=2)
    total = (2 + 2 + 4) * pair.rto
    pair.cut()
    pair.post(4096)
    pair.advance(ps=total - 2 * pair.rto)
    assert pair.q.state == es.RTS
    pair.heal()
    pair.advance(ps=2 * pair.rto - 1)
    pair.drive()
    pair.assert_intact()
    assert pair.q.n_epochs == 3


def test_row_09_exp_cnt_25_is_infinite() -> None:
    pair = Pair(rto_exponent=6, linear_cnt=1, exp_cnt=25, checked=False)
    pair.cut()
    pair.post(4096)
    pair.q.epoch = 60
    pair.q.rto_at = pair.q.epoch_at = pair.now  # the 61st epoch has lasted long enough
    pair.q.epoch_at -= pair.rto << 30
    pair.advance(us=2 * pair.rto / US)
    assert pair.q.state == es.RTS
    assert pair.q.epoch == 61
    assert pair.now < pair.q.rto_at < FOREVER


def test_row_09_progress_starts_anew() -> None:
    """Five epochs of silence, then one packet gets through, then silence again: the next charge
    comes an RTO after the progress, and a full measure of epochs follows.
    """
    pair = Pair(rto_exponent=6, linear_cnt=2, exp_cnt=4, evs=2)
    pair.cut()
    pair.post(40 * 4096)
    while pair.q.n_epochs < 5:
        pair.advance(us=20)
    pair.cut(src=1)
    pair.sack(0)
    assert pair.q.epoch == 0
    progress = pair.now
    times = epochs(pair, 40 * pair.rto / US)
    assert len(times) == 6
    late = times[0] - progress
    assert pair.rto <= late <= 2 * pair.rto
    assert pair.error() == "retry counter exceeded"


def test_row_09_a_timeout_sends_to_no_ev_that_timed_out() -> None:
    """They are judged: the retransmissions leave over others."""
    pair = Pair(planes=2, evs=8)
    pair.drop(next=5, src=0)  # and the copy that asks
    probes = pair.drop(next=1000, kind="probe", src=0)
    pair.post(4 * 4096)
    pair.advance(us=1.01 * pair.rto / US)
    assert pair.q.n_epochs == 1
    pair.heal(probes)
    pair.drive(limit_us=10_000)
    pair.assert_intact()
    lost = {int(x.p.ev) for x in pair.packets("data")}
    copy, *others = pair.packets("rtx")
    lost.add(int(copy.p.ev))
    again = {int(x.p.ev) for x in others}
    assert len(lost) == 5
    assert not lost & again


@long
def test_row_09_no_charge_while_the_peer_is_heard() -> None:
    pair = Pair(planes=1, checked=False)
    pair.post(1000 * 4096)
    pair.drive()
    assert pair.now > 1.2 * pair.rto
    assert pair.q.n_epochs == 0


@long
@pytest.mark.parametrize("reason", RESOURCE)
def test_row_09_resource_nacks_charge_at_most_once_an_epoch(reason: int) -> None:
    """A responder without resources: a packet is refused again and again, each round trip."""
    pair = Pair(rto_exponent=6, linear_cnt=3, exp_cnt=2, checked=False)
    pair.cut(src=0)
    pair.post(20 * 4096)
    pair.advance(us=4)
    charges = []
    while pair.q.state == es.RTS and pair.now < 40 * pair.rto:
        before = int(pair.q.n_epochs)
        for seq in range(int(pair.q.nxt)):
            if pair.slot(seq).fate == fate.SENT:
                pair.nack(seq, reason)
        if pair.q.n_epochs > before:
            assert pair.q.n_epochs == before + 1
            charges.append(pair.now)
        pair.advance(us=8)
    assert pair.error() == "retry counter exceeded"
    assert len(charges) == 5
    lengths = [(b - a) / pair.rto for a, b in pairwise(charges)]
    assert all(
        expected <= length < expected + 0.2
        for expected, length in zip((1, 1, 2, 4), lengths, strict=True)
    )


def test_row_09_a_nack_after_an_expiry_does_not_charge_the_same_epoch_again() -> None:
    pair = Pair(rto_exponent=6)
    pair.cut()
    pair.post(4096)
    pair.advance(ps=pair.rto + 8 * US)
    assert pair.q.n_epochs == 1
    pair.nack(0, pk.NACK_NO_RESOURCE)
    assert pair.q.n_epochs == 1


def test_row_09_progress_lets_a_refused_packet_start_anew() -> None:
    pair = Pair(rto_exponent=6)
    pair.cut(src=1)
    pair.post(20 * 4096)
    pair.advance(us=8)
    pair.nack(5, pk.NACK_NO_RESOURCE)
    assert pair.q.epoch == 1
    pair.sack(3)
    assert pair.q.epoch == 0


def test_all_ports_down_with_data_to_send_again_is_an_error_in_the_end() -> None:
    pair = Pair(rto_exponent=6, linear_cnt=2, exp_cnt=1, planes=2)
    pair.post(20 * 4096)
    pair.advance(us=2)
    pair.port(0, 0, up=False)
    pair.port(0, 1, up=False)
    pair.drive(errors=True)
    assert pair.error() == "retry counter exceeded"


def test_a_new_packet_after_idleness_starts_its_own_clock() -> None:
    pair = Pair(rto_exponent=6)
    pair.post(4096)
    pair.drive()
    pair.advance(us=10_000)
    begin = pair.now
    pair.cut()
    pair.post(4096)
    times = epochs(pair, 3 * pair.rto / US)
    assert times[:2] == [begin + pair.rto, begin + 2 * pair.rto]
