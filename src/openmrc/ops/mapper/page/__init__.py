"""The operator's page: a fabric, its links by health, and what failed when, as one file."""

__all__ = [
    "data",
    "html",
    "links",
]
