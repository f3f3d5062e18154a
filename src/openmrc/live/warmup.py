"""Compile everything that a live endpoint needs, saying how far it is."""

from __future__ import annotations

from collections.abc import Callable

from openmrc.compiling import reported
from openmrc.fabric.clos import multiplane
from openmrc.live import host, loop


def compile_all(report: Callable[[str, int, int], None]) -> None:
    """Have the loop take one look around: that compiles all there is."""
    fabric = multiplane(2, 1, 10**9, 1, 2, 0, 0)
    with reported(report):
        one = host.Host(fabric, 0, [host.Port(-1, bytes(6))], host.Limits(qps=2), 1_000_000)
        one.start()
        one.call(lambda: loop.end_qp(one.ep, one.st, one.new_qp(0, 0)))
        one.call(lambda: loop.ask_echo(one.ep, one.st, one.tx, one.speller, 1, 0, 0))
        one.call(lambda: loop.ask_size(one.ep, one.st, one.tx, one.speller, 0, 0, 0, 0))
        one.close()
