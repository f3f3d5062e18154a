"""`mrc bench`: the speed of the simulator, and of live endpoints beside Linux's own transports."""

__all__ = [
    "live",
    "sim",
]
