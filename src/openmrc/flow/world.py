"""A scenario's world at the flow level: the workload as flows over pools, through all faults."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.engine import policy
from openmrc.engine import state as es
from openmrc.errors import InputError
from openmrc.fabric.actions import EVENT, FaultSchedule
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import Queues
from openmrc.flow import build, crowded, loop, losses, rates
from openmrc.flow.balanced import Balanced
from openmrc.flow.build import Sizes
from openmrc.flow.hashed import Hashed
from openmrc.flow.health import Floats, Health
from openmrc.flow.pools import Sprayed
from openmrc.flow.ports import OnePath
from openmrc.flow.rates import FAINT
from openmrc.flow.state import DATA, NEVER, WAY
from openmrc.jit.interrupts import held_back
from openmrc.sim.mrc.derive import derive
from openmrc.sim.net import network, room
from openmrc.sim.net import state as ss
from openmrc.sim.net.parts import Parts
from openmrc.sim.roce.derive import derive as derive_roce
from openmrc.sim.roce.transport import RoceTransport
from openmrc.sim.told import Told
from openmrc.sim.world import LATEST_PS, Progress
from openmrc.traffic.earliest import Cost
from openmrc.traffic.traffic import Traffic
from openmrc.traffic.trims import burst, trims_of_nics
from openmrc.units import PS_BITS
from openmrc.wire.framing import framing

MIDWAY = 0.5  # of its way a packet has gone, on average, where its one path breaks
EVENTS_A_STEP = 200_000  # between two checks of the clock: about a tenth of a second


class FlowWorld(Told):
    """The flow level of `sim.world.World`: the same arguments, and `cost`, what each message, or
    each part of one that is striped, takes alone in the network (`traffic.ideal.costs`). A run is a
    function of its arguments.
    """

    uncut = ""

    def __init__(
        self,
        fabric: Fabric,
        traffic: Traffic,
        transport: Any,
        schedule: FaultSchedule | None = None,
        seed: int = 1,
        *,
        cost: Cost,
        queues: Queues | None = None,
        stop_ps: int | None = None,
    ) -> None:
        refuse(transport)
        self.fabric, self.traffic, self.transport = fabric, traffic, transport
        self.seed, self.stop_ps, self.loop_s = seed, stop_ps, 0.0
        parts = Parts(fabric, traffic, queues or Queues(), schedule, seed, np.zeros(0, np.int64))
        self._events = schedule.events if schedule is not None else np.zeros(0, EVENT)
        sizes = self._open(parts)
        self._routed = not isinstance(self._pools, Sprayed)
        entries = 2 * traffic.n_entries + 2 * self.ends.n + 4096
        reserve = network.heap_reserve(traffic) + 2 * self.ends.n  # each flow may be planned anew
        self.net = network.net_of_messages(traffic, self.ends, entries + reserve, reserve)
        n_flows = len(self.ends.sender)
        self.fluid = build.fluid(
            fabric,
            traffic,
            self.ends,
            sizes,
            cost,
            1 if self._routed else fabric.n_planes,
            self._pools.n_pools,
            self.values.port_rate_bps,
            seed,
            self._late_ps,
            getattr(transport, "paths", "") != "oblivious" and not transport.balances,
        )
        self.fluid.flow.last_lost_at = network.NO_TIME
        self.fluid.flow.paths = self._pools.paths(self._paths_of_plane)
        self._broken = np.zeros(n_flows)
        self._health = Health(fabric, self.values.data_packet_wire_bytes)
        self._n_applied = 0
        self._agenda: list[int] = []  # when timers let flows go on, or end their patience
        self._failed: list[tuple[int, int]] = []  # lines, and when
        self._wasted = np.zeros(n_flows)  # what a flow sends in vain, bytes per ps,
        self._knows_at = np.zeros(n_flows, np.int64)  # until then
        self._stuck_at = np.full(n_flows, NEVER)  # since when nothing passes on a path
        if getattr(transport, "check_paths", False):  # a path carries data once it has answered
            self.fluid.flow.goes_on_at[traffic.msg_qp] = 2 * cost.ack
            self._agenda = np.unique(2 * cost.ack).tolist()
        self.fluid.c.tail_ps = self._tail_ps
        self._planes = self._pools.planes(self._health)
        self._crowd(parts)
        self._worked = self._health.works
        self._divide()

    def _open(self, parts: Parts) -> Sizes:
        """Make the pools of the transport; return the sizes of its packets."""
        if isinstance(self.transport, RoceTransport):
            self._open_roce(parts, self.transport)
            return build.sizes_of(self.transport)
        fabric, traffic, transport = parts.fabric, parts.traffic, self.transport
        self.values: Any = derive(fabric, transport, parts.queues, parts.senders_per_nic)
        self.ends = network.Ends(traffic)
        self._late_ps = self._tail_ps = self.values.overdue_after_ps
        self._paths_of_plane = self.values.evs_per_plane_active
        ways = (fabric, traffic.qp_src, traffic.qp_dst, network.groups_of(parts.schedule))
        self._pools: Any
        if transport.balances:
            at_ps = (transport.convergence_ps, transport.convergence_ps)
            self._pools = Balanced(*ways, self._events, at_ps, 0, parts.seed)
        elif transport.paths == "single":
            actions = self._events["action"]
            self._pools = OnePath(*ways, transport, self.values, self.ends, parts.seed, actions)
        else:
            self._pools = Sprayed(*ways)
        return build.sizes_of(transport, self.values.mpr_packets)

    def _open_roce(self, parts: Parts, transport: RoceTransport) -> None:
        """The same for RoCEv2. What is missing behind later packets is sent again soon; the last
        packets of all are found by a timer.
        """
        self._paths_of_plane = 1
        if not transport.balances:
            self._pools = Hashed(parts, transport)
            self.values, self.ends = self._pools.values, self._pools.ends
            self._late_ps, self._tail_ps = self.values.base_rtt_ps, self._pools.timer_ps(0)
            return
        fabric, traffic = parts.fabric, parts.traffic
        packets = parts.packets_per_qp(transport.pmtu)
        self.values = derive_roce(fabric, transport, parts.queues, parts.senders_per_nic, packets)
        self.ends = network.Ends(traffic, transport.qps)
        src, dst = (np.repeat(each, transport.qps) for each in (traffic.qp_src, traffic.qp_dst))
        groups = network.groups_of(parts.schedule)
        knows = (transport.convergence_ps, transport.failover_ps, parts.seed)
        self._pools = Balanced(fabric, src, dst, groups, self._events, *knows)
        self._tail_ps = self.values.rto_first_ps
        found_ps = self.values.base_rtt_ps + self.values.reordering_ps
        self._late_ps = found_ps if transport.recovery == "selective" else self._tail_ps

    def _crowd(self, parts: Parts) -> None:
        """What pools that many NICs fill take beside data, and how uneven shares of them are."""
        flow, traffic, values = self.fluid.flow, self.traffic, self.values
        carries = self._pools.bytes_per_ps(self._health)
        pools = self._pools.ways(carries)[:, 2:DATA]
        full = (pools >= 0).any(axis=1)
        rate = self._planes.sum(axis=0)
        messages = np.maximum(np.bincount(traffic.msg_qp, traffic.msg_count, traffic.n_qps), 1)
        each = np.bincount(traffic.msg_qp, traffic.msg_total_bytes, traffic.n_qps) / messages
        if self.transport.cc != "none":
            windows = np.repeat(each, self.ends.bundle) / (values.base_rtt_ps * rate)
            flow.spread = full * crowded.SPREAD * np.minimum(windows, 1)
        if self.transport.cc == "nscc":
            flow.yields = crowded.yields(windows)
        if isinstance(self.transport, RoceTransport):
            return
        frames = framing(self.transport.rules, self.transport.srv6)
        packets = np.bincount(traffic.msg_qp, traffic.packets(self.transport.pmtu), traffic.n_qps)
        wire = each * messages / np.maximum(packets, 1) + self.fluid.c.header_bytes
        queue_ps = values.queues.queue_bytes / values.port_rate_bps * PS_BITS
        sent = burst(traffic, self.transport.pmtu, values.max_window_bytes)
        ends = (traffic.qp_src, sent * wire, packets * wire)
        beyond = crowded.beyond(pools, *ends, carries, rate, queue_ps)
        unanswered = 1 - flow.answers * wire / frames.sack_bytes
        answers = full * np.clip(unanswered, 0, crowded.ANSWERED)
        if parts.queues.trim and self.transport.trim is not False:
            flow.crowd = 1 + beyond * frames.trimmed_bytes / wire
            answers += beyond
            flow.burden = 1 + self._trimmed_at_nics() * frames.trimmed_bytes / wire
        else:
            flow.drops = beyond
        flow.answers += answers * frames.sack_bytes / wire

    def _trimmed_at_nics(self) -> Floats:
        """Of each packet, how many an incast trims at the receiver's port, by flow."""
        traffic, values, pmtu = self.traffic, self.values, self.transport.pmtu
        trims = trims_of_nics(traffic, pmtu, values.max_window_bytes, values.bdp_bytes)
        data = np.bincount(traffic.msg_dst, traffic.packets(pmtu), traffic.n_nics)
        share = trims / np.maximum(data, 1)
        found: Floats = share[traffic.qp_dst]
        return found

    def run(
        self, until_ps: int | None = None, progress: Callable[[Progress], None] | None = None
    ) -> bool:
        """Run until `until_ps`, `stop_ps` or the end; True when nothing is left to happen.

        Ctrl-C ends it between two steps, a tenth of a second each.
        """
        until = min(t for t in (until_ps, self.stop_ps, LATEST_PS) if t is not None)
        with held_back() as let_through:
            while True:
                let_through()
                due = min(until, self._changes_at - 1)  # what breaks then is broken for all
                why = self._advance(due)
                if why == ss.HEAP:
                    self.net = room.more_heap(self.net)
                elif why == ss.TIMELINE:
                    room.coarsen(self.net)
                elif why == ss.REACHED and due < until:
                    self._change(due + 1)
                    why = ss.BUDGET  # not the end
                if progress is not None:
                    progress(self._progress())
                if why == ss.FINISHED:
                    return True
                if why == ss.REACHED:
                    self.net.ctl[0].now = max(self.net.ctl[0].now, until)
                    return until == self.stop_ps

    def _advance(self, until: int) -> int:
        started = time.perf_counter()
        why = int(loop.advance(self.net, self.fluid, until, EVENTS_A_STEP))
        self.loop_s += time.perf_counter() - started
        return why

    def _progress(self) -> Progress:
        c = self.net.ctl[0]
        ended = int(c.sends_done + c.messages_failed + c.messages_orphaned)
        return Progress(int(c.now), ended, self.traffic.n_sends, 0, self.loop_s)

    @property
    def _changes_at(self) -> int:
        """When the fabric changes next, or what flows may use of it."""
        own = min(self._agenda, default=NEVER)
        routing: int = self._pools.next_at
        last = self._n_applied == len(self._events)
        return min(own, routing, NEVER if last else int(self._events["at_ps"][self._n_applied]))

    def _change(self, at_ps: int) -> None:
        """All that is due at this instant changes: faults begin or end, routing has converged."""
        last = int(np.searchsorted(self._events["at_ps"], at_ps, "right"))
        self._n_applied, first = last, self._n_applied
        self.net.ctl[0].now = at_ps
        before = self._planes
        self._health.apply(self._events[first:last])
        self._pools.change(self._health, range(first, last), at_ps)
        if self._routed:
            self._wait(at_ps)
        self._agenda = [at for at in set(self._agenda) if at > at_ps]
        self._planes = self._pools.planes(self._health)
        self._lose(before, self._health.works, at_ps)
        self._divide()
        c = self.net.ctl[0]
        if c.heap_n + c.reserve >= len(self.net.heap):
            self.net = room.more_heap(self.net)
        loop.settle(self.net, self.fluid)

    def _wait(self, at_ps: int) -> None:
        """Flows whose path is broken wait for routing, or for its repair, and then for their timer;
        those that have waited too long fail.
        """
        passes = self._pools.carried(self._health) > 0
        stuck = self._stuck_at < NEVER
        new = ~passes & ~stuck
        self._stuck_at[new] = at_ps
        flow = self.fluid.flow
        flow.goes_on_at[new] = NEVER
        self._lose_under_way(new, MIDWAY)
        flow.left_bytes[new] += flow.rate[new] * self._late_ps  # what is under way
        began, holds = np.asarray(flow.began_at), np.asarray(flow.holds) > 0
        sends = (np.asarray(flow.entry) >= 0) | holds
        for f in np.flatnonzero(passes & stuck).tolist():
            since = max(int(self._stuck_at[f]), int(began[f]) if sends[f] else 0)
            short = at_ps - since < self._late_ps  # what is sent later arrives
            self.fluid.flow.goes_on_at[f] = at_ps if short else self._timer_ps(since, at_ps)
            self._agenda.append(int(self.fluid.flow.goes_on_at[f]))
            self._stuck_at[f] = NEVER
            if holds[f]:
                losses.send_again(self.net, self.fluid, f)
        patience_ps = self._pools.patience_ps
        if patience_ps < NEVER:
            waits = self._stuck_at < NEVER
            until = np.maximum(self._stuck_at, np.where(sends, began, at_ps)) + patience_ps
            lost = waits & sends & (until <= at_ps)
            for line in np.unique(flow.line[lost]).tolist():
                loop.fail(self.net, self.fluid, line)
                self._failed.append((line, at_ps))
            self._stuck_at[lost] = NEVER - 1
            if (waits & ~lost).any():
                self._agenda.append(int(until[waits & ~lost].min()))

    def _timer_ps(self, since_ps: int, at_ps: int) -> int:
        """When the first timer fires from `at_ps` on, of those of a sender that has heard nothing
        since then.
        """
        due, epoch = since_ps, 0
        while due < at_ps:
            due += self._pools.timer_ps(epoch)
            epoch += 1
        return due

    def _lose(self, before: Floats, works: npt.NDArray[np.bool_], at_ps: int) -> None:
        """What is under way on paths that have failed is lost, and so is what a sender puts on
        them until it knows. Of its own port and of its peer's it is told (MRC 3.10); of other
        paths each queue pair learns by losses.
        """
        flow, c = self.fluid.flow, self.fluid.c[0]
        broken, self._broken = self._broken, self._pools.broken(self._health)
        new = np.maximum(self._broken - broken, 0)
        unknown = np.asarray(flow.broken) + new * flow.paths if c.learns else np.inf
        flow.broken = np.minimum(unknown, self._broken * flow.paths)
        stopped, back = self._worked & ~works, works & ~self._worked
        self._worked = works
        if back.any():
            self._find_again(at_ps)
        flow.loses = self._pools.loses(self._health)
        if not stopped.any() or self._routed:
            return
        gone = np.maximum(before - self._planes, 0).sum(axis=0)
        share = gone / np.maximum(before.sum(axis=0), rates.TINY)
        self._lose_under_way(share, self._pools.reach(stopped))
        hit = np.flatnonzero((share > 0) & (np.asarray(flow.entry) >= 0))
        self._wasted[hit] = flow.rate[hit] * share[hit]
        self._knows_at[hit] = at_ps + c.late_ps
        flow.left_bytes[hit] += self._wasted[hit] * c.late_ps
        flow.again_ps[hit] = self._late_ps
        flow.last_lost_at[hit] = at_ps + np.where(new[hit] > 0, c.late_ps, 0)
        if c.learns:
            met = flow.left_bytes[hit] / c.packet_bytes * flow.broken[hit] / flow.paths[hit]
            flow.broken[hit] -= np.minimum(flow.broken[hit], met)

    def _lose_under_way(self, share: Floats | npt.NDArray[np.bool_], reach: Any) -> None:
        """Of these shares of each flow's paths, what has not come so far on its way is lost."""
        every = np.ones(len(share))
        losses.lose_under_way(self.net, self.fluid, share * every, reach * every)

    def _find_again(self, at_ps: int) -> None:
        """Something is back before the senders knew that it was gone: they lose no more on it."""
        flow = self.fluid.flow
        saved = np.flatnonzero((self._knows_at > at_ps) & (np.asarray(flow.entry) >= 0))
        flow.left_bytes[saved] -= self._wasted[saved] * (self._knows_at[saved] - at_ps)
        flow.last_lost_at[saved] = np.minimum(flow.last_lost_at[saved], at_ps)
        self._knows_at[saved] = at_ps

    def _divide(self) -> None:
        """Give pools and flows what the fabric carries at present."""
        fl = self.fluid
        bytes_per_ps = self._pools.bytes_per_ps(self._health)
        fl.pool.bytes_per_ps = bytes_per_ps
        goes_on = np.asarray(fl.flow.goes_on_at) <= self.net.ctl[0].now
        fl.flow.rate_open = np.where(goes_on, self._planes.sum(axis=0), 0)
        fl.flow.rate_max = np.minimum(fl.flow.rate_open, fl.flow.paced)
        ways = self._pools.ways(bytes_per_ps)
        faint = np.asarray(fl.flow.answers) < FAINT
        of_faint = ways[:, DATA:].copy()
        of_faint[~faint, : WAY - DATA] = -1
        ways[faint, DATA:WAY] = -1
        loop.reenter(self.net, fl, ways[:, :WAY], of_faint)

    def derived(self) -> dict[str, int]:
        """All values derived at the start, with units in the names."""
        found: dict[str, int] = self.values.as_dict()
        return found

    def counters(self) -> dict[str, int]:
        """What is counted at this level: data packets, of messages that were sent."""
        done = self.traffic.packets(self.transport.pmtu)[self.flows()["done_ps"] >= 0]
        return {"data": int(done.sum()), "link_traversals": 0}

    def errors(self) -> list[str]:
        """Per message, why it failed; "" where it did not."""
        failed = np.asarray(self.net.message.fate[: self.traffic.n_msgs]) == ss.FAILED
        return [es.ERROR_TEXTS[es.RETRY_EXCEEDED] if each else "" for each in failed.tolist()]

    def qp_errors(self) -> list[str]:
        """One line per queue pair of the workload in error: which, why, when."""
        src, dst = self.traffic.qp_src, self.traffic.qp_dst
        return [
            f"QPs of nic {int(src[line])} to nic {int(dst[line])}:"
            f" {es.ERROR_TEXTS[es.RETRY_EXCEEDED]} at {at_ps / 1e6:.1f} us"
            for line, at_ps in self._failed
        ]

    def pauses(self) -> list[dict[str, Any]]:
        """Ports that flow control pauses: not known at this level."""
        return []

    def samples(self) -> None:
        """Queues and losses over time: not known at this level."""


def refuse(transport: Any) -> None:
    """Raise `InputError` for a transport whose flows are not known."""
    said = ""
    if isinstance(transport, RoceTransport):
        if not transport.pfc:
            said = f"pfc of {transport.name!r}: false"
    elif transport.paths not in policy.PATHS:
        said = f"paths of {transport.name!r}: a policy of your own"
    elif transport.cc not in policy.CONGESTION:
        said = f"cc of {transport.name!r}: a policy of your own"
    elif transport.paths == "single" and transport.hashed and not transport.balances:
        said = f"srv6 of {transport.name!r}: false with one path"
    if said:
        raise InputError(f'transport.{said} is not known at the flow level; set level = "packet"')
