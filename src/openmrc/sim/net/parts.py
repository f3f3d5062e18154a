"""The parts of a world apart from its transport, and the values derived from both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openmrc.fabric.actions import FaultSchedule
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import Queues, Sizes
from openmrc.traffic.traffic import Traffic


@dataclass(frozen=True)
class Parts:
    """The parts of a world apart from its transport; `tapped`: directed ports of a capture."""

    fabric: Fabric
    traffic: Traffic
    queues: Queues
    schedule: FaultSchedule | None
    seed: int
    tapped: npt.NDArray[np.int64]

    @property
    def senders_per_nic(self) -> int:
        """The largest number of the workload's QPs that send to one NIC."""
        return int(np.bincount(self.traffic.qp_dst, minlength=1).max(initial=0))

    def packets_per_qp(self, pmtu: int) -> int:
        """Return the most packets that a QP of the workload sends, apart from losses."""
        packets = np.bincount(self.traffic.msg_qp, self.traffic.packets(pmtu), minlength=1)
        return int(packets.max(initial=0))


class Values:
    """The values derived from a fabric and a transport: a data class with units in the names."""

    def as_dict(self) -> dict[str, int]:
        """Name to value; the sizes of queues have names of their own."""
        found: dict[str, int] = {}
        for name, value in vars(self).items():
            found |= value._asdict() if isinstance(value, Sizes) else {name: value}
        return found
