"""The engine's verdict on a packet that arrived, and its text.

Verdicts below `REFUSED` had an effect. From there on the packet changed nothing, except that it may
have cost an answer, and is counted.
"""

from __future__ import annotations

VERDICT_TEXTS = (
    "taken in",
    "placed",
    "trimmed, and requested again",
    "a probe of the path's MTU",
    "no room for another message",
    "too many immediates in flight",
    "queue pair is not ready",
    "not from the queue pair's peer",
    "wrong rkey, out of bounds or no write right",
    "longer than the path MTU",
    "an opcode out of place",
    "PSN outside the window",
    "received before",
    "from no peer of this device",
    "refers to a packet that was never sent",
    "headers that contradict each other or the message's other packets",
)
(
    HEARD,
    PLACED,  # `State.count` says where the payload goes
    HEADER_ONLY,
    MTU_ASKED,
    NO_RESOURCE,
    IMM_OVERRUN,
    QP_NOT_READY,
    WRONG_SOURCE,
    BAD_KEY,
    TOO_LONG,
    OUT_OF_PLACE,
    OUT_OF_WINDOW,
    DUPLICATE,
    NO_PEER,
    NEVER_SENT,
    CONTRADICTORY,
) = range(len(VERDICT_TEXTS))
REFUSED = QP_NOT_READY
