"""The lab half of `mrc bench live`: openmrc beside Linux's TCP and MPTCP in one rootless lab.

Everything crosses the same four rate-limited planes, the same switches and the same MTU, one after
the other in every round, and planes are cut in the middle, silently, while it runs.
"""

__all__ = [
    "measure",
    "words",
]
