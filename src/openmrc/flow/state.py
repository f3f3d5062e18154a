"""The state of the flow level as arrays of records: queues of messages, flows, and the pools of
bandwidth that flows share.

A *flow* carries messages of one queue pair, in order, at one rate. Where a transport stripes
messages over several QPs, each of these is a flow, and a message has a part in every one.

A *pool* is bandwidth that many flows share: a directed port; or, for a transport that sprays, all
the ports that it may use alike (`pools`). The pools of flow `f` are `way[f]`, -1 where there is
none. Of the first `DATA` it takes its rate, of the others, the ports of NICs, what its answers
take; where that is little they are in `faint` instead, and only count, as answers do between
switches. Each pool has a list of the flows that send
through it at present, linked through `behind` and `before`, whose index is flow x WAY + place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from openmrc.engine import state as es
from openmrc.jit import record_type
from openmrc.jit.byref import by_reference
from openmrc.sim.net import state as ss

LAST = 1  # the place of the receiver's port on a way; the sender's is the first
DATA = 6  # pools on the way of data, at most: three tiers up, three down
WAY = DATA + 2  # and, behind them, the ports that its answers leave and reach
BACK = DATA  # pools on the way of answers
# kinds of entries in the heap, in their order within an instant
AT_FLOW, AT_ACKNOWLEDGED, AT_DELIVERED, AT_ENTRY = 0, 1, 2, ss.AT_MESSAGE
IDLE = -1  # FLOW.entry
NEVER: int = int(es.NEVER)  # a time that never comes, ps

FLOW = record_type(
    (
        "left_bytes",
        "f8",
    ),  # of its part of a message that are still to be sent, at `at`; on the wire
    ("ahead_bytes", "f8"),  # that the turns of its NIC's ports have let it send ahead of its rate
    ("rate", "f8"),  # bytes per ps
    ("rate_open", "f8"),  # what the ports that both ends have in common carry,
    ("paced", "f8"),  # what MPR lets it send of the present message,
    ("rate_max", "f8"),  # and the least of both
    ("round_at", "i8"),  # when the present round of MPR packets began,
    ("round_left", "f8"),  # and what it may still send in it, bytes
    ("answers", "f8"),  # bytes of acknowledgements that come back for each byte sent
    ("burden", "f8"),  # what the last port carries for each byte: more where headers are trimmed
    ("crowd", "f8"),  # the same of the pools between switches
    ("spread", "f8"),  # by how much of a fair rate its own is drawn to be more or less
    ("portion", "f8"),  # of a fair rate, for the present message,
    ("yields", "f8"),  # of which it has so much less for each queue beyond the first
    ("claim", "f8"),  # both
    ("drops", "f8"),  # how many of each packet of its first window are dropped
    ("at", "i8"),
    ("timer_at", "i8"),  # its earliest entry in the heap
    ("began_at", "i8"),  # when it began the present message
    ("last_lost_at", "i8"),  # when a packet of the present message was last lost; -1: none was
    ("again_ps", "i8"),  # and how long after that its sender sent it for the last time
    ("paths", "f8"),  # how many it uses,
    ("broken", "f8"),  # how many of them lose what they carry, and it does not know,
    ("loses", "f8"),  # and the share of packets that the others lose at random
    ("goes_on_at", "i8"),  # before, it sends nothing
    ("holds", "i1"),  # messages that were lost under way wait until then
    ("line", "i4"),  # its queue of messages
    ("number", "i8"),  # of the present message, or of the next one
    ("entry", "i4"),  # of the workload, or IDLE
    ("part", "i4"),  # which part of each message is its own
    ("fresh", "i1"),  # it has begun, and has no rate yet
    ("met", "i1"),  # is among those whose rates are being computed
    ("fixed", "i1"),  # its new rate is known
)

LINE = record_type(  # the queue of messages of a queue pair of the workload
    ("posted", "i8"),
    ("done", "i8"),  # messages of which all parts are sent, in order
    ("ring0", "i4"),
    ("ring_mask", "i4"),
    ("flow0", "i4"),
    ("delivered_at", "i8"),  # when the last message was delivered: none overtakes another
)

MESSAGE = record_type(  # a message that is posted and not yet sent
    ("length", "i8"),
    ("entry", "i4"),
    ("parts", "i4"),  # that are still to be sent
)

POOL = record_type(
    ("bytes_per_ps", "f8"),
    ("load", "f8"),  # of all flows in its list
    ("faint", "f8"),  # answers that only count
    ("shared", "f8"),  # while rates are computed: what there was without those,
    ("left", "f8"),  # what of it is not given away,
    ("weight", "f8"),  # what its flows that have no rate yet take of it at a rate of 1,
    ("waiting", "i4"),  # and how many they are
    ("head", "i4"),  # of its list, -1 if it is empty
    ("met", "i1"),
    ("full", "i1"),
    ("recent", "f8"),  # packets sent within the jitter of a link, as of
    ("recent_at", "i8"),
    ("touched", "i1"),  # on the way of a flow met
    ("dirty", "i1"),
)

assert max(AT_FLOW, AT_ACKNOWLEDGED, AT_DELIVERED) < AT_ENTRY

ENTRY = record_type(  # what a message of an entry of the workload takes beside its transmission
    ("after_ps", "i8"),  # from its last bit out of the NIC, at an even rate, until it is placed
    ("round_ps", "i8"),  # from when a packet leaves until its sender may send one more
    ("ack_ps", "i8"),  # from then until its sender has the acknowledgement
    ("links", "i4"),  # on a path
    ("held_until", "i8"),  # it is not placed before: it was lost under way
    ("held", "i4"),  # messages of a series that wait for that
    ("packets", "f8"),
    ("follow", "f8"),  # packets that follow each other so closely that jitter delays them together
)

CONTROL = record_type(
    ("stripes", "i4"),
    ("ports", "i4"),  # of a NIC, that carry a message at once
    ("jitter_ps", "i8"),
    ("late_ps", "i8"),  # from when a packet was sent until it counts as lost
    ("tail_ps", "i8"),  # the same of the last packet of a message
    ("learns", "i4"),  # whether senders leave the paths that have lost a packet
    ("packet_bytes", "f8"),  # on the wire, with a whole payload
    ("room_bytes", "f8"),  # that a QP may have under way
    ("packet_ps", "f8"),  # that it takes of a port
    ("pmtu", "i4"),
    ("header_bytes", "i4"),  # on the wire, of each packet
    ("n_dirty", "i4"),
    ("n_fresh", "i4"),
    ("n_met", "i4"),  # flows whose rates are being computed
    ("n_pools", "i4"),  # pools that are considered
    ("n_touched", "i4"),
)


@by_reference
class Fluid(NamedTuple):
    """All state of the flow level in addition to that of messages (`sim.net.state.Net`)."""

    c: Any  # CONTROL, one record
    flow: Any
    line: Any
    ring: Any  # MESSAGE
    entry: Any  # ENTRY
    pool: Any
    way: Any  # int32 [flows, WAY]
    faint: Any  # int32 [flows, BACK]
    behind: Any  # int32 [flows x WAY]
    before: Any
    dirty: Any  # int32: pools whose flows may have other rates now
    fresh: Any  # int32: flows that have begun, and have no rate yet
    met: Any  # int32: flows whose rates are being computed
    considered: Any  # int32: pools, the same
    touched: Any  # int32: pools on the ways of flows that were met
    stream: Any  # uint64, one for each flow: what jitter makes of its packets
