"""The published 54 days of Llama 3 (arXiv 2407.21783, table 5), beside drawn ones."""

from __future__ import annotations

from openmrc.day.failures import GPU, RACK, UPDATE, draw
from openmrc.day.rates import KNOWN
from openmrc.planning.assumptions import values_with
from openmrc.planning.reliability import ALL, PORT
from openmrc.planning.sizing import Design

DAYS, BY_NETWORK, UNPLANNED, PLANNED = 54, 42, 419, 47
FABRIC = Design(16_384, 1, 3, 400 * 10**9, 25_600 * 10**9)
SEEDS = range(1, 21)


def drawn(*overrides: str) -> tuple[list[int], list[int]]:
    """Interruptions by the network, and of all kinds, of each seed: on one plane whatever takes a
    port is one.
    """
    by_network, every = [], []
    for seed in SEEDS:
        (found,) = draw(
            [FABRIC], values_with((*overrides, "fabric_flaps_per_day=0"), KNOWN), DAYS, seed
        )
        ends = [
            kind.kind
            for kind in (found.kinds[number] for number in found.kind.tolist())
            if kind.takes in (ALL, PORT) or kind.kind == UPDATE
        ]
        every.append(len(ends))
        by_network.append(sum(kind not in (GPU, RACK, UPDATE) for kind in ends))
    return by_network, every


def test_42_interruptions_by_the_network_are_within_what_is_drawn() -> None:
    # transceivers at the upper end of what their makers publish
    by_network, every = drawn("transceiver_mtbf_h=2e6")
    assert min(by_network) <= BY_NETWORK <= max(by_network)
    assert min(every) <= UNPLANNED + PLANNED <= max(every)


def test_with_transceivers_in_the_middle_of_it_there_would_be_more() -> None:
    by_network, _ = drawn()
    assert BY_NETWORK < min(by_network) < max(by_network) < 3 * BY_NETWORK
