"""What broke, by one model: components, observations, and the most probable set of faults."""

__all__ = [
    "findings",
]
