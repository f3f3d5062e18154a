"""Nanoseconds by part: what a link traversal costs, and where.

    .venv/bin/python benchmarks/parts.py [--quick] [--json]

Each part is a compiled loop over the simulator's own functions, on the arrays of a real world,
with everything else left out. Two sizes: `near` fits the caches of a core (16 NICs), `far` does
not (1024 NICs, each loop goes from one QP or switch to another). The last lines run the whole loop
on the same fabric, count what it did, and say which share of its time the parts make up.

Figures are the best of several runs; `bare` is the unit: following one link of a list of 1024
records and adding one to each. Ratios to it travel between machines better than nanoseconds do.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from openmrc.engine import endpoint
from openmrc.engine import state as es
from openmrc.engine.packet import PACKET
from openmrc.fabric.clos import fat_tree
from openmrc.fabric.queues import Queues
from openmrc.jit import compiled, records
from openmrc.sim.mrc import loop, nic
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.net import events, link, messages, room, switch
from openmrc.sim.warmup import warm_up_mrc
from openmrc.sim.world import World
from openmrc.workload.patterns import permutation

PMTU = 4086
A_ROUND = 16  # packets that each QP sends in a round: a quarter of its first window
SIZES = {"near": 16, "far": 1024}  # NICs
QUICK = {"near": 16, "far": 64}
LINK = np.dtype([("at", "i8"), ("next", "i8")])
LINKED = 1024  # records of the bare loop


def world(nics: int, packets: int) -> World:
    """A three-tier fat tree with a permutation of so many packets each, all QPs open."""
    fabric = fat_tree(
        nics=nics,
        tiers=3,
        port_rate_bps=100 * 10**9,
        t0_down=2 if nics < 64 else 8,
        t0_up=2 if nics < 64 else 8,
        t1_down=None,
        t1_up=None,
        link_delay_ps=1_000_000,
        switch_delay_ps=0,
    )
    transport = Transport(rules="peer", pmtu=PMTU, evs_active=64, evs_backup=0)
    traffic = permutation(nics, packets * PMTU, 1)
    w = World(fabric, traffic, transport, queues=Queues(ecn_last_hop=True))
    loop.advance(w.net, w.engine, -1, 0)
    return w


def world_with_room(nics: int, load: int) -> World:
    """A world of one-packet flows with room for `load` packets a NIC."""
    w = world(nics, 1)
    while w.net.ctl[0].n_free < load * nics + 2:
        w.net = room.more_packets(w.net)
    return w


# --- the loops


@compiled
def _nothing(net, st):
    return net.ctl[0].now


@compiled
def _follow(links, steps):
    here = 0
    for _ in range(steps):
        links[here].at += 1
        here = links[here].next
    return here


@compiled
def _hold(net, steps, short, long):
    """Take the next event and schedule it anew: alternately a transmission and a link away."""
    now = 0
    for i in range(steps):
        now = events.next_at(net)
        n = events.take(net) - net.ctl[0].n_ports
        events.schedule_packet(net, n, net.hop[n], now + (short if i & 1 else long))
    return now


@compiled
def _fill_wheel(net, n, gap):
    for i in range(n):
        k = link.new_packet(net)
        events.schedule_packet(net, k, net.hop[k], i * gap)


@compiled
def _inject(net, n, nics):
    """`n` packets, each at the port of some NIC, for one half of the fabric away."""
    ctl = net.ctl[0]
    for i in range(n):
        k = link.new_packet(net)
        h = net.hop[k]
        h.frame_bytes = 4150
        h.klass = 2
        h.marks = 0
        h.trimmable = 0
        h.dst = (i + nics // 2) % nics
        h.ev = switch.hashed_ev(i, i)
        link.enqueue(net, (i % nics) * ctl.n_planes, k, 0)


@compiled
def _switching(net, steps):
    """Queues, switches and events, without endpoints: what reaches a NIC starts anew from it."""
    ctl = net.ctl[0]
    before = ctl.traversals
    done = 0
    while done < steps:
        now = events.next_at(net)
        ctl.now = now
        node = events.take(net)
        done += 1
        if node < ctl.n_ports:
            link.on_switch_port_free(net, node, now)
            continue
        n = node - ctl.n_ports
        h = net.hop[n]
        if h.to < 0:
            n_nics = net.nic.shape[0]
            here = -1 - int(h.to)
            h.dst = (h.dst + n_nics // 2 + 1) % n_nics
            h.ev = switch.hashed_ev(int(h.dst), n + now)
            link.enqueue(net, here * ctl.n_planes, n, now)
        else:
            link.enqueue(net, switch.egress(ctl, net.switch[h.to], int(h.dst), int(h.ev)), n, now)
    return ctl.traversals - before


@compiled
def _calls(net, st, steps):
    """A call of a function that takes all state and finds nothing to do."""
    for _ in range(steps):
        nic.pump(net, st, 0, 0)


@compiled
def _post(net, st):
    for mi in range(net.message.shape[0]):
        messages.post(net, st, mi, 0)


@compiled
def _pull(net, st, senders, packets, now):
    """A packet of each sender in turn."""
    n = 0
    for _ in range(A_ROUND):
        for i in range(senders.shape[0]):
            if endpoint.next_packet(st, st.qp[senders[i]], 0xFFFF, now, packets[n]) >= 0:
                n += 1
    return n


@compiled
def _place(net, st, packets, n, replies, now):
    """Every packet reaches its responder; what that wants sent is kept."""
    kept = 0
    for i in range(n):
        p = packets[i]
        qi = ((p.dst_qpn - net.ctl[0].qpn_offset) * net.ctl[0].qpn_inverse) & 0xFF_FFFF
        endpoint.on_packet(st, st.qp[qi].nic, qi, p, now)
        for k in range(st.count[es.OUT]):
            replies[kept] = st.out[k]
            kept += 1
        st.count[es.OUT] = 0
        st.count[es.DONE] = 0
    return kept


@compiled
def _answer(net, st, replies, n, now):
    """Every SACK reaches its requester."""
    for i in range(n):
        p = replies[i]
        qi = ((p.dst_qpn - net.ctl[0].qpn_offset) * net.ctl[0].qpn_inverse) & 0xFF_FFFF
        endpoint.on_packet(st, st.qp[qi].nic, qi, p, now)
        st.count[es.OUT] = 0
        st.count[es.DONE] = 0


# --- the measurements, ns


def best_of(repeats: int, run: Callable[[], tuple[float, int]]) -> float:
    """The least nanoseconds per step of several runs, each (seconds, steps)."""
    return min(seconds / steps for seconds, steps in (run() for _ in range(repeats))) * 1e9


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    value = function(*arguments)
    return time.perf_counter() - started, value


def bare(repeats: int, steps: int) -> float:
    links = records(LINKED, LINK)
    order = np.random.default_rng(1).permutation(LINKED)
    links.next[order] = np.roll(order, -1)
    _follow(links, 1)
    return best_of(repeats, lambda: (timed(_follow, links, steps)[0], steps))


def event_queue(nics: int, repeats: int, steps: int) -> float:
    def run() -> tuple[float, int]:
        net = world_with_room(nics, 4).net
        _fill_wheel(net, 4 * nics, 1_332_000 // (4 * nics))
        _hold(net, steps // 10, 332_000, 1_332_000)
        return timed(_hold, net, steps, 332_000, 1_332_000)[0], steps

    return best_of(repeats, run)


def calls(nics: int, repeats: int, steps: int) -> float:
    w = world(nics, 1)
    _calls(w.net, w.engine, 1)
    return best_of(repeats, lambda: (timed(_calls, w.net, w.engine, steps)[0], steps))


def switching(nics: int, load: int, repeats: int, steps: int) -> float:
    """Per traversal, with `load` packets under way for each NIC."""

    def run() -> tuple[float, int]:
        w = world_with_room(nics, load)
        w.net.port_kind.queue_bytes = 2**31 - 1
        w.net.port_kind.ecn_low_bytes = 2**31 - 1
        _inject(w.net, load * nics, nics)
        _switching(w.net, steps // 4)
        return timed(_switching, w.net, steps)

    return best_of(repeats, run)


def endpoints(nics: int, repeats: int, rounds: int) -> dict[str, float]:
    """A pull and a placement, per data packet; an answer, per SACK."""
    taken: dict[str, list[tuple[float, int]]] = {"pull": [], "place": [], "answer": []}
    call_s = float("inf")  # arrays to arguments: the least of all, or a busy moment counts as work
    for _ in range(repeats):
        w = world(nics, A_ROUND * rounds)
        net, st = w.net, w.engine
        _post(net, st)
        senders = w.ends.sender.astype(np.int64)
        packets = records(A_ROUND * nics, PACKET)
        replies = records(2 * A_ROUND * nics, PACKET)
        now, half = 0, w.values.base_rtt_ps // 2
        _nothing(net, st)
        call_s = min(call_s, *(timed(_nothing, net, st)[0] for _ in range(100)))
        for _ in range(rounds):
            call_s = min(call_s, timed(_nothing, net, st)[0])
            pull_s, n = timed(_pull, net, st, senders, packets, now)
            place_s, m = timed(_place, net, st, packets, n, replies, now + half)
            answer_s, _ = timed(_answer, net, st, replies, m, now + 2 * half)
            now += 2 * half
            taken["pull"].append((pull_s, n))
            taken["place"].append((place_s, n))
            taken["answer"].append((answer_s, m))
    return {
        name: min((seconds - call_s) / steps for seconds, steps in each) * 1e9
        for name, each in taken.items()
    }


def whole(nics: int, repeats: int, packets: int) -> dict[str, float]:
    """The event loop itself on the same fabric: ns per traversal, and packets per traversal."""
    best: dict[str, float] = {}
    for _ in range(repeats):
        w = world(nics, packets)
        w.run()
        c = w.counters()
        n = c["link_traversals"]
        figures = {
            "ns": w.loop_s / n * 1e9,
            "data": (c["data"] + c["retransmitted"]) / n,
            "sack": c["sack"] / n,
        }
        if not best or figures["ns"] < best["ns"]:
            best = figures
    return best


def measure(quick: bool = False) -> dict[str, dict[str, float]]:
    """Every part at every size: {"bare": {...}, "near": {...}, "far": {...}}, ns."""
    repeats, steps = (1, 1_000) if quick else (5, 2_000_000)
    unit = bare(repeats, steps)
    result = {"bare": {"ns": unit}}
    for size, nics in (QUICK if quick else SIZES).items():
        parts = {
            "call": calls(nics, repeats, steps // 10),
            "event": event_queue(nics, repeats, steps),
            "hop_idle": switching(nics, 1, repeats, steps),
            "hop_queued": switching(nics, 24, repeats, steps),
            **endpoints(nics, repeats, 2 if quick else 16),
        }
        if not (quick and size == "far"):
            run = whole(nics, repeats, 40 if quick else 490)
            parts["whole"] = run["ns"]
            parts["parts_of_whole"] = (
                parts["hop_queued"]
                + run["data"] * (parts["pull"] + parts["place"])
                + run["sack"] * parts["answer"]
            ) / run["ns"]
        result[size] = parts
    return result


WORDS = {
    "call": "a call that passes all state and does nothing: nic.pump",
    "event": "an event taken from the wheel and scheduled anew",
    "hop_idle": "a traversal, port idle: events, route, transmit",
    "hop_queued": "a traversal, port busy: the same with queue and second event",
    "pull": "a data packet made: requester.next_packet",
    "place": "a data packet received: responder.on_data",
    "answer": "a SACK or ACK received: requester.on_sack, on_ack",
    "whole": "a traversal of the whole event loop",
}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="little data: does it run at all")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    warm_up_mrc()
    result = measure(arguments.quick)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    unit = result["bare"]["ns"]
    print(f"bare: {unit:.2f} ns a record")
    print(f"{'':64}{'near':>14}{'far':>20}")
    for key, words in WORDS.items():
        row = ""
        for size in SIZES:
            ns = result[size].get(key)
            row += f"{'-':>20}" if ns is None else f"{ns:9.1f} ns {ns / unit:5.1f} x"
        print(f"{words:62}{row}")
    for size in SIZES:
        if "parts_of_whole" in result[size]:
            share = result[size]["parts_of_whole"]
            print(f"{size}: the parts make up {share:.0%} of the whole loop")


if __name__ == "__main__":
    main()
