"""The state of RoCEv2 in addition to that of every simulated network, as arrays of records.

The engine's State holds the identity of QPs (NIC, peer, QPN, state, error) and their rings of
messages. Sequence numbers are int64 counted from 0 for each QP; packets carry them modulo 2^24.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from openmrc.jit.byref import by_reference

# kinds of entries in the heap after those of `sim.net.state`, in their order within an instant
AT_PFC, AT_PLANES, AT_PACE = 6, 7, 8

CLASS_FRAME = 3  # HOP.klass of a pause frame between two shards, see `flow`

# A requester leaves at most this many packets unacknowledged: far more than a network holds, so it
# only bounds what is sent into a black hole. (IB 9.7.1 allows 2^23.)
OUTSTANDING_MAX = 1 << 16

ROCE_QP = np.dtype(  # one end: it sends, or it receives
    [
        # --- requester
        ("una", "i8"),  # oldest sequence not acknowledged
        ("nxt", "i8"),  # next to send; goes back to `una` for go-back-N
        ("high", "i8"),  # after the highest ever sent: everything below it is a retransmission
        ("seq_end", "i8"),  # after the last packet of the last posted part
        ("paced_at", "i8"),  # when the rate limiter allows the next packet
        ("rto_at", "i8"),
        ("timer_ps", "i8"),  # duration of the timer: it doubles each time it expires
        ("cur", "i8"),  # message whose part holds `nxt`
        ("msg_done", "i8"),  # messages acknowledged; of a responder: received
        ("msg_end", "i8"),  # messages posted
        ("msg0", "i8"),  # ring of the messages that it sends, or receives
        ("msg_mask", "i8"),
        # --- responder
        ("expected", "i8"),  # the only sequence that is accepted
        # --- either, where switches balance (`placement`)
        ("mark", "i8"),  # of a responder: what its timer finds missing below is lost,
        ("told", "i8"),  # and is reported from here on.
        ("again", "i8"),  # What is still missing from here on,
        ("due", "i8"),  # to here, is reported again;
        ("due_at", "i8"),  # from then on
        ("due_next", "i8"),  # to here
        ("n_ahead", "i4"),  # bits in `Roce.seen`: packets to send again, or ahead of a gap
        # --- both
        ("first_psn", "i4"),  # of the sequence of data packets: the sending end's
        ("retries", "i4"),  # since the last progress
        ("unacked", "i4"),  # packets accepted since the last acknowledgement
        ("bundle", "i4"),
        ("nic", "i4"),
        ("peer_nic", "i4"),
        ("other", "i4"),
        ("flow", "u4"),  # hash of the 5-tuple of what it sends
        ("sport", "i4"),  # UDP source port of those packets: the flow's entropy
        ("plane", "i1"),  # port of the bond that the flow hashes to; -1: none is up
        ("last_plane", "i1"),  # on which it sent last, where it has several:
        ("planes", "u2"),  # a mask of them; 0: one, `plane`
        ("nak_sent", "i1"),  # and the expected packet has not arrived since
        ("alive", "i1"),
        ("sends", "i1"),
        ("pacing", "i1"),  # an entry of the heap waits for `paced_at`
    ],
    align=True,
)

BUNDLE = np.dtype(  # the QPs over which the messages of one QP of the workload are striped
    [
        ("sender", "i4"),  # first of its sending ends; the others follow
        ("receiver", "i4"),
        ("ring0", "i8"),  # WHOLE of message n: ring0 + (n & ring_mask)
        ("ring_mask", "i8"),
        ("posted", "i8"),
        ("tx_next", "i8"),  # oldest message with a part that is not acknowledged
        ("va", "i8"),  # where its next message goes
        ("rx_next", "i8"),  # oldest with a part that has not arrived: the receiver's alone
    ],
    align=True,
)

WHOLE = np.dtype(  # a message of a bundle
    [
        ("entry", "i4"),
        ("parts", "i1"),  # parts that have packets
        ("tx_left", "i1"),  # parts of these that are not acknowledged
        ("arrived", "i1"),  # parts that have arrived: the receiver's alone, which resets it
    ],
    align=True,
)

ROCE = np.dtype(  # one record: settings, then counters
    [
        ("rto_ps", "i8"),  # the longest timer, and the first
        ("rto_first_ps", "i8"),
        ("ack_every", "i8"),
        ("retry_cnt", "i8"),
        ("qps", "i8"),
        ("paced", "i8"),  # whether rates are limited, and packets marked; and PFC
        ("pfc", "i8"),
        ("rtt_ps", "i8"),  # base round trip of a loop by round trips, see `delay`; 0: DCQCN
        ("p_max", "f8"),  # of the marks, at their upper threshold
        # where switches balance, and 0 elsewhere:
        ("reordering_ps", "i8"),  # 0: nothing is reported
        ("again_ps", "i8"),  # until what is still missing is reported again
        ("frame_ps", "i8"),  # that a packet takes at a NIC's port
        ("window", "i8"),  # packets that a requester may leave unacknowledged
        ("planes_at", "i8"),  # instant for which NICs have been asked to review their bonds
        ("acks", "i8"),
        ("naks", "i8"),
        ("cnps", "i8"),
        ("duplicates", "i8"),  # received again
        ("discarded", "i8"),  # received out of sequence
        ("go_backs", "i8"),  # NAKs that a requester obeyed
        ("timeouts", "i8"),
        ("no_route", "i8"),  # packets for which no uplink had a route
    ],
    align=True,
)

# Addresses of functions that only worlds use in which switches balance, 0 elsewhere: others do not
# even compile them.
CALLS = np.dtype(
    [
        ("on_data", "i8"),  # placement.on_data, and so on
        ("on_answer", "i8"),
        ("on_missing", "i8"),
        ("take_lost", "i8"),
        ("lose_last", "i8"),  # of `recovery = "selective"`
    ],
    align=True,
)


@by_reference
class Roce(NamedTuple):
    """All state of RoCEv2 in one simulated world. Every field is an array."""

    c: Any  # ROCE, one record, of each shard
    qp: Any  # ROCE_QP
    bundle: Any  # BUNDLE, by QP of the workload
    whole: Any  # WHOLE, a ring per bundle
    rates: Any  # dcqcn.CONFIG, one record
    limiter: Any  # dcqcn.LIMITER, by QP; one where nothing limits rates
    notifier: Any  # dcqcn.NOTIFIER, by QP; the same
    sample: Any  # delay.SAMPLE, by QP; one without that loop
    flow: Any  # pfc.CONFIG, one record
    buffer: Any  # pfc.SWITCH, by switch; one without PFC
    pause: Any  # pfc.LINK, by port; one without PFC
    # where switches balance; one record or row elsewhere
    calls: Any  # CALLS, one record
    seen: Any  # uint64 [QPs, words]: a bitmap of the window of sequences, see `placement`
    placed: Any  # int32, beside the engine's messages: packets of a part that have arrived
