"""The live world: the same engine over real frames, in real time."""

__all__ = [
    "closing",
    "endpoint",
    "lab",
    "memory",
    "overlay",
    "relay",
    "switch",
    "syscalls",
]
