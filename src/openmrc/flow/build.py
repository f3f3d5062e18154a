"""From a workload to the arrays of the flow level."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from openmrc.engine import bits, setup
from openmrc.engine.state import NEVER
from openmrc.fabric.model import Fabric, LongArray
from openmrc.flow import state as fs
from openmrc.flow.health import Floats
from openmrc.flow.window import UNPACED
from openmrc.jit import records
from openmrc.sim.net import network
from openmrc.sim.roce.transport import RoceTransport
from openmrc.traffic.earliest import Cost
from openmrc.traffic.traffic import Traffic
from openmrc.units import PS_BITS
from openmrc.wire.framing import Framing, framing
from openmrc.wire.roce.framing import roce_framing

SEED_JITTER = 11  # purpose of a random stream, in addition to those of the packet level
RING_MAX = 8  # messages of a QP that stand in line; others wait as they do for a send queue


class Sizes(NamedTuple):
    """How the packets of a transport count, in bytes on the wire."""

    pmtu: int
    header_bytes: int  # of a data packet
    answer_bytes: int  # of an acknowledgement
    packets_an_answer: float  # data packets that one acknowledges; the last of a message is always
    room_packets: float  # that a QP may have under way


def sizes_of(transport: Any, room_packets: float = math.inf) -> Sizes:
    """Return how the packets of a transport count."""
    if isinstance(transport, RoceTransport):
        of_roce = roce_framing(transport.rules)
        return _sizes(transport.pmtu, of_roce, float(transport.ack_every), room_packets)
    an_answer = max(transport.sack_bytes / transport.pmtu, 1.0)
    return _sizes(transport.pmtu, framing(transport.rules, transport.srv6), an_answer, room_packets)


def _sizes(pmtu: int, frames: Framing, an_answer: float, room_packets: float) -> Sizes:
    return Sizes(pmtu, frames.data_bytes(0), frames.sack_bytes, an_answer, room_packets)


def fluid(
    fabric: Fabric,
    traffic: Traffic,
    ends: network.Ends,
    sizes: Sizes,
    cost: Cost,
    planes: int,
    n_pools: int,
    rate_bps: int,
    seed: int,
    late_ps: int,
    learns: bool,
) -> fs.Fluid:
    """The flows, lines and pools, all of them idle; `planes` is how many ports carry a message at
    once. The ways of flows and the bandwidth of pools are set later.
    """
    stripes = ends.bundle
    n_lines, n_flows = traffic.n_qps, traffic.n_qps * stripes
    counts = np.bincount(traffic.msg_qp, traffic.msg_count, max(n_lines, 1)).astype(np.int64)
    ring = np.array([setup.pow2_at_least(max(c, 1)) for c in range(RING_MAX + 1)], np.int64)
    ring = ring[np.minimum(counts[:n_lines], RING_MAX)]
    c = records(1, fs.CONTROL)
    c.stripes, c.pmtu, c.header_bytes = stripes, sizes.pmtu, sizes.header_bytes
    c.packet_ps = PS_BITS * (sizes.pmtu + sizes.header_bytes) / int(fabric.port_rate_bps[0])
    c.ports = planes
    c.room_bytes = sizes.room_packets * (sizes.pmtu + sizes.header_bytes)
    c.packet_bytes = sizes.pmtu + sizes.header_bytes
    c.jitter_ps, c.late_ps, c.learns = fabric.jitter_ps, late_ps, learns
    line = records(n_lines, fs.LINE)
    line.ring0, line.ring_mask = setup.rings(ring)
    line.flow0 = np.arange(n_lines) * stripes
    flow = records(n_flows, fs.FLOW)
    flow.timer_at = NEVER
    flow.line = np.repeat(np.arange(n_lines), stripes)
    flow.part = np.tile(np.arange(stripes), n_lines)
    flow.entry = fs.IDLE
    flow.burden = flow.crowd = flow.portion = flow.yields = flow.claim = 1
    flow.paced, flow.round_left = UNPACED, c.room_bytes
    flow.answers = np.repeat(_answers(traffic, sizes), stripes)
    entry = records(traffic.n_msgs, fs.ENTRY)
    entry.after_ps = after_ps(
        -(-traffic.msg_bytes // stripes), cost.behind, sizes, planes, rate_bps, stripes
    )
    entry.ack_ps = cost.ack
    entry.round_ps = cost.trail + cost.ack
    entry.links = 2 * fabric.uplinks(traffic.msg_src, traffic.msg_dst) + 2
    entry.packets = -(-traffic.msg_bytes // sizes.pmtu)
    entry.follow = _follow(fabric, traffic, sizes)
    pool = records(n_pools, fs.POOL)
    pool.head = -1
    nodes = max(n_flows, 1) * fs.WAY
    return fs.Fluid(
        c=c,
        flow=flow,
        line=line,
        ring=records(max(int(ring.sum()), 1), fs.MESSAGE),
        entry=entry,
        pool=pool,
        way=np.full((max(n_flows, 1), fs.WAY), -1, np.int32),
        faint=np.full((max(n_flows, 1), fs.BACK), -1, np.int32),
        behind=np.zeros(nodes, np.int32),
        before=np.zeros(nodes, np.int32),
        dirty=np.zeros(n_pools, np.int32),
        fresh=np.zeros(max(n_flows, 1), np.int32),
        met=np.zeros(max(n_flows, 1), np.int32),
        considered=np.zeros(n_pools, np.int32),
        touched=np.zeros(n_pools, np.int32),
        stream=bits.seed_streams(seed, SEED_JITTER, max(n_flows, 1)),
    )


def after_ps(
    part_bytes: LongArray,
    behind_ps: LongArray,
    sizes: Sizes,
    planes: int,
    rate_bps: int,
    stripes: int = 1,
) -> LongArray:
    """From when a message of so many equal parts is sent at an even rate until it is placed, ps.
    Packets are sent whole and one by one by each plane: first the whole ones of all parts, then the
    last ones, which do not overtake. `behind_ps` is the way of a last packet (`traffic.ideal`).
    """
    whole, last_bytes = np.divmod(part_bytes - 1, sizes.pmtu)
    bits_ps = PS_BITS / rate_bps
    last_ps = (last_bytes + 1 + sizes.header_bytes) * bits_ps
    whole_ps = (sizes.pmtu + sizes.header_bytes) * bits_ps
    n_whole = whole * stripes
    evenly = (n_whole * whole_ps + stripes * last_ps) / planes
    some, most = n_whole // planes, -(-n_whole // planes)
    sent = np.maximum(some * whole_ps + -(-stripes // planes) * last_ps, most * whole_ps)
    after: LongArray = (np.maximum(sent - np.ceil(evenly), 0) + behind_ps).astype(np.int64)
    return after


def _follow(fabric: Fabric, traffic: Traffic, sizes: Sizes) -> Floats:
    """How many packets of a message are due within the jitter of a link, all planes together."""
    packets = -(-traffic.msg_bytes // sizes.pmtu)
    packet_ps = PS_BITS * (sizes.pmtu + sizes.header_bytes) / int(fabric.port_rate_bps[0])
    follow: Floats = 1 + np.minimum(packets - 1, fabric.n_planes * fabric.jitter_ps / packet_ps)
    return follow


def _answers(traffic: Traffic, sizes: Sizes) -> Floats:
    """By QP, the bytes of acknowledgements for each byte sent; no packet has two."""
    packets = traffic.packets(sizes.pmtu).astype(np.float64)
    answers = np.minimum(packets / sizes.packets_an_answer + traffic.msg_count, packets)
    wire = traffic.msg_total_bytes + packets * sizes.header_bytes
    of = [np.bincount(traffic.msg_qp, column, traffic.n_qps) for column in (answers, wire)]
    ratio: Floats = of[0] * sizes.answer_bytes / np.maximum(of[1], 1)
    return ratio
