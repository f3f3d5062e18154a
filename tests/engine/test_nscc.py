"""The congestion window: its constants, each rule of reference 4.6, and its curve in five standard
situations as text (`snapshots/`; run with OPENMRC_SNAPSHOTS=write to write them anew, and read the
difference).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openmrc.engine import nscc, packet, policy
from openmrc.engine import state as es
from openmrc.jit import records
from tests.engine.pair import OVERHEAD, US

SNAPSHOTS = Path(__file__).parent / "snapshots"
RATE = 800 * 10**9
T = 12 * US
BDP = 1_200_000.0
MSS = 4096
PKT = MSS + OVERHEAD
SACK = 4 * PKT  # bytes that one SACK reports


class Flow:
    """One window, driven as a requester drives it."""

    def __init__(self, rate_bps: int = RATE, **config: int) -> None:
        self.q: Any = records(1, es.QP)[0]
        self.c: Any = records(1, es.CONFIG)[0]
        self.f: Any = records(1, es.NSCC)[0]
        self.c.pmtu, self.c.nominal_overhead, self.c.base_rtt_ps = MSS, OVERHEAD, T
        self.c.port_rate_bps = RATE
        self.c.cc, self.c.trimming = policy.CC_NSCC, 1
        for name, value in config.items():
            self.c[name] = value
        self.q.cut_started = self.q.trimmed_at = self.q.trimmed_units = -es.NEVER
        self.configure(rate_bps)

    def configure(self, rate_bps: int) -> None:
        nscc.configure(self.q, self.c, rate_bps, 1)

    @property
    def cwnd(self) -> float:
        return float(self.q.cwnd)

    def sack(
        self, now: int, new: float = SACK, delay: float = 0, ce: bool = False, penalty: int = 0
    ) -> None:
        """A SACK with an RTT sample `delay` above the base."""
        rtt = int(self.q.base_rtt) + int(delay)
        nscc.on_sack(self.q, self.c, self.f, now, int(new), rtt, ce, penalty)

    def trim(self, now: int) -> None:
        nscc.on_trim(self.q, self.c, self.f, now)

    def loss(self, now: int, plane: int = 0) -> bool:
        return bool(nscc.on_loss(self.q, self.c, self.f, now, plane))


def steady(flow: Flow, window: float) -> Flow:
    """A flow in mid-life: no period and no quick adapt is due at `T`."""
    flow.q.cwnd = flow.q.inflight = window
    flow.q.last_adjust = T
    flow.q.qa_end = 100 * T
    return flow


# --- constants, reference 4.6 and 4.7


def test_worked_values_of_800g_and_12_us() -> None:
    q = Flow().q
    assert (q.max_wnd, q.target, q.cwnd, q.base_rtt) == (1.8e6, 9 * US, 1.8e6, T)
    assert q.fi == 5 * MSS * 8
    assert q.eta == pytest.approx(0.15 * MSS * 8)
    assert q.fi_scale == 0.25 * 8
    assert q.alpha == pytest.approx(4 * MSS * 8 * 0.75 / (9 * US))
    assert q.qa_threshold == 36 * US
    assert q.qa_window == 1.8e6 / 8


def test_without_trimming_the_target_is_a_whole_round_trip() -> None:
    assert Flow(trimming=0).q.target == T


def test_the_window_has_at_least_32_packets_of_room() -> None:
    assert Flow(rate_bps=10**9).q.max_wnd == 32 * PKT


@pytest.mark.parametrize("t_us", [6, 12, 24])
def test_alpha_by_12_us_is_the_peers_rule(t_us: int) -> None:
    one = Flow(base_rtt_ps=t_us * US).q.alpha
    other = Flow(base_rtt_ps=t_us * US, alpha_time_ps=12 * US).q.alpha
    assert other / one == pytest.approx(t_us / 12)


def test_fewer_ports_clamp_the_window_and_keep_the_averages() -> None:
    flow = Flow()
    flow.q.avg_delay = 5.0
    flow.configure(RATE // 2)
    assert (flow.cwnd, flow.q.max_wnd, flow.q.avg_delay) == (0.9e6, 0.9e6, 5.0)
    flow.configure(RATE)
    assert (flow.cwnd, flow.q.max_wnd) == (0.9e6, 1.8e6)


def test_no_congestion_control_keeps_the_window_at_its_limit() -> None:
    flow = Flow(cc=policy.CC_NONE)
    flow.sack(T, delay=50 * US, ce=True, penalty=127)
    flow.trim(T)
    assert not flow.loss(T)
    assert flow.cwnd == flow.q.max_wnd


# --- quadrants


def test_no_mark_and_short_delay_grows_in_proportion_to_the_room() -> None:
    flow = steady(Flow(), 1e6)
    flow.sack(T, delay=3 * US)
    assert flow.q.inc == pytest.approx(float(flow.q.alpha) * SACK * 6 * US)


def test_no_mark_and_long_delay_grows_a_little() -> None:
    flow = steady(Flow(), 1e6)
    flow.sack(T, delay=9 * US)
    assert flow.q.inc == pytest.approx(float(flow.q.fi) * SACK)


@pytest.mark.parametrize(("early_ps", "share"), [(0, 1), (1, 0.25)])
def test_after_a_trim_at_the_last_hop_it_grows_a_quarter_of_that(
    early_ps: int, share: float
) -> None:
    """For 64 base round trips; peers' last hop marks, and needs nothing of the kind."""
    for marks, expected in ((0, share), (1, 1)):
        flow = steady(Flow(marks_on_last_hop=marks), 1e6)
        flow.q.trimmed_at = T - 64 * T + early_ps
        flow.sack(T, delay=9 * US)
        assert flow.q.inc == pytest.approx(expected * float(flow.q.fi) * SACK)


