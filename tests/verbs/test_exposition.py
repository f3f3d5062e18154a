"""Two formats of one content, and who gets which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.verbs.exposition import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    INFO,
    OPEN_METRICS,
    TEXT,
    Family,
    Histogram,
    negotiated,
    render,
)

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)  # what 2.42 asks for


def families() -> list[Family]:
    counter = Family("openmrc_x_total", COUNTER, 'What "x" is.\nMore.')
    counter.add({"nic": 0}, 3)
    info = Family("openmrc_build_info", INFO, "Version.")
    info.add({"version": "1"}, 1)
    gauge = Family("openmrc_up", GAUGE, "Up.")
    gauge.add({}, 0.25)
    histogram = Family("openmrc_rtt_seconds", HISTOGRAM, "Round trips.")
    observed = Histogram((0.1, 1.0))
    for value in (0.1, 0.2, 0.5, 3.0):
        observed.observe(value)
    histogram.add({"nic": 0}, observed)
    return [counter, info, gauge, histogram]


RTT = """# HELP openmrc_rtt_seconds Round trips.
# TYPE openmrc_rtt_seconds histogram
openmrc_rtt_seconds_bucket{nic="0",le="0.1"} 1
openmrc_rtt_seconds_bucket{nic="0",le="1.0"} 3
openmrc_rtt_seconds_bucket{nic="0",le="+Inf"} 4
openmrc_rtt_seconds_sum{nic="0"} 3.8
openmrc_rtt_seconds_count{nic="0"} 4
"""


def test_prometheus_reads_this() -> None:
    assert render(families()) == (
        '# HELP openmrc_x_total What "x" is.\\nMore.\n'
        "# TYPE openmrc_x_total counter\n"
        'openmrc_x_total{nic="0"} 3\n'
        "# HELP openmrc_build_info Version.\n"
        "# TYPE openmrc_build_info gauge\n"
        'openmrc_build_info{version="1"} 1\n'
        "# HELP openmrc_up Up.\n"
        "# TYPE openmrc_up gauge\n"
        f"openmrc_up{{}} 0.25\n{RTT}"
    )


def test_open_metrics_is_this() -> None:
    assert render(families(), OPEN_METRICS) == (
        '# HELP openmrc_x What \\"x\\" is.\\nMore.\n'
        "# TYPE openmrc_x counter\n"
        'openmrc_x_total{nic="0"} 3\n'
        "# HELP openmrc_build Version.\n"
        "# TYPE openmrc_build info\n"
        'openmrc_build_info{version="1"} 1\n'
        "# HELP openmrc_up Up.\n"
        "# TYPE openmrc_up gauge\n"
        f"openmrc_up{{}} 0.25\n{RTT}# EOF\n"
    )


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (PROMETHEUS, OPEN_METRICS),
        ("", TEXT),
        ("*/*", TEXT),
        ("text/html, */*;q=0.8", TEXT),
        ("application/openmetrics-text", OPEN_METRICS),
        ("Application/OpenMetrics-Text; Version=1.0.0", OPEN_METRICS),
        ("application/openmetrics-text;version=2.0.0", TEXT),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;q=0.4,text/plain;q=0.5", TEXT),
        ("application/openmetrics-text;q=0.6,text/plain;q=0.5", OPEN_METRICS),
        ("application/openmetrics-text;q=much", TEXT),
    ],
)
def test_a_reader_gets_what_it_likes_best(accept: str, expected: str) -> None:
    assert negotiated(accept) == expected


@given(st.text(max_size=60))
def test_any_header_has_an_answer(accept: str) -> None:
    assert negotiated(accept) in (TEXT, OPEN_METRICS)


@given(st.lists(st.floats(0, 100, allow_nan=False)), st.sets(st.floats(0.001, 50), min_size=1))
def test_a_bucket_has_what_is_at_most_its_bound(values: list[float], bounds: set[float]) -> None:
    histogram = Histogram(sorted(bounds))
    for value in values:
        histogram.observe(value)
    for bound, n in histogram.cumulative():
        assert n == sum(value <= bound for value in values)
    assert histogram.count == len(values)
    assert histogram.sum == pytest.approx(sum(values))
