"""All experiments, in the order of the page."""

from __future__ import annotations

from openmrc.paper.experiment import Experiment
from openmrc.paper.experiments.adaptive import A1, A2, A3, A4
from openmrc.paper.experiments.all_reduce import B15
from openmrc.paper.experiments.all_to_all import B16
from openmrc.paper.experiments.exchange import B14
from openmrc.paper.experiments.failures import B1, B3
from openmrc.paper.experiments.flaps import B2
from openmrc.paper.experiments.hosts import B5
from openmrc.paper.experiments.incast import B20, S1
from openmrc.paper.experiments.lossy import B12
from openmrc.paper.experiments.ports import B6, B7, B10
from openmrc.paper.experiments.racks import B18

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
    A1,
    A2,
    A3,
    A4,
)
