"""What the links of a run carried, as ports counted: in steps of time, and in all.

Values are by directed link: 2 x link upwards, 2 x link + 1 downwards (`links`), of the port that
sends there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from openmrc.fabric.model import LongArray
from openmrc.ops.mapper.page.links import numbers
from openmrc.ops.records import Record

CELLS_MAX = 2**19  # steps of time x directed links: 2 MB of text
FULL = 1000  # a share is in thousandths
TOTALS = {
    "packets sent": "packets_out",
    "trimmed, as queues were full": "trimmed_here",
    "dropped, as queues were full": "dropped",
    "damaged": "damaged",
    "missing at the other end": "gone",
}


def loads(record: Record) -> dict[str, Any] | None:
    """Return what links carried; None where nobody counted it."""
    rows = record.port_counts
    if rows is None or not len(rows):
        return None
    link, climbs = numbers(record.fabric)
    n = len(link)
    at = (2 * link + ~climbs)[rows["port"].to_numpy()]
    each = {words: np.bincount(at, rows[name].to_numpy(), n) for words, name in TOTALS.items()}
    counted = "packets_out"
    if not each["packets sent"].any():  # in a lab senders alone count
        counted = "packets"
        each["packets put on paths across it"] = np.bincount(at, rows[counted].to_numpy(), n)
    if not (carried := rows[counted].to_numpy()).any():
        return None
    ends_us, tick = np.unique(rows["until_us"].to_numpy(), return_inverse=True)
    joined = -(-len(ends_us) * n // CELLS_MAX)  # so many ticks become one step
    steps = -(-len(ends_us) // joined)
    found = np.bincount(tick // joined * n + at, carried, steps * n).reshape(steps, n)
    last = np.minimum(np.arange(1, steps + 1) * joined, len(ends_us)) - 1
    rate = found / np.diff(ends_us[last], prepend=0.0)[:, None]
    return {
        "ends_us": ends_us[last].tolist(),
        "share": np.rint(rate * FULL / rate.max()).astype(np.int64).tolist(),
        "of": "of the packets that the busiest link ever carried",
        "totals": {words: _whole(of) for words, of in each.items() if of.any()},
    }


def _whole(values: Any) -> list[int]:
    found: LongArray = np.asarray(values, np.int64)
    return list(found.tolist())
