"""Chakra execution traces as workloads."""

__all__ = [
    "collectives",
    "trace",
]
