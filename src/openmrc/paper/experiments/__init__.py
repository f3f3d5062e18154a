"""One file per experiment, or family of experiments: what was published, what is run, the
verdict.
"""

__all__ = [
    "adaptive",
    "all_reduce",
    "all_to_all",
    "exchange",
    "failures",
    "flaps",
    "hosts",
    "incast",
    "lossy",
    "ports",
    "racks",
]
