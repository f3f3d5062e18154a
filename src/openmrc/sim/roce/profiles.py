"""What NICs and switches are set to: DCQCN's profiles, the marks of the switches, PFC's shares.

Rates are shares of the line rate, as operators scale them with the port; times are absolute, as
NICs have them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from openmrc.errors import InputError
from openmrc.jit import records
from openmrc.sim.roce import dcqcn, pfc

US_PS = 1_000_000
MS_PS = 1_000 * US_PS


@dataclass(frozen=True)
class Profile:
    """The knobs of a NIC's DCQCN. Defaults are those of the DCQCN paper (section 5.2, and 5.3 for
    the minimum of what is cut), which most simulators use.
    """

    g: float = 1 / 256
    initial_alpha: float = 1.0
    alpha_share: float = 0.5
    least_factor: float = 0.5
    alpha_ps: int = 55 * US_PS
    increase_ps: int = 55 * US_PS
    byte_reset: int = 10_000_000
    fast_rounds: int = 5
    cnp_ps: int = 50 * US_PS
    cut_ps: int = 4 * US_PS
    ai_share: float = 1 / 1000  # 40 Mb/s of 40 Gb/s
    hai_share: float = 1 / 100
    min_share: float = 1 / 1000
    clamp_target: bool = True
    clamp_after_time: bool = True


PROFILES = {
    "default": Profile(),
    "aggressive": Profile(),
    "most-aggressive": Profile(),
}


def profile_named(name: str) -> Profile:
    """A profile by its name; `InputError` if there is none."""
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
    for name in (
        "g",
        "initial_alpha",
        "alpha_share",
        "least_factor",
        "alpha_ps",
        "increase_ps",
        "byte_reset",
        "fast_rounds",
        "cnp_ps",
        "cut_ps",
        "clamp_target",
        "clamp_after_time",
    ):
        setattr(c, name, getattr(profile, name))
    return config


@dataclass(frozen=True)
class Marking:
    """RED marks of an egress port of rate R, by what the data queue holds: none up to `low`, with
    a probability that grows to `p_max` at `high`, and always above (DCQCN, figure 5).
    """

    low_ps: int = 32 * US_PS  # in time of the port's rate: 400 KB at 100 Gb/s
    high_ps: int = 128 * US_PS  # 1.6 MB at 100 Gb/s
    p_max: float = 0.2

    def low_bytes(self, rate_bps: int) -> int:
        """Kmin of a port."""
        return self.low_ps * rate_bps // pfc.PS_BITS

    def high_bytes(self, rate_bps: int) -> int:
        """Kmax of a port."""
        return self.high_ps * rate_bps // pfc.PS_BITS


@dataclass(frozen=True)
class FlowControl:
    """PFC of a switch."""

    xoff_bytes: int = 0  # 0: by alpha
    alpha: float = 1.0
    xon_gap_packets: int = 2
    storm_ps: int = 200 * MS_PS
    buffer_bytes_per_gbps: int = 3_200  # of a switch's ports together: 165 MB of 51.2 Tb/s
