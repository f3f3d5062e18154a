"""Which plane reaches which, asked when a plane does not answer while a job is set up.

Planes are separate networks: plane k of one host must reach plane k of the other. Where two hosts
name their interfaces in different orders, or cables are exchanged, it reaches another one. So every
rank sends words by UDP, without MRC, from each of its planes to all planes of its peers, and tells
the others what came.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Mapping, Sequence, Set
from contextlib import ExitStack
from typing import NamedTuple

from openmrc.live.endpoint.planes import Plane, bound
from openmrc.say import counted
from openmrc.torch.shared import Store
from openmrc.torch.wire import INTERFACES_VARIABLE

WORD = struct.Struct("!16sII")  # the job's, the rank and the plane that send it
GAP_S, ROUNDS = 0.05, 6  # the first may be lost while addresses are resolved


class Came(NamedTuple):
    """A word that arrived: `plane` of rank `of` reaches plane `there` of rank `to`."""

    of: int
    plane: int
    to: int
    there: int


def asked(
    store: Store, rank: int, peers: Sequence[int], planes: Sequence[Plane], job: bytes
) -> list[Came]:
    """All words that arrived anywhere. All ranks of a job call this together."""
    with ExitStack() as held:
        ends = [held.enter_context(bound(plane, 0)) for plane in planes]
        own = [one.getsockname()[:2] for one in ends]
        store.set(f"crossing/{rank}", json.dumps(own))
        there = {peer: json.loads(store.get(f"crossing/{peer}")) for peer in peers}
        came: set[Came] = set()
        for _ in range(ROUNDS):
            for plane, one in enumerate(ends):
                _send(one, WORD.pack(job[:16], rank, plane), there)
            time.sleep(GAP_S)
            for plane, one in enumerate(ends):
                came |= {Came(of, k, rank, plane) for of, k in _heard(one, job[:16])}
    store.set(f"crossed/{rank}", json.dumps(sorted(came)))
    found = sorted(came)
    for peer in peers:
        found += [Came(*one) for one in json.loads(store.get(f"crossed/{peer}"))]
    return sorted(found)


def _send(one: socket.socket, word: bytes, there: Mapping[int, Sequence[Sequence[object]]]) -> None:
    for ends in there.values():
        for address, port in ends:
            with contextlib.suppress(OSError):  # no way from this plane
                one.sendto(word, (address, port))


def _heard(one: socket.socket, job: bytes) -> list[tuple[int, int]]:
    """The rank and the plane of each word of this job that has come."""
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            word = one.recv(WORD.size + 1)
            if len(word) == WORD.size and word[:16] == job:
                _, rank, plane = WORD.unpack(word)
                found.append((rank, plane))
    return found


def judged(
    silent: Mapping[tuple[int, int], Set[int]],
    came: Sequence[Came],
    n_planes: int,
    ranks: Sequence[int],
) -> tuple[str, list[str]]:
    """Of planes that do not answer, by pair of ranks: why the job cannot be ("" if it can), and
    lines about those that it can do without. `ranks[i]` is the name of rank i.
    """
    straight = {(one.of, one.plane, one.to) for one in came if one.plane == one.there}
    for one in came:
        if one.plane != one.there and (one.of, one.plane, one.to) not in straight:
            of, to = ranks[one.of], ranks[one.to]
            return (
                f"planes are crossed: plane {one.plane} of rank {of} reaches plane {one.there} of"
                f" rank {to}, not its plane {one.plane}: name the interfaces of both hosts in the"
                f" same order ({INTERFACES_VARIABLE}), or exchange the cables"
            ), []
    lines = []
    for (a, b), planes in silent.items():
        if not planes:
            continue
        is_open = all({(a, k, b), (b, k, a)} <= straight for k in planes)
        why = "a firewall drops MRC's UDP port" if is_open else "down, or cut"
        if len(planes) == n_planes:
            why = why if is_open else f"{why}, or a firewall drops UDP packets"
            return f"no plane between rank {ranks[a]} and rank {ranks[b]} answers: {why}", []
        which = counted(len(planes), "plane").partition(" ")[2]
        listed = ", ".join(map(str, sorted(planes)))
        between = f"between rank {ranks[a]} and rank {ranks[b]}"
        lines.append(f"no answer on {which} {listed} {between}: {why}")
    return "", lines
