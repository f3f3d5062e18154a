"""PFC in the network: which link is charged, and how pause frames reach the port that they pause.

The rules are in `pfc.py`; this module applies them to ports, switches and the event queue. A pause
frame travels on the reverse link, behind the packet being sent there, as an entry of the heap: it
takes no bandwidth from others. A link that is down delivers none.

A frame crosses to another shard as packets do: it takes the index of a packet, and is an event of
the wheel there.
"""

from __future__ import annotations

from openmrc.engine.state import NEVER
from openmrc.jit import inlined, inner
from openmrc.sim.net import cross, events, link
from openmrc.sim.roce import pfc, taps
from openmrc.sim.roce.state import AT_PFC, CLASS_FRAME

# what an entry of the heap means: number = port * 4 + one of these
RESUME, PAUSE, REFRESH, EXPIRY = 0, 1, 2, 3


@inner
def _tell(net, ro, port_no, what, now):
    """The switch at the end of a link sends a frame to the port that sends on it."""
    back = int(net.route[port_no].reverse)
    port = net.port[back]
    if port.up:
        kind = net.port_kind[port.kind]
        rate, delay = int(kind.rate_bps), int(kind.delay_ps)
        at = pfc.send_frame(ro.pause[port_no], now, int(port.free_at), rate, delay)
        if port.tapped:
            begins = int(ro.pause[port_no].frame_until) - pfc.frame_ps(rate)
            taps.note_pause(net, back, int(ro.flow[0].quanta) if what == PAUSE else 0, begins)
        if port.abroad:
            _cross(net, port.abroad - 1, port_no * 4 + what, at, now)
        else:
            events.push(net, at, AT_PFC, port_no * 4 + what)
    if what == PAUSE and ro.pause[port_no].refresh_at < NEVER:
        events.push(net, int(ro.pause[port_no].refresh_at), AT_PFC, port_no * 4 + REFRESH)


@inner
def _cross(net, shard, number, at, now):
    """A frame crosses to another shard."""
    n = link.new_packet(net)
    net.ctl[0].n_frames += 1
    h = net.hop[n]
    h.klass = CLASS_FRAME
    h.qp = number
    cross.leave(net, shard, n, now + _first_step(net, h, at - now))


@inlined
def _first_step(net, h, left_ps):
    """The part of a delay that the wheel can span; HOP.rest_ps is the rest."""
    ctl = net.ctl[0]
    step_ps = min(left_ps, (ctl.bucket_mask + 1 - events.SPARE_BUCKETS) << ctl.shift)
    h.rest_ps = left_ps - step_ps
    return step_ps


@inner
def crossed(net, n, now):
    """Packet `n` is a frame from another shard: return the number of its entry, or -1 if the frame
    is still in flight.
    """
    h = net.hop[n]
    if h.rest_ps > 0:
        events.schedule_packet(net, n, h, now + _first_step(net, h, int(h.rest_ps)))
        return -1
    link.free_packet(net, n)
    net.ctl[0].n_frames -= 1
    return int(h.qp)


@inner
def charge(net, ro, h, now):
    """Before queuing a data packet at a switch: charge the link on which it arrived; False if there
    is no room.
    """
    came = int(h.port)
    buffer = ro.buffer[net.port[came].peer]
    do = pfc.on_enqueue(ro.flow[0], buffer, ro.pause[came], now, int(h.frame_bytes))
    if do == pfc.PAUSE:
        _tell(net, ro, came, PAUSE, now)
    return do != pfc.DROP


@inner
def free(net, ro, h, now):
    """A packet has left its queue at a switch."""
    came = int(h.port)
    buffer = ro.buffer[net.port[came].peer]
    if pfc.on_dequeue(ro.flow[0], buffer, ro.pause[came], int(h.frame_bytes)) == pfc.RESUME:
        _tell(net, ro, came, RESUME, now)


@inner
def on_event(net, ro, number, now):
    """An entry of the heap is due. Returns the port whose pause ended, or -1 - the port whose pause
    began; -1 - the number of ports if neither.
    """
    port_no = number >> 2
    what = number & 3
    nothing = -1 - net.ctl[0].n_ports
    pause = ro.pause[port_no]
    if what == REFRESH:
        if pfc.on_refresh(pause, now) == pfc.PAUSE:
            _tell(net, ro, port_no, PAUSE, now)
        return nothing
    if net.port[port_no].up == 0:
        return nothing
    if what == PAUSE:
        begins = pfc.on_pause(pause, ro.flow[0], now)
        events.push(net, int(pause.paused_until), AT_PFC, port_no * 4 + EXPIRY)
        return -1 - port_no if begins else nothing
    if what == RESUME:
        over = pfc.on_resume(pause, ro.flow[0], now)
    else:
        over = pfc.on_expiry(pause, ro.flow[0], now)
    return port_no if over else nothing


@inlined
def forget(ro, port_no, now):
    """A port went down: its pause ends with the link. True if there was one."""
    return ro.c[0].pfc != 0 and pfc.on_resume(ro.pause[port_no], ro.flow[0], now)
