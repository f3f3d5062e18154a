"""The simulated network as arrays of records: packets in flight, ports, switches, event queue.

A packet is one index into `hop` (the fields for switches) and `packet` (the fields for endpoints).
An event is a number too: below the number of ports "this port's transmission is over", above it
"this packet arrives". What happens next is linked through `after`, which both kinds index; a packet
in a port's queue, or a free one, through its record.

Fields used together share a cache line: at a thousand NICs the cost is cache misses.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from openmrc.fabric import actions
from openmrc.fabric.queues import CLASSES
from openmrc.jit.byref import by_reference

HOP = np.dtype(
    [
        ("at", "i8"),  # when it arrives: all of it, or its header
        ("next", "i4"),  # packet in the same queue, or free packet; in flight: its next port
        ("port", "i4"),  # the directed port it travels on or waits at
        ("to", "i4"),  # what is at the end of that link: a switch, or -1 - nic
        ("frame_bytes", "i4"),  # on the wire, preamble and gap included
        ("dst", "i4"),  # NIC
        ("qp", "i4"),  # QP at the destination, -1 for an endpoint operation
        ("tag", "i4"),  # its sequence, -1 for a control packet
        ("ev", "u4"),  # the EV, or the hash of flow and EV
        ("klass", "i1"),
        ("marks", "u1"),  # CE, TRIMMED, TRIMMED_LASTHOP, DAMAGED
        ("trimmable", "i1"),
        ("stored", "i1"),  # its header has arrived, and it takes HOP.next when its last bit is in
        ("rest_ps", "u4"),  # its last bit arrives so long after `at`: 0 unless switches cut through
    ],
    align=True,
)

PORT = np.dtype(
    [
        ("free_at", "i8"),  # end of the transmission, and time of its event
        ("sent_bytes", "i8"),  # put on the wire so far, preamble and gap included
        ("peer", "i4"),  # switch at the other end, or -1 - nic
        ("data_queued_bytes", "i4"),
        ("control_queued_bytes", "i4"),
        ("head", "i4", (3,)),  # by class
        ("tail", "i4", (3,)),
        ("sent_packets", "u4"),  # of any kind, put on the wire so far
        ("kind", "i2"),
        ("armed", "i1"),  # the event for the end of the transmission is pending
        ("up", "i1"),
        ("faulty", "i1"),  # down or losing: look closer, at HEALTH; or its packets are late
        ("tapped", "i1"),  # what it sends is recorded in TAP
        ("abroad", "i1"),  # 1 + the shard of its other end; 0: the same shard
        ("spare", "i1"),  # one cache line
    ],
    align=True,
)

PORT_KIND = np.dtype(  # what many ports have in common
    [
        ("rate_bps", "i8"),
        ("byte_ps", "i8"),  # how long a byte takes; 0 where that is no whole number of ps
        ("delay_ps", "i8"),  # of the link and of the switch at its end
        ("queue_bytes", "i4"),  # data: trim or drop above
        ("control_queue_bytes", "i4"),
        ("ecn_low_bytes", "i4"),
        ("ecn_high_bytes", "i4"),
        ("last_hop", "i1"),
    ],
    align=True,
)

TAP = np.dtype(  # a packet that a tapped port sent; its own record is in `tap_packet`
    [
        ("at", "i8"),  # when its first bit left
        ("port", "i4"),
        ("qp", "i4"),  # as in HOP
        ("frame_bytes", "i4"),
        ("marks", "u1"),
    ],
    align=True,
)

TALLY = np.dtype(  # of a port: what became of packets there, or on its link
    [
        ("lost", "i8"),
        ("trimmed", "u4"),
        ("dropped", "u4"),  # those of the lost for which its queues had no room
        ("damaged", "u4"),  # those that the NIC at the end of its link discarded
        ("marked", "u4"),  # those that it sent, and that had not been marked before
        ("gone", "i8"),  # those of the lost that it sent, and that did not come out of its link
    ],
    align=True,
)

HEALTH = np.dtype(  # of a port
    [
        # packets sent up to this time that have not arrived are lost; 0: none
        ("cut_until", "i8"),
        *actions.PORT_HEALTH,
        ("denied", "u2"),  # mask of the groups of NICs that must not use it
    ],
    align=True,
)

FAULT = np.dtype(
    [*actions.EVENT.descr, ("port_kind", "i4")], align=True
)  # of PORT_RATE: the port's new kind

SWITCH = np.dtype(
    [
        ("lo", "i4"),
        ("hi", "i4"),
        ("stride", "i4"),
        ("first_down", "i4"),
        ("first_up", "i4"),
        ("n_up", "i4"),
        ("bundle", "i4"),
        ("salt", "i4"),
        ("tier", "i1"),
        ("silent", "i1"),
        ("stride_shift", "i1"),  # its logarithm; -1 where that is no whole number
    ],
    align=True,
)

BUCKET = np.dtype(
    [
        ("head", "i4"),
        ("tail", "i4"),
        ("last", "i4"),  # the tail's time within the bucket, ps; -1: the list is out of order
    ],
    align=True,
)

LINK_QP = np.dtype(  # what the world keeps of a QP in addition to the engine
    [
        ("timer_at", "i8"),
        ("other", "i4"),  # the QP at the other end
        ("waiting_head", "i4"),  # messages that wait for a place in the send queue
        ("waiting_tail", "i4"),
        ("roster0", "i4"),  # the entries of the workload that it carries
        ("n_roster", "i4"),
        ("unit0", "i4"),  # sequence s carries the unit of payload unit0 + (s & unit_mask)
        ("unit_mask", "i4"),
        ("region", "i4"),  # where its messages go, at the other end
        ("flow", "i4"),  # what ECMP hashes
        ("ready", "i4"),  # mask of the ports in whose round robin it is
        ("failed", "i1"),
    ],
    align=True,
)

LINK_NIC = np.dtype(
    [
        ("timer_at", "i8"),
        ("free_ports", "i4"),  # mask
        ("up_ports", "i4"),
    ],
    align=True,
)

MESSAGE_STATE = np.dtype(  # an entry of the workload: a message, a series of them, a computation
    [
        ("bytes", "i8"),
        ("start_at", "i8"),
        ("compute_ps", "i8"),  # from a release to the posting; of a computation: its length
        ("posted_at", "i8"),  # of a series: its first message
        ("done_at", "i8"),  # of a series: its last message
        ("delivered_at", "i8"),
        ("qp", "i4"),  # of a computation: -1 - its core
        ("deps", "i4"),
        ("next", "i4"),
        ("retransmitted", "i4"),
        ("recv0", "i4"),  # release[recv0 : sent0] when the receiver has it
        ("sent0", "i4"),  # release[sent0 : end] when its sender has the last acknowledgement
        ("end", "i4"),
        ("imm", "i1"),
        ("fate", "i1"),
        ("many", "i1"),  # a series
    ],
    align=True,
)

SERIES = np.dtype(  # of an entry that is a series: how far it is, and the rule of its sizes
    [
        ("n", "i4"),
        ("n_let", "i4"),  # messages that have their releases
        ("n_posted", "i4"),
        ("n_waiting", "i4"),  # for room in the send queue
        ("n_done", "i4"),
        ("block", "i4"),  # that the next message carries; they count down, modulo `blocks`
        ("blocks", "i4"),
        ("longer", "i4"),  # blocks below are a byte longer
        ("gates", "i4"),  # that are still shut: until all are open nothing is posted
        ("n_gated", "i4"),  # messages that had their releases when the last gate opened
    ],
    align=True,
)

ROUTING_ITSELF, OWN_SWITCH, NICS = 0, 1, 2  # CHANGE.who
TO_SWITCHES, TO_NICS = 1 << 16, 1 << 17  # bits of ROUTE.shut above the groups

CHANGE = np.dtype(  # a change that routing will apply
    [
        ("at", "i8"),
        ("port", "i4"),
        ("who", "i1"),  # who applies it: ROUTING, the port's OWN switch, or NICS
    ],
    align=True,
)

ROUTING = np.dtype(  # one record, written while nothing else happens
    [("broken", "i8")],  # ports that routing considers down or drained: 0 is the fast case
    align=True,
)

ROUTE = np.dtype(  # a directed port as routing sees it
    [
        ("reverse", "i4"),  # the link's other direction
        ("shut", "u4"),  # to whom: a mask of groups of denylists, TO_SWITCHES and TO_NICS
        ("own_up", "i1"),  # to the switch whose port it is
    ],
    align=True,
)

BALANCE = np.dtype(  # one record: how switches balance, see `balance`; zeros where they do not
    [
        ("n_steps", "i8"),  # of load
        ("rotates", "i8"),  # ties are broken by rotation
    ],
    align=True,
)

CALLS = np.dtype(  # addresses of its functions: other worlds do not even compile them
    [("egress", "i8"), ("shelve", "i8")], align=True
)

SHELF = np.dtype(  # a port as its switch ranks it
    [
        ("row", "i4"),  # of RANKED: the switch's first
        ("first", "i4"),  # of the switch's uplinks
        ("low", "i4"),  # its queue has this step from so many bytes
        ("high", "i4"),  # to fewer than these
        ("uplink", "i2"),  # its number among these; -1: it is none
        ("place", "i2"),  # in its list
        ("step", "i1"),  # of its load; -1: it is down
    ],
    align=True,
)

# scout.py: events of a batch, and those that the scout remembers; powers of two
SCOUT_BATCH, SCOUTED = 8, 64

NONE = -1  # in place of the number of a fault, a QP or an entry
CONTROL = np.dtype(
    [
        ("now", "i8"),
        ("until", "i8"),
        ("bucket", "i8"),  # number of the bucket that is open
        ("shift", "i8"),  # bucket width = 2^shift ps
        ("bucket_mask", "i8"),
        ("n_wheel", "i8"),  # events in the wheel
        ("heap_n", "i8"),
        ("open_head", "i4"),
        ("open_tail", "i4"),
        ("free_head", "i4"),
        ("n_free", "i4"),
        ("n_packets", "i4"),  # indices given to it so far; the others are a reserve
        ("n_ports", "i4"),
        ("n_nic_ports", "i4"),  # their numbers come first
        ("n_planes", "i4"),
        ("ev_base", "i4"),
        ("up0_shift", "i4"),
        ("up0_mask", "i4"),
        ("up1_shift", "i4"),
        ("up1_mask", "i4"),
        ("plane_shift", "i4"),
        ("trimmed_bytes", "i4"),  # wire size of a trimmed packet
        ("pmtu", "i4"),
        ("header_bytes", "i4", (256,)),  # wire bytes of a packet without payload, by opcode
        ("hashed", "i1"),
        ("hashes_tuple", "i1"),  # of addresses and ports; else of the flow's number and its EV
        ("balances", "i1"),  # switches choose a port for each packet
        ("foretold", "i1"),  # a packet's next port is known when it is sent: HOP.next
        ("by_usid", "i1"),  # switches forward by carriers and their tables, not by arithmetic
        ("class_of", "i1", (CLASSES,)),  # queue of each class of packets, row 15
        ("trim", "i1"),
        ("single", "i1"),
        ("started", "i1"),
        ("scouts", "i1"),  # large enough for scout.py
        ("ends_on_error", "i1"),  # the first QP error ends the run,
        ("ended", "i1"),  # and it has
        ("convergence_ps", "i8"),
        ("bin_ps", "i8"),
        ("head_bytes", "i8"),  # of a packet, with which a switch begins to send it; 0: with all
        ("jitter_ps", "i8"),  # how late a packet may be at the end of a link
        ("fault_at", "i8"),  # when the next fault begins or ends
        ("cut_over_at", "i8"),  # what arrives later was on no link that went down meanwhile
        ("placed_at", "i8"),  # last time that payload was placed
        ("sends_done", "i8"),  # messages, each of a series by itself; the next four count entries
        ("messages_done", "i8"),
        ("messages_failed", "i8"),
        ("messages_orphaned", "i8"),
        ("messages_open", "i8"),  # with the computations that have not ended
        ("reserve", "i8"),  # room in the heap that one event may need
        ("qpn_offset", "i8"),  # QPN = offset + index x factor modulo 2^24
        ("qpn_inverse", "i8"),
        ("wrong_bytes", "i8"),
        ("verified_bytes", "i8"),
        # packets: injected = delivered + dropped + in the network
        ("traversals", "i8"),
        ("injected", "i8"),
        ("delivered", "i8"),
        ("trimmed", "i8"),
        ("dropped_queue", "i8"),
        ("dropped_control", "i8"),
        ("dropped_fault", "i8"),
        ("dropped_corrupt", "i8"),
        ("ecn_marked", "i8"),
        ("data_packets", "i8"),
        ("retransmitted", "i8"),
        ("events", "i8"),
        ("first_fault_drop_at", "i8"),
        ("tap_n", "i8"),  # entries of TAP in use
        ("tap_reserve", "i8"),  # room there that the events between two checks may need
        ("rerouted_at", "i8"),  # last instant from which routing began to converge
        # scout.py
        ("scout_bucket", "i8"),  # number of the bucket that the scout is in
        ("scout_lead", "i8"),  # events that it is ahead
        ("scout_turn", "i8"),  # events that it has passed, all in all
        ("scout", "i4"),  # the event that it comes to next, -1 at the end of a bucket
        ("scout_peek", "i4"),  # place of the bucket after the one that it is in, -1 once looked at
        ("scouted", "i4", (SCOUTED,)),  # those that it passed, a ring of batches
        ("scout_ports", "i4", (SCOUT_BATCH,)),  # of one batch: ports of switches,
        ("scout_packets", "i4", (SCOUT_BATCH,)),  # packets
        ("scout_n_senders", "i4", (SCOUTED // SCOUT_BATCH,)),  # of each batch: QPs that send,
        ("scout_n_arrivals", "i4", (SCOUTED // SCOUT_BATCH,)),  # packets of QPs that reach a NIC
        ("scout_senders", "i4", (SCOUTED,)),  # and which; batch k's from k x SCOUT_BATCH on
        ("scout_planes", "i4", (SCOUTED,)),  # of the senders
        ("scout_arrivals", "i4", (SCOUTED,)),
        # of a shard (sim/shards); a world that is not cut is shard 0 of 1
        ("shard", "i4"),
        ("n_shards", "i4"),
        ("nic0", "i4"),  # its NICs: nic0 .. nic_end - 1
        ("nic_end", "i4"),
        ("qp0", "i4"),  # and their QPs
        ("qp_end", "i4"),
        ("outbox", "i4"),  # first row of Net.outgoing in this window; -1 where nothing crosses
        ("fault_no", "i4"),  # what happens before anything else, of AGENDA; or -1
        ("crosses_at", "i8"),  # when the first packet that crosses in this window arrives
        ("failed_qp", "i4"),  # QPs that failed and whose other ends do not know: a list, see cross
        ("lost_entry", "i4"),  # entries that failed and what waits for them does not know
        ("n_frames", "i8"),  # packet indices that stand for no packet (RoCEv2's pause frames)
    ],
    align=True,
)

REST_PS_MAX = (1 << 32) - 1  # of HOP.rest_ps: what takes longer is stored
TAG_MASK = 0x7FFF_FFFF  # of a sequence number in HOP.tag
DAMAGED = 128  # a mark of a packet, in addition to those of engine.packet: its iCRC is wrong
UNDAMAGED = 127

# fates of messages; an ORPHAN waits for one that failed
OPEN, COMPLETED, FAILED, ORPHAN = 0, 1, 2, 3

# columns of Net.timeline
BIN_GOODPUT, BIN_RETRANSMITTED, BIN_LOST, BIN_TRIMMED = 0, 1, 2, 3
BIN_COLUMNS = 4

# kinds of entries in the heap, in their order within an instant: what breaks then is broken for all
AT_FAULT, AT_REVIEW, AT_QP, AT_NIC, AT_MESSAGE, AT_CONVERGED = 0, 1, 2, 3, 4, 5
AT_LOCAL_REPAIR = 9  # those between are a transport's own

EVENTS_BETWEEN_CHECKS = 64  # between two checks of the remaining room

# why `advance` returned
FINISHED, REACHED, BUDGET, ROOM, TIMELINE, HEAP, TAPPED, TOLD = range(8)


@by_reference
class Net(NamedTuple):
    """All state of the simulated network. Every field is an array."""

    ctl: Any  # CONTROL, one record
    hop: Any
    packet: Any  # engine PACKET
    port: Any
    port_kind: Any
    health: Any
    tally: Any  # TALLY, by port
    last_at: Any  # int64 by port: when the packet it sent last arrives; one without jitter
    switch: Any
    after: Any  # int32 by event: the one behind it in its bucket, or -1
    bucket: Any
    bucket_bits: Any  # uint64, which buckets hold events
    bucket_summary: Any
    heap: Any  # ENTRY of jit.heap; what: kind << 40 | number
    qp: Any  # LINK_QP
    nic: Any  # LINK_NIC
    round: Any  # int32 [ports of NICs, 2]: first (-1: none) and last of the QPs that may send
    behind: Any  # int32 [qps, planes]: the QP behind it in the round of that port, or -1
    message: Any  # MESSAGE_STATE
    series: Any  # SERIES, one for each message; a single record where there is no series
    core_free_at: Any  # int64 by core: when its last computation ends; core 0 means no core
    roster: Any  # int32: message numbers grouped by QP
    release: Any  # int32: messages that a message releases, see MESSAGE_STATE
    unit: Any  # uint16, a ring per QP that sends: what is sent and not yet placed, see `unit_of`
    fault: Any  # FAULT, the schedule
    groups: Any  # uint16 by NIC: mask of the groups it is in; empty without denylists
    timeline: Any  # int64 [bins, BIN_COLUMNS]
    rate: Any  # int64 [bins, columns]: payload placed, bytes, by flow or job; or no column
    column: Any  # int32 by entry: its column there; a single one where there is none
    stream: Any  # uint64, one for each of `port`: trims, marks and losses
    outgoing: Any  # int32 [2 x shards, 2]: packets in flight to them, see `cross`
    entry_shard: Any  # int8 by entry: the shard that posts it; a single one where there is one
    tap: Any  # TAP: packets of tapped links that were not taken yet; empty without a capture
    tap_packet: Any  # PACKET
    carrier: Any  # uint8 [packets, 16] with `by_usid`, else [1, 16]
    usid_switch: Any  # the four arrays of wire.srv6: tables of the switches, and how NICs spell
    usid_slots: Any
    usid_scheme: Any
    usid_nic: Any
    routing: Any  # ROUTING, one record
    route: Any  # ROUTE, by port; a single one where nothing is routed
    change: Any  # CHANGE, in time order
    balance: Any  # BALANCE, one record; of the others a single one where no switch balances
    calls: Any  # CALLS, one record
    shelf: Any  # SHELF, by port
    ranked: Any  # int16 [switches x steps, uplinks]: lists of uplinks by load, of the length
    n_ranked: Any  # int16, by row
    bound: Any  # int32 [kinds of ports, steps - 1]: queued bytes with which the next step begins
    turn: Any  # int64, by switch: choices so far
