"""The fabric and the permutation of a simulator that others know."""

from __future__ import annotations

import numpy as np

from openmrc.traffic.traffic import Traffic, make_traffic

SEEDS = range(1, 11)
SIZE = 2_000_000
TOPO = """\
Nodes 128
Tiers 3
Podsize 16
Tier 0
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 1000
Tier 2
Downlink_speed_Gbps 100
Radix_Down 8
Downlink_Latency_ns 1000
"""
# fmt: off
DESTINATIONS = [  # of NICs 0 to 127
    90, 66, 23, 72, 3, 93, 70, 50, 115, 39, 110, 14, 120, 112, 10, 20, 0, 63, 105, 116,
    58, 97, 36, 69, 100, 84, 119, 52, 123, 4, 59, 41, 121, 40, 109, 46, 95, 21, 5, 65, 64,
    74, 107, 87, 18, 68, 37, 94, 7, 55, 91, 114, 86, 127, 26, 122, 30, 42, 53, 62, 108,
    47, 99, 1, 111, 17, 57, 81, 15, 44, 28, 2, 85, 80, 51, 126, 33, 60, 35, 92, 75, 48,
    11, 88, 106, 56, 77, 8, 25, 101, 113, 102, 96, 67, 124, 38, 6, 49, 22, 79, 125, 29,
    76, 32, 73, 118, 78, 31, 71, 89, 24, 43, 12, 103, 27, 117, 54, 98, 61, 16, 104, 13,
    19, 9, 45, 82, 34, 83,
]
# fmt: on


def permutation() -> Traffic:
    nics = np.arange(128)
    return make_traffic("permutation", 128, nics, DESTINATIONS, nics, SIZE)
