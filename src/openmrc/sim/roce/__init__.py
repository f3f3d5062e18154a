"""RoCEv2: reliable connections over one path, DCQCN and priority flow control."""

__all__ = [
    "capture",
    "derive",
    "ecmp",
    "loop",
    "placement",
    "side",
    "transport",
]
