"""Packets that go to another shard: lists, by the shard that takes them in.

`Net.outgoing` has two rows for each shard, one for every other window: what leaves in a window is
taken in when the next one begins, by whoever runs that shard, and the list is begun anew when the
one after that begins. Nobody waits for anybody in between. A packet keeps its index: shards have
the records of packets in common, and each a list of its own of those that are free.
"""

from __future__ import annotations

from openmrc.jit import inner

FIRST, LAST, COLUMNS = 0, 1, 2
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
    else:
        net.hop[net.outgoing[row, LAST]].next = n
    net.outgoing[row, LAST] = n
    ctl.crosses_at = min(ctl.crosses_at, at)
