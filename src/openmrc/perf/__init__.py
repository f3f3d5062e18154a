"""`mrc perf`: bandwidth and latency between two devices, as perftest's users know them."""

__all__ = [
    "command",
]
