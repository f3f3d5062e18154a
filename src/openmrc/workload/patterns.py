"""The simple workloads: permutation, incast, one stream.

Sizes in bytes, all messages start at time 0. Wrong numbers raise `InputError` with their key.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.traffic.traffic import Traffic, make_traffic

LongArray = npt.NDArray[np.int64]


def permutation(n_nics: int, size: int, seed: int, channels: int = 1) -> Traffic:
    """Return a random permutation: every NIC sends `size` bytes to another, and receives as much.

    Drawn from `seed`, uniformly among those in which no NIC sends to itself. `channels` QPs carry
    equal parts of each transfer.
    """
    _check(n_nics, size, channels)
    draw = np.random.default_rng(seed)
    nics = np.arange(n_nics)
    dst = draw.permutation(n_nics)
    while (dst == nics).any():  # one in e = 2.7 draws has no fixed point
        dst = draw.permutation(n_nics)
    return make_traffic(
        "permutation",
        n_nics,
        qp_src=np.repeat(nics, channels),
        qp_dst=np.repeat(dst, channels),
        msg_qp=np.arange(n_nics * channels),
        msg_bytes=np.tile(parts(size, channels), n_nics),
    )


def incast(n_nics: int, n: int, size: int, target: int = 0, victim: bool = False) -> Traffic:
    """Return `n` NICs sending `size` bytes each to `target` at once.

    The senders are the NICs with the highest numbers, hence behind other T0s where the fabric has
    room. With `victim`, the next lower NIC sends as much to the target's neighbour `target ^ 1`,
    which is idle and on the same T0 where T0s have an even number of NICs; it is the last message.
    """
    _check(n_nics, size)
    if not 0 <= target < n_nics:
        raise InputError(f"workload.target: nic {target} does not exist; 0 to {n_nics - 1} do")
    neighbour = target ^ 1 if target ^ 1 < n_nics else target - 1
    busy = {target, neighbour} if victim else {target}
    free = [nic for nic in range(n_nics - 1, -1, -1) if nic not in busy]
    most = len(free) - victim
    if not 1 <= n <= most:
        raise InputError(f"workload.n: {n} senders; 1 to {most} fit into {n_nics} NICs")
    src = free[: n + victim]
    return make_traffic(
        "incast",
        n_nics,
        qp_src=src,
        qp_dst=[target] * n + [neighbour] * victim,
        msg_qp=np.arange(len(src)),
        msg_bytes=size,
    )


def stream(src: int, dst: int, size: int, n_nics: int | None = None) -> Traffic:
    """Return one message of `size` bytes from NIC `src` to NIC `dst`.

    Without `n_nics`, the workload has just the NICs up to the higher of the two.
    """
    n_nics = max(src, dst) + 1 if n_nics is None else n_nics
    _check(n_nics, size)
    for key, nic in (("src", src), ("dst", dst)):
        if not 0 <= nic < n_nics:
            raise InputError(f"workload.{key}: nic {nic} does not exist; 0 to {n_nics - 1} do")
    if src == dst:
        raise InputError(f"workload.dst: nic {dst} is the source too; name another")
    return make_traffic("stream", n_nics, [src], [dst], [0], size)


def parts(size: int, parts: int) -> LongArray:
    """Return `size` cut into `parts` that differ by one byte at most, the larger ones first."""
    return size // parts + (np.arange(parts) < size % parts).astype(np.int64)


def _check(n_nics: int, size: int, channels: int = 1) -> None:
    if n_nics < 2:
        raise InputError(f"fabric.nics: {n_nics} is too few; a workload needs at least 2")
    if size <= 0:
        raise InputError(f"workload.size: {size} B; at least 1 byte is needed")
    if not 1 <= channels <= size:
        raise InputError(f"workload.channels: {channels}; 1 to {size} (one per byte) is accepted")
