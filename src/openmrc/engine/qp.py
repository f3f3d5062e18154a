"""The life of a QP (MRC 1.7), as a table.

    RESET -> INIT, ERROR
    INIT  -> RTR, ERROR
    RTR   -> RTS, ERROR
    RTS   -> ERROR
    ERROR -> nothing

A user of `verbs` requests the steps to RTS one by one; a simulated QP, whose ends know each other
from the start, is opened at once (`setup.open_qp`). ERROR is final: a failed QP is destroyed, and
its record may be reused, from RESET.
"""

from __future__ import annotations

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
