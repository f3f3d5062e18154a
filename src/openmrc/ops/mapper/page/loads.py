"""What the links of a run carried, as ports counted: in steps of time, and in all.

Values are by directed link: 2 x link upwards, 2 x link + 1 downwards (`links`), of the port that
sends there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from openmrc.ops.mapper.page.links import numbers
from openmrc.ops.records import Record
from openmrc.units import NS, PS_BITS

CELLS_MAX = 2**19  # steps of time x directed links: 2 MB of text
FULL = 1000  # a share is in thousandths
TOTALS = {
    "packets sent": "packets_out",
    "marked": "marked",
    "trimmed, as queues were full": "trimmed_here",
    "dropped, as queues were full": "dropped",
    "damaged": "damaged",
    "missing at the other end": "gone",
}
OF_RATE = "of its rate"
OF_BUSIEST = "of the packets that the busiest link ever carried"


def loads(record: Record) -> dict[str, Any] | None:
    """Return what links carried; None where nobody counted it."""
    rows, fabric = record.port_counts, record.fabric
    if rows is None or not len(rows):
        return None
    link, climbs = numbers(fabric)
    n, ports = len(link), rows["port"].to_numpy()
    at = (2 * link + ~climbs)[ports]
    each = {words: np.bincount(at, rows[name].to_numpy(), n) for words, name in TOTALS.items()}
    # What ports do not count, as in a lab, senders do.
    busy_ns, sent, told = (rows[name].to_numpy() for name in ("busy_ns", "packets_out", "packets"))
    if busy_ns.any():
        bytes_sent = busy_ns * (fabric.port_rate_bps[ports] * NS / PS_BITS)
        each["bytes sent"] = np.bincount(at, bytes_sent, n)
    elif not sent.any():
        each["packets put on paths across it"] = np.bincount(at, told, n)
    carried = next((one for one in (busy_ns / 1e3, sent, told) if one.any()), None)
    if carried is None:
        return None
    ends_us, tick = np.unique(rows["until_us"].to_numpy(), return_inverse=True)
    joined = -(-len(ends_us) * n // CELLS_MAX)  # so many ticks become one step
    steps = -(-len(ends_us) // joined)
    found = np.bincount(tick // joined * n + at, carried, steps * n).reshape(steps, n)
    last = np.minimum(np.arange(1, steps + 1) * joined, len(ends_us)) - 1
    rate = found / np.diff(ends_us[last], prepend=0.0)[:, None]
    share = np.minimum(rate, 1.0) if busy_ns.any() else rate / rate.max()
    return {
        "ends_us": ends_us[last].tolist(),
        "share": _whole(share * FULL),
        "of": OF_RATE if busy_ns.any() else OF_BUSIEST,
        "totals": {words: _whole(of) for words, of in each.items() if of.any()},
    }


def _whole(values: Any) -> Any:
    return np.rint(values).astype(np.int64).tolist()
