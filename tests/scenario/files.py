"""Files of a peer's simulator: a fabric of 16 NICs, and one connection."""

from __future__ import annotations

TOPO = "Nodes 16\nTiers 2\nPodsize 16\n" + "".join(
    f"Tier {tier}\nDownlink_speed_Gbps 100\nRadix_Down 4\n{up}Downlink_Latency_ns 1000\n"
    for tier, up in ((0, "Radix_Up 4\n"), (1, ""))
)
CM = "Nodes 16\nConnections 1\n0->15 id 1 start 0 size 4096\n"
