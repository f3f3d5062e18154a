"""The switch of the lab: queues, trimming, marks and faults on real frames."""

__all__ = [
    "state",
    "switches",
]
