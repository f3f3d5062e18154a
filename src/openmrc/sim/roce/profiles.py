"""Settings of NICs and switches: profiles of DCQCN, ECN thresholds, shares of PFC.

Rates are fractions of the line rate, as operators scale them with the port; times are absolute, as
in NICs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from openmrc.errors import InputError
from openmrc.jit import records
from openmrc.sim.roce import dcqcn, pfc
from openmrc.units import MS, US

GBPS = 1_000_000_000


@dataclass(frozen=True)
class Profile:
    """The settings of a NIC's DCQCN; their names on NICs are in `dcqcn.CONFIG`.

    The defaults are those of the DCQCN paper (section 5) for 40 Gb/s, rates as fractions of the
    line rate.
    """

    g: float = 1 / 256
    initial_alpha: float = 1.0
    alpha_share: float = 0.5
    least_factor: float = 0.5
    alpha_ps: int = 55 * US
    increase_ps: int = 55 * US
    byte_reset: int = 10_000_000
    fast_rounds: int = 5
    cnp_ps: int = 50 * US
    cut_ps: int = 4 * US
    ai_share: float = 1 / 1000  # 40 Mb/s of 40 Gb/s
    hai_share: float = 1 / 100
    min_share: float = 1 / 1000
    clamp_target: bool = True
    clamp_after_time: bool = True


# Calibrated, not published: the settings are a NIC's, and their values those with which a packet
# model of one port meets the requirement of each profile (docs/roce_rates.md). F = 1, 300 us
# between rounds, 4 us between CNPs and a cut to no less than a half are NVIDIA's firmware defaults.
PROFILES = {
    # The default of a run. Between two CNPs there is one round, which adds nothing yet, so CNPs
    # control 56 QPs at a port, 8 for each of 7 NICs, as well as two.
    "default": Profile(g=1 / 16, increase_ps=35 * US, fast_rounds=1, ai_share=1 / 150),
    # The other three reproduce what three profiles of one NIC do in figure 22 of the published
    # evaluation, when up to 15 flows of 400 Gb/s meet at a port. This is that NIC's default: time
    # raises the rate three times between two CNPs, and by so much that CNPs take less from a tenth
    # of the line rate than that adds. Marks control up to nine QPs, PFC more.
    "lenient": Profile(g=1 / 16, increase_ps=15 * US, fast_rounds=1, ai_share=1 / 150),
    # CNPs come five times as often and weigh more; no rate recovers in less than 300 us.
    "aggressive": Profile(
        g=1 / 4, increase_ps=300 * US, fast_rounds=1, cnp_ps=10 * US, ai_share=1 / 100
    ),
    # CNPs as often as a NIC allows, and a first cut by all of alpha.
    "most-aggressive": Profile(
        g=1 / 4,
        increase_ps=300 * US,
        fast_rounds=1,
        cnp_ps=4 * US,
        alpha_share=1.0,
        ai_share=1 / 25,
    ),
    "paper": Profile(),  # as published by its authors
}


def profile_named(name: str) -> Profile:
    """Return a profile by its name; `InputError` if there is none."""
    if name not in PROFILES:
        raise InputError(f"profile {name!r} is not known; accepted: {', '.join(PROFILES)}")
    return PROFILES[name]


def dcqcn_config(profile: Profile, line_bps: int) -> Any:
    """A record of `dcqcn.CONFIG` in an array of one, for QPs whose line rate is `line_bps`."""
    config = records(1, dcqcn.CONFIG)
    c = config[0]
    c.line_bps = line_bps
    c.min_bps = max(profile.min_share * line_bps, dcqcn.RATE_UNIT_BPS)
    c.ai_bps = profile.ai_share * line_bps
    c.hai_bps = profile.hai_share * line_bps
    for name, value in vars(profile).items():
        if name in (dcqcn.CONFIG.names or ()):  # fractions have become rates
            setattr(c, name, value)
    return config


@dataclass(frozen=True)
class Marking:
    """RED marks of an egress port of rate R, by the length of the data queue: none up to `low`,
    with a probability that grows to `p_max` at `high`, and always above (DCQCN, figure 5).
    """

    # In time of the port's rate: 400 KB and 1.6 MB at 100 Gb/s (HPCC, SIGCOMM 2019, section 5.1, as
    # its authors set DCQCN in production), with the Pmax of its simulations.
    low_ps: int = 32 * US
    high_ps: int = 128 * US
    p_max: float = 0.2

    def low_bytes(self, rate_bps: int) -> int:
        """Kmin of a port, bytes."""
        return self.low_ps * rate_bps // pfc.PS_BITS

    def high_bytes(self, rate_bps: int) -> int:
        """Kmax of a port, bytes."""
        return self.high_ps * rate_bps // pfc.PS_BITS


@dataclass(frozen=True)
class FlowControl:
    """PFC of a switch (`pfc.py`)."""

    xoff_bytes: int = 0  # share of a link; 0: by alpha
    alpha: float = 1.0  # as the DCQCN paper's section 4 chooses it: beta = 8 of 8 classes
    xon_gap_packets: int = 2
    storm_ps: int = 200 * MS  # the delay of PFC watchdogs
    buffer_bytes_per_gbps: int = 3_200  # of all ports of a switch: 165 MB for 51.2 Tb/s
    quanta: int = pfc.QUANTA_MAX


def pfc_config(control: FlowControl, frame_bytes: int) -> Any:
    """A record of `pfc.CONFIG` in an array of one; `frame_bytes` is a whole data frame."""
    config = records(1, pfc.CONFIG)
    c = config[0]
    c.xoff_bytes = control.xoff_bytes
    c.alpha = control.alpha
    c.xon_gap_bytes = control.xon_gap_packets * frame_bytes
    c.storm_ps = control.storm_ps
    c.quanta = control.quanta
    return config


def shared_buffer_bytes(control: FlowControl, rates_bps: int, headroom_bytes: int) -> int:
    """The shared buffer of a switch, bytes: its buffer less the headroom of all its links.

    `rates_bps` and `headroom_bytes` are sums over its ports. `InputError` if less than a quarter of
    the buffer is left: such links are too long for such a switch.
    """
    buffer_bytes = control.buffer_bytes_per_gbps * rates_bps // GBPS
    shared = buffer_bytes - headroom_bytes
    if shared < buffer_bytes // 4:
        raise InputError(
            f"transport.buffer: 'auto' is {buffer_bytes} B for a switch here, of which PFC needs"
            f" {headroom_bytes} B of headroom; state at least {2 * headroom_bytes} B, or shorten"
            " links"
        )
    return shared
