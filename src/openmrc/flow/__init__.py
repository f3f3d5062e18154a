"""The flow level: the same scenarios as rates of flows instead of packets (docs/flow.md)."""

__all__ = [
    "capacity",
    "health",
    "steps",
    "warmup",
    "world",
]
