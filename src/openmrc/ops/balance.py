"""What went into a switch and did not come out: places that endpoints cannot tell apart, decided.

No switch counts what a fault loses, but every port counts the bytes that it sends. What the ports
towards a switch sent, less what the switch sent itself, and dropped and trimmed because its queues
were full, is missing there: it was lost on one of the links into it, or by the switch. Counters of
different devices are not read at one instant, so only sums over the whole run are compared; and
only places are compared of which endpoints know already that one of them loses packets.

Damaged packets are not missing anywhere: they are forwarded, and their receiver discards them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import Fabric
from openmrc.ops import causes

if TYPE_CHECKING:
    import polars as pl

FloatArray = npt.NDArray[np.float64]

LEAST, MOST = 0.5, 2.0  # of what endpoints know to be lost: missing where it was lost ...
CLEAR = 0.2  # ... and at most, where it was not
UNSURE = 0.02  # of what was dropped or trimmed: packets that are smaller than full ones
FEW = 2.0  # full packets: what control packets under way take


@dataclass(frozen=True, eq=False)
class Missing:
    """Packets that are missing at each switch of a fabric, as full ones: so many, give or take."""

    fabric: Fabric
    packets: FloatArray  # [switches]
    doubt: FloatArray  # [switches]

    def accuses(self, cause: int, lost: int) -> bool:
        """Return whether so many packets are missing that this cause may have lost that many."""
        least, _ = self._bounds(cause)
        return least >= LEAST * lost > 0

    def clears(self, cause: int, lost: int) -> bool:
        """Return whether so few are missing that this cause cannot have lost that many."""
        _, most = self._bounds(cause)
        return most <= CLEAR * lost

    def decided(self, candidates: Sequence[int], lost: int) -> int | None:
        """Return which of these causes lost `lost` packets of data; None if that is not known."""
        seen = [cause for cause in candidates if _behind(self.fabric, cause)]
        unseen = [cause for cause in candidates if cause not in seen]
        accused = [cause for cause in seen if self.accuses(cause, lost)]
        n_clear = sum(self.clears(cause, lost) for cause in seen)
        if len(accused) == 1 and n_clear == len(seen) - 1:
            return accused[0] if self._bounds(accused[0])[0] <= MOST * lost else None
        return unseen[0] if len(unseen) == 1 and n_clear == len(seen) else None

    def without(self, cause: int, lost: int) -> Missing:
        """Return what is missing besides the packets that this cause lost."""
        at, packets = _behind(self.fabric, cause), self.packets.copy()
        packets[at] -= lost / max(len(at), 1)
        return replace(self, packets=packets)

    def _bounds(self, cause: int) -> tuple[float, float]:
        at = _behind(self.fabric, cause)
        found, doubt = float(self.packets[at].sum()), float(self.doubt[at].sum())
        return found - doubt, found + doubt


def missing(fabric: Fabric, links: pl.DataFrame, full_bytes: int, trimmed_bytes: int) -> Missing:
    """Return what is missing at each switch, from the counts of all ports of a run (`links`);
    full and trimmed packets take so many bytes on the wire.
    """
    port = links["port"].to_numpy()
    names = ("octets", "dropped", "trimmed_here")
    sent, dropped, trimmed = (
        np.bincount(port, links[name].to_numpy(), fabric.n_ports) for name in names
    )
    full = dropped * full_bytes + trimmed * (full_bytes - trimmed_bytes)
    into, own, n = fabric.port_peer_switch, fabric.port_switch, fabric.n_switches
    came = np.bincount(into[into >= 0], sent[into >= 0], n)
    left, gone = (np.bincount(own[own >= 0], each[own >= 0], n) for each in (sent, full))
    packets = (came - left - gone) / full_bytes
    return Missing(fabric, packets, UNSURE * gone / full_bytes + FEW)


def _behind(fabric: Fabric, cause: int) -> list[int]:
    """The switches at which the packets are missing that a cause loses: a switch itself, or what
    a link leads to; none if that is a NIC.
    """
    if causes.kind(fabric, cause) == causes.SWITCH:
        return [cause - fabric.n_ports]
    ports = causes.links_of(fabric, cause)
    if causes.kind(fabric, cause) == causes.NIC:
        ports = ports[fabric.port_nic[ports] >= 0]
    found = fabric.port_peer_switch[ports]
    return sorted({int(switch) for switch in found.tolist() if switch >= 0})
