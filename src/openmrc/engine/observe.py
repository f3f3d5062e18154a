"""What may be seen of a QP from outside: its counters, its round trip, its error, and whether its
books agree with its window and its paths.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.engine import fate, place
from openmrc.engine import state as es
from openmrc.engine.ev import ASSUMED_BAD

_COUNTERS = {name.removeprefix("n_"): name for name in es.COUNTERS}


def counters(q: Any) -> dict[str, Any]:
    """The counters of one QP, or of many as arrays, by name."""
    return {name: q[field] for name, field in _COUNTERS.items()}


def rtt_ps(q: Any) -> float:
    """The round trip as congestion control knows it: the base and a smoothed delay."""
    return int(q.base_rtt) + float(q.avg_delay)


def base_rtt_ps(q: Any) -> npt.NDArray[np.int64]:
    """T of many QPs (MRC 4.6)."""
    return np.asarray(q.base_rtt, np.int64)


def largest_rtts_ps(q: Any) -> npt.NDArray[np.int64]:
    """The largest recent round trip of each of many QPs."""
    rtts = np.maximum(np.asarray(q.rtt_largest), np.asarray(q.rtt_before))
    return np.asarray(rtts.max(axis=1), np.int64)


def rto_ps(q: Any) -> int:
    """The retransmission timeout (row 9)."""
    return int(q.rto)


def error_text(q: Any) -> str:
    """Why a QP is in ERROR, or ""."""
    return es.ERROR_TEXTS[int(q.error)] if q.error else ""


def books(st: Any, qi: int) -> list[tuple[str, Any, Any]]:
    """What a sender's record says, by name, and what follows from its window and its paths: each
    pair is equal, if all is right.
    """
    q = st.qp[qi]
    una, nxt = int(q.una), int(q.nxt)
    window = st.slot[place.slots(q)][np.arange(una, nxt) & int(q.slot_mask)]
    in_flight = window.bytes_nominal[window.fate == fate.SENT].sum(dtype=np.int64)
    return [
        ("bytes in flight", q.inflight, in_flight),
        ("packets that wait", q.lost, np.isin(window.fate, fate.WAITING).sum()),
        ("EVs in ASSUMED_BAD", q.n_bad, (st.ev[place.evs(q)].state == ASSUMED_BAD).sum()),
        ("PSN window kept (row 16)", una <= nxt <= una + int(q.mpr), True),
        ("window within its limits", bool(q.pkt <= q.cwnd <= q.max_wnd), True),
    ]
