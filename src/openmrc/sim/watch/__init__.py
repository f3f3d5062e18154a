"""Observation of a running world: samples, captures, and invariants."""

__all__ = [
    "books",
    "capture",
    "forms",
    "intervals",
    "ledger",
    "reader",
    "sampler",
    "samples",
    "side",
    "watched",
]
