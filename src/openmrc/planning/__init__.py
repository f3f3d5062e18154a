"""A fabric before it is built: `mrc plan`, arithmetic without a simulation."""

__all__ = [
    "assumptions",
    "collisions",
    "command",
    "reliability",
    "restarts",
    "sizing",
    "table",
]
