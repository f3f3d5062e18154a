"""The limits of a run's integers: a fabric or a workload beyond them is refused, not rounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openmrc.errors import InputError
from openmrc.units import PS_BITS, S, fmt_rate, fmt_time

if TYPE_CHECKING:
    from openmrc.fabric.model import Fabric
    from openmrc.traffic.traffic import Traffic

# Time is picoseconds in an int64. At 100 Tb/s, a hundred times the fastest existing port, the
# smallest packet still takes 5 ps; beyond that packets would take no time.
RATE_BPS_MAX = 100 * 10**12
DELAY_PS_MAX = S  # seven times round the Earth
TIME_PS_MAX = 2**62  # 53 days, half the range of an int64, because times are added


def refuse_beyond(fabric: Fabric, traffic: Traffic, described_by: str | None = None) -> None:
    """Raise `InputError` for a rate, a delay or a transfer whose time cannot be represented.

    `described_by` is the key of the file that describes the fabric, if one does.
    """
    fastest, slowest = int(fabric.port_rate_bps.max()), int(fabric.port_rate_bps.min())
    if fastest > RATE_BPS_MAX:
        raise InputError(
            f"{described_by or 'fabric.port_rate'}: {fmt_rate(fastest)} is too fast for a link;"
            f" at most {fmt_rate(RATE_BPS_MAX)}"
        )
    for key, delays_ps in (
        ("fabric.link_delay", fabric.port_delay_ps),
        ("fabric.switch_delay", fabric.sw_delay_ps),
    ):
        longest = int(delays_ps.max(initial=0))
        if longest > DELAY_PS_MAX:
            raise InputError(
                f"{described_by or key}: {fmt_time(longest)} is too long a delay;"
                f" at most {fmt_time(DELAY_PS_MAX)}"
            )
    # As floating-point numbers: the sum of what is refused exceeds any integer type.
    sent_bytes = float((traffic.msg_bytes.astype(float) * traffic.msg_count).sum())
    if sent_bytes * PS_BITS / slowest > TIME_PS_MAX:
        raise InputError(
            f"workload: {sent_bytes:.3g} bytes over links of {fmt_rate(slowest)} can take more than"
            f" {TIME_PS_MAX // S // 86400} days of simulated time, which is not counted;"
            " send less, or over faster links"
        )