@pytest.mark.parametrize(("early_ps", "held"), [(0, False), (1, True)])
def test_for_two_round_trips_after_such_a_trim_growth_is_a_quarter_of_what_arrives(
    early_ps: int, held: bool
) -> None:
    """A window of a packet or two would grow by as much again each round trip."""
    for marks in (0, 1):
        flow = steady(Flow(marks_on_last_hop=marks), PKT)
        flow.q.trimmed_at = T - 2 * T + early_ps
        flow.q.last_adjust = -2 * T
        flow.sack(T, new=PKT, delay=9 * US)
        grown = float(flow.q.eta + (0.25 if marks == 0 else 1) * flow.q.fi)
        assert grown > PKT
        assert flow.cwnd == pytest.approx(PKT + (PKT / 4 if held and marks == 0 else grown))


def test_nor_does_a_held_window_grow_fast() -> None:
    for early_ps, share in ((0, 0.25 * 1.2e6 / 150e3), (1, 0.25)):
        flow = steady(Flow(), PKT)
        flow.q.trimmed_at = T - 2 * T + early_ps
        flow.q.fast = 1
        flow.sack(T, new=PKT, delay=0)
        assert flow.cwnd == pytest.approx(PKT + share * PKT, rel=0.01)


@pytest.mark.parametrize(("early_units", "held"), [(0, False), (1, True)])
@pytest.mark.parametrize(("left", "few"), [(15, 1), (16, 2), (63, 7), (64, 8), (1000, 8)])
def test_it_lasts_until_eight_packets_have_come_or_an_eighth_of_those_left(
    left: int, few: int, early_units: int, held: bool
) -> None:
    """Of one packet a round trip, as hundreds to one have, eight are eight round trips."""
    for marks in (0, 1):
        flow = steady(Flow(marks_on_last_hop=marks), PKT)
        flow.q.seq_end = flow.q.una + left
        flow.q.rcvd_high = 1000
        flow.q.trimmed_units = 1000 + (-few * PKT) // 256 + early_units
        flow.q.fast = 1
        flow.sack(T, new=PKT, delay=0)
        share = 0.25 if held and marks == 0 else float(flow.q.fi_scale)
        assert flow.cwnd == pytest.approx(PKT + share * PKT, rel=0.01)


