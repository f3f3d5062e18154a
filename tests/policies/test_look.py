"""A policy's text: what does not exist in it, and what it writes that is not its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from openmrc.policies.fields import RECORDS, VISIBLE
from openmrc.policies.look import look

ROOT = Path(__file__).resolve().parents[2]
STEP = "def step(st, q, event, now, new_bytes, rtt_ps, marked):\n"
CHOOSE = "def choose(st, q, plane, avoid):\n"


def found(text: str) -> list[str]:
    return [f"{line}: {words}" for line, words, _ in look(ast.parse(text))]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("    q.cwnd += q.inflght\n", "2: q has no field 'inflght'; did you mean 'inflight'?"),
        ("    q.cwmd = 1.0\n", "2: q has no field 'cwmd'; did you mean 'cwnd'?"),
        ("    st.owm[q.index, 0] = 1.0\n", "2: st has no field 'owm'; did you mean 'own'?"),
        (
            "    p = st.plane[q.plane0]\n    q.cwnd = p.n_gud\n",
            "3: p has no field 'n_gud'; did you mean 'n_good'?",
        ),
        (
            "    q.cwnd = st.ev[q.ev0].stat\n",
            "2: st.ev[q.ev0] has no field 'stat'; did you mean 'state'?",
        ),
        ("    if now < 0:\n        q.zzz = 1\n", "3: q has no field 'zzz'; see mrc policy fields"),
    ],
)
def test_a_misspelt_field_is_named_with_its_line_and_what_was_meant(body: str, words: str) -> None:
    assert found(STEP + body) == [words]


@pytest.mark.parametrize(
    "body",
    [
        "    q.cwnd = max(q.pkt, q.cwnd / 2)\n    st.own[q.index, 0] += 1.0\n",
        "    own = st.own[q.index]\n    own[1] = now\n",
        "    p = now\n    p = st.config[0]\n    q.cwnd = p.base_rtt_ps\n",
        "    q = now\n    q.anything = 1\n",  # no longer the queue pair
    ],
)
def test_what_is_right_is_left_alone(body: str) -> None:
    assert found(STEP + body) == []


def test_what_is_the_engine_s_is_a_warning() -> None:
    (of_step,) = look(ast.parse(STEP + "    q.una = 3\n"))
    assert of_step.warning
    assert of_step.words.startswith("q.una is the engine's; a policy sets q.cwnd")
    (of_choose,) = look(ast.parse(CHOOSE + "    q.cwnd = 1.0\n    return 0\n"))
    assert of_choose.warning


@pytest.mark.parametrize("name", ["dctcp.py", "recycle.py"])
def test_the_examples_have_nothing_to_say(name: str) -> None:
    text = (ROOT / "examples/policies" / name).read_text(encoding="utf-8")
    assert look(ast.parse(text)) == []


def test_every_field_that_is_listed_exists() -> None:
    for dtype, fields in VISIBLE.values():
        assert set(fields) <= set(dtype.names or ())
    assert all(dtype.names for dtype in RECORDS.values())
