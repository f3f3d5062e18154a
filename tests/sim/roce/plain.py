"""An incast with marks, CNPs and pauses, as JSON: `python -m tests.sim.roce.plain`.

With NUMBA_DISABLE_JIT=1 all of it is plain Python; what both say must be the same.
"""

from __future__ import annotations

import hashlib
import json

from openmrc.sim.roce.profiles import PROFILES, FlowControl
from tests.sim.roce.incast import incast

US = 1_000_000


def main() -> None:
    """Print what came of it, per profile."""
    found = {}
    for name, profile in PROFILES.items():
        o = incast(
            profile, [0, 20 * US, 40 * US, 60 * US], 400 * US, rate_bps=100_000_000_000,
            control=FlowControl(xoff_bytes=120_000),
        )  # fmt: skip
        found[name] = {
            "sent": o.senders.sent.tolist(),
            "cnps": o.limiters.cnps.tolist(),
            "pauses": o.links.pauses.tolist(),
            "marked": int(o.world.marked),
            "wrong": int(o.world.wrong),
            "records": hashlib.sha256(
                b"".join(a.tobytes() for a in (o.limiters, o.links, o.samples))
            ).hexdigest(),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
