"""A day of a training job, with all failures in it (docs/day.md)."""

__all__ = [
    "command",
    "day",
    "failures",
    "life",
]
