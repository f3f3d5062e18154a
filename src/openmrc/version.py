"""The version of openmrc, by itself: what writes it into a file imports nothing else."""

__version__ = "0.1.0"
