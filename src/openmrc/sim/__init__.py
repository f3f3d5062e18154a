"""The simulator: the engine in virtual time, on a fabric simulated packet by packet."""

__all__ = [
    "kinds",
    "mrc",
    "net",
    "roce",
    "shards",
    "told",
    "warmup",
    "watch",
    "world",
]
