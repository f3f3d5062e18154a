"""Packets that arrive at the responder of a pair."""

from __future__ import annotations

from typing import Any

from openmrc.engine import packet as pk
from tests.engine.pair import Pair


def data(pair: Pair, seq: int, **fields: int) -> list[Any]:
    """A one-PMTU packet of one long message arrives at NIC 1; what it answers."""
    region = pair.st.region[1]
    what = {
        "psn": pair.psn(seq),
        "va": int(region.va) + seq * 4096,
        "rkey": int(region.rkey),
        "dma_len": 400 * 4096,
        "payload_len": 4096,
        "ev": pair.ev(0, 0),
    }
    return pair.inject(1, pk.WRITE_MIDDLE, **(what | fields))
