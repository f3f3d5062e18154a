"""The localiser's compiled sums give what NumPy gives, row by row and cause by cause."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.fabric import multiplane
from openmrc.ops import causes, schedule, weigh

N_CAUSES = 9
FABRIC = multiplane(8, 4, 10**8, 4, 2, 0, 0)


@st.composite
def columns(draw: st.DrawFn) -> np.ndarray:
    """[3, rows] causes that each row crosses, none of them twice."""
    row = st.lists(st.integers(0, N_CAUSES - 1), min_size=1, max_size=3, unique=True)
    rows = draw(st.lists(row, min_size=1, max_size=12))
    return np.array([each + [-1] * (3 - len(each)) for each in rows], np.int32).T.copy()


def by_cause(rows: np.ndarray, weights: Any, n: int = N_CAUSES) -> np.ndarray:
    return np.array([weights[(rows == cause).any(axis=0)].sum() for cause in range(n)])


@settings(max_examples=50, deadline=None)
@given(columns(), st.integers(0, 2**32 - 1))
def test_sums_by_cause(rows: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = rows.shape[1]
    lost, left = rng.integers(1, 9, n).astype(np.float64), np.array(rng.random(n))
    b, q = np.array(rng.uniform(1e-7, 1e-2, n)), np.array(rng.uniform(0.01, 0.5, n))
    crossed = 20.0 + by_cause(rows, lost)
    nats, want = np.empty(N_CAUSES), np.zeros(N_CAUSES)
    weigh.scores(rows, lost, left, b, crossed, 1.0, np.zeros((3, N_CAUSES)), nats)
    of_left, came = by_cause(rows, left), crossed - by_cause(rows, lost - left)
    log_chance = by_cause(rows, left * np.log(b))
    weigh.against(of_left, log_chance, np.maximum(came, 1.0), want)
    np.testing.assert_allclose(nats, want)
    share = np.minimum(by_cause(rows, lost) / crossed, weigh.CERTAIN)
    weigh.instead(rows, lost, q, crossed, 0.1, np.zeros((2, N_CAUSES)), nats)
    for cause in range(N_CAUSES):
        here = (rows == cause).any(axis=0) & (share[cause] > 0.1 * q)
        gain = (lost * np.log1p(share[cause] * (1 - q) / q))[here].sum()
        survived = crossed[cause] - by_cause(rows, lost)[cause]
        np.testing.assert_allclose(nats[cause], gain + survived * np.log1p(-share[cause]))


@settings(max_examples=50, deadline=None)
@given(columns(), st.data())
def test_a_view_has_the_causes_of_its_rows_and_places_of_suspects(
    rows: np.ndarray, data: st.DataObject
) -> None:
    n = rows.shape[1]
    part = np.array(data.draw(st.lists(st.integers(0, n - 1), unique=True)), np.int64)
    place = np.full(N_CAUSES, -1, np.int32)
    into, room = np.empty((3, len(part)), np.int32), np.empty(N_CAUSES, np.int64)
    ids = room[: weigh.renumber(rows, part, place, into, room)]
    assert ids.tolist() == sorted({cause for cause in rows[:, part].ravel().tolist() if cause >= 0})
    assert np.where(into >= 0, np.append(ids, -1)[into], -1).tolist() == rows[:, part].tolist()
    assert (place == -1).all()
    suspects = np.unique(data.draw(st.lists(st.integers(0, N_CAUSES - 1), max_size=4))).astype(int)
    place[suspects] = np.arange(len(suspects))
    counts = np.zeros((2, n), np.int32)
    width = weigh.suspects_met(rows, 0, 3, place, counts[0])
    met = np.empty((n, max(width, 1)), np.int32)
    weigh.meet(rows, 0, 3, place, counts[1], met)
    want = [[place[c] for c in row if c >= 0 and place[c] >= 0] for row in rows.T.tolist()]
    assert [[i for i in row if i >= 0] for row in met.tolist()] == want


def test_a_loop_over_two_t1s_crosses_its_own_t0_once() -> None:
    made = schedule.make(FABRIC)
    routes = made.routes(0)
    found = causes.of_routes(FABRIC, routes)
    for route, column in zip(routes.tolist(), found.T.tolist(), strict=True):
        ports = [port for port in route if port >= 0]
        passed = [int(FABRIC.port_peer_switch[port]) for port in ports]
        ends = {int(FABRIC.port_nic[ports[0]]), int(FABRIC.port_peer_nic[ports[-1]])}
        want = {*ports, *(FABRIC.n_ports + switch for switch in passed if switch >= 0)}
        want |= {FABRIC.n_ports + FABRIC.n_switches + nic for nic in ends}
        assert sorted(cause for cause in column if cause >= 0) == sorted(want)
