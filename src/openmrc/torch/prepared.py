"""What the first job of a version compiles: before any of its timeouts starts to count.

A host that must compile says so, and the ranks of others wait for it, longer than their group's
timeout if need be.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from openmrc.errors import OpenMrcError
from openmrc.jit.warmup import announcement, is_cached, once, warm_up
from openmrc.live.endpoint.warmup import warm_up as live_endpoint
from openmrc.say import say
from openmrc.torch import kernels
from openmrc.torch.shared import Store

COMPILES_S = 1200.0  # for a host that compiles: a minute on an idle one
SUMS = ((kernels.add, "f4 f8 i4 i8 u1"), (kernels.add_bf16, "u2"), (kernels.add_f16, "u2"))


@once("torch")
def reductions() -> None:
    """Compile the sums of the types that models have; others are compiled when first asked for."""
    for kernel, types in SUMS:
        for name in types.split():
            kernel(np.zeros(1, name), np.zeros(1, name))


def prepare(store: Store, rank: int, hosts: Sequence[object], packets: bool) -> None:
    """Compile what this rank's host lacks, and wait for others that compile. `hosts[r]` is the host
    of rank r, whose first rank says so; `packets`: ranks are reached by MRC's packets.
    """
    worlds = [reductions, *([live_endpoint] if packets else [])]
    missing = [each for each in worlds if not is_cached(each.world)]
    store.set(f"compiles/{rank}", "yes" if missing else "")
    if missing:
        speaks = hosts.index(hosts[rank]) == rank
        what = "endpoints and reductions" if live_endpoint in missing else "reductions"
        takes = "about a minute" if live_endpoint in missing else "some seconds"
        if speaks:
            say(announcement(what, takes))
        took_s = warm_up(*missing)
        if speaks:
            say(f"mrc: rank {rank}: compiled in {took_s:.0f} s")
        store.set(f"compiled/{rank}", "")
    for peer in range(len(hosts)):
        if peer != rank and store.get(f"compiles/{peer}"):
            _wait(store, peer)


def _wait(store: Store, peer: int) -> None:
    """Wait for a rank that compiles; the store's own timeout is the group's."""
    until = time.monotonic() + COMPILES_S
    while True:
        try:
            store.get(f"compiled/{peer}")
            return
        except RuntimeError as error:  # torch's, of a store whose timeout has passed
            if time.monotonic() >= until:
                raise OpenMrcError(
                    f"rank {peer} has not compiled openmrc within {COMPILES_S:g} s: run"
                    " `mrc doctor --torch` there first"
                ) from error
