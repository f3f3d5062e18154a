"""What a RoCE network records for a capture: packets, as in every network, and pause frames.

A pause frame is not a packet of the simulation. It is recorded when it is requested, with the time
at which its first bit leaves, which may be later, because it waits for the packet that the port is
sending.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from openmrc.jit import inner
from openmrc.sim.net import network
from openmrc.sim.net import state as ss
from openmrc.sim.roce import pfc

PAUSE_FRAME = -1  # in TAP.qp
ANSWERS_OF_AN_EVENT = 2  # a CNP and an acknowledgement, in addition to what ports pull
PAUSES_OF_AN_EVENT = 2  # for one packet, and its end if the port goes down at once


def open_taps(net: ss.Net, ports: npt.NDArray[np.int64]) -> ss.Net:
    """Return the network with room for what these directed ports send, which is recorded from now
    on.

    Between two checks of the room each event may send that much, and pause or resume a link; ports
    that go down empty their queues, and so may resume all links that were paused.
    """
    of_an_event = network.PORTS_OF_AN_EVENT + ANSWERS_OF_AN_EVENT + PAUSES_OF_AN_EVENT
    return network.with_taps(net, ports, ss.EVENTS_BETWEEN_CHECKS * of_an_event + len(ports))


@inner
def note_pause(net, port_no, quanta, at):
    """Record that a switch's port will send a pause frame, from `at` on: of this many quanta, or 0
    to resume.
    """
    ctl = net.ctl[0]
    t = net.tap[ctl.tap_n]
    t.at = at
    t.port = port_no
    t.qp = PAUSE_FRAME
    t.frame_bytes = pfc.FRAME_BYTES
    t.marks = 0
    net.tap_packet[ctl.tap_n].dma_len = quanta
    ctl.tap_n += 1
