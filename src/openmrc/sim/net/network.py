"""The network's arrays, the same for every transport: ports, switches, NICs, faults, and the
messages that will cross them.

Every traffic QP has two ends, a sender and a receiver, each a QP record of the engine; the ends are
ordered by NIC. Each transport adds its own arrays: `mrc.build`, `roce.build`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.engine import bits, setup
from openmrc.engine import state as es
from openmrc.engine.packet import PACKET
from openmrc.engine.parameters import PLANES_MAX
from openmrc.engine.setup import pow2_at_least
from openmrc.errors import InputError
from openmrc.fabric.actions import EVENT, PORT_DENY, PORT_RATE, FaultSchedule
from openmrc.fabric.model import CUT_THROUGH_BYTES, Fabric
from openmrc.fabric.queues import UNLIMITED, Bounds, Limits, slowed
from openmrc.jit import heap, records
from openmrc.sim.net import cross, events
from openmrc.sim.net import state as ss
from openmrc.sim.net.parts import Parts
from openmrc.traffic.traffic import IntArray, Traffic
from openmrc.units import PS_BITS
from openmrc.wire import srv6
from openmrc.wire.framing import Framing

SEND_QUEUE_MAX = 64  # messages a QP holds at once; the others wait in the world
TIMELINE_BINS = 4096
TIMELINE_BIN_PS = 10_000_000  # 10 us: fine enough for a dip of a few round trips
RATES_MAX = 64  # flows, or jobs, with a rate of their own: 32 KiB each
QPNS = 1 << 24
NO_TIME = -1
# Room in the heap for what series may release between two checks: each of the 64 events would have
# to complete a send queue full of immediates at once.
SERIES_RELEASES = 64 * SEND_QUEUE_MAX
BUCKET_SHIFT_MAX = 30  # a time within a bucket is an int32
PORT_KINDS_MAX = 1 << 15  # what a port's two bytes can name
# Packets have as many records as may be in flight, up to this: untouched records take address space
# but no memory, and nothing is copied when more are needed.
PACKETS_RESERVED_MAX = 1 << 25
FEW = 16  # distinct values of a column, up to which they are searched one by one
PORTS_OF_AN_EVENT = PLANES_MAX  # that send: of one NIC at most, except after rerouting

# purposes of random streams: each component draws from its own
SEED_QPS, SEED_NET, SEED_PATHS, SEED_NAMES, SEED_SALTS = range(5)

Index = npt.NDArray[np.int64]


class Ends:
    """The QP records: which traffic QP and which role each has, ordered by NIC.

    A traffic QP may stand for a bundle of `bundle` QPs; the records of one side are contiguous.
    """

    def __init__(self, traffic: Traffic, bundle: int = 1) -> None:
        n = traffic.n_qps * bundle
        self.bundle = bundle
        ends = (np.repeat(traffic.qp_src, bundle), np.repeat(traffic.qp_dst, bundle))
        nic = np.concatenate(ends).astype(np.int64)
        order = np.argsort(nic, kind="stable")
        place = np.empty(2 * n, np.int64)
        place[order] = np.arange(2 * n)
        self.n = 2 * n
        self.nic = nic[order]
        pair = order % n if n else order
        self.traffic_qp = pair // bundle
        self.sends = order < n
        self.sender = place[:n]  # [traffic QP, or QP of a bundle] -> record
        self.receiver = place[n:]
        self.other = np.where(self.sends, self.receiver[pair], self.sender[pair])


def rings_of(traffic: Traffic) -> Index:
    """Messages that the send queue of each QP of the workload holds, a power of two."""
    counts = np.bincount(traffic.msg_qp, traffic.msg_count, traffic.n_qps).astype(np.int64)
    ring = np.array([pow2_at_least(c) for c in range(SEND_QUEUE_MAX + 1)], np.int64)
    return ring[np.minimum(counts, SEND_QUEUE_MAX)]


def place_qps(st: es.State, ends: Ends, names: np.random.Generator) -> None:
    """Enter the QPs into the engine's state, by NIC; draw their first PSNs."""
    psn = names.integers(0, QPNS, ends.n)
    setup.identify(
        st.qp,
        nic=ends.nic,
        peer_nic=ends.nic[ends.other],
        first_psn=psn,
        peer_psn=psn[ends.other],
    )
    n_nics = len(st.nic)
    st.nic.qp0 = np.searchsorted(ends.nic, np.arange(n_nics))
    st.nic.n_qps = np.bincount(ends.nic, minlength=n_nics)


