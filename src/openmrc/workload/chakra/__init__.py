"""Chakra execution traces as workloads."""
