"""From the arrays of a world to those of its shards: arrays that many read and one writes are
shared, of the rest each shard has its own.

`docs/simulator.md` says of each shared word why no two threads can disagree about it.
"""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress
from typing import Any

import numpy as np

from openmrc.engine import setup
from openmrc.engine import state as es
from openmrc.engine.packet import PACKET
from openmrc.fabric.queues import UNLIMITED
from openmrc.jit import apart, records
from openmrc.sim.net import cross, events, network
from openmrc.sim.net import state as ss
from openmrc.sim.shards.cut import Cut, Index
from openmrc.units import PS_BITS

PACKETS_AT_START = 4096
NARROWER = 2  # times narrower than what suits events that arrive in order


def split(
    whole: ss.Net, st: es.State, cut: Cut, entry: Index
) -> tuple[Any, list[ss.Net], list[es.State]]:
    """Return the control records of all shards, and each one's network and engine.

    `entry`: the shard that posts each entry of the workload. Nothing may have happened in `whole`.
    """
    n = cut.n
    whole.port.abroad = np.where(cut.port == cut.peer, 0, cut.peer + 1)
    controls = apart(n, ss.CONTROL)
    controls[:] = whole.ctl[0]
    whole = whole._replace(entry_shard=entry.astype(np.int8))
    shift, buckets = _wheel(whole, n)
    packets = max(len(whole.hop), n * (PACKETS_AT_START + 1))  # a spare for each, for exchanges
    carriers = packets if whole.ctl[0].by_usid else 1
    whole = whole._replace(
        hop=records(packets, ss.HOP),
        packet=records(packets, PACKET),
        after=np.zeros(int(whole.ctl[0].n_ports) + packets, np.int32),
        carrier=np.zeros((carriers, whole.carrier.shape[1]), np.uint8),
    )
    _small_pages(st.blame)  # each shard uses a few records, where its EVs begin
    open_entries = np.bincount(entry, minlength=n)
    nets, engines = [], []
    for i in range(n):
        ctl = controls[i : i + 1].view(np.recarray)
        net = whole._replace(
            ctl=ctl,
            bucket=records(buckets, ss.BUCKET),
            bucket_bits=np.zeros(max(buckets // 64, 1), np.uint64),
            bucket_summary=np.zeros(max(buckets // 4096, 1), np.uint64),
            heap=records(len(whole.heap), whole.heap.dtype),
            timeline=np.zeros_like(whole.timeline),
            rate=np.zeros_like(whole.rate),
            outgoing=np.zeros((2 * n, cross.COLUMNS), np.int32),
            tap=records(len(whole.tap), ss.TAP),
            tap_packet=records(len(whole.tap_packet), PACKET),
        )
        net.bucket.head = -1
        c = ctl[0]
        c.shift, c.bucket_mask = shift, buckets - 1
        c.n_packets = c.n_free = 0
        network.free_list(net, i * PACKETS_AT_START, (i + 1) * PACKETS_AT_START)
        c.shard, c.n_shards = i, n
        mine = np.flatnonzero(cut.nic == i)
        c.nic0, c.nic_end = int(mine[0]), int(mine[-1]) + 1
        of = st.nic[c.nic0 : c.nic_end]
        c.qp0, c.qp_end = int(of.qp0[0]), int(of.qp0[-1] + of.n_qps[-1])
        c.messages_open = int(open_entries[i]) + 1  # a shard does not end before the others do
        c.fault_at = int(whole.fault.at_ps[0]) if len(whole.fault) else es.NEVER
        nets.append(net)
        engines.append(setup.share(st, int(c.qp0)))
    return controls, nets, engines


def _small_pages(array: Any) -> None:
    """Ask for pages of the smallest size for an array of which little is used, here and there;
    NumPy asks for huge ones. Without support by the system nothing changes.
    """
    first = -(-array.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    size = array.ctypes.data + array.nbytes - first
    with suppress(AttributeError, OSError):
        if size > 0:
            madvise, how = ctypes.CDLL(None).madvise, mmap.MADV_NOHUGEPAGE
            madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), how)


def emptied(whole: ss.Net) -> ss.Net:
    """Return a network without events of its own, which happen in its shards: sums and what they
    share.
    """
    whole.ctl[0].n_packets = whole.ctl[0].n_free = 0
    return whole._replace(
        hop=records(1, ss.HOP),
        packet=records(1, PACKET),
        after=np.zeros(1, np.int32),
        bucket=records(64, ss.BUCKET),
        bucket_bits=np.zeros(1, np.uint64),
        bucket_summary=np.zeros(1, np.uint64),
        heap=records(1, whole.heap.dtype),
        carrier=np.zeros((1, whole.carrier.shape[1]), np.uint8),
    )


def _wheel(whole: ss.Net, n: int) -> tuple[int, int]:
    """Shift and number of buckets of a shard's wheel: it has a share of the ports. Buckets are
    narrow because packets from other shards arrive list by list, not in the order of their times.
    """
    c, kind = whole.ctl[0], whole.port_kind
    span_ps = int((c.bucket_mask + 1 - events.SPARE_BUCKETS) << c.shift)
    shortest_bytes = min(int(c.header_bytes.min()), int(c.head_bytes) or UNLIMITED)
    shortest_ps = int((shortest_bytes * PS_BITS // kind.rate_bps).min())
    return network.wheel(span_ps, shortest_ps, NARROWER * int(c.n_ports) // n)
