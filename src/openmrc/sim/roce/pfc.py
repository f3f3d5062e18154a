"""Priority flow control of the data class (IEEE 802.1Qbb) in switches with a shared buffer.

Packets queued at a switch are charged to the link on which they arrived. A link may hold a share of
the switch's buffer; a packet that finds no room in it goes to the link's *headroom*, and the switch
asks the other end to pause. The headroom takes the packets in flight until the other end has
stopped, so nothing is lost; when it is empty again and the share has room, the switch resumes the
link.

    share of a link (XOFF)   xoff_bytes; or, if 0, alpha x the free part of the shared buffer
    resume (XON)             headroom empty, and the share is down to XOFF - xon_gap, or is empty
    headroom                 `headroom_bytes`

A pause frame carries a duration, not an end: 65535 quanta of 512 bit times. While a switch needs
the link paused it repeats the frame after half of that, so a lost frame does no harm, and a link
whose switch has died resumes by itself. XON is a frame of no quanta. The frame is 64 B, waits for
the frame in transmission, and overtakes queued packets.

One record per *directed* link, `LINK`, holds both of its ends: what is charged to it at the switch
that receives, and whether the port that sends is paused. Each end writes and reads its own fields
alone. Control packets are neither charged nor paused. This module does not know the topology.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.engine.state import NEVER
from openmrc.jit import compiled, inlined, inner

PASS = 0  # nothing to do
PAUSE = 1  # send a pause frame to the other end of the link, and another at `refresh_at`
RESUME = 2  # send it a frame of no quanta
DROP = 3  # share and headroom are full: the packet is lost, and nothing was charged

PS_BITS = 8_000_000_000_000  # bits per byte x picoseconds per second
FRAME_BYTES = 84  # a pause frame of 64 B with preamble and gap
QUANTUM_BITS = 512
QUANTA_MAX = 65_535

CONFIG = np.dtype(
    [
        ("xoff_bytes", "i8"),  # of each link; 0: by alpha
        ("alpha", "f8"),  # a link may hold alpha x (free part of the shared buffer)
        ("xon_gap_bytes", "i8"),
        ("storm_ps", "i8"),  # a link that is paused for this long without a break is in a storm
        ("quanta", "i8"),  # that a pause frame asks for; `LINK.pause_ps` is their duration
    ],
    align=True,
)

SWITCH = np.dtype(
    [
        ("shared_bytes", "i8"),  # the buffer without the headrooms
        ("used_bytes", "i8"),  # the used part of it
        ("headroom_used_bytes", "i8"),  # over all links
        ("peak_bytes", "i8"),  # most that was queued at once, headroom included
        ("drops", "i8"),
    ],
    align=True,
)

LINK = np.dtype(
    [
        # the end that receives
        ("held_bytes", "i8"),  # charged to its share
        ("headroom_held_bytes", "i8"),
        ("headroom_bytes", "i8"),  # its size
        ("headroom_peak_bytes", "i8"),
        ("refresh_at", "i8"),  # when to ask for a pause again, NEVER if none is wanted
        ("refresh_ps", "i8"),  # between two pause frames
        ("frame_until", "i8"),  # end of the last pause frame on the wire, of either kind
        ("frames_sent", "i8"),  # those that ask for a pause, repeated ones included
        ("wants_pause", "i1"),
        # the end that sends
        ("paused_until", "i8"),  # 0: not paused
        ("paused_since", "i8"),
        ("pause_ps", "i8"),  # the time that a pause frame asks for
        ("paused_ps", "i8"),  # sum of all pauses that are over
        ("longest_ps", "i8"),
        ("pauses", "i8"),
        ("storms", "i8"),
        ("in_storm", "i1"),
    ],
    align=True,
)


def headroom_bytes(
    rate_bps: int,
    reverse_rate_bps: int,
    delay_ps: int,
    reverse_delay_ps: int,
    frame_bytes: int,
    respond_ps: int = 0,
) -> int:
    """Bytes that can arrive on a link that must pause: the packet without room and those after it.

    `frame_bytes` is the longest frame with preamble and gap, and the same in both directions;
    delays are those of link and receiver; `respond_ps` is how long the other end takes to stop. The
    frame that found no room, and as many bytes at the link's rate as fit into

        frame_bytes + 84 B at the reverse link's rate    the pause frame waits for a whole frame
        + reverse_delay + respond                        and travels
        + frame_bytes at the link's rate                 a frame that had just begun is sent whole
        + delay                                          and travels
    """
    ahead = (frame_bytes + FRAME_BYTES) * PS_BITS * rate_bps
    back = -(-ahead // (reverse_rate_bps * PS_BITS))
    way = -(-(delay_ps + reverse_delay_ps + respond_ps) * rate_bps // PS_BITS)
    return 2 * frame_bytes + back + way


def pause_time_ps(rate_bps: int, quanta: int = QUANTA_MAX) -> int:
    """The duration of `quanta` on a link, ps: the longest pause that one frame can ask for."""
    return quanta * QUANTUM_BITS * (PS_BITS // 8) // rate_bps


def open_links(links: Any, pause_ps: Any, headroom: Any) -> None:
    """Initialise links: empty headrooms of `headroom` bytes, and pause frames that ask for
    `pause_ps`.
    """
    links.headroom_bytes = headroom
    links.pause_ps = pause_ps
    links.refresh_ps = links.pause_ps // 2
    links.refresh_at = NEVER


def paused_ps(links: Any, now: int) -> npt.NDArray[np.int64]:
    """For how long the sending ports have been paused, ps, including current pauses."""
    running = np.where(np.asarray(links.paused_until) != 0, now - np.asarray(links.paused_since), 0)
    found: npt.NDArray[np.int64] = links.paused_ps + running
    return found


@compiled
def xoff_of(c, sw):
    """Bytes that a link may hold of the shared buffer now."""
    free = sw.shared_bytes - sw.used_bytes
    if c.xoff_bytes > 0:
        return c.xoff_bytes
    return int(c.alpha * max(free, 0))


@compiled
def on_enqueue(c, sw, link, now, wire_bytes):
    """A data packet that arrived on `link` is to be queued: PASS, PAUSE or DROP.

    PAUSE: send a frame now; `link.refresh_at` is then when to call `on_refresh`.
    """
    free = sw.shared_bytes - sw.used_bytes
    if link.held_bytes + wire_bytes <= xoff_of(c, sw) and wire_bytes <= free:
        link.held_bytes += wire_bytes
        sw.used_bytes += wire_bytes
    elif link.headroom_held_bytes + wire_bytes <= link.headroom_bytes:
        link.headroom_held_bytes += wire_bytes
        link.headroom_peak_bytes = max(link.headroom_peak_bytes, link.headroom_held_bytes)
        sw.headroom_used_bytes += wire_bytes
    else:
        sw.drops += 1
        return DROP
    sw.peak_bytes = max(sw.peak_bytes, sw.used_bytes + sw.headroom_used_bytes)
    if link.headroom_held_bytes == 0 or link.wants_pause != 0:
        return PASS
    link.wants_pause = 1
    return _ask(link, now)


@inner
def _ask(link, now):
    link.refresh_at = now + link.refresh_ps
    link.frames_sent += 1
    return PAUSE


@compiled
def on_dequeue(c, sw, link, wire_bytes):
    """A packet that arrived on `link` has left its queue: PASS or RESUME.

    Headroom is freed first.
    """
    from_headroom = min(wire_bytes, int(link.headroom_held_bytes))
    link.headroom_held_bytes -= from_headroom
    sw.headroom_used_bytes -= from_headroom
    link.held_bytes -= wire_bytes - from_headroom
    sw.used_bytes -= wire_bytes - from_headroom
    if link.wants_pause == 0 or link.headroom_held_bytes > 0:
        return PASS
    if link.held_bytes > 0 and link.held_bytes > xoff_of(c, sw) - c.xon_gap_bytes:
        return PASS
    link.wants_pause = 0
    link.refresh_at = NEVER
    return RESUME


@compiled
def on_refresh(link, now):
    """`refresh_at` is due: PAUSE if the link must stay paused, else PASS."""
    if link.refresh_at > now:
        return PASS
    return _ask(link, now)


@inlined
def frame_ps(rate_bps):
    """The time of a pause frame on the wire, ps."""
    return FRAME_BYTES * PS_BITS // rate_bps


@compiled
def send_frame(link, now, free_at, rate_bps, delay_ps):
    """When a pause frame for `link`, requested at `now`, arrives at the sending port, ps.

    It travels on the reverse link, of that rate and delay, whose port is busy until `free_at`;
    frames keep their order.
    """
    begins = max(now, free_at, int(link.frame_until))
    link.frame_until = begins + frame_ps(rate_bps)
    return link.frame_until + delay_ps


@inlined
def is_paused(link):
    """Whether the sending port must hold its data; control packets are not paused."""
    return link.paused_until != 0


@compiled
def on_pause(link, c, now):
    """A pause frame has arrived at the sending port; its data is held until `link.paused_until`.

    True if it was not held before.
    """
    begins = link.paused_until == 0
    if begins:
        link.paused_since = now
        link.pauses += 1
    link.paused_until = now + link.pause_ps
    _watch(link, c, now)
    return begins


@inner
def _watch(link, c, now):
    """Count a pause that has become a storm, once."""
    if link.in_storm == 0 and now - link.paused_since >= c.storm_ps:
        link.in_storm = 1
        link.storms += 1


@compiled
def on_resume(link, c, now):
    """A frame of 0 quanta has arrived. True if the port was paused: it may send again."""
    if link.paused_until == 0:
        return False
    _watch(link, c, now)
    lasted = now - link.paused_since
    link.paused_ps += lasted
    link.longest_ps = max(link.longest_ps, lasted)
    link.paused_until = 0
    link.in_storm = 0
    return True


@compiled
def on_expiry(link, c, now):
    """A planned expiry is due: as `on_resume`, if no later frame moved it."""
    if link.paused_until > now:
        return False
    return on_resume(link, c, now)
