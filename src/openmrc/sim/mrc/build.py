"""From fabric, workload and MRC's transport to the arrays that its event loop runs on.

`network` builds the part common to all transports. Everything is vectorised: 131,072 QPs are set up
in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.engine import bits, place, policy, setup
from openmrc.engine import state as es
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import CLASSES, bounds_of
from openmrc.sim.mrc import htsim, policies
from openmrc.sim.mrc.derive import Derived
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.net import balance, network, routing
from openmrc.sim.net import state as ss
from openmrc.sim.net.network import NO_TIME, SEED_NAMES, SEED_PATHS, SEED_QPS, Ends, Index
from openmrc.sim.net.parts import Parts
from openmrc.traffic.traffic import Traffic
from openmrc.units import PS_BITS
from openmrc.wire import srv6
from openmrc.wire.framing import framing

# EVs among which a receive-only end keeps its reverse paths fresh (MRC 3.9): in all, and per plane.
REVERSE_EVS, REVERSE_EVS_PER_PLANE_MIN = 32, 4
PACKETS_AT_START = 4096
SCOUT_ABOVE_BYTES = 4 << 20  # of QPs, windows and paths: more than caches hold beside packets
HASHED_EV_STEP = 0x9E37  # odd, so that all EVs of a QP differ


def build_engine(parts: Parts, transport: Transport, derived: Derived, ends: Ends) -> es.State:
    """The engine's State for all NICs."""
    fabric, traffic, seed = parts.fabric, parts.traffic, parts.seed
    drawn = draw_evs(fabric, transport, derived, ends, seed)
    messages = network.rings_of(traffic)[ends.traffic_qp]
    pairs, q_peer = _peers(ends)
    evs, longest = drawn.room()
    rooms = setup.Rooms(
        qps=ends.n,
        planes=fabric.n_planes,
        mpr=derived.mpr_packets,
        sends=np.where(ends.sends, messages, 0),
        receives=np.where(ends.sends, 0, messages),
        evs=evs,
        order_len=longest,
        carries=units_of(traffic, transport.pmtu)[ends.traffic_qp],
    )
    st = setup.new_state(
        transport,
        rooms,
        nics=fabric.n_nics,
        peers=len(pairs),
        regions=traffic.n_qps,
        nominal_overhead=framing(transport.rules, transport.srv6).nominal_overhead,
        port_rate_bps=derived.port_rate_bps,
        base_rtt_ps=derived.base_rtt_ps,
        trimming=parts.queues.trim,
        marks_on_last_hop=parts.queues.ecn_last_hop,
        **(htsim.endpoints(transport) if htsim.is_asked_for(transport) else {}),
    )
    _bring_policies(st, transport)
    names = np.random.default_rng([seed, SEED_NAMES])
    network.place_qps(st, ends, names)
    setup.identify(st.qp, peer=q_peer)
    if transport.paths == "single" and not transport.hashed:
        for plane in range(fabric.n_planes):  # for control packets on a plane without EVs
            setup.set_reverse(st, plane, fabric.ev(plane, 0))
    for block in drawn.blocks():
        setup.set_paths(st, *block)
    st.stream[:] = bits.seed_streams(seed, SEED_QPS, ends.n)
    setup.set_nics(st, fabric.n_planes, derived.data_packet_wire_bytes)
    setup.set_peers(st.peer, pairs[:, 1], pairs[:, 2], fabric.n_planes)
    st.nic.peer0 = np.searchsorted(pairs[:, 0], np.arange(fabric.n_nics))
    st.nic.n_peers = np.bincount(pairs[:, 0], minlength=fabric.n_nics)
    r = st.region
    r.nic = traffic.qp_dst
    r.length = units_of(traffic, transport.pmtu) * transport.pmtu
    r.va = names.integers(1 << 20, 1 << 40, traffic.n_qps) << 12
    keys = names.integers(0, 1 << (32 - es.REGION_INDEX_BITS), traffic.n_qps)
    r.rkey = np.arange(traffic.n_qps) | (keys << es.REGION_INDEX_BITS)
    return st


def _bring_policies(st: es.State, transport: Transport) -> None:
    """Compile the user's policies, and store their addresses in the engine's configuration."""
    c = st.config[0]
    if transport.cc not in policy.CONGESTION:
        c.cc_step, _ = policies.load(policies.find(transport.cc, "step", Path()), st)
    if transport.paths not in policy.PATHS:
        found = policies.find(transport.paths, "choose", Path())
        c.path_choose, c.path_learn = policies.load(found, st)


def _peers(ends: Ends) -> tuple[npt.NDArray[np.int64], Index]:
    """The pairs (nic, remote, one QP), sorted, and the pair of each QP."""
    remote = ends.nic[ends.other]
    key = ends.nic * (int(remote.max(initial=0)) + 1) + remote
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    pairs = np.stack([ends.nic[first], remote[first], first], axis=1)
    return pairs, inverse.reshape(-1)


