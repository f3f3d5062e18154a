"""Every figure of a plan that is not arithmetic: value, unit, meaning and source, in one table.

`mrc plan --set NAME=VALUE` replaces one. If nothing is published the source says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from openmrc.errors import InputError
from openmrc.say import number

HOURS_PER_DAY = 24
OWN = "assumption of this project: a round figure, not a quotation"


# The upper limit of any value: sums of larger ones are meaningless.
VALUE_MAX = 1e15


class Assumption(NamedTuple):
    """One figure: `least` and `most` bound the meaningful values."""

    value: float
    unit: str
    what: str
    source: str
    least: float = 0.0
    most: float = VALUE_MAX


MTBF_MIN_H = 0.001

ASSUMPTIONS: Mapping[str, Assumption] = {
    "switch_w_per_tbps": Assumption(
        17.8,
        "W per Tb/s",
        "power of a switch without transceivers",
        "913 W typical, without transceivers, of a 64 x 800G switch (UfiSpace S9321-64E), over 51.2"
        " Tb/s",
    ),
    "optics_w_per_tbps": Assumption(
        20.0,
        "W per Tb/s",
        "power of a transceiver",
        "16 W of an 800G module; they draw 14 to 20 W, by reach and maker",
    ),
    "switch_usd_per_tbps": Assumption(800.0, "USD per Tb/s", "price of a switch", OWN),
    "optics_usd_per_tbps": Assumption(1000.0, "USD per Tb/s", "price of a transceiver", OWN),
    "cable_usd": Assumption(100.0, "USD", "fibres between two transceivers", OWN),
    "nic_mtbf_h": Assumption(
        3.03e6,
        "h",
        "mean time between failures of a NIC",
        "Llama 3 (arXiv 2407.21783), table 5: 7 interruptions by NICs, 16,384 GPUs, 54 days",
        MTBF_MIN_H,
    ),
    "transceiver_mtbf_h": Assumption(
        1e6,
        "h",
        "of a transceiver",
        "a maker of 800G modules (LuxOptx): 500,000 to 2,000,000 h for a laser, 20 to 500 failures"
        " in 10^9 h for each other part",
        MTBF_MIN_H,
    ),
    "link_mtbf_h": Assumption(
        1.28e6,
        "h",
        "of a link between NIC and T0, or two switches",
        "Alibaba HPN (SIGCOMM 2024), section 2.3: 0.057 % of NIC-ToR links fail each month",
        MTBF_MIN_H,
    ),
    "switch_mtbf_h": Assumption(
        110_000.0,
        "h",
        "of a switch",
        "Singh et al. (CCR 51:2, 2021): 2 % of 180,000 switches within 3 months of deployment",
        MTBF_MIN_H,
    ),
    "plane_mtbf_h": Assumption(
        VALUE_MAX, "h", "of a whole plane", "nothing is published: as good as never", MTBF_MIN_H
    ),
    "fabric_flaps_per_day": Assumption(
        0.067,
        "a link and day",
        "flaps of a link between switches",
        "MRC's evaluation, figure 5: up to 14 a minute at 75,000 GPUs of 4 planes, 300,000 links",
    ),
    "port_flaps_per_day": Assumption(
        0.0,
        "a port and day",
        "flaps of a NIC's port",
        "nothing is published as a rate: none, in favour of the single plane",
    ),
    "flap_s": Assumption(
        60.0, "s", "how long a flap lasts", "most failed ports recover within a minute (OpenAI)"
    ),
    "repair_h": Assumption(
        24.0,
        "h",
        "how long anything else lasts",
        "days to replace optics (SWARM, arXiv 2305.13792, section 1)",
    ),
    "checkpoint_s": Assumption(
        1800.0, "s", "of work between two checkpoints", f"{OWN}; that of a training job here", 1.0
    ),
    "restart_s": Assumption(
        600.0, "s", "until an ended job computes again", f"{OWN}; that of a training job here"
    ),
    "stall_s": Assumption(
        0.005,
        "s",
        "for which all ranks wait after a failure that MRC survives",
        "this project's outage of real frames in the lab, median (docs/live.md); its simulator"
        " needs a hundredth of that",
    ),
    "convergence_s": Assumption(
        0.525,
        "s",
        "until routing knows of what broke",
        "BGP with links that end its sessions, 50 ms to 1 s (RFC 7938, section 7): the middle",
    ),
    "balance_share": Assumption(
        0.2,
        "of bandwidth",
        "lost until then by a job over switches that balance",
        "benchmarks/adaptive.py: 20 and 23 % of the time until routing knows of a dead link",
        most=0.99,
    ),
    "balance_port_s": Assumption(
        0.0003,
        "s",
        "for which all ranks wait after a NIC at switches that balance lost a port",
        "benchmarks/adaptive.py: 0.3 ms in one of two seeds, none in the other; NICs leave the"
        " plane after 3 ms",
    ),
    "exposed_share": Assumption(
        0.1,
        "of a step",
        "part of a step that waits for the network",
        OWN,
        most=1.0,
    ),
}


def values_with(
    overrides: Sequence[str] = (), known: Mapping[str, Assumption] = ASSUMPTIONS
) -> dict[str, float]:
    """Return the value of every `known` assumption, with `overrides` ("cable_usd=50") in place of
    the defaults.

    Raises `InputError` for an unknown name or an invalid value.
    """
    values = {name: assumption.value for name, assumption in known.items()}
    for text in overrides:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise InputError(f"--set {text}: accepted: NAME=VALUE, such as cable_usd=50")
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"accepted: {', '.join(known)}"
            raise InputError(f"--set {text}: there is no assumption {name!r}; {hint}")
        values[name] = _value(text, value, known[name])
    return values


def _value(text: str, value: str, assumption: Assumption) -> float:
    try:
        found = float(value)
    except ValueError:
        found = math.nan
    if not assumption.least <= found <= assumption.most:
        raise InputError(
            f"--set {text}: a number from {number(assumption.least)} to {number(assumption.most)}"
            f" is accepted, in {assumption.unit}"
        )
    return found
