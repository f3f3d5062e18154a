"""Packets that cross to another shard: lists, by the shard that receives them.

`Net.outgoing` has two rows for each shard, used in alternate windows: packets that leave in a
window are taken in when the next one begins, by the thread that runs the receiving shard, and the
list is emptied when the one after that begins. No thread waits for another in between. A packet
keeps its index: shards share the records of packets, and each has its own list of free ones. The
lists are linked through `Net.after`, as those of events are (`events`).
"""

from __future__ import annotations

from openmrc.jit import inner

FIRST, LAST, COLUMNS = 0, 1, 2
NONE = -1


@inner
def leave(net, shard, n, at):
    """Send a packet to another shard, where it arrives at `at`, ps."""
    ctl = net.ctl[0]
    row = ctl.outbox + shard
    h = net.hop[n]
    h.at = at
    net.after[ctl.n_ports + n] = NONE
    if net.outgoing[row, FIRST] < 0:
        net.outgoing[row, FIRST] = n
    else:
        net.after[ctl.n_ports + net.outgoing[row, LAST]] = n
    net.outgoing[row, LAST] = n
    ctl.crosses_at = min(ctl.crosses_at, at)
