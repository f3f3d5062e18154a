"""A scenario of a smaller fabric of the same kind, to simulate with `mrc run` what was only
computed.
"""

from __future__ import annotations

from openmrc.errors import InputError
from openmrc.planning.sizing import Design
from openmrc.units import US, S, fmt_rate, fmt_time

# 64 NICs of 8 to a T0: seconds of simulation, and every kind of place exists several times.
NICS = 64
T0_DOWN = 8
T0_DOWN_THREE = 4  # 64 = 4 x 4 x 4: three tiers, each more than one switch wide
MESSAGE_BYTES = 4_000_000
SCENARIO_PLANES_MAX = 16  # of a scenario file
SCENARIO_TIERS_MAX = 3  # of a scenario's fat tree; its planes have two


def scenario(design: Design) -> str:
    """Return a scenario file for at most 64 NICs, saying what was scaled.

    Raises `InputError` for a design that no scenario file can describe.
    """
    nics = min(design.nics, NICS)
    most = T0_DOWN if design.tiers == 2 else T0_DOWN_THREE
    t0_down = min(design.half, most, nics)
    # a quarter of the time that a message takes alone
    cut_us = max(1, MESSAGE_BYTES * 8 * S // design.nic_rate_bps // US // 4)
    return f"""\
# A smaller fabric like the planned one: {design.name}, {fmt_rate(design.nic_rate_bps)} a NIC.
# As planned: planes, tiers, the rate of every link, full bisection.
# Scaled: {design.nics:,} NICs to {nics}.
# Scaled: {design.half} NICs below a T0, and as many uplinks of it, to {t0_down}.
# So one link between T0 and T1 is 1/{t0_down} of its T0's uplinks here, 1/{design.half} there.
name = "{nics} of {design.nics} NICs"

{_fabric(design, nics, t0_down)}
[[transport]]
paths = "mrc"

[[transport]]
paths = "single"

[workload]
kind = "permutation"
size = "4MB"

[[fault]]
at = "{fmt_time(cut_us * US)}"
kind = "link-down"
where = "plane 0 t0 0 - t1 0"
"""


def _fabric(design: Design, nics: int, t0_down: int) -> str:
    if design.planes > SCENARIO_PLANES_MAX:
        raise InputError(
            f"--scenario with {design.planes} planes: a scenario has at most"
            f" {SCENARIO_PLANES_MAX}; plan fewer, or leave --scenario out"
        )
    most = SCENARIO_TIERS_MAX if design.planes == 1 else 2
    if design.tiers > most:
        raise InputError(
            f"--scenario with {design.name}: a scenario has at most {most} tiers there; plan fewer"
            " GPUs, or leave --scenario out"
        )
    rate = fmt_rate(design.port_rate_bps)
    kind, own = "multiplane", f"planes = {design.planes}"
    if design.planes == 1:
        kind, own = "fat-tree", f"tiers = {design.tiers}"
    return f"""\
[fabric]
kind = "{kind}"
nics = {nics}
{own}
port_rate = "{rate}"
t0_down = {t0_down}
"""