@pytest.mark.parametrize(("rtt_ps", "counts"), [(30 * US, True), (30 * US + 1, False)])
def test_row_15_what_no_queue_holds_waited_for_retransmissions(rtt_ps: int, counts: bool) -> None:
    """2.5 T is a round trip through a full queue of a last hop that trimmed lately."""
    for marks, ago in ((0, 64 * T - 1), (0, 64 * T), (1, 64 * T - 1)):
        flow = steady(Flow(marks_on_last_hop=marks), 1e6)
        flow.q.avg_delay = 8 * US
        flow.q.trimmed_at = 2 * T - ago
        flow.sack(2 * T, delay=rtt_ps - T)
        trimmed = marks == 0 and ago < 64 * T
        assert (flow.q.avg_delay == 8 * US) == (trimmed and not counts)


def test_a_mark_with_short_delay_changes_nothing() -> None:
    flow = steady(Flow(), 1e6)
    flow.sack(T, delay=8.9 * US, ce=True)
    assert (flow.cwnd, flow.q.inc) == (1e6, 0)


@pytest.mark.parametrize(("average_us", "factor"), [(9, 1.0), (12, 0.8), (18, 0.6), (90, 0.5)])
def test_a_mark_with_long_delay_shrinks_by_the_overshoot_at_most_half(
    average_us: int, factor: float
) -> None:
    flow = steady(Flow(), 1e6)
    flow.q.avg_delay = average_us * US
    flow.q.last_dec = -T
    flow.sack(T, delay=average_us * US, ce=True)
    assert flow.cwnd == pytest.approx(factor * 1e6)


def test_it_shrinks_once_a_round_trip() -> None:
    flow = steady(Flow(), 1e6)
    flow.q.avg_delay = 18 * US
    flow.q.last_dec = 0
    flow.sack(T, delay=18 * US, ce=True)
    assert flow.cwnd == 1e6, "exactly a round trip later is not later"
    flow.sack(T + 1, delay=18 * US, ce=True)
    shrunk = flow.cwnd
    assert shrunk < 1e6
    flow.sack(T + 2, delay=18 * US, ce=True)
    assert flow.cwnd == shrunk


@pytest.mark.parametrize(("delay", "marked"), [(T, False), (T + 1, True)])
def test_a_delay_beyond_a_round_trip_stands_in_for_the_mark_of_the_last_hop(
    delay: int, marked: bool
) -> None:
    flow = steady(Flow(), 1e6)
    flow.q.avg_delay = 18 * US
    flow.q.last_dec = -T
    flow.sack(T, delay=delay)
    assert (flow.cwnd < 1e6) == marked


def test_it_does_not_where_the_last_hop_marks() -> None:
    flow = steady(Flow(marks_on_last_hop=1), 1e6)
    flow.q.avg_delay = 18 * US
    flow.q.last_dec = -T
    flow.sack(T, delay=3 * T)
    assert flow.cwnd == 1e6


def test_an_idle_path_makes_growth_fast_after_a_window_of_calm() -> None:
    """Delay below T/12; `calm` must pass the window first."""
    flow = steady(Flow(), 4 * SACK)
    windows = []
    for _ in range(8):
        flow.q.last_adjust = T
        flow.q.since_adjust = -10 * SACK  # only the fast part of growth
        flow.sack(T)
        windows.append(flow.cwnd)
    assert windows[:4] == [4 * SACK] * 4
    assert windows[4] == 4 * SACK + float(flow.q.fi_scale) * SACK
    assert flow.q.fast == 1
    flow.sack(T, delay=T / 12)
    assert flow.q.fast == 0


def test_growth_is_applied_every_eight_packets_or_each_period() -> None:
    flow = steady(Flow(), 1e6)
    flow.sack(T, delay=3 * US)
    flow.sack(T, delay=3 * US)
    assert flow.cwnd == 1e6, "exactly 8 packets are not more than 8"
    inc = float(flow.q.inc)
    flow.sack(T, new=256, delay=3 * US)
    assert flow.cwnd == pytest.approx(1e6 + inc / 1e6 * (2 * SACK + 256) / (2 * SACK))
    before = flow.cwnd
    flow.sack(2 * T + 1, new=0, delay=3 * US)
    assert flow.cwnd == pytest.approx(before + float(flow.q.eta))


