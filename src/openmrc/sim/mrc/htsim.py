"""`rules = "peer"`: what htsim does otherwise than MRC's endpoints, so that figures can be compared
with those that it prints. Its packet sizes are `PEER_FRAMING`, its EVs are hashed.
"""

from __future__ import annotations

from typing import Any

from openmrc.engine import packet as pk
from openmrc.engine import policy
from openmrc.fabric.queues import Queues, Sizes
from openmrc.sim.mrc.transport import Transport

ALPHA_TIME_PS = 12_000_000  # NSCC's growth is by 12 us, whatever T is

# The queue of each class: retransmissions stand with all other data.
CLASSES = (pk.CLASS_CONTROL, pk.CLASS_DATA, pk.CLASS_DATA)


def is_asked_for(transport: Transport) -> bool:
    """Whether a transport follows htsim."""
    return transport.rules == "peer"


def endpoints(transport: Transport) -> dict[str, Any]:
    """The fields of CONFIG in which its endpoints differ: control packets take random EVs, the EVs
    of each round are in a new order, and marks and answers decide on EVs (`engine/recycling.py`).
    """
    recycles = transport.paths == "mrc" and transport.ecn_skip
    return {
        "reverse": policy.REVERSE_RANDOM,
        "alpha_time_ps": ALPHA_TIME_PS,
        "shuffle_rounds": 1,
        "skip_turns": policy.skip_turns(transport.skip_turns or 1),
        **(dict.fromkeys(("path_choose", "path_learn"), policy.RECYCLING) if recycles else {}),
    }


def sizes(queues: Queues, own: Sizes, rate_bps: int, packet_bytes: int) -> Sizes:
    """Its queues, where `queues` says nothing else: all of one BDP, that of control twice."""
    of_htsim = own._replace(
        queue_last_hop_bytes=own.queue_bytes, control_queue_bytes=2 * own.queue_bytes
    )
    return queues.sizes(of_htsim, rate_bps, packet_bytes)
