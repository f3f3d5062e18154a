"""How much of a run is done, and how long the rest takes.

Work is counted in data packets that are placed. Of one in the network a part is done; a trimmed
copy is work besides, and so is what routing does when it converges. What faults and congestion will
still cause is not known before it happens.

The rest takes a tenth longer than at the rate of the second half of the time so far. The mean rate
says too little of a run in which that changes: until all NICs send, packets take new memory, in
order; later they are anywhere in it, and each costs more, up to twice as much. In a large fabric with short messages
that lasts for most of the run: until the packets that the network holds have been placed several
times, the model of `run.estimate` counts as well, at first alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from openmrc.run.estimate import packets_held, trims_at_start

if TYPE_CHECKING:
    from openmrc.sim.world import Progress, World

# Measured, in packets: what is done of one while it is in the network; a trimmed copy; when routing
# has converged and NICs choose planes, that of a NIC, and of one end of a queue pair and one plane.
UNDER_WAY = 0.25
TRIMMED = 0.45
NIC_CHOICE, PLANE_CHOICE = 5, 0.04
LATER = 1.1  # as many times the time of the same work so far: memory becomes scattered
OF_A_THREAD = 0.8  # n threads are so fast as n to the power of this; measured with two


@dataclass(frozen=True)
class Work:
    """The work of a run that is known before it, in data packets.

    `choices_ps` is when NICs choose planes, `choice` the work of one such time. Of those as many
    are expected as fit `ideal_ps`, which every run takes: faults may be planned for long after it.
    `held` packets get through at once. A model says that it takes `model_s`; None without one.
    """

    payload_bytes: int
    packets: int
    trims: int  # of first windows that meet at a NIC
    choices_ps: npt.NDArray[np.int64]
    choice: float
    ideal_ps: int
    stop_ps: int | None
    held: int = 1
    model_s: float | None = None

    @classmethod
    def of(cls, world: World, ideal_ps: int, one_core_s: float | None = None) -> Work:
        """Return that of a world in which nothing has happened; a model says that its loop takes
        `one_core_s` on one core.
        """
        fabric, traffic, pmtu = world.fabric, world.traffic, world.transport.pmtu
        window_bytes = world.derived().get("max_window_bytes", 0)  # RoCEv2 does not trim
        return cls(
            payload_bytes=int(traffic.msg_total_bytes.sum()),
            packets=int((-(-traffic.msg_total_bytes // pmtu)).sum()),
            trims=trims_at_start(traffic, pmtu, window_bytes),
            choices_ps=world.side.choices_at,
            choice=NIC_CHOICE * fabric.n_nics + PLANE_CHOICE * 2 * traffic.n_qps * fabric.n_planes,
            ideal_ps=ideal_ps,
            stop_ps=world.stop_ps,
            **({} if one_core_s is None else _by_model(world, one_core_s)),
        )

    def share(self, progress: Progress, placed_bytes: int) -> float:
        """Return the fraction that is done; that of the time until `stop_ps` if it is more."""
        placed = self.packets * placed_bytes / max(self.payload_bytes, 1)
        under_way = min(max(progress.sent - placed, 0.0), self.packets - placed)
        choices, sure = np.searchsorted(self.choices_ps, (progress.now_ps, self.ideal_ps), "right")
        trimmed = progress.trimmed
        done = placed + UNDER_WAY * under_way + TRIMMED * trimmed + self.choice * choices
        every = self.packets + TRIMMED * max(self.trims, trimmed)
        every += self.choice * max(sure, choices)
        of_time = progress.now_ps / self.stop_ps if self.stop_ps else 0.0
        return min(max(float(done / max(every, 1)), of_time), 1.0)

    def settled(self, placed_bytes: int) -> float:
        """How much the rate so far says of the rest, 0 to 1; without a model it says all."""
        if self.model_s is None:
            return 1.0
        placed = self.packets * placed_bytes / max(self.payload_bytes, 1)
        return 1 - exp(-placed / self.held)


def _by_model(world: World, one_core_s: float) -> dict[str, Any]:
    at_once = 1 if world.uncut else world.threads
    held = packets_held(world.fabric, world.traffic, world.transport, world.values)
    return {"held": held, "model_s": one_core_s / at_once**OF_A_THREAD}


def left_s(
    at_s: Sequence[float],
    share: Sequence[float],
    model_s: float | None = None,
    settled: float = 1.0,
) -> float | None:
    """Return how long a run takes from its last step on, s, by its steps so far: when they ended,
    and the shares of its work that were done then; and, as far as it has not `settled`, by a model
    of the whole. None if there is no model, and nothing was done in the second half of that time.
    """
    middle_s = (at_s[0] + at_s[-1]) / 2
    done = share[-1] - float(np.interp(middle_s, at_s, share))
    by_rate = LATER * (1 - share[-1]) * (at_s[-1] - middle_s) / done if done > 0 else None
    if model_s is None:
        return by_rate
    by_model = (1 - share[-1]) * model_s
    return by_model if by_rate is None else settled * by_rate + (1 - settled) * by_model