def heap_reserve(traffic: Traffic) -> int:
    """Entries of the heap that the workload's releases may take between two checks."""
    series = bool((traffic.msg_count > 1).any())
    return traffic.n_entries + 1024 + int(series) * SERIES_RELEASES


def columns_of(traffic: Traffic) -> tuple[int, IntArray]:
    """How many rates are kept over time, and the column of each entry's rate: one for each flow; if
    these are too many, for each job; else none.
    """
    if traffic.n_msgs <= RATES_MAX:
        return traffic.n_msgs, np.arange(max(traffic.n_msgs, 1), dtype=np.int32)
    if 0 < len(traffic.jobs) <= RATES_MAX:
        return len(traffic.jobs), traffic.msg_job.astype(np.int32)
    return 0, np.zeros(1, np.int32)


def new_net(
    parts: Parts,
    bounds: Bounds,
    ends: Ends,
    st: es.State,
    *,
    sizes: Framing,
    longest_bytes: int,
    pmtu: int,
    packets: int,
    heap_entries: int,
    reserve: int,
) -> ss.Net:
    """The arrays of a network, without packets: call `free_list` next.

    `sizes` are those of frames and `longest_bytes` that of the longest; `packets` is how many may
    be in flight; `heap_entries` the length of the heap, without those of series, of which `reserve`
    are free whenever the loop continues. Taps, carriers, uSIDs and units of payload, which not
    every transport has, are empty or have one record.
    """
    fabric, traffic = parts.fabric, parts.traffic
    n_ports = fabric.n_ports
    packets = min(packets, PACKETS_RESERVED_MAX)
    port, kind, health = ports_of(fabric, bounds.limits)
    fault, kind = faults_of(parts.schedule, port, kind, bounds)
    longest_ps = int((kind.delay_ps + longest_bytes * PS_BITS // kind.rate_bps).max())
    span_ps = longest_ps + fabric.jitter_ps + 1
    head_bytes = CUT_THROUGH_BYTES if fabric.cut_through else 0
    shortest_bytes = min(*sizes.header_bytes, head_bytes or UNLIMITED)
    shortest_ps = int((shortest_bytes * PS_BITS // kind.rate_bps).min())
    shift, buckets = wheel(span_ps, shortest_ps, n_ports)
    net = net_of_messages(traffic, ends, heap_entries, reserve)
    net = net._replace(
        hop=records(packets, ss.HOP),
        packet=records(packets, PACKET),
        port=port,
        port_kind=kind,
        health=health,
        tally=records(n_ports, ss.TALLY),
        last_at=np.zeros(n_ports if fabric.jitter_ps else 1, np.int64),
        switch=switches_of(fabric, parts.seed),
        after=np.zeros(n_ports + packets, np.int32),
        bucket=records(buckets, ss.BUCKET),
        bucket_bits=np.zeros(max(buckets // 64, 1), np.uint64),
        bucket_summary=np.zeros(max(buckets // 4096, 1), np.uint64),
        nic=link_nics(fabric),
        round=np.full((fabric.n_nics * fabric.n_planes, 2), -1, np.int32),
        behind=np.full((ends.n, fabric.n_planes), -1, np.int32),
        fault=fault,
        groups=groups_of(parts.schedule),
        stream=bits.seed_streams(parts.seed, SEED_NET, n_ports),
        tap=records(0, ss.TAP),
        tap_packet=records(0, PACKET),
    )
    net.bucket.head = -1
    c = net.ctl[0]
    c.header_bytes[:] = sizes.header_bytes
    c.shift = shift
    c.bucket_mask = buckets - 1
    c.open_head = -1
    c.n_ports = n_ports
    c.n_nic_ports = fabric.n_nics * fabric.n_planes
    c.n_planes = fabric.n_planes
    c.pmtu = pmtu
    c.head_bytes = head_bytes
    c.jitter_ps = fabric.jitter_ps
    c.fault_at = es.NEVER
    c.first_fault_drop_at = NO_TIME
    c.nic_end = fabric.n_nics
    c.fault_no = ss.NONE
    c.crosses_at = es.NEVER
    name_qps(st, c, ends, parts.seed)
    return net


def net_of_messages(traffic: Traffic, ends: Ends, heap_entries: int, reserve: int) -> ss.Net:
    """A network's records of its messages; of all that carries them one record, or none.

    `heap_entries` is the length of the heap, without those of series, of which `reserve` are free
    whenever the loop continues.
    """
    message, release = messages_of(traffic, ends)
    series = series_of(traffic)
    lets = int(series.n_let.sum(dtype=np.int64))
    rates, column = columns_of(traffic)
    tables, headend = srv6.nothing()
    net = ss.Net(
        ctl=records(1, ss.CONTROL),
        hop=records(1, ss.HOP),
        packet=records(1, PACKET),
        port=records(1, ss.PORT),
        port_kind=records(1, ss.PORT_KIND),
        health=records(1, ss.HEALTH),
        tally=records(1, ss.TALLY),
        last_at=np.zeros(1, np.int64),
        switch=records(1, ss.SWITCH),
        after=np.zeros(1, np.int32),
        bucket=records(1, ss.BUCKET),
        bucket_bits=np.zeros(1, np.uint64),
        bucket_summary=np.zeros(1, np.uint64),
        heap=records(heap_entries + lets, heap.ENTRY),
        qp=link_qps(traffic, ends),
        nic=records(1, ss.LINK_NIC),
        round=np.full((1, 2), -1, np.int32),
        behind=np.full((1, 1), -1, np.int32),
        message=message,
        series=series,
        core_free_at=cores_of(traffic),
        roster=np.argsort(traffic.msg_qp, kind="stable").astype(np.int32),
        release=release,
        unit=np.zeros(1, np.uint16),
        fault=records(0, ss.FAULT),
        groups=np.zeros(0, np.uint16),
        timeline=np.zeros((TIMELINE_BINS, ss.BIN_COLUMNS), np.int64),
        rate=np.zeros((TIMELINE_BINS, rates), np.int64),
        column=column,
        stream=np.zeros(1, np.uint64),
        outgoing=np.zeros((2, cross.COLUMNS), np.int32),
        entry_shard=np.zeros(1, np.int8),
        tap=records(0, ss.TAP),
        tap_packet=records(0, PACKET),
        carrier=np.zeros((1, srv6.ADDRESS_BYTES), np.uint8),
        usid_switch=tables.switch,
        usid_slots=tables.slots,
        usid_scheme=headend.scheme,
        usid_nic=headend.nic,
        routing=records(1, ss.ROUTING),
        route=records(1, ss.ROUTE),
        change=records(0, ss.CHANGE),
        balance=records(1, ss.BALANCE),
        calls=records(1, ss.CALLS),
        shelf=records(1, ss.SHELF),
        ranked=np.zeros((1, 1), np.int16),
        n_ranked=np.zeros(1, np.int16),
        bound=np.zeros((1, 1), np.int32),
        turn=np.zeros(1, np.int64),
    )
    c = net.ctl[0]
    c.bin_ps = TIMELINE_BIN_PS
    c.placed_at = NO_TIME
    c.messages_open = traffic.n_entries
    c.ends_on_error = traffic.ends_on_error
    c.reserve = reserve
    c.n_shards = 1
    c.qp_end = ends.n
    c.failed_qp = ss.NONE
    c.lost_entry = ss.NONE
    return net


def with_taps(net: ss.Net, ports: Index, reserve: int) -> ss.Net:
    """Return the network with taps at these directed ports, if any; they record at most `reserve`
    packets between two checks of the room.
    """
    if not len(ports):
        return net
    net.port.tapped[ports] = 1
    net.ctl[0].tap_reserve = reserve
    return net._replace(tap=records(2 * reserve, ss.TAP), tap_packet=records(2 * reserve, PACKET))


def free_list(net: ss.Net, first: int, end: int) -> None:
    """Put the packet indices `first .. end - 1` at the head of the free list."""
    c = net.ctl[0]
    net.hop.next[first:end] = np.arange(first + 1, end + 1)
    net.hop.next[end - 1] = c.free_head if c.n_free else -1
    c.free_head = first
    c.n_free += end - first
    c.n_packets += end - first


def name_qps(st: es.State, c: Any, ends: Ends, seed: int) -> None:
    """Draw QPNs: `offset + index x factor` modulo 2^24, so that the record follows from the number
    (row 27).
    """
    if ends.n > QPNS // 2:
        raise InputError(
            f"workload: {ends.n // 2} queue pairs; at most {QPNS // 4} can be numbered"
        )
    rng = np.random.default_rng([seed, SEED_NAMES, 1])
    factor = int(rng.integers(0, QPNS // 2)) * 2 + 1
    numbers = np.arange(ends.n, dtype=np.int64) * factor % QPNS
    while True:  # MRC 1.7: 0, 1 and 2 are reserved
        offset = int(rng.integers(0, QPNS))
        qpn = (numbers + offset) % QPNS
        if not (qpn < 3).any():
            break
    setup.identify(st.qp, qpn=qpn, peer_qpn=qpn[ends.other])
    c.qpn_offset = offset
    c.qpn_inverse = pow(factor, -1, QPNS)


def wheel(span_ps: int, shortest_ps: int, n_ports: int) -> tuple[int, int]:
    """Bucket width (as a shift) and number of buckets: about two per port, no wider than the
    transmission of the shortest packet.
    """
    shift = min(max((span_ps // max(2 * n_ports, 256)).bit_length() - 1, 4), BUCKET_SHIFT_MAX)
    while shift > 4 and (1 << shift) > shortest_ps:
        shift -= 1
    buckets = max(pow2_at_least((span_ps >> shift) + events.SPARE_BUCKETS), 64)
    return shift, buckets


def ports_of(fabric: Fabric, limits: Limits) -> tuple[Any, Any, Any]:
    """The ports, their kinds, and their health."""
    into_switch = fabric.port_peer_switch >= 0
    column = {
        "rate_bps": fabric.port_rate_bps,
        "byte_ps": byte_ps(fabric.port_rate_bps),
        "delay_ps": fabric.hop_delays_ps(),
        **limits._asdict(),
        "last_hop": fabric.port_last_hop,
    }
    one_of_each, which = kinds_of([column[name] for name in ss.PORT_KIND.names or ()])
    kind = records(len(one_of_each), ss.PORT_KIND)
    for name, of_ports in column.items():
        kind[name] = of_ports[one_of_each]
    port = records(fabric.n_ports, ss.PORT)
    port.kind = which
    port.peer = np.where(into_switch, fabric.port_peer_switch, -1 - fabric.port_peer_nic)
    port.head = -1
    port.tail = -1
    port.up = 1
    port.faulty = fabric.jitter_ps > 0
    return port, kind, records(fabric.n_ports, ss.HEALTH)


def byte_ps(rate_bps: Index) -> Index:
    """How long a byte takes at these rates, ps; 0 where that is no whole number."""
    return np.where(PS_BITS % rate_bps == 0, PS_BITS // rate_bps, 0)


def kinds_of(columns: Sequence[npt.NDArray[Any]]) -> tuple[Index, Index]:
    """A row of each kind, kinds in the order of their values, and the kind of every row.

    Millions of rows are of a handful of kinds: finding the values of a column and looking each one
    up among them takes a tenth of the time of sorting the rows.
    """
    n = len(columns[0])
    which = np.zeros(n, np.int64)
    for column in columns:
        values = _values(column)
        if len(values) > 1:
            which = which * len(values) + np.searchsorted(values, column)
            which = np.searchsorted(_values(which), which)
    one_of_each = np.zeros(int(which.max(initial=-1)) + 1, np.int64)
    one_of_each[which] = np.arange(n)
    return one_of_each, which


def _values(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The distinct values of a column, in order; fast if they are few."""
    found: list[Any] = []
    rest = column
    while len(rest) and len(found) < FEW:
        found.append(rest[0])
        rest = rest[rest != rest[0]]
    return np.unique(np.concatenate([np.array(found, column.dtype), rest]))


def faults_of(
    schedule: FaultSchedule | None, port: Any, kind: Any, bounds: Bounds
) -> tuple[Any, Any]:
    """The schedule, and the kinds of ports with those that slow links have: a link that slows down
    changes its kind, so healthy links cost nothing extra.
    """
    events = schedule.events if schedule is not None else np.empty(0, EVENT)
    fault = records(len(events), ss.FAULT)
    for name in EVENT.names or ():
        fault[name] = events[name]
    slows = np.flatnonzero(events["action"] == PORT_RATE)
    share = events["rate"][slows]
    of_kind = port.kind[events["target"][slows]]
    changes, first, which = np.unique(
        np.stack([of_kind, share], axis=1), axis=0, return_index=True, return_inverse=True
    )
    if len(kind) + len(changes) > PORT_KINDS_MAX:
        raise InputError(
            f"fault: {len(changes)} different rates of slow links; at most"
            f" {PORT_KINDS_MAX - len(kind)} fit, so use fewer factors"
        )
    kinds = records(len(kind) + len(changes), ss.PORT_KIND)
    kinds[: len(kind)] = kind
    if len(changes):
        kinds[len(kind) :] = kind[changes[:, 0].astype(np.int64)]
        rate_bps = np.rint(kinds.rate_bps[len(kind) :] * changes[:, 1]).astype(np.int64)
        kinds.rate_bps[len(kind) :] = np.maximum(rate_bps, 1)
        kinds.byte_ps[len(kind) :] = byte_ps(kinds.rate_bps[len(kind) :])
        limits = slowed(bounds, events["target"][slows][first], changes[:, 1])
        for name, of_kinds in limits._asdict().items():
            kinds[name][len(kind) :] = of_kinds
    fault.port_kind[slows] = np.where(share == 1, of_kind, len(kind) + which.reshape(-1))
    return fault, kinds


def groups_of(schedule: FaultSchedule | None) -> npt.NDArray[np.uint16]:
    """By NIC, a bit for each group of denylists that it is in; empty if there are no denylists."""
    if schedule is None or not (schedule.events["action"] == PORT_DENY).any():
        return np.zeros(0, np.uint16)
    bit = 1 << np.arange(len(schedule.groups), dtype=np.int64)
    mask: npt.NDArray[np.uint16] = (schedule.groups * bit[:, None]).sum(axis=0).astype(np.uint16)
    return mask


def switches_of(fabric: Fabric, seed: int) -> Any:
    """The switches, each with a salt of its own."""
    switch = records(fabric.n_switches, ss.SWITCH)
    for name in ("lo", "hi", "stride", "first_down", "first_up", "n_up", "bundle", "tier"):
        switch[name] = getattr(fabric, f"sw_{name}")
    switch.stride_shift = whole_log2(switch.stride)
    switch.salt = np.random.default_rng([seed, SEED_SALTS]).integers(0, 2**31, fabric.n_switches)
    return switch


def whole_log2(numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.int8]:
    """The logarithms of positive numbers, to the base 2; -1 where that is no whole number."""
    ones, below = np.bitwise_count(numbers), np.bitwise_count(numbers - 1)
    return np.where(ones == 1, below.astype(np.int8), np.int8(-1))


def link_qps(traffic: Traffic, ends: Ends) -> Any:
    """What the world keeps of each QP end; the first of a bundle keeps what all of it share."""
    qp = records(ends.n, ss.LINK_QP)
    qp.timer_at = es.NEVER
    qp.other = ends.other
    qp.waiting_head = -1
    qp.region = ends.traffic_qp
    entries = np.bincount(traffic.msg_qp, minlength=traffic.n_qps)
    first = ends.sender[:: ends.bundle]
    qp.roster0[first] = setup.starts_of(entries)
    qp.n_roster[first] = entries
    return qp


def link_nics(fabric: Fabric) -> Any:
    """What the world keeps of each NIC: all ports are up."""
    nic = records(fabric.n_nics, ss.LINK_NIC)
    nic.timer_at = es.NEVER
    nic.free_ports = (1 << fabric.n_planes) - 1
    nic.up_ports = nic.free_ports
    return nic


def series_of(traffic: Traffic) -> Any:
    """The series, as many records as messages; a single record if there is no series."""
    if not (traffic.msg_count > 1).any():
        return records(1, ss.SERIES)
    series = records(traffic.n_msgs, ss.SERIES)
    series.n = traffic.msg_count
    series.n_let = np.clip(1 - traffic.msg_deps, 0, traffic.msg_count)
    series.block = traffic.msg_block
    series.blocks = traffic.msg_blocks
    series.longer = traffic.msg_longer
    series.gates = traffic.msg_gates
    return series


def cores_of(traffic: Traffic) -> npt.NDArray[np.int64]:
    """When each core is free: all of them at the start. Core 0 means no core."""
    return np.zeros(int(traffic.calc_core.max(initial=0)) + 1, np.int64)


def messages_of(traffic: Traffic, ends: Ends) -> tuple[Any, npt.NDArray[np.int32]]:
    """The messages followed by the computations; and what they release: each one's `recv` row, then
    its `sent` row.
    """
    entry = records(traffic.n_entries, ss.MESSAGE_STATE)
    message = entry[: traffic.n_msgs]
    message.bytes = traffic.msg_bytes
    message.start_at = traffic.msg_start_ps
    message.compute_ps = traffic.msg_compute_ps
    message.many = traffic.msg_count > 1
    message.imm = traffic.msg_imm
    message.qp = ends.sender[traffic.msg_qp * ends.bundle]
    calc = entry[traffic.n_msgs :]
    calc.start_at = traffic.calc_start_ps
    calc.compute_ps = traffic.calc_ps
    calc.qp = -1 - traffic.calc_core
    entry.deps = traffic.deps
    entry.posted_at = NO_TIME
    entry.done_at = NO_TIME
    entry.delivered_at = NO_TIME
    entry.recv0 = traffic.recv_first[:-1] + traffic.sent_first[:-1]
    entry.sent0 = traffic.recv_first[1:] + traffic.sent_first[:-1]
    entry.end = traffic.recv_first[1:] + traffic.sent_first[1:]
    release = np.zeros(len(traffic.recv_next) + len(traffic.sent_next), np.int32)
    for rows, first, to in (
        (traffic.recv_next, traffic.recv_first, entry.recv0),
        (traffic.sent_next, traffic.sent_first, entry.sent0),
    ):
        n = np.diff(first)
        release[np.repeat(to - first[:-1], n) + np.arange(len(rows))] = rows
    return entry, release
