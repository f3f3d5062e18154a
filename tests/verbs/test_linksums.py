"""What one NIC knows of links, by its paths; and how many samples any number of them makes."""

from __future__ import annotations

import pytest

from openmrc.engine.ev import EV_STATES
from openmrc.fabric.clos import multiplane
from openmrc.fabric.model import Fabric
from openmrc.verbs import linksums, metrics
from openmrc.verbs.linksums import LINKS_SHOWN, PATHS_SHOWN
from openmrc.verbs.status import QpState
from openmrc.verbs.tally import PATHS_KEPT, Path, PathSum, Tally
from tests.verbs.fakes import FakeDevice, FakeQp

FABRIC = multiplane(16, 2, 10**11, 4, 4, 500_000, 250_000)
GOOD, BAD, DENIED = "GOOD", "ASSUMED_BAD", "DENIED"


def port(place: str, fabric: Fabric = FABRIC) -> int:
    (found,) = (n for n in range(fabric.n_ports) if fabric.port_name(n) == place)
    return found


def suspects(*bad: str, peers: tuple[int, ...] = (5, 6, 15)) -> set[str]:
    """The links that NIC 0 suspects when these are dead."""
    dead = frozenset(map(port, bad))
    qps = [FakeQp(FABRIC, peer, number, dead) for number, peer in enumerate(peers)]
    sums = FakeDevice(FABRIC, qps).sums()
    found = linksums.by_link(linksums.links_of(FABRIC, 0), sums.paths)
    return {FABRIC.port_name(link) for link, one in found.items() if one.suspect}


def test_nothing_is_suspect_where_all_is_well() -> None:
    assert suspects() == set()


@pytest.mark.parametrize(
    "place",
    [
        "plane 0 t0 0 > t1 2",  # its own T0's uplink: paths to all peers
        "plane 1 t0 1 < t1 3",  # towards two peers
        "nic 0 plane 1 > t0",  # all of a plane, to all peers
    ],
)
def test_a_dead_link_is_suspect_and_nothing_else(place: str) -> None:
    assert suspects(place) == {place}


def test_two_dead_links_are() -> None:
    places = {"plane 0 t0 0 > t1 2", "plane 1 t0 1 < t1 3"}
    assert suspects(*places) == places


def test_links_that_are_only_used_together_stay_together() -> None:
    """With one peer every path has an uplink and a way down of its own."""
    assert suspects("plane 0 t0 0 > t1 2", peers=(5,)) == {
        "plane 0 t0 0 > t1 2",
        "plane 0 t0 1 < t1 2",
    }


def test_a_denied_path_neither_clears_nor_accuses() -> None:
    paths = {
        Path(5, 0, FABRIC.ev_of_path(0, 5, 0, i)): PathSum(0, {state: 1})
        for i, state in enumerate((DENIED, GOOD, GOOD, GOOD))
    }
    found = linksums.by_link(linksums.links_of(FABRIC, 0), paths)
    assert not any(one.suspect for one in found.values())


def test_an_ev_of_no_path_has_no_links() -> None:
    fabric = multiplane(16, 2, 10**11, 4, 3, 500_000, 250_000)
    paths = {Path(5, 0, fabric.ev(0, 3)): PathSum(7, {BAD: 1})}  # of uplinks 0 to 2
    assert linksums.by_link(linksums.links_of(fabric, 0), paths) == {}


def test_the_worst_links_are_shown_first() -> None:
    fabric = multiplane(64, 4, 10**11, 16, 16, 500_000, 250_000)
    dead = port("plane 2 t0 0 > t1 9", fabric)
    qps = [FakeQp(fabric, peer, peer, frozenset({dead})) for peer in (20, 40, 60)]
    sums = FakeDevice(fabric, qps).sums()
    found = linksums.by_link(linksums.links_of(fabric, 0), sums.paths)
    assert len(found) == 4 * (1 + 16 + 3 * (16 + 1)) > LINKS_SHOWN
    links = linksums.shown(found)
    assert (len(links), links[0]) == (LINKS_SHOWN, dead)
    assert found[dead] == linksums.LinkSum(packets=30, paths=3, bad=3, suspect=True)


def test_how_many_samples_there_are_does_not_grow_with_queue_pairs_or_evs() -> None:
    """4 queue pairs of 64 EVs, then 40 of 256: the same names and labels, but for the fabric's."""
    counts = []
    for nics, planes, t0, n_qps in ((64, 4, 16, 4), (128, 4, 64, 40)):
        fabric = multiplane(nics, planes, 10**11, t0, t0, 500_000, 250_000)
        qps = [FakeQp(fabric, nics - 1 - i, i, frozenset()) for i in range(n_qps)]
        assert len(qps[0].evs()) == planes * t0
        shown = metrics.Collector([FakeDevice(fabric, qps)])  # type: ignore[list-item]
        shown.sample()
        lines = [line for line in shown.text().splitlines() if not line.startswith("#")]
        assert not any(label in line for line in lines for label in ("qp=", "qp_num="))
        counts.append(len(lines))
        assert sum("ev=" in line for line in lines) == PATHS_SHOWN
        assert sum("link=" in line for line in lines) == len(metrics.LINK) * LINKS_SHOWN
    assert counts[0] == counts[1] == 379  # as docs/live.md says
    planes = 4
    assert counts[0] == (
        3  # version, round trip, PMTU
        + len(metrics.DEVICE)
        + planes * (1 + len(metrics.PORT) + len(EV_STATES) + 2)  # narrow paths, and their payload
        + len(QpState)
        + len(metrics.QP)
        + PATHS_SHOWN
        + len(metrics.LINK) * LINKS_SHOWN
        + len(metrics.RTT_BOUNDS_S) + 3
    )  # fmt: skip


# --- what is gone


def test_counts_of_what_is_gone_are_kept_and_states_are_not() -> None:
    there = [FakeQp(FABRIC, 5, 1, frozenset()), FakeQp(FABRIC, 5, 2, frozenset())]
    tally = Tally()
    before = tally.read(lambda: there)  # type: ignore[arg-type, return-value]
    tally.retire(there[0], there.remove)  # type: ignore[arg-type]
    after = tally.read(lambda: there)  # type: ignore[arg-type, return-value]
    assert after.counters["tx_packets"] == before.counters["tx_packets"] == 2 * 80
    assert (before.counters["cwnd_bytes"], after.counters["cwnd_bytes"]) == (2, 1)
    assert (before.states, after.states) == ({"RTS": 2}, {"RTS": 1})
    assert {path: one.packets for path, one in after.paths.items()} == dict.fromkeys(
        before.paths, 20
    )
    assert {one.states[GOOD] for one in after.paths.values()} == {1}


def test_paths_of_what_is_gone_are_forgotten_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PATHS_KEPT >= 192 * 256  # the EVs of as many peers
    monkeypatch.setattr("openmrc.verbs.tally.PATHS_KEPT", 8)
    tally = Tally()
    for number, peer in enumerate((5, 6)):  # 8 paths each
        qps = [FakeQp(FABRIC, peer, number, frozenset())]
        tally.retire(qps[0], qps.remove)  # type: ignore[arg-type]
    assert {path.peer for path in tally.read(list).paths} == {6}
