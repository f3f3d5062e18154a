"""The state of the fabric as the flow level sees it: how many bytes each directed port carries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.fabric import actions
from openmrc.fabric.health import AROUND_IP_BYTES
from openmrc.fabric.model import Fabric
from openmrc.units import PS_BITS

Floats = npt.NDArray[np.float64]


class Health:
    """Ports and switches at one time. `frame_bytes` is the longest packet, on the wire."""

    def __init__(self, fabric: Fabric, frame_bytes: int) -> None:
        self._fabric, self._frame_bytes = fabric, frame_bytes
        self._whole = fabric.port_rate_bps / PS_BITS
        self.up = np.ones(fabric.n_ports, np.bool_)  # by directed port
        self._share = np.ones(fabric.n_ports)  # of its rate that it sends at
        self._passes = np.ones((3, fabric.n_ports))  # shares that loss, damage and its MTU leave
        self._silent = np.zeros(fabric.n_switches, np.bool_)
        self.denied = np.zeros(fabric.n_ports, np.int64)  # mask of groups

    def apply(self, events: Iterable[Any]) -> None:
        """Carry out elementary actions (`fabric.actions.EVENT`)."""
        for event in events:
            action, target, rate = int(event["action"]), int(event["target"]), float(event["rate"])
            if action in (actions.PORT_UP, actions.PORT_DOWN):
                self.up[target] = action == actions.PORT_UP
            elif action == actions.PORT_RATE:
                self._share[target] = rate
            elif action in (actions.PORT_LOSS, actions.PORT_CORRUPT):
                self._passes[action - actions.PORT_LOSS, target] = 1 - rate
            elif action == actions.PORT_MTU:
                self._passes[2, target] = rate + AROUND_IP_BYTES >= self._frame_bytes
            elif action in (actions.PORT_DENY, actions.PORT_ALLOW):
                bit = 1 << int(event["group"])
                kept = self.denied[target] & ~bit
                self.denied[target] = kept | (bit if action == actions.PORT_DENY else 0)
            elif action in (actions.SWITCH_SILENT, actions.SWITCH_UP, actions.SWITCH_DOWN):
                self._silent[target] = action == actions.SWITCH_SILENT

    @property
    def works(self) -> npt.NDArray[np.bool_]:
        """Whether data packets pass a port, even if not all; [ports]."""
        into = self._fabric.port_peer_switch
        silent = np.where(into >= 0, self._silent[into], False)
        passes: npt.NDArray[np.bool_] = self.up & ~silent & (self._passes.min(axis=0) > 0)
        return passes

    @property
    def loses(self) -> Floats:
        """The share of packets that each port loses or damages; 1 where nothing passes."""
        lost: Floats = np.where(self.works, 1 - self._passes.prod(axis=0), 1)
        return lost

    def bytes_per_ps(self, groups: int = 0) -> Floats:
        """What each port carries, for senders in these groups of denylists, [ports]."""
        allowed = self.works & (self.denied & groups == 0)
        carried: Floats = self._whole * self._share * allowed
        return carried
