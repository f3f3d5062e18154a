"""The `mrc` command."""

from __future__ import annotations

from openmrc.cli.command import main

__all__ = ["main"]
