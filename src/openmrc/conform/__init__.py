"""The conformance kit: rules of MRC as scripted exchanges that test an implementation."""

__all__ = [
    "command",
]
