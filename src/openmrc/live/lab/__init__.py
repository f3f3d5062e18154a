"""The lab: a fabric of network namespaces on one Linux machine, without root; it leaves no
trace.
"""

from __future__ import annotations

from openmrc.live.lab.lab import Lab, LabSpec, inside_lab, run_lab
from openmrc.live.lab.topology import Settings

__all__ = [
    "Lab",
    "LabSpec",
    "Settings",
    "commands",
    "control",
    "health",
    "hosts",
    "inside_lab",
    "isolation",
    "linux",
    "namespaces",
    "needs",
    "run_lab",
    "topology",
    "totals",
    "trimming",
]
