"""What travels in the page: how large it may be, and that nothing needed is left behind."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.report import pack
from openmrc.report.data import MARKS_MAX, PAGE_BYTES_MAX, _qp, page_data
from openmrc.report.page import html
from openmrc.report.series import cumulative
from openmrc.run.figures import nearest_rank
from openmrc.sim.watch.samples import QpSamples
from tests.report.synthetic import COLUMNS, EVS, heavy

# --- weight -----------------------------------------------------------------------------------


@pytest.mark.parametrize("transports", [1, 3, 5, 12, 60])
def test_ten_seconds_and_100000_flows_stay_under_ten_megabytes(transports: int) -> None:
    flows = 100_000 if transports < 12 else 10_000
    page = html(heavy(transports, flows))
    assert len(page.encode()) < PAGE_BYTES_MAX == 10_000_000


def test_the_most_samples_one_can_ask_for_do_not_make_it_heavier() -> None:
    assert len(html(heavy(3, 1000, columns=1000)).encode()) < PAGE_BYTES_MAX


def test_three_transports_keep_every_link_and_every_interval() -> None:
    found = page_data(heavy(3, 1000))
    for run in found["runs"]:
        links = run["samples"]["links"]
        assert (links["columns"], len(links["name"]), links["left_out"]) == (COLUMNS, 512, 0)
        assert len(b64decode(links["load"]["bytes"])) == COLUMNS * 513


def test_what_many_transports_leave_out_is_said() -> None:
    found = page_data(heavy(12, 1000))
    samples = found["runs"][0]["samples"]
    assert (len(samples["links"]["name"]), samples["links"]["left_out"]) == (170, 342)
    assert (len(samples["qp"]["name"]), samples["qp"]["left_out"]) == (170, EVS - 170)
    assert found["marks"]["more"] == 20_000 - MARKS_MAX
    assert len(found["marks"]["us"]) == MARKS_MAX
    assert samples["links"]["step"] * samples["links"]["columns"] >= 1e7  # all ten seconds


def test_a_long_scenario_is_cut_and_says_so() -> None:
    page = html(heavy(1, 10))
    assert "... the whole of it is in scenario.toml" in page


# --- distributions ----------------------------------------------------------------------------


@given(st.integers(1, 5000), st.integers(16, 300), st.integers(0, 2**32))
def test_a_thinned_distribution_keeps_its_percentiles(n: int, points: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 10**6, n)
    found, ranks = cumulative(values, points)
    assert len(found) <= max(points, 16)
    assert (np.diff(ranks) > 0).all()
    assert (ranks[0], ranks[-1], found[-1]) == (1, n, values.max())
    assert (found == np.sort(values)[ranks - 1]).all()
    for share in (0.5, 0.99, 0.999, 1.0):
        at = int(np.searchsorted(ranks, max(1, int(np.ceil(share * n - 1e-9)))))
        assert found[at] == nearest_rank(values, share)


def test_a_hundred_thousand_flows_are_two_thousand_points() -> None:
    values = np.random.default_rng(1).permutation(100_000)
    found, ranks = cumulative(values, 2000)
    assert 1500 < len(found) <= 2000
    assert found.tolist() == (ranks - 1).tolist()
    assert np.diff(ranks).max() < 100  # nowhere more than a thousandth of the flows between two
    assert np.diff(ranks[-50:]).max() == 1  # the tail flow by flow


def test_nothing_has_no_points() -> None:
    found, ranks = cumulative(np.zeros(0, np.int64), 100)
    assert (found.tolist(), ranks.tolist()) == ([], [])


# --- packing ----------------------------------------------------------------------------------


def codes(packed: dict[str, Any]) -> list[int]:
    """What the page makes of it."""
    if "bytes" in packed:
        return list(b64decode(packed["bytes"]))
    pairs = list(b64decode(packed["runs"]))
    return [
        code for often, code in zip(pairs[::2], pairs[1::2], strict=True) for code in [code] * often
    ]


def unpacked(packed: dict[str, Any]) -> list[int]:
    return [int(pack.COUNTS[code]) * packed["unit"] for code in codes(packed)]


def test_each_row_says_when_its_path_became_another_and_which() -> None:
    ports = np.array([60_000, 50_000, 55_000], np.uint32)  # rows come in their order
    flat: dict[str, Any] = dict.fromkeys(
        ("cwnd_bytes", "inflight_bytes", "queue_bytes"), np.zeros(4, np.int64)
    )
    table = {"state": np.ones((4, 3), np.uint8), "used": np.zeros((4, 3))}
    value = np.array([[1, 7, 3], [1, 7, 3], [2, 7, 3], [2, 7, 1]], np.uint32)
    names = {1: "over a", 2: "over b", 3: "over c", 7: "over d"} | dict.fromkeys(ports.tolist(), "")
    qp = QpSamples(
        10,
        40,
        flat | table | {"value": value},
        0,
        1,
        2,
        ports,
        np.zeros(3, int),
        names,
        bundle=True,
    )
    shown = _qp(qp, 1)
    assert shown["ev"] == [50_000, 55_000, 60_000]
    assert shown["moves"] == {1: [(0, "over c"), (3, "over a")], 2: [(0, "over a"), (2, "over b")]}
    assert (shown["bundle"], shown["delay_us"]) == (True, None)


def test_small_counts_are_exact_and_larger_ones_within_three_percent() -> None:
    values = np.concatenate([np.arange(32), np.geomspace(32, 507_904, 1000).astype(int)])
    found = np.array(unpacked(pack.counts(values[None]) or {}))
    assert (found[:32] == np.arange(32)).all()
    assert (np.abs(found - values) <= 0.032 * values).all()


@pytest.mark.parametrize(("most", "unit"), [(507_904, 1), (507_905, 2), (10**9, 1969)])
def test_counts_beyond_the_last_code_take_a_unit(most: int, unit: int) -> None:
    packed = pack.counts(np.array([[0, most]])) or {}
    assert packed["unit"] == unit
    assert unpacked(packed)[1] == pytest.approx(most, rel=0.032)


def test_shares_are_steps_of_half_a_percent() -> None:
    packed = pack.shares(np.array([[0.0, 0.005, 0.5, 0.998, 1.0, 1.7]])) or {}
    assert codes(packed) == [0, 1, 100, 200, 200, 200]


def test_zeros_take_no_room_and_repetition_little() -> None:
    assert pack.states(np.zeros((500, 500), np.uint8)) is None
    table = np.zeros((500, 500), np.uint8)
    table[250:] = 4
    packed = pack.states(table) or {}
    assert len(json.dumps(packed)) < 3000
    assert codes(packed) == table.reshape(-1).tolist()


@given(st.lists(st.tuples(st.integers(1, 600), st.integers(0, 5)), min_size=1, max_size=8))
def test_what_is_packed_comes_out_again(runs: list[tuple[int, int]]) -> None:
    flat = np.concatenate([np.full(n, value, np.uint8) for n, value in runs])
    packed = pack.states(flat[None])
    assert (codes(packed) if packed else [0] * len(flat)) == flat.tolist()


def test_joined_columns_add_up_or_keep_what_matters() -> None:
    table = np.array([[1.0, 3.0, 5.0, 2.0, 7.0]])
    widths = np.array([2, 2, 2, 2, 1])
    assert pack.join(table, 2, "sum").tolist() == [[4, 7, 7]]
    assert pack.join(table, 2, "max").tolist() == [[3, 5, 7]]
    assert pack.join(table, 2, "last").tolist() == [[3, 2, 7]]
    assert pack.join(table, 4, "mean", widths).tolist() == [[2.75, 7]]
    assert pack.join(table, 5, "mean", widths)[0, 0] == pytest.approx(29 / 9)
    assert pack.join(table, 1, "sum") is table
