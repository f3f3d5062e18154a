"""What went into a switch and did not come out: places that endpoints cannot tell apart, decided.

No switch counts what a fault loses, but every port counts the packets that it sends. What the ports
towards a switch sent, less what the switch sent itself, and dropped because its queues were full,
is missing there: it was lost on one of the links into it, or by the switch. A trimmed packet is
still a packet. Counters of different devices are not read at one instant, so only sums over the
whole run are compared; and only places are compared of which endpoints know already that one of
them loses packets.

Damaged packets are not missing anywhere: they are forwarded, and their receiver discards them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
UNDER_WAY = 8.0  # packets to a switch when the counters are read, at most


@dataclass(frozen=True, eq=False)
class Missing:
    """Packets that are missing at each switch of a fabric: so many, or `UNDER_WAY` fewer."""

    fabric: Fabric
    packets: FloatArray  # [switches]

    def accuses(self, cause: int, lost: int) -> bool:
        """Return whether so many packets are missing that this cause may have lost that many."""
        least, _ = self._bounds(_behind(self.fabric, cause))
        return least >= LEAST * lost > 0

    def clears(self, cause: int, lost: int, one_by_one: bool = False) -> bool:
        """Return whether so few are missing that this cause cannot have lost that many, a part of
        its packets or, unless it was `one_by_one`, all of them for a while. Nobody knows what a NIC
        did not send, or did not get.
        """
        at = _behind(self.fabric, cause)
        if _is_of_nic(self.fabric, cause) and not (
            one_by_one and at and causes.kind(self.fabric, cause) == causes.LINK
        ):
            return False
        _, most = self._bounds(at if one_by_one else _around(self.fabric, cause))
        return most <= CLEAR * lost

    def is_between(self, links: Collection[int], switch: int, lost: int) -> bool:
        """Return whether a switch, and not these links of it, lost that many packets: some went in
        and did not come out, and of what it sent nothing is missing at the other ends, which would
        be so if it lost that on its links, nor of what they sent, if their ports were down.
        """
        others = self._bounds(_switches(_other_ends(self.fabric, links, switch)))[1]
        return self.accuses(self.fabric.n_ports + switch, lost) and others <= CLEAR * lost

    def one_of(self, candidates: Sequence[int], data: int, lost: int) -> int | None:
        """Return which of these causes lost packets one by one, `lost` with probes, `data` without,
        if one alone is accused and no packets are missing behind the others. Behind a link to a NIC
        none ever are, so that something else may not have lost many more there.
        """
        accused = [cause for cause in candidates if self.accuses(cause, data)]
        if len(accused) != 1:
            return None
        others = [_behind(self.fabric, cause) for cause in candidates if cause not in accused]
        most = MOST * lost if [] in others else np.inf
        if self._bounds(_behind(self.fabric, accused[0]))[0] > most:
            return None
        clear = [self._bounds(at)[1] <= CLEAR * data for at in others]
        return accused[0] if all(clear) else None

    def without(self, cause: int, lost: int) -> Missing:
        """Return what is missing besides the packets that this cause lost."""
        at, packets = _behind(self.fabric, cause), self.packets.copy()
        packets[at] -= lost / max(len(at), 1)
        return replace(self, packets=packets)

    def _bounds(self, at: list[int]) -> tuple[float, float]:
        """What is missing at these switches together, the least and the most."""
        found = float(self.packets[at].sum())
        return found - UNDER_WAY * len(at), found


def missing(fabric: Fabric, links: pl.DataFrame) -> Missing:
    """Return what is missing at each switch, from the counts of all ports of a run (`links`)."""
    port = links["port"].to_numpy()
    sent, dropped = (
        np.bincount(port, links[name].to_numpy(), fabric.n_ports)
        for name in ("packets_out", "dropped")
    )
    into, own, n = fabric.port_peer_switch, fabric.port_switch, fabric.n_switches
    came = np.bincount(into[into >= 0], sent[into >= 0], n)
    left = np.bincount(own[own >= 0], (sent + dropped)[own >= 0], n)
    return Missing(fabric, np.asarray(came - left, np.float64))


def _behind(fabric: Fabric, cause: int) -> list[int]:
    """The switches at which packets are missing that a cause loses a part of: a switch itself, or
    what a link leads to; none if that is a NIC.
    """
    if causes.kind(fabric, cause) == causes.SWITCH:
        return [cause - fabric.n_ports]
    ports = causes.links_of(fabric, cause)
    if causes.kind(fabric, cause) == causes.NIC:
        ports = ports[fabric.port_nic[ports] >= 0]
    return _switches(fabric.port_peer_switch[ports])


def _around(fabric: Fabric, cause: int) -> list[int]:
    """The same, and those at which packets are missing that a cause does not let through at all:
    the port that leads there may be down, and then it does not send them.
    """
    ports = causes.links_of(fabric, cause)
    ends = (fabric.port_switch[ports], fabric.port_peer_switch[ports])
    return _switches(np.concatenate(ends))


def _other_ends(fabric: Fabric, links: Collection[int], switch: int) -> npt.NDArray[np.int32]:
    """The switches at the other ends of these links of a switch."""
    ports = np.array(sorted(links), np.int64)
    own = fabric.port_switch[ports] == switch
    return np.where(own, fabric.port_peer_switch[ports], fabric.port_switch[ports])


def _is_of_nic(fabric: Fabric, cause: int) -> bool:
    """Whether a cause is a NIC, or one of its links."""
    if causes.kind(fabric, cause) == causes.LINK:
        return bool(fabric.port_switch[cause] < 0 or fabric.port_peer_switch[cause] < 0)
    return causes.kind(fabric, cause) == causes.NIC


def _switches(found: npt.NDArray[np.int32]) -> list[int]:
    return [int(switch) for switch in np.unique(found[found >= 0])]
