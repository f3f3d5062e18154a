"""Whatever the wire does, each byte is placed once, the books balance, and everything ends."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.engine import state as es
from tests.engine.cases import COMMON, EXAMPLES, long
from tests.engine.pair import OVERHEAD, Pair


@dataclass(frozen=True)
class Trouble:
    """What the wire does to some packets of one kind."""

    do: str
    kind: str
    start_us: int
    next: int
    us: int


troubles = st.lists(
    st.builds(
        Trouble,
        do=st.sampled_from(["drop", "drop", "trim", "mark", "delay", "duplicate"]),
        kind=st.sampled_from(["data", "data", "payload", "rtx", "sack", "nack", "ack", "probe"]),
        start_us=st.integers(0, 40),
        next=st.integers(1, 12),
        us=st.integers(0, 60),
    ),
    max_size=8,
)
messages = st.lists(st.tuples(st.integers(0, 40 * 4096), st.booleans()), min_size=1, max_size=6)
NOMINAL = 4096 + OVERHEAD
first_psns = st.sampled_from([0, 1000, (1 << 24) - 1, (1 << 24) - 20])


def trouble(pair: Pair, t: Trouble) -> None:
    if t.do in ("drop", "trim", "mark"):
        # a lost ACK costs an RTO at least: many in a row are an error, and rightly
        getattr(pair, t.do)(next=1 if t.kind == "ack" else t.next, kind=t.kind)
    elif t.do == "delay":
        pair.delay(t.us, next=t.next, kind=t.kind)
    else:
        pair.duplicate(next=t.next, us=t.us, kind=t.kind)


def play(pair: Pair, sizes: list[tuple[int, bool]], script: list[Trouble]) -> list[int]:
    """Post, make trouble at its times, drive; the immediates posted, in order."""
    immediates = []
    for number, (size, has_imm) in enumerate(sizes):
        pair.post(size, imm=number if has_imm else None)
        if has_imm:
            immediates.append(number)
    for t in sorted(script, key=lambda t: t.start_us):
        if t.start_us * 1_000_000 > pair.now:
            pair.advance(ps=t.start_us * 1_000_000 - pair.now)
        trouble(pair, t)
    pair.drive(errors=True)
    return immediates


@COMMON
@given(
    sizes=messages,
    script=troubles,
    planes=st.integers(1, 4),
    evs=st.integers(1, 4),
    first_psn=first_psns,
    mpr=st.sampled_from([128, 512]),
)
def test_losses_trims_marks_reordering_and_duplicates(
    sizes: list[tuple[int, bool]],
    script: list[Trouble],
    planes: int,
    evs: int,
    first_psn: int,
    mpr: int,
) -> None:
    """A bounded amount of trouble: everything completes, in order, every byte once. (`Pair` checks
    after each step that inflight is the sum of what is SENT, that it was below cwnd before each
    packet, and that the PSN window was kept.)
    """
    pair = Pair(planes=planes, evs=evs, first_psn=first_psn, mpr=mpr, exp_cnt=25)
    immediates = play(pair, sizes, script)
    assert pair.error(0) == pair.error(1) == "no error"
    pair.assert_intact()
    assert pair.done() == list(range(len(sizes)))
    assert pair.immediates() == immediates
    assert sorted(pair.done(es.DONE_DELIVERED)) == list(range(len(sizes)))
    assert pair.q.inflight == pair.q.lost == 0
    assert pair.q.una == pair.q.nxt == pair.r.cack + 1


@COMMON
@given(
    sizes=messages,
    script=troubles,
    dead=st.sets(st.integers(0, 3)),
    src=st.sampled_from([None, 0, 1]),
)
def test_dead_planes_are_ridden_out_or_the_error_says_why(
    sizes: list[tuple[int, bool]],
    script: list[Trouble],
    dead: set[int],
    src: int | None,
) -> None:
    """Planes die for good, wholly or in one direction. With one plane left all completes; with none
    the QP says that it gave up. No byte is ever placed twice or wrong.
    """
    patience = 5 if len(dead) == 4 else 25
    pair = Pair(planes=4, evs=2, rto_exponent=6, linear_cnt=7, exp_cnt=patience)
    for plane in dead:
        pair.cut(plane=plane, src=src)
    play(pair, sizes, script)
    if len(dead) < 4:
        assert pair.error(0) == "no error"
        pair.assert_intact()
        assert pair.done() == list(range(len(sizes)))
    else:
        assert pair.error(0) == "retry counter exceeded"
        assert pair.done() == []
    written = pair.writes > 0
    assert int(pair.writes.max()) <= 1
    assert (pair.memory[written] == pair.expected[written]).all()


@COMMON
@given(
    flips=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 1), st.integers(0, 2)), max_size=8),
    size=st.integers(1, 200 * 4096),
)
def test_ports_that_come_and_go(flips: list[tuple[int, int, int]], size: int) -> None:
    """Ports of three planes flip at either end, the fourth stays: all completes."""
    pair = Pair(planes=4, evs=2)
    pair.post(size)
    pair.post(size, src=1)
    for at_us, nic, port in sorted(flips):
        if at_us * 1_000_000 > pair.now:
            pair.advance(ps=at_us * 1_000_000 - pair.now)
        up = bool(int(pair.st.nic[nic].up_mask) >> port & 1)
        pair.port(nic, port, not up)
    pair.drive()
    pair.assert_intact()


@long
@COMMON
@given(script=troubles, denied=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3))))
def test_denylists_under_trouble(script: list[Trouble], denied: list[tuple[int, int]]) -> None:
    """Any EVs but one per plane are denied and given back while packets fly."""
    pair = Pair(planes=2, evs=4, backup=1, exp_cnt=25)
    pair.post(150 * 4096)
    for t in script:
        trouble(pair, t)
    for plane, k in denied:
        pair.advance(us=4)
        pair.deny(plane, k, pair.path_state(plane, k) != "DENIED")
    pair.drive()
    pair.assert_intact()


def test_two_runs_of_a_story_are_identical() -> None:
    logs = []
    for _ in range(2):
        pair = Pair(planes=2, evs=4)
        pair.drop(next=7)
        pair.trim(next=5)
        pair.delay(us=9, next=20, kind="data")
        pair.post(200 * 4096)
        pair.drive()
        logs.append([(x.at, x.p.item()) for x in pair.log])
    assert logs[0] == logs[1]


@settings(COMMON, max_examples=EXAMPLES // 3 + 1)  # up to 640 packets each
@given(
    planes=st.integers(2, 8),
    evs=st.sampled_from([2, 4, 16]),
    packets=st.integers(1, 640),
    first=st.integers(0, 639),
    lost=st.integers(1, 512),
    step=st.sampled_from([1, 1, 2, 7]),
)
def test_a_mix_of_losses_heals_without_a_timeout(
    planes: int, evs: int, packets: int, first: int, lost: int, step: int
) -> None:
    """So many packets of a message are lost once, in a row or scattered. All is placed within six
    base round trips, and what the lost bytes take, after the last was sent.
    """
    pair = Pair(planes=planes, evs=evs)
    chosen = range(first % packets, packets, step)[:lost]
    for seq in chosen:
        pair.drop(seq=seq)
    pair.post(packets * 4096)
    pair.until(lambda: pair.done(es.DONE_DELIVERED) == [0])
    assert pair.dropped["data"] == len(chosen)
    assert pair.q.n_timeouts == pair.q.n_epochs == 0
    last_sent_at = max(x.at for x in pair.packets("data"))
    resent_ps = len(chosen) * NOMINAL * 8 * 1000 // (planes * 100)
    assert pair.now <= last_sent_at + pair.one_way_ps + 6 * pair.rtt + resent_ps


@COMMON
@given(
    planes=st.integers(1, 4),
    packets=st.integers(1, 160),
    stops=st.lists(st.tuples(st.integers(30, 200), st.integers(1, 400)), min_size=1, max_size=6),
)
def test_a_standstill_charges_once_however_long(
    planes: int, packets: int, stops: list[tuple[int, int]]
) -> None:
    """Nobody is served for up to 49 RTOs, again and again: each time costs one epoch at most, and
    what is heard then ends it. Two in a row would end this queue pair.
    """
    pair = Pair(planes=planes, rto_exponent=6, linear_cnt=2, exp_cnt=0)
    pair.post(packets * 4096)
    for served_us, rtts in stops:
        pair.advance(us=served_us)
        pair.now += rtts * pair.rtt
    pair.drive()
    pair.assert_intact()
    assert pair.q.n_epochs <= len(stops)
