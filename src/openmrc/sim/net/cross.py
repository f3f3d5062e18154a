"""Packets that cross to another shard: lists, by the shard that receives them.

`Net.outgoing` has two rows for each shard, used in alternate windows: packets that leave in a
window are taken in when the next one begins, by the thread that runs the receiving shard, and the
list is emptied when the one after that begins. No thread waits for another in between. A packet
keeps its index: shards share the records of packets, and each has its own list of free ones. The
lists are linked through `Net.after`, as those of events are (`events`).

A list consists of several strands, which its packets join in turn. While the reader takes a packet
of each strand in turn, the one after it on the same strand is fetched from memory: along a single
chain each would be known only when the one before had arrived.
"""

from __future__ import annotations

from openmrc.jit import inner

STRANDS = 16  # of a list; a power of two
COUNT, FIRST, LAST = 0, 1, 1 + STRANDS  # columns: packets; first and last one of each strand
COLUMNS = LAST + STRANDS


@inner
def leave(net, shard, n, at):
    """Send a packet to another shard, where it arrives at `at`, ps."""
    ctl = net.ctl[0]
    row = ctl.outbox + shard
    net.hop[n].at = at
    count = int(net.outgoing[row, COUNT])
    strand = count & (STRANDS - 1)
    if count < STRANDS:
        net.outgoing[row, FIRST + strand] = n
    else:
        net.after[ctl.n_ports + net.outgoing[row, LAST + strand]] = n
    net.outgoing[row, LAST + strand] = n
    net.outgoing[row, COUNT] = count + 1
    ctl.crosses_at = min(ctl.crosses_at, at)
