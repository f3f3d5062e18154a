"""B16: an all-to-all of 64 NICs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openmrc.paper.data import Data
from openmrc.paper.experiment import Experiment, Finding
from openmrc.paper.experiments import collectives
from openmrc.paper.verdict import Bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PUBLISHED = {"0": "best at all sizes", "0.1 %": "much better", "1 %": "much better"}


def _all_to_all(data: Data) -> Finding:
    found = collectives.curves(data)
    sizes = sorted({size for curve in found.values() for size in curve})
    one = collectives.roce(1)
    checks = [
        collectives.by_qps(found, 16, 1, "largest size", "slightly worse", Bar(high=1)),
        collectives.by_qps(found, 16, 2, "largest size", "falls above 2", Bar(high=1)),
        *collectives.over_best(found, sizes, PUBLISHED),
        collectives.by_loss(found, one, "0.1 %", sizes[0], "very poor", Bar(high=0.5)),
        *(
            collectives.by_loss(found, one, "0.1 %", size, published, bar)
            for size, published, bar in (
                (1000, "not published", None),
                (sizes[-1], "barely hurt", Bar(low=0.8)),
            )
            if size in found.get((one, "0.1 %"), {})
        ),
        collectives.by_loss(found, collectives.MRC, "0.1 %", None, "not published"),
    ]
    return Finding(collectives.judged(checks, data), collectives.drawn(found), WHY)


def _draw(drawn: Any) -> Figure:
    fig, panels = collectives.figure()
    collectives.draw(panels, drawn)
    collectives.legend(fig, panels[0])
    return fig


WHY = [
    "With the same capacity MRC is behind by its longer headers, 2 % of a packet and more of a "
    "short one; over four ports of 100 Gb/s by little more than that, except at 4 MB, where 15 "
    "packets to each NIC are stored and forwarded at a quarter of the rate. The 63 flows of each "
    "NIC, spread by a hash over 64 uplinks, load them evenly enough that RoCEv2 without loss is "
    "near line rate, which the original was not; nor does it fall with more QPs. The cost of 63 "
    "times 16 QPs in a real NIC is not modelled.",
    "With 0.1 % loss RoCEv2 waits for its NICs' first timer, 8.4 ms (`docs/roce.md`), because some "
    "of 4,032 flows lose their last packet. This is most of the time at small sizes and little of "
    "it at large ones, where resending all packets behind the other losses takes more.",
]

B16 = Experiment(
    "B16",
    "all-to-all of 64",
    "Fig. 17, cluster C",
    "The same for an all-to-all. RoCE with 16 QPs is slightly worse than with 1, and falls above "
    "2; MRC is best at all sizes. With 0.1 % loss RoCE is barely affected at large sizes and very "
    "poor at small ones; MRC is much better.",
    collectives.SCALED + " Sizes end at 1 GB, 16 MB from each NIC to each other; at 16 GB for "
    "RoCEv2 with one QP, without loss and with 0.1 %.",
    collectives.cases(
        collectives.ALL_TO_ALL,
        {(collectives.MRC, loss): 1000 for loss in collectives.LOSSES}
        | {(collectives.MRC_ONE, loss): 256 for loss in collectives.LOSSES}
        | {(collectives.roce(q), "0"): 1000 if q in (2, 16) else 64 for q in collectives.QPS}
        | {(collectives.roce(q), "0.1 %"): 16_000 if q == 1 else 64 for q in (1, 16)}
        | {(collectives.roce(1), "0"): 16_000, (collectives.roce(1), "1 %"): 16},
    ),
    _all_to_all,
    _draw,
)
