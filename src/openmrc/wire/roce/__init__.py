"""RoCEv2 on the wire, and the pause frames of its networks."""

__all__ = [
    "codec",
    "framing",
    "layout",
    "lines",
    "opcodes",
    "pause",
    "summary",
    "view",
]
