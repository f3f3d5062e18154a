"""All experiments, in the order of the page."""

from __future__ import annotations

from openmrc.paper.all_reduce import B15
from openmrc.paper.all_to_all import B16
from openmrc.paper.exchange import B14
from openmrc.paper.experiment import Experiment
from openmrc.paper.failures import B1, B3
from openmrc.paper.flaps import B2
from openmrc.paper.hosts import B5
from openmrc.paper.incast import B20, S1
from openmrc.paper.lossy import B12
from openmrc.paper.ports import B6, B7, B10
from openmrc.paper.racks import B18

EXPERIMENTS: tuple[Experiment, ...] = (
    B1,
    B2,
    B3,
    B5,
    B6,
    B7,
    B10,
    B12,
    B14,
    B15,
    B16,
    B18,
    B20,
    S1,
)