def test_the_window_never_leaves_its_limits() -> None:
    flow = steady(Flow(), 1.8e6)
    for i in range(50):
        flow.sack(T + i * US)
        assert flow.cwnd <= 1.8e6
    for i in range(2000):
        flow.trim(100 * T + i)
        assert flow.cwnd >= PKT
    assert flow.cwnd == PKT


# --- delay samples


def test_a_shorter_round_trip_lowers_the_base_never_below_half() -> None:
    flow = steady(Flow(), 1e6)
    nscc.on_sack(flow.q, flow.c, flow.f, T, SACK, 10 * US, False, 0)
    assert flow.q.base_rtt == 10 * US
    nscc.on_sack(flow.q, flow.c, flow.f, T, SACK, 1 * US, False, 0)
    assert flow.q.base_rtt == 6 * US


def test_the_average_takes_an_eightieth_or_a_quarter_round_trip_for_long_unmarked_ones() -> None:
    flow = steady(Flow(), 1e6)
    flow.sack(T, delay=8 * US)
    assert flow.q.avg_delay == pytest.approx(8 * US / 80)
    flow.q.avg_delay = 0.0
    flow.sack(T, delay=11 * US)
    assert flow.q.avg_delay == pytest.approx(0.25 * T / 80)
    flow.q.avg_delay = 0.0
    flow.sack(T, delay=11 * US, ce=True)
    assert flow.q.avg_delay == pytest.approx(11 * US / 80)


def test_without_a_sample_the_average_stands_in() -> None:
    flow = steady(Flow(), 1e6)
    flow.q.avg_delay = 5.0 * US
    nscc.on_sack(flow.q, flow.c, flow.f, T, SACK, -1, False, 0)
    assert flow.q.avg_delay == 5 * US
    assert flow.q.inc == pytest.approx(float(flow.q.alpha) * SACK * 4 * US)


# --- trims, quick adapt, losses, penalty


def test_a_trim_takes_one_packet_and_is_a_sample_of_one_round_trip() -> None:
    flow = steady(Flow(), 1e6)
    flow.trim(T)
    assert flow.cwnd == 1e6 - PKT
    assert flow.q.avg_delay == pytest.approx(T / 80)
    assert flow.q.qa_trigger == 1


def adapting(achieved: float) -> Flow:
    """Quick adapt is due, a trim has set it off, `achieved` bytes came in the period."""
    flow = steady(Flow(), 1e6)
    flow.q.qa_end = T
    flow.q.qa_trigger = 1
    flow.q.achieved = achieved
    return flow


def test_quick_adapt_sets_the_window_to_what_was_achieved() -> None:
    flow = adapting(100_000)
    flow.sack(T + 1, new=0, delay=3 * US)
    assert flow.cwnd == 100_000
    assert (flow.q.to_ignore, flow.q.ignored, flow.q.qa_trigger) == (1e6, 0, 0)
    assert flow.q.qa_end == T + 1 + T + 9 * US


@pytest.mark.parametrize(("achieved", "runs"), [(224_999, True), (225_000, False)])
def test_quick_adapt_runs_below_an_eighth_of_the_largest_window(
    achieved: float, runs: bool
) -> None:
    flow = adapting(achieved)
    flow.sack(T + 1, new=0, delay=3 * US)
    assert (flow.cwnd == achieved) == runs
    assert flow.q.achieved == 0


@pytest.mark.parametrize(("delay", "runs"), [(36 * US, False), (36 * US + 1, True)])
def test_quick_adapt_by_delay_alone_beyond_four_targets(delay: int, runs: bool) -> None:
    flow = adapting(100_000)
    flow.q.qa_trigger = 0
    flow.q.last_dec = T
    flow.sack(T + 1, new=0, delay=delay)
    assert (flow.cwnd == 100_000) == runs


