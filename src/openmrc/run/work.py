"""How much of a run is done, and how long the rest takes.

Work is counted in data packets that are placed. Of one in the network a part is done; a trimmed
copy is work besides, and so is what routing does when it converges, and what RoCEv2 is bound to
send into dead links before. What other faults and congestion will still cause is not known before
it happens.

The rest takes a tenth longer than at the rate of the second half of the time so far. The mean rate
says too little of a run in which that changes: until all NICs send, packets take new memory, in
order; later they are anywhere in it, and each costs more, up to twice as much. In a large fabric
with short messages that lasts for most of the run: until the packets that the network holds have
been placed several times, the model of `run.estimate` counts as well, at first alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from openmrc.run.expected import first_trims, held, trims_of_nics

if TYPE_CHECKING:
    from openmrc.run.estimate import Estimate
    from openmrc.sim.world import Progress, World

# Measured, in packets: what is done of one while it is in the network; a trimmed copy; when routing
# has converged and NICs choose planes, that of a NIC, and of one end of a queue pair and one plane.
UNDER_WAY = 0.25
TRIMMED = 0.8
NIC_CHOICE, PLANE_CHOICE = 5, 0.04
LATER = 1.1  # as many times the time of the same work so far: memory becomes scattered
OF_A_THREAD = 0.8  # n threads are n to the power of this times as fast as one; measured with two


@dataclass(frozen=True)
class Work:
    """The work of a run that is known before it, in data packets.

    `planned` is work that is done at certain times, `planned_ps`, in time order: when NICs choose
    planes, and what is sent in vain. Of that as much is expected as fits `ideal_ps`, which the run
    takes at least: faults may be planned for long after it.
    `held` packets get through at once. A model says that the loop takes `model_s` (None without
    one), and that the end of a message takes as long as `end` packets.
    """

    payload_bytes: int
    packets: int
    trims: int  # where many send to one NIC
    planned_ps: npt.NDArray[np.int64]
    planned: npt.NDArray[np.float64]
    ideal_ps: int
    stop_ps: int | None
    held: int = 1
    end: float = 0.0
    model_s: float | None = None

    @classmethod
    def of(cls, world: World, ideal_ps: int, model: Estimate | None = None) -> Work:
        """Return that of a world in which nothing has happened; a model says what its loop takes on
        one core.
        """
        fabric, traffic, pmtu = world.fabric, world.traffic, world.transport.pmtu
        derived = world.derived()
        window_bytes = derived.get("max_window_bytes", 0)  # RoCEv2 does not trim
        trims = trims_of_nics(traffic, pmtu, window_bytes, derived["bdp_bytes"])
        choice = NIC_CHOICE * fabric.n_nics + PLANE_CHOICE * 2 * traffic.n_qps * fabric.n_planes
        choices_ps = world.side.choices_at
        vain_ps, vain = world.side.in_vain(traffic)
        planned_ps = np.concatenate([choices_ps, vain_ps])
        order = np.argsort(planned_ps, kind="stable")
        return cls(
            payload_bytes=int(traffic.msg_total_bytes.sum()),
            packets=int(traffic.packets(pmtu).sum()),
            trims=int(trims.sum()),
            planned_ps=planned_ps[order],
            planned=np.concatenate([np.full(len(choices_ps), choice), vain])[order],
            ideal_ps=max(ideal_ps, int(vain_ps.max(initial=0))),
            stop_ps=world.stop_ps,
            **({} if model is None else _by_model(world, model)),
        )

    def share(self, progress: Progress, placed_bytes: int) -> float:
        """Return the fraction that is done; that of the time until `stop_ps` if it is more."""
        placed = self._placed(placed_bytes)
        under_way = min(max(progress.sent - placed, 0.0), self.packets - placed)
        until_ps = (progress.now_ps, max(progress.now_ps, self.ideal_ps))
        over, sure = np.searchsorted(self.planned_ps, until_ps, "right")
        trimmed = progress.trimmed
        ended, sends = progress.flows_done, progress.flows_total
        done = placed + UNDER_WAY * under_way + TRIMMED * trimmed + self.planned[:over].sum()
        done += self.end * ended
        every = self.packets + TRIMMED * max(self.trims, trimmed) + self.end * sends
        every += self.planned[:sure].sum()
        of_time = progress.now_ps / self.stop_ps if self.stop_ps else 0.0
        return min(max(float(done / max(every, 1)), of_time), 1.0)

    def settled(self, placed_bytes: int) -> float:
        """How much the rate so far says of the rest, 0 to 1; without a model it says all."""
        if self.model_s is None:
            return 1.0
        return 1 - exp(-self._placed(placed_bytes) / self.held)

    def model_left_s(self, spent_s: float, share: float) -> float | None:
        """How long the rest takes by the model, s, after `spent_s` in the loop; where a machine
        takes longer than that of the model, at least half of what this share leaves.
        """
        if self.model_s is None:
            return None
        return max(self.model_s - spent_s, (1 - share) * self.model_s / 2)

    def _placed(self, placed_bytes: int) -> float:
        return self.packets * placed_bytes / max(self.payload_bytes, 1)


def _by_model(world: World, model: Estimate) -> dict[str, Any]:
    at_once = 1 if world.uncut else world.threads
    of_packets_s = max(model.loop_s - model.ends_s, model.ends_s)
    end = max(model.data_packets, 1) * model.ends_s / of_packets_s
    pmtu, derived = world.transport.pmtu, world.derived()
    first = first_trims(world.traffic, pmtu, derived["max_window_bytes"])
    return {
        "held": held(world.fabric, world.traffic, pmtu, derived["bdp_bytes"]) + int(first.sum()),
        "end": end / max(world.traffic.n_sends, 1),
        "model_s": model.loop_s / at_once**OF_A_THREAD,
    }


def left_s(
    at_s: Sequence[float],
    share: Sequence[float],
    model_left_s: float | None = None,
    settled: float = 1.0,
) -> float | None:
    """Return how long a run takes from its last step on, s, by its steps so far: when they ended,
    and the shares of its work that were done then; and, as far as it has not `settled`, by a model.
    None if there is no model, and nothing was done in the second half of that time.
    """
    middle_s = (at_s[0] + at_s[-1]) / 2
    done = share[-1] - float(np.interp(middle_s, at_s, share))
    by_rate = LATER * (1 - share[-1]) * (at_s[-1] - middle_s) / done if done > 0 else None
    if by_rate is None or model_left_s is None:
        return model_left_s if by_rate is None else by_rate
    return settled * by_rate + (1 - settled) * model_left_s
