"""Observations of a small fabric in which some links lose packets: as its ports and senders would
have made them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from openmrc.fabric import multiplane
from openmrc.fabric.model import Fabric
from openmrc.fabric.ways import routes
from openmrc.ops.diagnose.answer import Place, places
from openmrc.ops.diagnose.components import Component, table
from openmrc.ops.diagnose.observed import Observed, Packets
from openmrc.ops.diagnose.search import Search

FABRIC = multiplane(16, 2, 100 * 10**9, 4, 4, 0, 0)
TABLE = table(FABRIC)
RTT_US, TICK_US, END_US, EVERY_US = 6.0, 10.0, 200.0, 4.0
AWAY = (3, 5, 10)  # NICs that each sends to, as numbers further


class Bad(NamedTuple):
    """Links that lose every so many-th packet for a time, or only delay it."""

    ports: tuple[int, ...]
    since_us: float = 50.0
    until_us: float = 120.0
    every: int = 1
    late: bool = False


def component(where: str) -> Component:
    """Return the component of this name."""
    (found,) = (row for row in TABLE.rows if row.where == where)
    return found


def seen(
    *bad: Bad, fabric: Fabric = FABRIC, quiet: int = 1, tick_us: float = TICK_US, burst: int = 1
) -> Observed:
    """Return what is observed if each NIC sends to some others, on all of its paths in turn, and
    then none for so many ticks. What is lost is so many packets in a row, of one sender.
    """
    n_up = int(fabric.sw_n_up[0])
    evs = [fabric.ev(plane, up) for plane in range(fabric.n_planes) for up in range(n_up)]
    qps, n = np.arange(fabric.n_nics * len(AWAY)), int(END_US / EVERY_US)
    qp, ev, turn = (it.ravel() for it in np.meshgrid(qps, evs, np.arange(n), indexing="ij"))
    sent_us = turn * EVERY_US + np.tile(np.repeat(np.arange(len(evs)) / len(evs), n), len(qps))
    order = np.lexsort((ev, qp, sent_us))
    qp, ev, sent_us = qp[order], ev[order], sent_us[order]
    src = qp % fabric.n_nics
    dst = (src + np.array(AWAY)[qp // fabric.n_nics]) % fabric.n_nics
    crossed = routes(fabric, src, dst, ev)
    bins = (sent_us // tick_us).astype(np.int64)
    size = max(int(END_US / tick_us), 1) + quiet, fabric.n_ports
    sent, out, answers, gone = np.zeros((4, *size))
    under_way, is_lost = np.ones(len(qp), np.bool_), np.zeros(len(qp), np.bool_)
    was_late = np.zeros(len(qp), np.bool_)
    for column in crossed.T:
        on = column >= 0
        np.add.at(sent, (bins[on], column[on]), 1)
        on &= under_way
        np.add.at(out, (bins[on], column[on]), 1)
        for it in bad:
            hit = on & np.isin(column, it.ports) & (sent_us >= it.since_us)
            hit = np.flatnonzero(hit & (sent_us < it.until_us))
            hit = hit[np.arange(len(hit)) // burst % it.every == 0]
            if it.late:
                was_late[hit[::2]] = True
                is_lost[hit] = True
            else:
                is_lost[hit], under_way[hit] = True, False
                np.add.at(gone, (bins[hit], column[hit]), 1)
    last = crossed[np.arange(len(qp)), (crossed >= 0).sum(axis=1) - 1]
    back = fabric.port_reverse[np.stack([last, crossed[:, 0]], axis=1)]
    for it in bad:  # answers that are lost one by one do no harm
        on = (sent_us >= it.since_us) & (sent_us < it.until_us) & (it.every == 1)
        is_lost |= np.isin(back, it.ports).any(axis=1) & on & (not it.late)
    for column in crossed.T:
        on = (column >= 0) & ~is_lost
        known = np.minimum((sent_us + RTT_US) // tick_us, size[0] - 1).astype(np.int64)
        np.add.at(answers, (known[on], column[on]), 1)
    is_lost &= ~was_late
    lost = Packets(
        crossed.astype(np.int32), back.astype(np.int32), sent_us, sent_us + 2 * RTT_US,
        qp.astype(np.int32), ev.astype(np.int32), np.zeros(len(qp), np.bool_),
    )  # fmt: skip
    zeros = np.zeros(size)
    return Observed(
        fabric=fabric,
        lost=lost.take(is_lost),
        answered=lost.take(np.zeros(0, np.int64)),
        edges_us=np.arange(size[0] + 1, dtype=np.float64) * tick_us,
        sent=sent,
        out=out,
        dropped=zeros,
        full=zeros,
        damaged=zeros,
        gone=gone,
        answers=answers,
        rtt_us=RTT_US,
    )


def told(observed: Observed) -> list[Place]:
    """Return the places that the model names."""
    search = Search(observed, TABLE)
    search.search()
    return places(search)
