"""Folded Clos fabrics built by arithmetic: multi-plane two-tier, single-plane two- and three-tier.

Wiring, the same in every plane:

* NIC `n` is linked to T0 `n // t0_down`.
* Uplink `u` of a T0 leads to T1 `u` of its pod (a two-tier fabric is one pod).
* Uplink `v` of the T1 that is number `a` in its pod leads to T2 `a * t1_up + v`, so a T2 has one
  link into each pod, always to the T1 with the same number there.
* Where links are bundled, neighbouring uplinks lead to the same neighbour.

NICs need not fill the last T0, nor T0s the last pod: switches without connection are not built. The
sizes of real installations are in # MRC 7.1 to 7.4; 131,072 NICs on 8 planes have 4.2 million ports
and are built in about a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from openmrc.errors import InputError
from openmrc.fabric.model import Fabric, IntArray, LongArray

# A port status update carries one bit per plane in 32 (# MRC 2.10).
PLANES_BUILT_MAX = 32
# If an EV's fields fit half of it, they take the half that the flow label carries, and the other
# half, the UDP source port, is the first port number that RoCEv2 uses: a packet sniffer that goes
# by ports does not take the packet for DNS.
EV_HALF_BITS = 16
EV_BASE = 0xC000
# 16 times the largest published fabric; its arrays would take 3 GB. This many ports have fewer than
# 2**26 paths, and even with every field rounded up to whole bits the 32 bits of an EV hold them (#
# MRC 2.11).
PORTS_MAX = 2**26


@dataclass(frozen=True)
class Tier:
    """The switches of one tier, and the links between them and the tier (or NICs) below."""

    down: int  # neighbours below; the top tier reaches all that exist
    up: int  # ports upwards, 0 at the top
    rate_bps: int
    link_delay_ps: int
    switch_delay_ps: int
    bundle: int = 1  # parallel links to each neighbour below


def multiplane(
    nics: int,
    planes: int,
    port_rate_bps: int,
    t0_down: int,
    t0_up: int,
    link_delay_ps: int,
    switch_delay_ps: int,
) -> Fabric:
    """Return `planes` separate two-tier fabrics, each NIC with one port into every one of them.

    Each plane has ceil(nics / t0_down) T0s and `t0_up` T1s, every T1 linked once to every T0
    (# MRC 7.3). All links run at `port_rate_bps`. Raises `InputError` naming the key.
    """
    _check(nics=nics, planes=planes, port_rate=port_rate_bps, t0_down=t0_down, t0_up=t0_up)
    _check_delays(link_delay_ps, switch_delay_ps)
    link = (port_rate_bps, link_delay_ps, switch_delay_ps)
    return build("multiplane", nics, planes, [Tier(t0_down, t0_up, *link), Tier(0, 0, *link)])


def fat_tree(
    nics: int,
    port_rate_bps: int,
    t0_down: int,
    t0_up: int,
    link_delay_ps: int,
    switch_delay_ps: int,
    tiers: int = 2,
    t1_down: int | None = None,
    t1_up: int | None = None,
) -> Fabric:
    """Return a fabric of one plane with two or three tiers (# MRC 7.2).

    With three tiers a pod is `t1_down` T0s and `t0_up` T1s, and each T1 has `t1_up` uplinks; both
    default to the T0's own numbers. Raises `InputError` naming the key.
    """
    _check(nics=nics, port_rate=port_rate_bps, t0_down=t0_down, t0_up=t0_up)
    _check_delays(link_delay_ps, switch_delay_ps)
    if tiers not in (2, 3):
        raise InputError(f"fabric.tiers: {tiers} tiers of switches cannot be built; 2 or 3 can")
    if tiers == 2 and (t1_down, t1_up) != (None, None):
        raise InputError("fabric.t1_down, t1_up: only for three tiers; set fabric.tiers = 3")
    link = (port_rate_bps, link_delay_ps, switch_delay_ps)
    if tiers == 2:
        return build("fat-tree", nics, 1, [Tier(t0_down, t0_up, *link), Tier(0, 0, *link)])
    t1_down = t0_down if t1_down is None else t1_down
    t1_up = t0_up if t1_up is None else t1_up
    _check(t1_down=t1_down, t1_up=t1_up)
    levels = [Tier(t0_down, t0_up, *link), Tier(t1_down, t1_up, *link), Tier(0, 0, *link)]
    return build("fat-tree", nics, 1, levels)


def build(kind: str, nics: int, planes: int, tiers: Sequence[Tier]) -> Fabric:
    """Return the fabric of two or three `tiers`, lowest first, whose numbers have been checked."""
    plan = _Plan.of(nics, tiers)
    _check_limits(plan, nics, planes, tiers)
    switches = _switches(plan, nics, planes, tiers)
    n_nic_ports = nics * planes
    n_ports = n_nic_ports + int((switches.n_down + switches.n_up).sum())
    first_down = n_nic_ports + _before(switches.n_down + switches.n_up)
    first_up = first_down + switches.n_down

    ends = ("port_switch", "port_nic", "port_peer_switch", "port_peer_nic", "port_reverse")
    ports: dict[str, Any] = {name: np.full(n_ports, -1, np.int32) for name in ends}
    port_switch, port_nic, peer_switch, peer_nic, reverse = ports.values()
    rate_bps, delay_ps = np.empty(n_ports, np.int64), np.empty(n_ports, np.int64)
    for number, tier in enumerate(tiers):
        upper, neighbour, parallel = _down_links(switches, number)
        down = first_down[upper] + neighbour * tier.bundle + parallel
        if number == 0:
            nic = switches.lo[upper] + neighbour
            up = nic * planes + switches.plane[upper]
            port_nic[up] = peer_nic[down] = nic
        else:
            lower, uplink = plan.below(switches, number, upper, neighbour, parallel, tier.bundle)
            up = first_up[lower] + uplink
            port_switch[up] = peer_switch[down] = lower
        port_switch[down] = peer_switch[up] = upper
        reverse[down], reverse[up] = up, down
        rate_bps[down] = rate_bps[up] = tier.rate_bps
        delay_ps[down] = delay_ps[up] = tier.link_delay_ps

    plane_bits, up0_bits, up1_bits = _ev_bits(planes, tiers)
    wide = plane_bits + up0_bits + up1_bits > EV_HALF_BITS
    shift, base = (0, 0) if wide else (EV_HALF_BITS, EV_BASE)
    return Fabric(
        kind=kind,
        n_nics=nics,
        n_planes=planes,
        n_tiers=len(tiers),
        n_switches=len(switches.plane),
        n_ports=n_ports,
        sw_plane=_int32(switches.plane),
        sw_tier=_int32(switches.tier),
        sw_index=_int32(switches.number),
        sw_lo=_int32(switches.lo),
        sw_hi=_int32(switches.hi),
        sw_stride=_int32(switches.stride),
        sw_first_down=_int32(first_down),
        sw_first_up=_int32(first_up),
        sw_n_up=_int32(switches.n_up),
        sw_bundle=_int32(switches.bundle),
        sw_delay_ps=switches.delay_ps,
        **ports,
        port_rate_bps=rate_bps,
        port_delay_ps=delay_ps,
        port_last_hop=peer_nic >= 0,
        cut_through=False,
        ev_base=base,
        ev_plane_shift=shift + up0_bits + up1_bits,
        ev_plane_bits=plane_bits,
        ev_up0_shift=shift + up1_bits,
        ev_up0_bits=up0_bits,
        ev_up1_shift=shift,
        ev_up1_bits=up1_bits,
    )


class _Switches(NamedTuple):
    """Columns of the switch table, int64, tier by tier and within a tier plane by plane."""

    tier: LongArray
    plane: LongArray
    number: LongArray  # within its plane and tier
    lo: LongArray
    hi: LongArray
    stride: LongArray
    bundle: LongArray
    n_down: LongArray
    n_up: LongArray
    delay_ps: LongArray


@dataclass(frozen=True)
class _Plan:
    """The counts of one plane, and which switch is linked to which."""

    counts: tuple[int, ...]  # switches of each tier
    strides: tuple[int, ...]  # NICs below one down neighbour of each tier
    t0s_per_pod: int
    t1s_per_pod: int
    t2s_per_t1: int

    @staticmethod
    def of(nics: int, tiers: Sequence[Tier]) -> _Plan:
        n_t0 = -(-nics // tiers[0].down)
        t0s_per_pod = n_t0 if len(tiers) == 2 else tiers[1].down
        n_pods = -(-n_t0 // t0s_per_pod)
        t1s_per_pod = tiers[0].up // tiers[1].bundle
        t2s_per_t1 = tiers[1].up // tiers[2].bundle if len(tiers) == 3 else 0
        counts = (n_t0, n_pods * t1s_per_pod, t1s_per_pod * t2s_per_t1)
        strides = (1, tiers[0].down, tiers[0].down * t0s_per_pod)
        top = len(tiers)
        return _Plan(counts[:top], strides[:top], t0s_per_pod, t1s_per_pod, t2s_per_t1)

    def below(
        self,
        switches: _Switches,
        tier: int,
        upper: LongArray,
        neighbour: LongArray,
        parallel: LongArray,
        bundle: int,
    ) -> tuple[LongArray, LongArray]:
        """Return (lower switch, its uplink number) at the other end of these links."""
        index = switches.number[upper]
        if tier == 1:
            pod, number = index // self.t1s_per_pod, index % self.t1s_per_pod
            lower = pod * self.t0s_per_pod + neighbour
        else:
            number = index % self.t2s_per_t1
            lower = neighbour * self.t1s_per_pod + index // self.t2s_per_t1
        planes = len(switches.plane) // sum(self.counts)
        first = planes * sum(self.counts[: tier - 1])
        lower = first + switches.plane[upper] * self.counts[tier - 1] + lower
        return lower, number * bundle + parallel


def _switches(plan: _Plan, nics: int, planes: int, tiers: Sequence[Tier]) -> _Switches:
    blocks = []
    for number, (tier, count, stride) in enumerate(
        zip(tiers, plan.counts, plan.strides, strict=True)
    ):
        index = np.tile(np.arange(count, dtype=np.int64), planes)
        if number == 0:
            lo, span = index * tier.down, tier.down
        elif number == 1:
            span = plan.strides[1] * plan.t0s_per_pod
            lo = index // plan.t1s_per_pod * span
        else:
            lo, span = np.zeros_like(index), nics
        hi = np.minimum(lo + span, nics)
        blocks.append(
            _Switches(
                tier=np.full_like(index, number),
                plane=np.repeat(np.arange(planes, dtype=np.int64), count),
                number=index,
                lo=lo,
                hi=hi,
                stride=np.full_like(index, stride),
                bundle=np.full_like(index, tier.bundle),
                n_down=-(-(hi - lo) // stride) * tier.bundle,
                n_up=np.full_like(index, tier.up),
                delay_ps=np.full_like(index, tier.switch_delay_ps),
            )
        )
    return _Switches(*(np.concatenate(column) for column in zip(*blocks, strict=True)))


def _down_links(switches: _Switches, tier: int) -> tuple[LongArray, LongArray, LongArray]:
    """Return, for each link below `tier`: (upper switch, its neighbour number, parallel number)."""
    which = np.flatnonzero(switches.tier == tier)
    n_down = switches.n_down[which]
    upper = np.repeat(which, n_down)
    number = np.arange(len(upper)) - np.repeat(_before(n_down), n_down)
    bundle = switches.bundle[upper]
    return upper, number // bundle, number % bundle


def _before(counts: LongArray) -> LongArray:
    """Return, for each count, the sum of all counts before it."""
    return np.cumsum(counts) - counts


def _int32(column: LongArray) -> IntArray:
    return column.astype(np.int32)


def _ev_bits(planes: int, tiers: Sequence[Tier]) -> tuple[int, int, int]:
    """Return the widths of an EV's fields: plane, uplink of T0, uplink of T1."""
    choices = (planes, tiers[0].up, tiers[1].up if len(tiers) == 3 else 1)
    plane, up0, up1 = ((count - 1).bit_length() for count in choices)
    return plane, up0, up1


def _check_limits(plan: _Plan, nics: int, planes: int, tiers: Sequence[Tier]) -> None:
    """Refuse fabrics that are too large, before anything is allocated."""
    uplinks = sum(count * tier.up for count, tier in zip(plan.counts, tiers, strict=True))
    if (n_ports := 2 * planes * (nics + uplinks)) > PORTS_MAX:
        raise InputError(f"fabric: {n_ports} ports, the limit is {PORTS_MAX}; build a smaller one")


def _check(**keys: int) -> None:
    """Refuse counts and rates that cannot be built, naming the key."""
    least = {"nics": 2}
    for key, value in keys.items():
        if value < least.get(key, 1):
            raise InputError(f"fabric.{key}: {value} is too few; at least {least.get(key, 1)}")
    if keys.get("planes", 1) > PLANES_BUILT_MAX:
        raise InputError(f"fabric.planes: {keys['planes']} is too many; at most {PLANES_BUILT_MAX}")


def _check_delays(link_delay_ps: int, switch_delay_ps: int) -> None:
    for key, value in (("link_delay", link_delay_ps), ("switch_delay", switch_delay_ps)):
        if value < 0:
            raise InputError(f"fabric.{key}: {value} ps is negative; 0 or more is accepted")
