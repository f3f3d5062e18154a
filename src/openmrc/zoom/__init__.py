"""A moment of a run at the flow level, or of a day, packet by packet (docs/zoom.md)."""

__all__ = [
    "command",
]