@pytest.mark.parametrize(("marks", "counted"), [(0, True), (1, False)])
def test_a_trimmed_header_counts_as_achieved_where_the_last_hop_makes_no_marks(
    marks: int, counted: bool
) -> None:
    flow = steady(Flow(marks_on_last_hop=marks), 1e6)
    flow.q.qa_end = 2 * T
    for i in range(3):
        flow.trim(T + i)
    assert flow.q.achieved == (3 * float(flow.c.nominal_overhead) if counted else 0)


def test_quick_adapt_never_runs_in_the_first_period() -> None:
    flow = adapting(0)
    flow.q.qa_end = 0
    flow.sack(T + 1, new=0, delay=3 * US)
    assert flow.cwnd > 0.9e6


def test_after_it_marks_and_trims_of_the_same_window_are_ignored() -> None:
    flow = adapting(100_000)
    flow.sack(T + 1, new=0, delay=3 * US)
    flow.trim(T + 2)
    flow.q.last_dec = -T
    flow.q.avg_delay = 40.0 * US
    flow.sack(T + 3, delay=20 * US, ce=True)
    assert flow.cwnd == 100_000
    flow.sack(T + 4, new=1e6, delay=20 * US)  # the old window has drained
    flow.q.cwnd = 100_000
    flow.trim(T + 5)
    assert flow.cwnd == 100_000 - PKT


def test_losses_of_one_round_trip_take_at_most_half() -> None:
    flow = steady(Flow(), 40 * PKT)
    cuts = [flow.loss(T + i) for i in range(100)]
    assert cuts == [True] * 20 + [False] * 80
    assert flow.cwnd == 20 * PKT
    assert not flow.loss(2 * T), "the same round trip, to its last instant"
    assert flow.loss(2 * T + 1)
    assert flow.cwnd == 19 * PKT


def over(planes: int, trimming: int) -> Flow:
    """A flow over these planes (a mask)."""
    flow = steady(Flow(trimming=trimming), 40 * PKT)
    flow.q.planes_ok = planes
    flow.q.lost_plane = -1
    return flow


@pytest.mark.parametrize("trimming", [0, 1])
def test_row_07_congestion_loses_on_all_planes_and_cuts_the_window(trimming: int) -> None:
    flow = over(0b1111, trimming)
    assert all(flow.loss(T + i, plane=i % 4) for i in range(20))
    assert flow.cwnd == 20 * PKT


@pytest.mark.parametrize("trimming", [0, 1])
def test_row_07_a_plane_that_loses_alone_cuts_once(trimming: int) -> None:
    flow = over(0b1111, trimming)
    assert flow.loss(T, plane=2), "there is none before to compare it with"
    assert not any(flow.loss(T + i, plane=2) for i in range(1, 100))
    assert flow.loss(T + 100, plane=1)
    assert flow.loss(T + 101, plane=2), "now two planes lose"
    assert flow.cwnd == 37 * PKT


def test_row_07_losses_on_the_only_plane_cut() -> None:
    flow = over(0b0100, trimming=0)
    assert all(flow.loss(T + i, plane=2) for i in range(20))
    assert flow.cwnd == 20 * PKT


def test_64_in_every_sack_of_a_round_trip_halves_the_window() -> None:
    flow = steady(Flow(), 1e6)
    flow.c.marks_on_last_hop = 1
    for _ in range(10):
        flow.sack(T, new=1e5, delay=8.999999 * US, ce=True, penalty=64)
    assert flow.cwnd == pytest.approx(0.5e6, rel=0.01)


# --- five standard situations


STEPS = 16  # of the model in a round trip


