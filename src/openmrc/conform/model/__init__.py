"""A model of both ends of a queue pair: what a target must say, by all that was done to it."""

__all__ = [
    "between",
    "cutting",
    "peer",
    "received",
    "watch",
]
