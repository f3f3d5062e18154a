"""Elementary actions, to which every fault is reduced; the same in the simulator and in a live lab.

A schedule is a table of them, sorted by time and, within an instant, by the action's number: first
the states of ports and switches change, then those that react to them are notified. No action says
how it is carried out, and every action changes a state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import BoolArray

# The target of a PORT action is a directed port, of a SWITCH action a switch, of a NIC_PORT action
# a NIC's own port, nic * n_planes + plane.
PORT_UP = 0
PORT_DOWN = 1  # packets queued on it and in flight behind it are lost
PORT_LOSS = 2  # from now on at this rate, in bursts of this mean length (0: one by one)
PORT_CORRUPT = 3  # damages packets from now on at this rate: they travel on, with a bad iCRC
PORT_RATE = 4  # from now on it sends at this fraction of its rate; 1 restores it
PORT_MTU = 5  # from now on it loses all IP packets above this length; MTU_WHOLE restores it
SWITCH_UP = 6
SWITCH_DOWN = 7  # accompanies PORT_DOWN of all its links, both directions
SWITCH_SILENT = 8
PORT_DENY = 9  # EVs whose paths cross it are denied to the NICs of this group
PORT_ALLOW = 10
REVIEW_PATHS = 11  # ends the denials of an instant: every NIC reviews its EVs; no target
NIC_PORT_DOWN = 12  # both directions are down, which the NIC itself notices
NIC_PORT_UP = 13

MTU_WHOLE = 65_535  # bytes: no IP packet is longer

PORT_HEALTH = [  # state that PORT actions set; probabilities are scaled by 2^31
    ("loss", "u4"),  # that a packet is lost after one that was not,
    ("loss_again", "u4"),  # and after one that was
    ("corrupt", "u4"),  # that a packet is damaged
    ("frame_max", "i4"),  # bytes on the wire of the longest packet that passes; 0: of any length
    ("losing", "i1"),  # the last packet was lost
]

EVENT = np.dtype(
    [
        ("at_ps", "i8"),
        ("action", "i2"),
        ("group", "i2"),  # of PORT_DENY, PORT_ALLOW: row of `FaultSchedule.groups`
        ("target", "i4"),
        ("rate", "f8"),
        ("burst", "f8"),
    ]
)

GROUPS_MAX = 16  # groups of NICs with denylists of their own: a port has one bit for each


@dataclass(frozen=True, eq=False)
class FaultSchedule:
    """`events` of dtype `EVENT` in time order, and (time, label) marks for plots.

    `groups[group, nic]` says which NICs a denial is for.
    """

    events: npt.NDArray[Any]
    names: tuple[tuple[int, str], ...]
    groups: BoolArray
