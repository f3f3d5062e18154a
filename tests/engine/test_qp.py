"""The life of a QP as a table (engine/qp.py; MRC 1.7)."""

from __future__ import annotations

from itertools import product

import pytest

from openmrc.engine import loss
from openmrc.engine import state as es
from openmrc.engine.qp import ALLOWED, QP_STATES, STEPS
from openmrc.jit import compiled
from tests.engine.pair import Pair


@compiled
def fail(st, qi, error, now):  # type: ignore[no-untyped-def]
    loss.fail(st, st.qp[qi], error, now)


def test_the_way_to_rts_is_one_and_error_is_the_end() -> None:
    assert list(QP_STATES) == list(STEPS)
    way = [es.RESET]
    while ahead := [to for to in STEPS[way[-1]] if to != es.ERROR]:
        way += ahead
    assert way == [es.RESET, es.INIT, es.RTR, es.RTS]
    assert STEPS[es.ERROR] == ()


def test_compiled_code_sees_the_same_table() -> None:
    for now, to in product(STEPS, STEPS):
        assert ALLOWED[now, to] == (to in STEPS[now])


@pytest.mark.parametrize("state", STEPS, ids=QP_STATES.get)
def test_a_qp_fails_once_from_wherever_the_table_lets_it(state: int) -> None:
    pair = Pair()
    pair.q.state = state
    fail(pair.st, 0, es.RETRY_EXCEEDED, 5)
    if es.ERROR in STEPS[state]:
        assert (pair.q.state, pair.q.error, pair.q.error_at) == (es.ERROR, es.RETRY_EXCEEDED, 5)
        fail(pair.st, 0, es.REMOTE_ACCESS, 6)
        assert (pair.q.error, pair.q.error_at) == (es.RETRY_EXCEEDED, 5)
    else:
        assert (pair.q.state, pair.q.error) == (es.ERROR, es.NO_ERROR)
