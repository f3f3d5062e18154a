"""Observation of a running world: samples, captures, and invariants."""
