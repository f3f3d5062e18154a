"""Text, JSON, report, headline and page are views of the same findings."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.ops import harm, spoken
from openmrc.ops.finding import Finding
from openmrc.ops.headline import NOTHING
from openmrc.ops.mapper.page import data
from openmrc.ops.why import Answer, why
from openmrc.ops.words import TOLD_MAX
from tests.ops.test_words import CUT, FABRIC, record

PLACES = (
    *(("plane 1 t0 1 > t1 3", "link"), ("plane 0 t0 2 < t1 *", "link"), ("nic 7 plane 1", "link")),
    *(("plane 1 t0 4 - t1 0", "link"), ("nic 9 plane * > t0", "link"), ("nic 12", "nic")),
    *(("plane 0 t0 1 transceiver 1", "transceiver"), ("plane 1 t1 2", "switch")),
    *(("plane 0 t1 *", "switch"), ("plane 1", "plane"), ("nic 3 plane 0 < t0", "link")),
    ("nic 4 plane 0 > t0, nic 4 plane 1 > t0", "link"),
)


@st.composite
def findings(draw: st.DrawFn) -> tuple[Finding, ...]:
    chosen = draw(st.lists(st.sampled_from(PLACES), unique=True, max_size=7))
    found = []
    for where, kind in chosen:
        ended = draw(st.none() | st.floats(80.0, 300.0))
        narrow = draw(st.sampled_from([0, 0, 4096]))
        dead = not narrow and draw(st.booleans())
        downs = draw(st.integers(0, 4)) if dead else 0
        paths = draw(st.integers(0, 9))
        one = replace(
            CUT, where=where, kind=kind, ended_us=(80.0, ended), dead=dead, narrow_bytes=narrow,
            one_of=draw(st.sampled_from([(), ("nic 1",), ("nic 1", "plane 0")])), paths=paths,
            rate=1.0 if dead else draw(st.floats(0.01, 0.9)), times=max(downs, 1), downs=downs,
            probability=draw(st.sampled_from([0.5, 0.72, 0.95])),
            back=draw(st.integers(0, paths)), aside_us=draw(st.floats(0, 900)),
        )  # fmt: skip
        found.append(one)
    return tuple(found)


def answered(found: tuple[Finding, ...]) -> tuple[Answer, dict[str, Any], list[harm.Harm]]:
    """The answer, the page, and the report, of a run in which these are found."""
    ports = record().port_counts
    one = record(counts=ports, account=ports, summary=record().summary | {"sim_time_us": 400.0})
    with (
        patch("openmrc.ops.why.findings", lambda *_: list(found)),
        patch("openmrc.ops.harm.diagnosed", lambda _: type("", (), {"watched": ()})),
        patch("openmrc.ops.records.Record.is_recorded", True),
    ):
        answer = why(one)
        return answer, data.of_run(Path("run"), one), harm.ranked(one, answer)


@given(findings())
def test_no_view_contradicts_another(found: tuple[Finding, ...]) -> None:
    answer, page, report = answered(found)
    told, spoken_ = answer.as_json(), spoken.Spoken(FABRIC, {})
    everywhere = sorted(it.where for it in found)
    assert sorted(it["where"] for it in told["findings"]) == everywhere
    assert sorted(it["place"] for it in page["places"]) == everywhere
    assert sorted(row.where for row in report) == everywhere
    assert sorted(where for where, _ in told["to_do"]) == everywhere
    assert told["nothing_broke"] == (not found)
    assert page["headline"] == {key: told[key] for key in ("state", "to_do")}

    still = {it.where for it in found if not it.over}
    assert {it["place"] for it in page["places"] if it["until_us"] is None} == still
    assert told["state"].startswith("Still broken: ") == bool(still)
    assert still.isdisjoint(where for where, what in told["to_do"] if what == NOTHING)
    for it in answer.findings[:TOLD_MAX]:
        sentence = answer.text.lower()
        assert spoken_(it.where).lower() in sentence
    for row in report:
        [one] = [it for it in found if it.where == row.where]
        assert row.probability == one.probability
        shown = [it["note"] for it in page["places"] if it["place"] == row.where]
        assert f"{one.probability:.0%} sure" in shown[0]
        if not one.one_of:
            assert (row.what == "dead") == one.dead


@given(findings())
def test_the_first_line_names_what_is_broken_and_nothing_else(found: tuple[Finding, ...]) -> None:
    answer, _, _ = answered(found)
    state, speak = answer.headline.state, spoken.Spoken(FABRIC, {})
    bad = [it for it in answer.findings if not it.over]
    named = state.partition("Comes and goes")[0]
    assert [speak(it.where) in named for it in bad[:3]] == [True] * min(len(bad), 3)
    if not found:
        assert state == "Nothing broke."
    elif not bad and max(it.times for it in found) < 3:
        assert state.startswith("Nothing is broken any more")


def names_of(text: str) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "names.toml"
        file.write_text(text)
        return spoken.names(file, FABRIC)


def test_places_are_called_what_people_call_them() -> None:
    speak = spoken.Spoken(
        FABRIC,
        names_of(
            '"nic 3" = "gpu-17"\n"plane 1 t0 1" = "leaf-2"\n"plane 1 t0 1 - t1 3" = "cable 4"\n'
            '"nic 3 plane 1" = "cable 9"\n'
        ),
    )
    assert speak("nic 3") == "nic 3 (gpu-17)"
    assert speak("plane 1 t0 1 > t1 3") == "plane 1 t0 1 (leaf-2) to t1 3 (cable 4)"
    assert speak("plane 1 t0 1 < t1 3") == "plane 1 t1 3 to t0 1 (leaf-2) (cable 4)"
    assert speak("plane 1 t0 1 - t1 3") == "plane 1 t0 1 - t1 3 (cable 4)"
    assert speak("nic 3 plane 1 > t0").startswith("nic 3 (gpu-17) to plane 1 t0 0")
    assert speak("nic 3 plane 1 > t0").endswith(" (cable 9)")
    assert speak("plane 0") == "plane 0"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"nic x" = "a"', '"nic x": not a place; "plane 3 t0 5'),
        ('"nic 99" = "a"', '"nic 99": there is no nic 99; 0 to 63 exist'),
        ('"nic 3" = 5', '"nic 3": a name of up to 200 letters is accepted'),
        ("nic", "is no TOML"),
    ],
)
def test_a_file_of_names_says_what_is_wrong_with_it(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        names_of(text)
