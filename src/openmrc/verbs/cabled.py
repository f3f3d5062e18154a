"""Two directly connected devices in one process, for machines that allow nothing else, and for the
first compilation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from openmrc.errors import InputError
from openmrc.fabric.clos import multiplane
from openmrc.jit.warmup import announcement, is_cached
from openmrc.live import overlay
from openmrc.live.endpoint.limits import Limits, Port
from openmrc.live.endpoint.warmup import warm_up
from openmrc.say import say
from openmrc.units import NS
from openmrc.verbs.device import Device

OVERLAY_PLANES_MAX = 8
PORT_RATE_BPS = 10 * 10**9  # more than loopback and two cores carry: nothing paces
LINK_DELAY_PS, SWITCH_DELAY_PS = 500 * NS, 250 * NS


def prepare() -> None:
    """Compile the endpoint if that has not been done yet, and print so."""
    if not is_cached("live"):
        say(announcement("the endpoint", "up to two minutes"))
        warm_up()


@contextmanager
def cabled(
    planes: int, base_rtt_ps: int | None = None, **limits: Any
) -> Iterator[tuple[Device, Device]]:
    """Two open devices; every plane is a pair of loopback sockets, without a switch.

    `base_rtt_ps` None: measured once a queue pair is connected.
    """
    if not 1 <= planes <= OVERLAY_PLANES_MAX:
        raise InputError(f"--overlay: {planes} planes: 1 to {OVERLAY_PLANES_MAX} are accepted")
    fabric = multiplane(2, planes, PORT_RATE_BPS, 1, 2, LINK_DELAY_PS, SWITCH_DELAY_PS)
    pairs = [overlay.pair() for _ in range(planes)]
    devices: list[Device] = []
    try:
        for nic in range(2):
            ports = [Port(pair[nic].fileno(), bytes(6)) for pair in pairs]
            devices.append(Device(fabric, nic, ports, Limits(**limits), base_rtt_ps))
        yield devices[0], devices[1]
    finally:
        for device in devices:
            device.close()
        for pair in pairs:
            for one in pair:
                one.close()
