"""Random work in a loop, with checks: simulated worlds, and live devices that are killed."""

__all__ = [
    "command",
]
