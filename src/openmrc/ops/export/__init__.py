"""`mrc switches`: the boot configuration of every switch, from the fabric of one scenario file."""

__all__ = [
    "command",
]
