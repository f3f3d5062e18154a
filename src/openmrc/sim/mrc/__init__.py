"""MRC in the simulator: its NIC, event loop, faults and captures."""

__all__ = [
    "build",
    "capture",
    "derive",
    "loop",
    "policies",
    "transport",
]
