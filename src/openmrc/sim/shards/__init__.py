"""A fabric cut into shards, which threads run in parallel: bit for bit the same results."""

__all__ = [
    "crew",
    "cut",
    "split",
    "windows",
]
