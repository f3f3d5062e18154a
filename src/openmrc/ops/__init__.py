"""What operators ask of a fabric: how its switches are configured, which link is bad, since when,
and what it cost a job.

Nothing that judges reads a clock or a socket: probes, events of paths and recorded runs come in as
arrays.
"""
