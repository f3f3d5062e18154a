"""The life of a QP (MRC 1.7), as a table.

    RESET -> INIT, ERROR
    INIT  -> RTR, ERROR
    RTR   -> RTS, ERROR
    RTS   -> ERROR
    ERROR -> nothing

A user of `verbs` requests the steps to RTS one by one, of which `setup.open_qp` is the last; a
simulated QP, whose ends know each other from the start, is opened at once. ERROR is final: a failed
QP is destroyed (`setup.close_qp`), and its record may be reused, from RESET (`setup.reset_qp`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from openmrc.engine.state import ERROR, INIT, RESET, RTR, RTS

QP_STATES = {RESET: "RESET", INIT: "INIT", RTR: "RTR", RTS: "RTS", ERROR: "ERROR"}
STEPS: dict[int, tuple[int, ...]] = {
    RESET: (INIT, ERROR),
    INIT: (RTR, ERROR),
    RTR: (RTS, ERROR),
    RTS: (ERROR,),
    ERROR: (),
}
ALLOWED = np.zeros((max(STEPS) + 1, max(STEPS) + 1), np.bool_)  # [now, to]
for _now, _steps in STEPS.items():
    ALLOWED[_now, list(_steps)] = True


def step(q: Any, to: int) -> bool:
    """Go to a state on the way to RTS, whose step is `setup.open_qp`; False if that is no step."""
    if to not in STEPS[int(q.state)]:
        return False
    q.state = to
    return True
