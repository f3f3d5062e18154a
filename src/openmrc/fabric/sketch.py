"""A fabric simplified for drawing and aggregation: rows of nodes, one panel per plane, edges
between.

The lowest row holds the NICs, each above it a tier of switches. While there are more edges than a
picture can show, neighbours in the fullest row are joined in pairs: a node then stands for several
NICs or switches, an edge for all links between two such groups. A NIC is in every plane's panel.

Edges are directed and numbered plane by plane and row by row, those upwards before those downwards
in the same order; so the k-th of a block upwards and the k-th downwards are one line of a drawing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from openmrc.fabric.model import BoolArray, Fabric, IntArray, LongArray

LINES_MAX = 1024  # both directions are one line; with more lines a picture is a grey area


@dataclass(frozen=True, eq=False)
class Sketch:
    """Rows of nodes, and edges. Node numbers count within a row of one plane."""

    planes: int
    row_members: tuple[int, ...]  # NICs, or switches of a tier in one plane, by row
    row_joined: tuple[int, ...]  # how many of them one node stands for
    edge_plane: IntArray  # [edges]
    edge_row: IntArray  # of the lower end
    edge_down: BoolArray
    edge_lower: IntArray  # nodes
    edge_upper: IntArray
    edge_ports: LongArray  # directed ports that an edge stands for
    port_edge: IntArray  # [ports]
    switch_node: LongArray  # [switches] node, counted through all planes and rows of switches

    @property
    def row_nodes(self) -> tuple[int, ...]:
        """Nodes of each row in one plane."""
        pairs = zip(self.row_members, self.row_joined, strict=True)
        return tuple(-(-members // joined) for members, joined in pairs)

    @property
    def n_switch_nodes(self) -> int:
        """Nodes that stand for switches, in all planes together."""
        return self.planes * sum(self.row_nodes[1:])


def sketch(fabric: Fabric, lines_max: int = LINES_MAX) -> Sketch:
    """Return the finest sketch of `fabric` with at most `lines_max` lines.

    One line per plane and row always remains, whatever `lines_max`.
    """
    own, far = fabric.port_switch, fabric.port_peer_switch
    own_row = np.where(own < 0, 0, fabric.sw_tier[own] + 1)
    far_row = np.where(far < 0, 0, fabric.sw_tier[far] + 1)
    own_place = np.where(own < 0, fabric.port_nic, fabric.sw_index[own])
    far_place = np.where(far < 0, fabric.port_peer_nic, fabric.sw_index[far])
    down = own_row > far_row
    row = np.minimum(own_row, far_row)
    plane = fabric.sw_plane[np.where(down, own, far)]
    lower, upper = np.where(down, far_place, own_place), np.where(down, own_place, far_place)

    members = (fabric.n_nics, *fabric.tier_counts)
    one = (plane == 0) & ~down  # all planes are alike, and a link has one port upwards
    joined = _joined(members, row[one], lower[one], upper[one], lines_max // fabric.n_planes)
    size = np.array(joined)
    lower, upper = lower // size[row], upper // size[row + 1]
    widest = max(members)
    key = (((plane.astype(np.int64) * len(members) + row) * 2 + down) * widest + lower) * widest
    _, first, port_edge, ports = np.unique(
        key + upper, return_index=True, return_inverse=True, return_counts=True
    )
    return Sketch(
        planes=fabric.n_planes,
        row_members=members,
        row_joined=joined,
        edge_plane=plane[first].astype(np.int32),
        edge_row=row[first].astype(np.int32),
        edge_down=down[first],
        edge_lower=lower[first].astype(np.int32),
        edge_upper=upper[first].astype(np.int32),
        edge_ports=ports,
        port_edge=port_edge.reshape(-1).astype(np.int32),
        switch_node=_switch_nodes(fabric, size),
    )


def _joined(
    members: tuple[int, ...], row: IntArray, lower: IntArray, upper: IntArray, lines_max: int
) -> tuple[int, ...]:
    """How many members of each row one node must stand for, by the links of one plane."""
    joined = [1] * len(members)
    while True:
        size = np.array(joined)
        pairs = lower // size[row] * max(members) + upper // size[row + 1]
        lines = len(np.unique(pairs + row.astype(np.int64) * max(members) ** 2))
        nodes = [-(-count // each) for count, each in zip(members, joined, strict=True)]
        if lines <= lines_max or max(nodes) == 1:
            return tuple(joined)
        joined[nodes.index(max(nodes))] *= 2


def _switch_nodes(fabric: Fabric, size: IntArray) -> LongArray:
    """Nodes plane by plane, and in each plane tier by tier."""
    counts = -(-np.array(fabric.tier_counts) // size[1:])
    before = np.cumsum(counts) - counts
    tier = fabric.sw_tier
    place = before[tier] + fabric.sw_index // size[1:][tier]
    nodes: LongArray = fabric.sw_plane.astype(np.int64) * int(counts.sum()) + place
    return nodes
