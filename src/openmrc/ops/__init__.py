"""What operators need from a fabric: how its switches are configured, which link is bad, since
when, and what it cost a job.

The modules that judge read no clock and no socket: probes, path events and recorded runs are passed
in as arrays.
"""

__all__ = [
    "causes",
    "command",
    "evs",
    "export",
    "mapper",
    "schedule",
    "telemetry",
]
