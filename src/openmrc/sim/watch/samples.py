"""A run over time, as tables: load, queues, losses and health of links, and one QP's paths.
`Sampler` fills them while the world runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from openmrc.fabric.sketch import Sketch
from openmrc.sim.watch.intervals import Array

# Health of a port, the worst last. SILENT: one end of its link is a silent switch.
UP, SLOW, LOSSY, SILENT, DOWN = range(5)
# An EV of the QP, the worst last. BACKUP and IN_USE are both GOOD; NO_TURN: its plane gets none.
BACKUP, IN_USE, SKIP, NO_TURN, ASSUMED_BAD, DENIED = range(6)


@dataclass(frozen=True, eq=False)
class Table:
    """Values by interval and row: interval k lasts from k to k + 1 times `interval_ps`, the last
    one until `end_ps`. `load` is the fraction of a link's rate in use, 0 to 1.
    """

    interval_ps: int
    end_ps: int
    values: dict[str, Array]

    @property
    def columns(self) -> int:
        """How many intervals there are."""
        return len(next(iter(self.values.values())))


@dataclass(frozen=True, eq=False)
class Groups(Table):
    """All links of a plane between two rows in one direction, taken together.

    Values [intervals, groups]: `load`, `queue_bytes` (the longest), packets `lost`, `trimmed`.
    """

    plane: Array
    row: Array  # of the lower end: 0 is that of the NICs
    down: Array


@dataclass(frozen=True, eq=False)
class Links(Table):
    """Single directed links, and all others together in one more row if there are `others`.

    Values [intervals, rows]: `load`, `queue_bytes`, `lost`, `trimmed`, `health` (the worst).
    """

    ports: Array
    names: tuple[str, ...]
    others: int


@dataclass(frozen=True, eq=False)
class QpSamples(Table):
    """The sending end of one QP of the workload; of RoCEv2 a `bundle` of QPs with a path each, for
    which their UDP source ports stand in place of EVs.

    Values [intervals]: `cwnd_bytes`, `inflight_bytes`, `delay_ps` (the mean that congestion control
    keeps, if it does), `queue_bytes` (the longest at the ports that lead to its destination);
    [intervals, EVs]: `state`, `used` (packets), and `value` if its path can move.
    """

    qp: int
    src: int
    dst: int
    evs: Array  # values at the end of the run
    plane: Array  # of each EV
    names: dict[int, str]  # the path that an EV stands for, by its value
    bundle: bool = False


@dataclass(frozen=True, eq=False)
class Samples:
    """A run over time. `edges`, [intervals, edges of the sketch]: `load`, the worst `health` and
    how many ports are `unhealthy`; [intervals, nodes of switches]: how many are `silent`.
    """

    sketch: Sketch
    edges: Table
    groups: Groups
    links: Links
    qp: QpSamples
