"""The number of switches, links and transceivers of a folded Clos of full bisection.

A switch of `radix` ports has half of them downwards and half upwards, in the top tier all downwards
(# MRC 7.1 to 7.4). With h = radix // 2 a plane of t tiers holds h^(t-1) * radix NICs:

* T0s: ceil(nics / h).
* Tier i below the top: blocks of h^i switches, each block above h^i T0s; a partly filled block has
  all of its switches, so that its NICs have their full bandwidth.
* The top tier has one link to a switch of every block below it, or as many in parallel as its ports
  allow and as divide h; h^(t-1) divided by that number are its switches.

That is the wiring of `fabric.clos.build`. A transceiver is as fast as a NIC: at the NIC it holds
all planes' ports, at a switch as many links (# MRC 8, B3: a T0's transceiver holds four of 200G).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from openmrc.errors import InputError
from openmrc.units import fmt_rate

TIERS_MIN, TIERS_MAX = 2, 4
# A port status update carries one bit per plane in 32 (# MRC 2.10).
NIC_PORTS_MAX = 32
# 80 times the largest published fabric: four tiers of 64-port switches hold 2.1 million.
GPUS_MIN, GPUS_MAX = 2, 10_000_000
RADIX_MIN = 4  # two ports down, two up; with fewer it is a chain
RADIX_MAX = 4096  # 8 times the ports of any switch sold


@dataclass(frozen=True)
class Design:
    """A fabric for `nics` NICs (one for each GPU), sized. Rates in bit/s."""

    nics: int
    planes: int
    tiers: int
    nic_rate_bps: int
    switch_rate_bps: int

    @property
    def name(self) -> str:
        """Return "8 planes, 2 tiers"."""
        return f"{self.planes} plane{'s' * (self.planes > 1)}, {self.tiers} tiers"

    @property
    def port_rate_bps(self) -> int:
        """Return the rate of every link."""
        return self.nic_rate_bps // self.planes

    @property
    def radix(self) -> int:
        """Return the ports of a switch."""
        return self.switch_rate_bps // self.port_rate_bps

    @property
    def half(self) -> int:
        """Return the ports downwards, and upwards, of a switch below the top."""
        return self.radix // 2

    @property
    def nics_max(self) -> int:
        """Return how many NICs these switches can carry in these tiers."""
        return largest(self.radix, self.tiers)

    @property
    def t0s(self) -> int:
        """Return the T0s of one plane."""
        return -(-self.nics // self.half)

    def blocks(self, tier: int) -> int:
        """Return the blocks of one plane that `tier` is divided into; 1 for the top."""
        return 1 if tier == self.tiers - 1 else -(-self.t0s // self.half**tier)

    @cached_property
    def bundle(self) -> int:
        """Return how many links in parallel a top switch has to each block below it: one where it
        has more ports than the others.
        """
        most = max(self.radix // self.blocks(self.tiers - 2), 1)
        return max(b for b in range(1, self.half + 1) if b <= most and self.half % b == 0)

    @cached_property
    def switches(self) -> tuple[int, ...]:
        """Return the switches of each tier, all planes together."""
        below = [self.blocks(tier) * self.half**tier for tier in range(self.tiers - 1)]
        below[0] = self.t0s
        top: int = self.half ** (self.tiers - 1) // self.bundle
        return tuple(self.planes * count for count in (*below, top))

    @cached_property
    def links(self) -> tuple[int, ...]:
        """Return the links of each stage, all planes together: NIC to T0, T0 to T1 ..."""
        return (self.nics * self.planes, *(count * self.half for count in self.switches[:-1]))

    @property
    def links_per_transceiver(self) -> int:
        """Return how many links share a transceiver of a switch."""
        return min(self.planes, self.half)

    @cached_property
    def transceivers(self) -> tuple[int, ...]:
        """Return the transceivers by place: in NICs, downwards in T0s, between switches.

        A switch has whole ones: those of its last links may be part empty.
        """
        per = self.links_per_transceiver
        t0_down = self.planes * _full_and_rest(self.nics, self.half, per)
        up = sum(count * -(-self.half // per) for count in self.switches[:-1])
        down = 0
        for tier in range(1, self.tiers - 1):
            blocks = _full_and_rest(self.t0s_below(tier), self.half, per)
            down += self.planes * self.half**tier * blocks
        ports = self.blocks(self.tiers - 2) * self.bundle
        down += self.switches[-1] * -(-ports // per)
        return (self.nics, t0_down, up + down)

    def t0s_below(self, tier: int) -> int:
        """Return the neighbours below one position of `tier`, summed over the blocks of a plane."""
        below: int = -(-self.t0s // self.half ** (tier - 1))
        return below

    @property
    def hops_max(self) -> int:
        """Return the switches of the longest path (# MRC 7.5)."""
        highest = next(tier for tier in range(self.tiers) if self.reach(tier) >= self.nics)
        return 2 * highest + 1

    def reach(self, tier: int) -> int:
        """Return how many NICs one switch of `tier` has below it."""
        below: int = self.half ** (tier + 1)
        return self.nics if tier == self.tiers - 1 else min(self.nics, below)


def size(
    nics: int, planes: int, nic_rate_bps: int, switch_rate_bps: int, tiers: int | None = None
) -> Design:
    """Return the fabric, of the fewest tiers that hold `nics` where `tiers` is None.

    Raises `InputError` naming the option, the value and what is possible.
    """
    _check(nics, planes, nic_rate_bps, switch_rate_bps, tiers)
    radix = switch_rate_bps * planes // nic_rate_bps
    if tiers is None:
        choices = range(TIERS_MIN, TIERS_MAX + 1)
        tiers = next((t for t in choices if nics <= largest(radix, t)), TIERS_MAX)
    if nics > largest(radix, tiers):
        raise InputError(_too_many(nics, planes, nic_rate_bps, switch_rate_bps, radix, tiers))
    return Design(nics, planes, tiers, nic_rate_bps, switch_rate_bps)


def largest(radix: int, tiers: int) -> int:
    """Return how many NICs `tiers` tiers of switches with `radix` ports hold."""
    nics: int = (radix // 2) ** (tiers - 1) * radix
    return nics


def _full_and_rest(things: int, group: int, per: int) -> int:
    """Return how many boxes of `per` hold `things` in groups, if no box serves two groups."""
    full, rest = divmod(things, group)
    return full * -(-group // per) + -(-rest // per)


def _check(
    nics: int, planes: int, nic_rate_bps: int, switch_rate_bps: int, tiers: int | None
) -> None:
    if not GPUS_MIN <= nics <= GPUS_MAX:
        raise InputError(f"--gpus {nics:,}: {GPUS_MIN} to {GPUS_MAX:,} is accepted")
    if not 1 <= planes <= NIC_PORTS_MAX:
        raise InputError(f"--planes {planes}: 1 to {NIC_PORTS_MAX} is accepted")
    if nic_rate_bps < 1 or nic_rate_bps % planes:
        good = [n for n in range(1, NIC_PORTS_MAX + 1) if nic_rate_bps % n == 0]
        raise InputError(
            f"--planes {planes}: {fmt_rate(nic_rate_bps)} does not divide into so many equal"
            f" ports; accepted: {', '.join(map(str, good)) if nic_rate_bps else 'a rate above 0'}"
        )
    if tiers is not None and not TIERS_MIN <= tiers <= TIERS_MAX:
        raise InputError(f"--tiers {tiers}: {TIERS_MIN} to {TIERS_MAX} is accepted")
    port_bps = nic_rate_bps // planes
    if not RADIX_MIN <= switch_rate_bps // port_bps <= RADIX_MAX:
        raise InputError(
            f"--switch {fmt_rate(switch_rate_bps)}: {switch_rate_bps // port_bps:,} ports of"
            f" {fmt_rate(port_bps)}; {RADIX_MIN} to {RADIX_MAX} are accepted:"
            f" {fmt_rate(RADIX_MIN * port_bps)} to {fmt_rate(RADIX_MAX * port_bps)}"
        )


def _too_many(
    nics: int, planes: int, nic_rate_bps: int, switch_rate_bps: int, radix: int, tiers: int
) -> str:
    """Return what is possible instead: the largest that fits, and a design that would hold all."""
    ways = [f"at most {largest(radix, tiers):,} GPUs"]
    # Ports are sold in rates that are halves of each other.
    doubled = (p for p in (2, 4, 8, 16, 32) if p > planes and nic_rate_bps % p == 0)
    fits = (p for p in doubled if nics <= largest(switch_rate_bps * p // nic_rate_bps, tiers))
    more = next(fits, None)
    if more is not None:
        ways.append(f"--planes {more}")
    higher = next((t for t in range(tiers + 1, TIERS_MAX + 1) if nics <= largest(radix, t)), None)
    if higher is not None:
        ways.append(f"--tiers {higher}")
    rate = fmt_rate(nic_rate_bps // planes)
    return (
        f"--gpus {nics}: {tiers} tiers of {radix}-port switches ({fmt_rate(switch_rate_bps)} at"
        f" {rate}) are too small; accepted: {', or '.join(ways)}"
    )
