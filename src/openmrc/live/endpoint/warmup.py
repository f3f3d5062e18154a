"""Compiles everything that a live endpoint needs, reporting progress: also what Python calls of the
engine when a queue pair is opened and measured.
"""

from __future__ import annotations

from openmrc.engine import endpoint, setup
from openmrc.fabric.clos import multiplane
from openmrc.jit.warmup import once
from openmrc.live.endpoint import control, host, limits, loop


@once("live")
def warm_up() -> None:
    """Run one round of the loop: that compiles everything."""
    fabric = multiplane(2, 1, 10**9, 1, 2, 0, 0)
    one = host.Host(fabric, 0, [limits.Port(-1, bytes(6))], limits.Limits(qps=2), 1_000_000)
    one.start()
    one.call(lambda: one.open_qp(one.new_qp(0, 0), 1, 1, 0, 1, 1))
    one.call(lambda: endpoint.refresh_qp(one.st, one.st.qp[0], 0))
    one.call(lambda: one.ask([control.Question(1, 0)]))
    one.call(lambda: control.replace(one.ep, one.st, 0, [[0], [0]]))
    one.call(lambda: setup.derived_nscc(one.st, 10**9))
    one.call(lambda: loop.ask_size(one.ep, one.st, one.tx, one.headend, 0, 0, 1))
    one.close()
