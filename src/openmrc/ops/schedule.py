"""The probes that a mapper's agents send in each period, and the directed links that each crosses.

An agent on every NIC sends small packets whose carrier leads them back, so that switches answer by
forwarding alone, without software (the Clustermapper of MRC's authors does the same):

    local loop        own port > T0 > own port
    one way           own port > T0 > another NIC of that T0, whose agent counts it
    over one T1       own port > T0 > T1 > T0 > own port
    over two T1s      own port > T0 > T1 > another T0 > another T1 > own T0 > own port

A loop alone cannot distinguish the two directions of a link. Loops over two T1s pair each direction
with those of other links, and one-way probes do the same for the links of NICs.

Every directed link between T0s and T1s is crossed exactly `k` times a period, and every one of NICs
equally often, at least `k` times. Partners change from period to period and repeat after `TURNS` of
them, so that outcomes can be kept as counts, path by path.

Six uSIDs fit a carrier: the longest loop needs six. A third tier would need more, so fabrics of two
tiers are mapped. A T0 with one NIC has no target for one-way probes, and with one T0 there is no
second one: then a loop is sent instead, and directions cannot be distinguished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.fabric.model import Fabric, IntArray, LongArray
from openmrc.fabric.usid import ADDRESS_BITS, BLOCK, BLOCK_BITS, USID_BITS, UsidPlan
from openmrc.ops import causes
from openmrc.units import MS, PS_BITS, S
from openmrc.wire import layout
from openmrc.wire.framing import PREAMBLE_GAP_AND_FCS, bytes_of

LOCAL_LOOP, ONE_WAY, ONE_T1, TWO_T1S = range(4)
HOPS_MAX = 6  # directed links of the longest probe
BLOCK_USIDS = BLOCK_BITS // USID_BITS  # the length of the block in uSIDs
TURNS = 16  # periods after which partners repeat
PERIOD_PS = 1 * MS
PERIOD_MAX_PS = 60 * S
COVERAGE = 10  # of each directed link, in a period
COVERAGE_MAX = 1000
BURST_MAX = 100  # probes of one suspect link in a period
FEW_LOOPS = 4  # different loops over two T1s that cross one link, too few to distinguish it
LOAD_MAX = 0.001  # fraction of a link's rate that probes may take
PAYLOAD_BYTES = 16  # agent, plane, period, number
# On the wire: one carrier, no segment routing header.
PROBE_BYTES = (
    bytes_of(layout.ETHERNET, layout.IPV6, layout.UDP) + PAYLOAD_BYTES + PREAMBLE_GAP_AND_FCS
)


class Shares(NamedTuple):
    """How the `k` crossings of a link between T0 and T1 are composed."""

    one_t1: int  # loops over one T1 for each uplink of a T0
    two_t1s: int  # loops over two T1s: each link is crossed twice, near home and far from it


@dataclass(frozen=True, eq=False)
class Schedule:
    """The probes of a fabric of two tiers. `make` builds one.

    A probe has a number: (NIC x planes + plane) x `per_port` + slot.
    """

    fabric: Fabric
    k: int
    shares: Shares
    per_port: int  # probes that every NIC port sends in a period
    period_ps: int
    rounds_are_told: ClassVar[bool] = False  # by agents; else they send what this says

    @property
    def n_probes(self) -> int:
        """Probes of all agents together in a period."""
        return self.fabric.n_nics * self.fabric.n_planes * self.per_port

    @property
    def crossings_max(self) -> int:
        """How often the most probed directed link is crossed in a period."""
        return max(self.per_port, self.k)

    @property
    def load(self) -> float:
        """The fraction of the slowest link's rate that probes take, where most of them cross."""
        rate_bps = int(self.fabric.port_rate_bps.min())
        return self.crossings_max * PROBE_BYTES * PS_BITS / self.period_ps / rate_bps

    def kinds(self, turn: int, numbers: npt.ArrayLike) -> IntArray:
        """Return the kind of each of these probes."""
        return self._duties(turn, np.asarray(numbers, np.int64)).kind

    def judges(self, turn: int, numbers: npt.ArrayLike) -> LongArray:
        """Return the NIC whose agent says whether each of these probes arrived: where it ends."""
        return self._duties(turn, np.asarray(numbers, np.int64)).to

    def routes(self, turn: int, numbers: npt.ArrayLike | None = None) -> IntArray:
        """Return the directed ports that these probes (None: all) cross in a period whose number
        modulo `TURNS` is `turn`, [n, `HOPS_MAX`]; -1 after the last.
        """
        each = np.arange(self.n_probes) if numbers is None else np.asarray(numbers, np.int64)
        duty = self._duties(turn, each)
        fabric, up = self.fabric, self._up
        own = duty.nic * fabric.n_planes + duty.plane
        found = np.full((len(each), HOPS_MAX), -1, np.int32)
        found[:, 0] = own
        back = fabric.port_reverse[duty.to * fabric.n_planes + duty.plane]
        first_up = up[duty.plane, duty.t0, duty.uplink]
        local = duty.kind <= ONE_WAY
        one, two = duty.kind == ONE_T1, duty.kind == TWO_T1S
        found[:, 1] = np.where(local, back, first_up)
        found[:, 2] = np.where(one, fabric.port_reverse[first_up], found[:, 2])
        found[:, 3] = np.where(one, back, found[:, 3])
        far = np.where(two, duty.far_t0, 0)
        out = up[duty.plane, far, duty.uplink]
        home = up[duty.plane, far, duty.far_uplink]
        last = up[duty.plane, duty.t0, duty.far_uplink]
        for hop, port in (
            (2, fabric.port_reverse[out]),
            (3, home),
            (4, fabric.port_reverse[last]),
            (5, back),
        ):
            found[:, hop] = np.where(two, port, found[:, hop])
        return found

    def burst(self, port: int, n: int, turn: int = 0) -> IntArray:
        """Return the directed ports of `n` probes that all cross `port`, [n, `HOPS_MAX`], on paths
        that otherwise differ as much as possible: for a link under suspicion.
        """
        fabric = self.fabric
        i = np.arange(n) + turn * n
        if self._is_of_nic(port):
            return self._nic_burst(port, i)
        is_up = fabric.sw_tier[fabric.port_switch[port]] == 0
        upward = port if is_up else int(fabric.port_reverse[port])
        plane = int(fabric.sw_plane[fabric.port_switch[upward]])
        t0 = int(fabric.sw_index[fabric.port_switch[upward]])
        uplink = upward - int(self._up[plane, t0, 0])
        n_t0s, n_up = self._up.shape[1:]
        nic = self._nic0[t0] + (7 * i) % self._n_nics[t0]
        own = nic * fabric.n_planes + plane
        other = (uplink + 1 + i % max(n_up - 1, 1)) % n_up
        found = np.full((n, HOPS_MAX), -1, np.int32)
        found[:, 0] = own
        if n_t0s > 1:
            far = (t0 + 1 + (3 * i) % (n_t0s - 1)) % n_t0s
            out, home = (uplink, other) if is_up else (other, uplink)
            found[:, 1] = self._up[plane, t0, out]
            found[:, 2] = fabric.port_reverse[self._up[plane, far, out]]
            found[:, 3] = self._up[plane, far, home]
            found[:, 4] = fabric.port_reverse[self._up[plane, t0, home]]
            found[:, 5] = fabric.port_reverse[own]
            if (n_t0s - 1) * (n_up - 1) >= FEW_LOOPS:
                return found
        # If loops over two T1s hardly differ from each other, every other one has one T1.
        one = np.flatnonzero(i % 2) if n_t0s > 1 else np.arange(n)
        found[one, 1], found[one, 2] = upward, fabric.port_reverse[upward]
        found[one, 3], found[one, 4:] = fabric.port_reverse[own[one]], -1
        return found

    def beside(self, ports: Sequence[int]) -> list[int]:
        """Return the ports to probe together with these suspects, which tell each of them from its
        switch: where loops are few, nearly all that cross a suspect's switch cross the suspect too,
        but for those of the opposite directions. Of NICs' links: if no others are suspected.
        """
        n_t0s, n_up = self._up.shape[1:]
        few = n_t0s == 1 or (n_t0s - 1) * (n_up - 1) < FEW_LOOPS
        inner = [port for port in ports if not self._is_of_nic(port)]
        opposite = self.fabric.port_reverse[(inner if few else []) if inner else list(ports)]
        return [port for port in dict.fromkeys(opposite.tolist()) if port not in ports]

    def ends(self, routes: IntArray) -> tuple[LongArray, LongArray]:
        """Return the NIC that sends each probe of these routes, and the one that says whether it
        arrived.
        """
        last = routes[np.arange(len(routes)), (routes >= 0).sum(axis=1) - 1]
        src, dst = self.fabric.port_nic[routes[:, 0]], self.fabric.port_peer_nic[last]
        return src.astype(np.int64), dst.astype(np.int64)

    def name(self, cause: int) -> str:
        """Return the name of a cause of `ops.causes`, as its probes can tell it."""
        return causes.name(self.fabric, cause)

    def _is_of_nic(self, port: int) -> bool:
        return bool(self.fabric.port_nic[port] >= 0 or self.fabric.port_peer_nic[port] >= 0)

    @cached_property
    def crossed(self) -> tuple[LongArray, LongArray, LongArray]:
        """How many probes of one period cross each directed port, each switch, and each NIC."""
        fabric, shares = self.fabric, self.shares
        by_port = np.full(fabric.n_ports, self.k, np.int64)
        n_nic_ports = fabric.n_nics * fabric.n_planes
        by_port[:n_nic_ports] = self.per_port
        by_port[fabric.port_reverse[:n_nic_ports]] = self.per_port
        n_t0s, n_up = self._up.shape[1:]
        is_t0 = fabric.sw_tier == 0
        by_switch = np.empty(fabric.n_switches, np.int64)
        here = self._n_nics[fabric.sw_index[is_t0]]
        by_switch[is_t0] = here * self.per_port + shares.two_t1s * n_up
        twice = 2 if n_up > 1 else 1
        by_switch[~is_t0] = n_t0s * (shares.one_t1 + twice * shares.two_t1s)
        t0 = self._t0_of[np.arange(fabric.n_nics)]
        heard = np.where(self._n_nics > 1, (self.per_port - self._through) // 2, 0)
        by_nic = fabric.n_planes * (self.per_port + heard[t0])
        return by_port, by_switch, by_nic

    # --- duties

    def _duties(self, turn: int, numbers: LongArray) -> Duties:
        fabric = self.fabric
        n_t0s, n_up = self._up.shape[1:]
        slot = numbers % self.per_port
        port = numbers // self.per_port
        nic, plane = port // fabric.n_planes, port % fabric.n_planes
        t0 = self._t0_of[nic]
        here, place = self._n_nics[t0], nic - self._nic0[t0]
        # Which NIC serves which uplink changes from period to period: otherwise their links would
        # share all of their probes.
        duty = slot * here + (place + 5 * turn + 3 * slot) % here
        loop = duty // n_up
        uplink = duty % n_up
        kind = np.where(loop < self.shares.one_t1, ONE_T1, TWO_T1S)
        through = loop < sum(self.shares)
        local = slot - self._through[t0]
        one_way = (local % 2 == 1) & (local > 0) & (here > 1)
        kind = np.where(through, kind, np.where(one_way, ONE_WAY, LOCAL_LOOP))
        pair = loop - self.shares.one_t1
        far_t0 = (t0 + 1 + (3 * turn + 7 * pair) % max(n_t0s - 1, 1)) % n_t0s
        far_uplink = (uplink + 1 + (turn + 5 * pair) % max(n_up - 1, 1)) % n_up
        step = 1 + (turn + slot) % np.maximum(here - 1, 1)
        to = np.where(kind == ONE_WAY, self._nic0[t0] + (place + step) % here, nic)
        return Duties(nic, plane, t0, kind.astype(np.int32), to, uplink, far_t0, far_uplink)

    def _nic_burst(self, port: int, i: LongArray) -> IntArray:
        fabric = self.fabric
        up = port if fabric.port_nic[port] >= 0 else int(fabric.port_reverse[port])
        nic, plane = up // fabric.n_planes, up % fabric.n_planes
        t0 = self._t0_of[nic]
        here = int(self._n_nics[t0])
        place = nic - int(self._nic0[t0])
        other = self._nic0[t0] + (place + 1 + i % max(here - 1, 1)) % here
        src, dst = (nic, other) if up == port else (other, nic)
        found = np.full((len(i), HOPS_MAX), -1, np.int32)
        found[:, 0] = src * fabric.n_planes + plane
        found[:, 1] = fabric.port_reverse[dst * fabric.n_planes + plane]
        return found

    @cached_property
    def _t0_of(self) -> LongArray:
        """T0 of each NIC, its number within a plane."""
        fabric = self.fabric
        first = np.arange(fabric.n_nics) * fabric.n_planes
        found: LongArray = fabric.sw_index[fabric.port_peer_switch[first]].astype(np.int64)
        return found

    @cached_property
    def _n_nics(self) -> LongArray:
        """NICs of each T0."""
        return np.bincount(self._t0_of)

    @cached_property
    def _nic0(self) -> LongArray:
        """First NIC of each T0."""
        return np.cumsum(self._n_nics) - self._n_nics

    @cached_property
    def _through(self) -> LongArray:
        """Slots that each T0's NICs need for loops over T1s."""
        duties = sum(self.shares) * self._up.shape[2]
        return np.asarray(-(-duties // self._n_nics), np.int64)

    @cached_property
    def _up(self) -> LongArray:
        """[plane, T0, uplink] the directed port upwards."""
        fabric = self.fabric
        t0s = np.flatnonzero(fabric.sw_tier == 0)
        n_up = int(fabric.sw_n_up[t0s[0]])
        order = np.lexsort((fabric.sw_index[t0s], fabric.sw_plane[t0s]))
        first = fabric.sw_first_up[t0s[order]].astype(np.int64)
        return np.add.outer(first, np.arange(n_up)).reshape(fabric.n_planes, -1, n_up)


class Duties(NamedTuple):
    """What each probe crosses; `uplink`, `far_t0` and `far_uplink` apply to loops only."""

    nic: LongArray
    plane: LongArray
    t0: LongArray
    kind: IntArray
    to: LongArray
    uplink: LongArray
    far_t0: LongArray
    far_uplink: LongArray


def make(
    fabric: Fabric,
    k: int = COVERAGE,
    period_ps: int = PERIOD_PS,
    load_max: float = LOAD_MAX,
) -> Schedule:
    """Return the schedule that crosses each directed link at least `k` times a period.

    The period is `period_ps`, or as long as necessary to stay within `load_max`, the fraction of a
    link's rate that probes may take. Raises `InputError` for fabrics that cannot be mapped.
    """
    if fabric.n_tiers != 2:
        raise InputError(
            f"mapper: a fabric of {fabric.n_tiers} tiers; probes turn round in two, map those"
        )
    if fabric.sw_bundle.max() > 1:
        raise InputError("mapper: parallel links (Bundle) have no uSIDs of their own; use Bundle 1")
    check(k, period_ps, load_max)
    shares = _shares(k, fabric.tier_counts[0])
    fewest = int((fabric.sw_hi - fabric.sw_lo)[fabric.sw_tier == 0].min())
    n_up = int(fabric.sw_n_up[fabric.sw_tier == 0][0])
    through = -(-sum(shares) * n_up // fewest)
    per_port = max(k, through + 2 * -(-k // 5))  # a fifth of k each: local loops, one way
    busiest_bits = max(per_port, k) * PROBE_BYTES * PS_BITS
    least_ps = int(-(-busiest_bits // (load_max * int(fabric.port_rate_bps.min()))))
    return Schedule(fabric, k, shares, per_port, max(period_ps, least_ps))


def check(k: int, period_ps: int, load_max: float) -> None:
    """Refuse what no schedule can be made of."""
    if not 1 <= k <= COVERAGE_MAX or not 1 <= period_ps <= PERIOD_MAX_PS or not 0 < load_max <= 1:
        raise InputError(
            f"mapper: {k} crossings in {period_ps} ps at a load of {load_max}; 1 to {COVERAGE_MAX}"
            f" crossings, up to {PERIOD_MAX_PS // S} s and a share above 0 are accepted"
        )


def _shares(k: int, n_t0s: int) -> Shares:
    two = 0 if n_t0s == 1 else 2 * k // 5
    return Shares(k - 2 * two, two)


class Carriers:
    """The carriers of a fabric's probes, for many of them at once."""

    def __init__(self, plan: UsidPlan) -> None:
        fabric = plan.fabric
        by_tier = (plan.t0, plan.t1)
        columns = (fabric.sw_tier, fabric.sw_plane, fabric.sw_index)
        where = np.stack(columns, axis=1).tolist()
        switches = [by_tier[tier](plane, index) for tier, plane, index in where]
        nics = [plan.nic(nic) for nic in range(fabric.n_nics)]
        peers = (fabric.port_peer_switch, fabric.port_peer_nic)
        # The uSID at the end of each directed port; none after the last port of a route (-1).
        self._behind = np.append(
            np.where(peers[0] >= 0, np.array(switches)[peers[0]], np.array(nics)[peers[1]]), 0
        )

    def of(self, routes: npt.ArrayLike) -> npt.NDArray[np.uint8]:
        """Return the carriers, as in a header, [n, 16], of probes that cross these directed ports,
        [n, hops].
        """
        usids = self._behind[np.asarray(routes, np.int64)]
        words = np.zeros((len(usids), ADDRESS_BITS // USID_BITS), ">u2")
        words[:, :BLOCK_USIDS] = [BLOCK >> USID_BITS, BLOCK & (1 << USID_BITS) - 1]
        words[:, BLOCK_USIDS : BLOCK_USIDS + usids.shape[1]] = usids
        return words.view(np.uint8)