class Link:
    """Flows through one queue, in steps of T/16: what is sent arrives half a T later, what is
    served or trimmed is answered half a T later. Above `trim_at` BDP arrivals are trimmed; between
    the two `ecn` fractions of a BDP packets are marked, ever more of them. With `idle` the flows
    are limited by their own link and never queue; what others queue delays them by `others` ps.
    """

    def __init__(
        self,
        flows: list[Flow],
        *,
        rate_bps: int = RATE,
        ecn: tuple[float, float] | None = None,
        trim_at: float = 1.5,
        idle: bool = False,
        others: float = 0.0,
    ) -> None:
        self.flows, self.ecn, self.idle, self.others = flows, ecn, idle, others
        self.bdp = rate_bps * T / 8e12
        self.trim_at = trim_at * self.bdp
        n = len(flows)
        half = STEPS // 2
        self.going = [[0.0] * n for _ in range(half)]
        self.answers: list[list[tuple[float, float, float]]] = [[(0.0, 0.0, 0.0)] * n] * half
        self.queued = [0.0] * n
        self.inflight = [0.0] * n
        self.heard = [0.0] * n  # bytes to report in the next SACK
        self.refused = [0.0] * n  # bytes trimmed and not yet a packet
        self.marks = 0.0
        self.trimmed = self.arrived = 0.0
        self.now = 10 * T
        self.penalty = 0

    def step(self) -> None:
        """A sixteenth of a round trip."""
        room = self.bdp / STEPS
        here = self.going.pop(0)
        space = max(self.trim_at - sum(self.queued), 0.0) + room
        cut = 0.0 if self.idle else max(1 - space / max(sum(here), 1.0), 0.0)
        self.arrived += sum(here)
        self.trimmed += cut * sum(here)
        self.queued = [q + x * (1 - cut) for q, x in zip(self.queued, here, strict=True)]
        total = sum(self.queued)
        part = 1.0 if self.idle else min(room / max(total, 1.0), 1.0)
        delay = self.others if self.idle else max(total - room, 0.0) / self.bdp * T
        served = [q * part for q in self.queued]
        self.queued = [q - x for q, x in zip(self.queued, served, strict=True)]
        self.answers.append([(x, h * cut, delay) for x, h in zip(served, here, strict=True)])
        for i, answer in enumerate(self.answers.pop(0)):
            self._hear(i, *answer)
        sent = []
        for i, f in enumerate(self.flows):
            x = min(max(f.cwnd - self.inflight[i], 0.0), room)
            self.inflight[i] += x
            f.q.inflight = int(self.inflight[i])
            sent.append(x)
        self.going.append(sent)
        self.now += T // STEPS

    def _hear(self, i: int, got: float, refused: float, delay: float) -> None:
        f = self.flows[i]
        self.refused[i] += refused
        while self.refused[i] >= PKT:
            self.refused[i] -= PKT
            f.trim(self.now)
            self.inflight[i] -= PKT
        self.heard[i] += got
        while self.heard[i] >= SACK:
            self.heard[i] -= SACK
            self.inflight[i] -= SACK
            if self.ecn is not None:
                low, high = self.ecn
                self.marks += min(max((delay / T - low) / (high - low), 0.0), 1.0)
            ce = self.marks >= 1
            self.marks -= ce
            f.sack(self.now, delay=delay, ce=ce, penalty=self.penalty)

    def line(self, r: int) -> str:
        """The state at the end of round `r`."""
        windows = " ".join(f"{f.cwnd / PKT:7.1f}" for f in self.flows)
        share = self.trimmed / max(self.arrived, 1.0)
        self.trimmed = self.arrived = 0.0
        return f"{r:5d}  {sum(self.queued) / self.bdp:9.3f}  {share:7.3f}  {windows}"


def rounds(
    link: Link, n: int, every: int = 1, each: Callable[[int], None] | None = None
) -> list[str]:
    """Round by round: the queue, the share trimmed, the window of each flow in packets."""
    lines = ["round  queue/BDP  trimmed  window of each flow, packets"]
    for r in range(n):
        if each is not None:
            each(r)
        for _ in range(STEPS):
            link.step()
        if r % every == every - 1:
            lines.append(link.line(r))
    return lines


def compare(name: str, lines: list[str]) -> None:
    path = SNAPSHOTS / f"{name}.txt"
    text = "\n".join(lines) + "\n"
    if os.environ.get("OPENMRC_SNAPSHOTS") == "write":
        path.write_text(text)
    assert text == path.read_text()


def test_alone_at_full_rate() -> None:
    """From a tenth of the window to its limit, and there it stays."""
    flow = Flow()
    flow.q.cwnd = 0.1 * flow.q.max_wnd
    compare("alone", rounds(Link([flow], idle=True), 30))
    assert flow.cwnd == flow.q.max_wnd


