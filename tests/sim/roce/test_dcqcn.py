"""The rules of DCQCN, one story each, with exact figures (DCQCN, SIGCOMM 2015, figure 7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.engine.state import NEVER
from openmrc.errors import InputError
from openmrc.jit import compiled, records
from openmrc.sim.roce import dcqcn
from openmrc.sim.roce.profiles import PROFILES, Profile, dcqcn_config, profile_named

US = 1_000_000
GBPS = 1e9
LINE = 400_000_000_000
PAPER = Profile()


# `inlined` functions can be called from compiled code only.
@compiled
def next_timer(r: Any) -> Any:
    return r.timer_at


@compiled
def may_send_at(r: Any) -> Any:
    return dcqcn.may_send_at(r)


@compiled
def cnp_due(np_: Any, c: Any, now: int) -> Any:
    return dcqcn.cnp_due(np_, c, now)


def limiter(profile: Profile = PAPER) -> tuple[Any, Any]:
    """A QP of 400 Gb/s, just started, and its settings."""
    r = records(1, dcqcn.LIMITER)[0]
    c = dcqcn_config(profile, LINE)[0]
    dcqcn.start(r, c)
    return r, c


def halved_twice() -> tuple[Any, Any]:
    """Two CNPs at 0 and 50 us: rate 100 Gb/s, target 200 Gb/s."""
    r, c = limiter()
    dcqcn.on_cnp(r, c, 0)
    dcqcn.on_cnp(r, c, 50 * US)
    assert (r.rate_bps, r.target_bps) == (100 * GBPS, 200 * GBPS)
    return r, c


def test_a_qp_starts_at_line_rate_without_a_limit() -> None:
    r, c = limiter()
    dcqcn.on_sent(r, c, 7 * US, 4178)
    assert (r.rate_bps, r.limited) == (LINE, 0)
    assert (may_send_at(r), next_timer(r)) == (7 * US, NEVER)


def test_the_first_cnp_halves_the_rate() -> None:
    r, c = limiter()
    assert dcqcn.on_cnp(r, c, 3 * US)
    assert (r.rate_bps, r.target_bps, r.limited) == (200 * GBPS, LINE, 1)
    assert dcqcn.alpha_of(r, c, 3 * US) == 1.0
    assert next_timer(r) == 58 * US


def test_alpha_decays_with_each_quiet_period_and_grows_with_a_cnp() -> None:
    r, c = limiter()
    dcqcn.on_cnp(r, c, 0)
    keep = 255 / 256
    assert dcqcn.alpha_of(r, c, 55 * US - 1) == 1.0
    assert dcqcn.alpha_of(r, c, 55 * US) == keep
    assert dcqcn.alpha_of(r, c, 170 * US) == keep**3
    dcqcn.on_cnp(r, c, 170 * US)
    assert r.alpha == keep * keep**3 + 1 / 256
    assert dcqcn.alpha_of(r, c, 170 * US + 54 * US) == r.alpha  # the CNP began a new period


def test_alpha_of_a_long_quiet_qp_is_none() -> None:
    r, c = limiter()
    dcqcn.on_cnp(r, c, 0)
    assert dcqcn.alpha_of(r, c, 10**13) == 0.0
    dcqcn.on_cnp(r, c, 10**13)
    assert (r.rate_bps, r.alpha) == (LINE, 1 / 256)  # it takes a second CNP to be cut


def test_a_cut_is_half_of_alpha() -> None:
    r, c = limiter()
    r.alpha = 0.25
    dcqcn.on_cnp(r, c, 0)
    assert r.rate_bps == LINE * (1 - 0.125)
    assert r.alpha == 0.25 * 255 / 256 + 1 / 256


def test_five_rounds_of_fast_recovery_then_the_target_moves() -> None:
    r, c = halved_twice()
    for k in range(1, 6):
        dcqcn.on_timer(r, c, 50 * US + k * 55 * US)
        assert (r.rate_bps, r.target_bps) == ((200 - 100 / 2**k) * GBPS, 200 * GBPS)
    dcqcn.on_timer(r, c, 50 * US + 6 * 55 * US)  # additive increase: a thousandth of the line
    assert r.target_bps == 200.4 * GBPS
    assert r.rate_bps == (200.4 + 200 - 100 / 32) / 2 * GBPS


def test_hyper_increase_when_time_and_bytes_are_both_past_fast_recovery() -> None:
    r, c = halved_twice()
    r.time_rounds = 7
    r.byte_rounds = 6
    dcqcn.on_sent(r, c, 60 * US, 10_000_000)  # the seventh round by bytes
    assert r.target_bps == pytest.approx((200 + (7 - 5) * 4) * GBPS)  # 2 x a hundredth of the line
    assert r.rate_bps == pytest.approx((208 + 100) / 2 * GBPS)


def test_bytes_count_as_time_does_and_the_rest_is_kept() -> None:
    r, c = halved_twice()
    dcqcn.on_sent(r, c, 60 * US, 9_999_999)
    assert (r.byte_rounds, r.rate_bps) == (0, 100 * GBPS)
    dcqcn.on_sent(r, c, 61 * US, 3)
    assert (r.byte_rounds, r.bytes, r.rate_bps) == (1, 2, 150 * GBPS)


def test_bytes_do_not_count_when_switched_off() -> None:
    r, c = limiter(replace(PAPER, byte_reset=0))
    dcqcn.on_cnp(r, c, 0)
    dcqcn.on_sent(r, c, 1 * US, 10**12)
    assert (r.byte_rounds, r.bytes) == (0, 0)


def test_a_cnp_starts_all_counts_anew() -> None:
    r, c = halved_twice()
    dcqcn.on_sent(r, c, 100 * US, 15_000_000)
    dcqcn.on_timer(r, c, 110 * US)
    assert (r.time_rounds, r.byte_rounds, r.bytes) == (1, 1, 5_000_000)
    dcqcn.on_cnp(r, c, 111 * US)
    assert (r.time_rounds, r.byte_rounds, r.bytes) == (0, 0, 0)
    assert next_timer(r) == 166 * US


def test_a_qp_back_at_line_rate_has_no_limit_and_no_timer() -> None:
    r, c = limiter()
    dcqcn.on_cnp(r, c, 0)
    rounds = 0
    while r.limited:
        rounds += 1
        dcqcn.on_timer(r, c, rounds * 55 * US)
    assert rounds == 18  # 200 Gb/s / 2^18 is less than 1 Mb/s
    assert (r.rate_bps, r.target_bps, next_timer(r)) == (LINE, LINE, NEVER)
    dcqcn.on_cnp(r, c, rounds * 55 * US)
    assert r.limited == 1
    assert next_timer(r) == (rounds + 1) * 55 * US


def test_the_target_stays_where_the_nic_does_not_clamp_it() -> None:
    """clamp_tgt_rate off: two CNPs without a round between them aim at the old target."""
    r, c = limiter(replace(PAPER, clamp_target=False))
    dcqcn.on_cnp(r, c, 0)
    dcqcn.on_cnp(r, c, 50 * US)
    assert (r.rate_bps, r.target_bps) == (100 * GBPS, LINE)


@pytest.mark.parametrize(("after_time", "target"), [(True, 300 * GBPS), (False, LINE)])
def test_a_round_by_time_lets_the_target_be_clamped(after_time: bool, target: float) -> None:
    r, c = limiter(replace(PAPER, clamp_target=False, clamp_after_time=after_time))
    dcqcn.on_cnp(r, c, 0)
    dcqcn.on_cnp(r, c, 60 * US)  # one round at 55 us: 300 Gb/s
    assert r.target_bps == target


def test_a_round_by_bytes_always_lets_the_target_be_clamped() -> None:
    r, c = limiter(replace(PAPER, clamp_target=False, clamp_after_time=False))
    dcqcn.on_cnp(r, c, 0)
    dcqcn.on_sent(r, c, 1 * US, 10_000_000)
    dcqcn.on_cnp(r, c, 50 * US)
    assert r.target_bps == 300 * GBPS


def test_no_cnp_cuts_below_the_minimum_or_by_more_than_the_factor() -> None:
    r, c = limiter(replace(PAPER, alpha_share=1.0, least_factor=0.5, min_share=0.2))
    dcqcn.on_cnp(r, c, 0)
    assert r.rate_bps == 200 * GBPS  # alpha 1 would take all
    dcqcn.on_cnp(r, c, 50 * US)
    dcqcn.on_cnp(r, c, 100 * US)
    assert r.rate_bps == 80 * GBPS


def test_cnps_in_quick_succession_raise_alpha_and_cut_once() -> None:
    r, c = limiter(replace(PAPER, initial_alpha=0.5, cut_ps=4 * US))
    assert dcqcn.on_cnp(r, c, 0)
    assert not dcqcn.on_cnp(r, c, 4 * US - 1)
    assert r.rate_bps == 300 * GBPS
    assert r.alpha == pytest.approx(1 - 0.5 * (255 / 256) ** 2)
    assert dcqcn.on_cnp(r, c, 4 * US)
    assert r.cnps == 3


def test_a_limited_qp_is_paced() -> None:
    r, c = halved_twice()
    dcqcn.on_sent(r, c, 60 * US, 4178)
    gap = 4178 * 8 * 10  # ps at 100 Gb/s
    assert may_send_at(r) == 60 * US + gap
    dcqcn.on_sent(r, c, 61 * US, 4178)  # late: nothing is kept for it
    assert may_send_at(r) == 61 * US + gap
    dcqcn.on_sent(r, c, 61 * US, 4178)  # early, as a retransmission may be
    assert may_send_at(r) == 61 * US + 2 * gap


def test_a_wait_follows_the_rate() -> None:
    r, c = halved_twice()
    dcqcn.on_sent(r, c, 100 * US, 125_000)  # 10 us at 100 Gb/s
    assert may_send_at(r) == 110 * US
    dcqcn.on_timer(r, c, 105 * US)  # 150 Gb/s: the other 5 us take two thirds as long
    assert may_send_at(r) == 105 * US + 3_333_333
    dcqcn.on_cnp(r, c, 105 * US)
    waited = may_send_at(r) - 105 * US
    assert waited == 6_640_725  # alpha is 255/256 by now: 3,333,333 / (1 - 255/512)


def test_one_cnp_per_interval_answers_marks() -> None:
    np_ = records(1, dcqcn.NOTIFIER)[0]
    _, c = limiter()
    due = [cnp_due(np_, c, at * US) for at in (3, 4, 52, 53, 54, 200, 249, 250)]
    assert due == [True, False, False, True, False, True, False, True]
    assert (np_.marked, np_.cnps) == (8, 4)


STEPS = st.lists(
    st.tuples(st.sampled_from(["cnp", "sent", "timer"]), st.integers(0, 400 * US)), max_size=60
)


@given(STEPS, st.sampled_from(sorted(PROFILES)))
def test_rates_stay_between_minimum_and_line(steps: list[tuple[str, int]], name: str) -> None:
    r, c = limiter(PROFILES[name])
    now = 0
    for what, wait in steps:
        now += wait
        if what == "cnp":
            dcqcn.on_cnp(r, c, now)
        elif what == "sent":
            dcqcn.on_sent(r, c, now, 4178)
        else:
            dcqcn.on_timer(r, c, now)
        assert c.min_bps <= r.rate_bps <= r.target_bps <= c.line_bps
        assert 0.0 <= dcqcn.alpha_of(r, c, now) <= 1.0
        assert next_timer(r) > now
        assert (r.limited == 0) == (next_timer(r) == NEVER)
        if r.limited == 0:
            assert r.rate_bps == c.line_bps


@given(STEPS, st.sampled_from(sorted(PROFILES)))
def test_timer_events_change_nothing_but_when_it_is_known(
    steps: list[tuple[str, int]], name: str
) -> None:
    """A world that calls `on_timer` at each due time, and one that never does."""
    r, c = limiter(PROFILES[name])
    lazy, _ = limiter(PROFILES[name])
    now = 0
    for what, wait in steps:
        now += wait
        while next_timer(r) <= now:
            dcqcn.on_timer(r, c, next_timer(r))
        for each in (r, lazy):
            if what == "cnp":
                dcqcn.on_cnp(each, c, now)
            else:
                dcqcn.on_sent(each, c, now, 4178)
        assert r == lazy


def test_a_profile_that_is_not_known_is_refused() -> None:
    with pytest.raises(InputError, match=r"'fast' is not known; accepted: default, lenient"):
        profile_named("fast")
