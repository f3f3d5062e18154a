"""The forms of captured frames: as a transport sends them, or with one IP header of either kind."""

from __future__ import annotations

NATIVE, IPV4, IPV6 = "native", "ipv4", "ipv6"
FORMS = (NATIVE, IPV4, IPV6)
NAMES = {IPV4: "IPv4", IPV6: "IPv6"}