def test_two_flows_share_with_marks() -> None:
    """One has the link, the other starts from a tenth; ECN between 0.2 and 0.8 BDP. Fair after 100
    to 200 round trips, with 0.65 to 0.85 T of queue (reference 4.6).
    """
    rate = RATE // 8
    flows = [Flow(rate), Flow(rate)]
    flows[1].q.cwnd = 0.1 * flows[1].q.max_wnd
    link = Link(flows, rate_bps=rate, ecn=(0.2, 0.8))
    lines = rounds(link, 400, every=10)
    compare("two_flows", lines)
    assert 0.8 < flows[0].cwnd / flows[1].cwnd < 1.25
    assert all(0.6 < float(line.split()[1]) < 0.9 for line in lines[21:])


def test_incast_with_trims_and_quick_adapt() -> None:
    """Eight flows start at line rate into one last hop, which trims and never marks."""
    flows = [Flow() for _ in range(8)]
    lines = rounds(Link(flows), 60)
    compare("incast", lines)
    assert float(lines[2].split()[2]) > 0.5
    late = [float(line.split()[2]) for line in lines[7:]]
    assert sum(late) / len(late) < 0.03
    assert min(float(line.split()[1]) for line in lines[7:]) > 0.2, "the link stays full"


def test_a_dead_path_is_not_congestion() -> None:
    """An eighth of a window is lost in each of rounds 10 and 11."""
    flow = Flow()
    link = Link([flow], idle=True, others=0.25 * T)

    def dead(r: int) -> None:
        if r in (10, 11):
            for _ in range(int(flow.cwnd / PKT) // 8):
                flow.loss(link.now)

    lines = rounds(link, 30, each=dead)
    compare("dead_path", lines)
    assert min(float(line.split()[3]) for line in lines[1:]) > 0.8 * 430.2
    assert 0.9 * flow.q.max_wnd < flow.cwnd <= flow.q.max_wnd


def test_a_window_is_restored_when_the_receiver_says_so() -> None:
    """Also if penalties came more than once: it is that from before the first of them."""
    flow = Flow()
    flow.q.cwnd = before = flow.q.max_wnd
    for level in (64, 127, 64):
        flow.sack(T, new=flow.cwnd / 2, delay=0.9 * T, penalty=level)
    assert flow.cwnd < 0.5 * before
    flow.sack(T, new=1.0, delay=0.9 * T, penalty=packet.RESTORE)
    assert flow.cwnd == before


def test_a_window_is_restored_once() -> None:
    """A SACK without a penalty ends what could be restored; a window is never cut by it."""
    flow = Flow()
    flow.q.cwnd = flow.q.max_wnd
    flow.sack(T, new=flow.cwnd, delay=0.9 * T, penalty=64)
    cut = flow.cwnd
    flow.sack(T, new=1.0, delay=0.9 * T)
    flow.sack(T, new=1.0, delay=0.9 * T, penalty=packet.RESTORE)
    assert flow.cwnd == pytest.approx(cut, rel=0.01)


def test_a_restored_window_may_be_cut_again() -> None:
    """RESTORE and a penalty in one SACK: restored first."""
    flow = Flow()
    flow.q.cwnd = before = flow.q.max_wnd
    flow.sack(T, new=before, delay=0.9 * T, penalty=127)
    flow.sack(T, new=before / 4, delay=0.9 * T, penalty=packet.RESTORE | 64)
    assert 0.85 * before < flow.cwnd < 0.95 * before


def test_a_receivers_penalty() -> None:
    """64 in each SACK of rounds 10 to 12: the window falls each round, then grows back."""
    flow = Flow()
    link = Link([flow], idle=True, others=0.25 * T)

    def receiver(r: int) -> None:
        link.penalty = 64 if 10 <= r <= 12 else 0

    lines = rounds(link, 60, each=receiver)
    compare("penalty", lines)
    windows = [float(line.split()[3]) for line in lines[1:]]
    assert windows[12] < 0.3 * windows[9]
    assert windows[-1] > 0.9 * windows[9]
