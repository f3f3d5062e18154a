"""Fabrics as data: wiring, addresses, forwarding tables, and faults."""

from __future__ import annotations

from openmrc.fabric.clos import fat_tree, multiplane
from openmrc.fabric.draw import draw_faults
from openmrc.fabric.faults import Fault, FaultSchedule, compile_faults
from openmrc.fabric.model import Fabric, Hops
from openmrc.fabric.topo import load_topo

__all__ = [
    "Fabric",
    "Fault",
    "FaultSchedule",
    "Hops",
    "actions",
    "clos",
    "compile_faults",
    "denylist",
    "draw_faults",
    "dscp",
    "fat_tree",
    "faults",
    "health",
    "kinds",
    "links",
    "load_topo",
    "model",
    "multiplane",
    "outline",
    "places",
    "queues",
    "rtt",
    "sketch",
    "tables",
    "topo",
    "usid",
    "ways",
    "words",
]
