"""What a controller knows, for Prometheus: places that lose probes, and agents that are silent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from openmrc.ops.mapper.history import Row
from openmrc.verbs.exposition import GAUGE, Family, render
from openmrc.verbs.metrics import PREFIX

PLACES_SHOWN = 200  # those that lose most; a bad plane must not fill a database


def text(state: dict[str, Any], day: Sequence[Row], content_type: str) -> str:
    """Return the body of an answer about a controller's `state`, and what lost probes in a day."""

    def family(name: str, meaning: str) -> Family:
        return Family(PREFIX + name, GAUGE, meaning)

    loses = family("place_loss_ratio", "Part of the probes across a place that are lost now.")
    now = [it for it in state["places"] if it["until_us"] is None]
    for it in sorted(now, key=lambda it: (-it["rate"], it["place"]))[:PLACES_SHOWN]:
        loses.add({"place": it["place"], "kind": it["kind"]}, float(it["rate"]))
    times = family("place_times", "How often a place was named within a day.")
    for place, n in Counter(it.place for it in day if not it.withdrawn).most_common(PLACES_SHOWN):
        times.add({"place": place}, n)
    agents = family("agents", "Agents that the controller hears.")
    agents.add({}, len(state["agents"]) - len(set(state["agents"]) & set(state["silent"])))
    silent = family("agent_silent", "1 for a NIC whose agent says nothing any more.")
    for nic in state["silent"]:
        silent.add({"nic": nic}, 1)
    return render([loses, times, agents, silent], content_type)
