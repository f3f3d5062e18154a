"""A scenario in the live world: the same file as for the simulator, real processes, same results.

`run_in_lab` brings up the fabric of `[fabric]` as a lab, starts an agent on each host with traffic
(`agent`), lets all of them begin at one instant and builds a `run.Result` from their reports.
"""

from __future__ import annotations

from openmrc.run.lab.run import run_in_lab

__all__ = [
    "account",
    "results",
    "run_in_lab",
    "spec",
]
