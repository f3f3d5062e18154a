"""Packets that go to another shard: lists, by the shard that takes them in.

`Net.outgoing` has two rows for each shard, one for every other window: what leaves in a window is
taken in when the next one begins, by whoever runs that shard, and its index here is given back when
the one after that begins. Nobody waits for anybody in between.
"""

from __future__ import annotations

from openmrc.jit import inlined, inner

FIRST, LAST, COUNT, COLUMNS = 0, 1, 2, 3
NONE = -1


@inner
def leave(net, shard, n, at):
    """A packet is on its way to another shard, where it arrives at `at`."""
    ctl = net.ctl[0]
    row = ctl.outbox + shard
    h = net.hop[n]
    h.at = at
    h.next = NONE
    if net.outgoing[row, FIRST] < 0:
        net.outgoing[row, FIRST] = n
        net.outgoing[row, COUNT] = 0
    else:
        net.hop[net.outgoing[row, LAST]].next = n
    net.outgoing[row, LAST] = n
    net.outgoing[row, COUNT] += 1
    ctl.crosses_at = min(ctl.crosses_at, at)


@inlined
def give_back(net, row):
    """Give back the indices of what left a window ago to one shard: the others have it by now."""
    if net.outgoing[row, FIRST] < 0:
        return
    ctl = net.ctl[0]
    net.hop[net.outgoing[row, LAST]].next = ctl.free_head if ctl.n_free > 0 else NONE
    ctl.free_head = net.outgoing[row, FIRST]
    ctl.n_free += net.outgoing[row, COUNT]
    ctl.gone += net.outgoing[row, COUNT]
    net.outgoing[row, FIRST] = NONE
    net.outgoing[row, COUNT] = 0