class _Drawn:
    """The EVs of QPs, planned for some QPs and one plane at a time, planes ascending. Their number
    is known at once; their values are drawn while iterating over `blocks`, once and in order.
    """

    def __init__(
        self, fabric: Fabric, transport: Transport, ends: Ends, rng: np.random.Generator
    ) -> None:
        self._fabric, self._hashed, self._nic, self._rng = fabric, transport.hashed, ends.nic, rng
        self.counts = np.zeros((ends.n, fabric.n_planes), np.int64)
        # QPs, plane, the function that draws EVs [qp, k], how many of each row are in the rotation
        self._planned: list[tuple[Index, int, Callable[[], Index], int]] = []

    def _add(self, qps: Index, plane: int, n: int, draw: Callable[[], Index], active: int) -> None:
        """Plan EVs of one plane for some QPs."""
        self.counts[qps, plane] = n
        self._planned.append((qps, plane, draw, active))

    def blocks(self) -> Iterator[tuple[Index, int, Index, int]]:
        """QPs, plane, EVs [qp, k], how many of each row are in the rotation: block by block,
        because all together are as large as the state that they are written to.
        """
        for qps, plane, draw, active in self._planned:
            yield qps, plane, draw(), active

    def room(self) -> tuple[Index, Index]:
        """By QP, the number of EVs on all planes, and the most on one plane, at least one."""
        return self.counts.sum(axis=1), np.maximum(self.counts.max(axis=1), 1)

    def hashed(self, qps: Index, active: int, backup: int) -> None:
        """Different source ports for each plane of these QPs, starting at a random one; the planes
        of a QP share none.
        """
        n = active + backup
        first = self._rng.integers(0, 1 << 16, (len(qps), 1))
        for plane in range(self._fabric.n_planes):
            self._add(qps, plane, n, partial(_source_ports, first, plane * n, n), active)

    def paths(self, qps: Index, plane: int, climbs: int, active: int, backup: int = 0) -> None:
        """Different random paths of one plane for each of these QPs, all of which go up through
        `climbs` switches.
        """
        n = active + backup
        self._add(qps, plane, n, partial(self._paths, qps, plane, climbs, n), active)

    def _paths(self, qps: Index, plane: int, climbs: int, n: int) -> Index:
        fabric = self._fabric
        if self._hashed:
            return self._rng.integers(0, 1 << 16, (len(qps), n))
        if not len(qps):
            return np.zeros((0, n), np.int64)
        t0 = fabric.port_peer_switch[self._nic[qps] * fabric.n_planes + plane]
        n_up0 = int(fabric.sw_n_up[t0[0]]) if climbs > 0 else 1
        n_up1 = 1
        if climbs > 1:
            n_up1 = int(fabric.sw_n_up[fabric.port_peer_switch[fabric.sw_first_up[t0[0]]]])
        total = n_up0 * n_up1
        index = np.empty((len(qps), n), np.int64)
        step = max(1, 4_000_000 // total)
        for start in range(0, len(qps), step):
            rows = index[start : start + step]
            drawn = self._rng.random((len(rows), total), dtype=np.float32)
            rows[:] = np.argsort(drawn, axis=1)[:, :n]
        return (
            fabric.ev_base
            | (plane << fabric.ev_plane_shift)
            | ((index % n_up0) << fabric.ev_up0_shift)
            | ((index // n_up0) << fabric.ev_up1_shift)
        )


def _source_ports(first: Index, start: int, n: int) -> Index:
    """EVs number `start` to `start + n - 1` of QPs whose EVs number 0 are `first`."""
    return (first + (start + np.arange(n)[None, :]) * HASHED_EV_STEP) & 0xFFFF


def draw_evs(
    fabric: Fabric, transport: Transport, derived: Derived, ends: Ends, seed: int
) -> _Drawn:
    """Draw each QP's EVs (MRC 3.1): equally many per plane, a random subset of the paths, no
    coordination.
    """
    rng = np.random.default_rng([seed, SEED_PATHS])
    drawn = _Drawn(fabric, transport, ends, rng)
    everyone = np.arange(ends.n)
    peer_nic = ends.nic[ends.other]
    climbs = fabric.uplinks(ends.nic, peer_nic)
    active, backup = derived.evs_per_plane_active, derived.evs_per_plane_backup
    reverse = max(REVERSE_EVS // fabric.n_planes, REVERSE_EVS_PER_PLANE_MIN)
    if transport.paths == "single":
        plane = rng.integers(0, fabric.n_planes, ends.n)
        for p in range(fabric.n_planes):
            for up in range(fabric.n_tiers):
                drawn.paths(everyone[(plane == p) & (climbs == up)], p, up, 1)
    elif htsim.is_asked_for(transport):
        drawn.hashed(everyone[ends.sends], transport.evs_active, 0)
        drawn.hashed(everyone[~ends.sends], 1, 0)
    elif transport.hashed:  # nobody knows how many paths there are, or which EVs share one
        drawn.hashed(everyone[ends.sends], active, backup)
        drawn.hashed(everyone[~ends.sends], reverse, 0)
    else:
        for up in range(fabric.n_tiers):
            for sends in (True, False):
                qps = everyone[(climbs == up) & (ends.sends == sends)]
                if not len(qps):
                    continue
                n_paths = fabric.n_paths(int(ends.nic[qps[0]]), int(peer_nic[qps[0]]), 0)
                n = min(n_paths, active if sends else reverse)
                spare = min(n_paths - n, backup) if sends else 0
                for p in range(fabric.n_planes):
                    drawn.paths(qps, p, up, n, spare)
    return drawn


def build_net(
    parts: Parts, transport: Transport, derived: Derived, ends: Ends, st: es.State
) -> ss.Net:
    """The network's arrays."""
    fabric, traffic, queues = parts.fabric, parts.traffic, parts.queues
    sizes = framing(transport.rules, transport.srv6)
    net = network.new_net(
        parts,
        bounds_of(fabric, derived.queues, queues, derived.data_packet_wire_bytes),
        ends,
        st,
        sizes=sizes,
        longest_bytes=sizes.data_bytes(transport.pmtu),
        pmtu=transport.pmtu,
        packets=max(PACKETS_AT_START, 2 * len(st.slot)),  # all that the windows allow
        heap_entries=2 * traffic.n_entries + 8 * ends.n + 2 * fabric.n_nics + 4096,
        reserve=network.heap_reserve(traffic),
    )
    net = net._replace(unit=_units(net.qp, traffic, ends, transport, st))
    net.qp.flow = ends.traffic_qp + 1
    c = net.ctl[0]
    c.ev_base = fabric.ev_base
    c.up0_shift = fabric.ev_up0_shift
    c.up0_mask = (1 << fabric.ev_up0_bits) - 1
    c.up1_shift = fabric.ev_up1_shift
    c.up1_mask = (1 << fabric.ev_up1_bits) - 1
    c.plane_shift = fabric.ev_plane_shift
    c.trimmed_bytes = sizes.trimmed_bytes
    c.hashed = transport.hashed
    c.hashes_tuple = not transport.srv6
    c.class_of = htsim.CLASSES if htsim.is_asked_for(transport) else tuple(range(CLASSES))
    c.trim = queues.trim
    c.single = transport.paths == "single"
    c.scouts = st.qp.nbytes + st.slot.nbytes + st.ev.nbytes > SCOUT_ABOVE_BYTES
    c.convergence_ps = transport.convergence_ps
    c.rerouted_at = NO_TIME
    network.free_list(net, 0, PACKETS_AT_START - 1)  # the last one is a spare, for exchanges
    if queues.by_usid and transport.carried:
        net = _by_usid(net, fabric)
    if transport.balances:
        net = _balanced(net, parts, transport, derived)
    net.ctl[0].foretold = not (net.ctl[0].by_usid or net.ctl[0].balances)
    noted = ss.EVENTS_BETWEEN_CHECKS * network.PORTS_OF_AN_EVENT + net.ctl[0].n_nic_ports
    return network.with_taps(net, parts.tapped, int(noted))


def _balanced(net: ss.Net, parts: Parts, transport: Transport, derived: Derived) -> ss.Net:
    """The same network, whose switches choose a port for each packet."""
    net.ctl[0].balances = 1
    takes_ps = transport.convergence_ps
    how = routing.Convergence(takes_ps, takes_ps, parts.seed)
    net = routing.open_routing(net, parts.fabric, how)
    steps = balance.LOAD_STEPS if transport.routing == "adaptive" else ()
    rate_bps = derived.port_rate_bps
    step_bytes = balance.step_bytes(steps, rate_bps * derived.base_rtt_ps // PS_BITS)
    return balance.open_balance(net, parts.fabric, parts.seed, step_bytes, rate_bps, rotates=False)


def _by_usid(net: ss.Net, fabric: Fabric) -> ss.Net:
    """The same network, forwarding by the destination addresses that its packets carry."""
    tables, headend = srv6.of_fabric(fabric)
    net.ctl[0].by_usid = 1
    return net._replace(
        carrier=np.zeros((len(net.hop), srv6.ADDRESS_BYTES), np.uint8),
        usid_switch=tables.switch,
        usid_slots=tables.slots,
        usid_scheme=headend.scheme,
        usid_nic=headend.nic,
    )


def units_of(traffic: Traffic, pmtu: int) -> Index:
    """Number of payload units (one PMTU of one message each) by QP."""
    return np.bincount(traffic.msg_qp, traffic.packets(pmtu), traffic.n_qps).astype(np.int64)


def _units(
    qp: Any, traffic: Traffic, ends: Ends, transport: Transport, st: es.State
) -> npt.NDArray[np.uint16]:
    """The payload units of all rings, and the start of each sender's: as many as a window holds, or
    as the QP carries if that is less.
    """
    _, slots = place.runs_of_slots(st.qp[ends.sender])
    digits = np.ceil(np.log2(np.maximum(units_of(traffic, transport.pmtu), 1))).astype(np.int64)
    ring = np.minimum(1 << digits, slots)
    qp.unit0[ends.sender] = setup.starts_of(ring)
    qp.unit_mask[ends.sender] = ring - 1
    return np.zeros(int(ring.sum()), np.uint16)
