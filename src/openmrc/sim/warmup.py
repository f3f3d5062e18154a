"""Compiles everything that a run needs, reporting progress."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np

from openmrc.engine.packet import PACKET
from openmrc.fabric.clos import multiplane
from openmrc.jit import records
from openmrc.jit.warmup import once
from openmrc.sim.kinds import capture_of
from openmrc.sim.mrc import capture as mrc_capture
from openmrc.sim.mrc import loop
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.net import balance
from openmrc.sim.roce import capture as roce_capture
from openmrc.sim.roce import loop as roce_loop
from openmrc.sim.roce import placement
from openmrc.sim.roce.transport import RoceTransport
from openmrc.sim.shards import crew, windows
from openmrc.sim.world import World
from openmrc.wire import codec
from openmrc.wire.frame import ENVELOPE
from openmrc.wire.roce import codec as roce_codec
from openmrc.workload.patterns import stream

FABRIC = multiplane(2, 2, 100 * 10**9, 1, 2, 500_000, 250_000)


def _world(transport: Any, **more: Any) -> World:
    return World(FABRIC, stream(0, 1, 100_000), transport, **more)


def _captured(transport: Any) -> World:
    """A world of two NICs, sampled and captured."""
    capture = capture_of(transport).of(BytesIO(), FABRIC, ["everywhere"], transport)
    world = _world(transport, capture=capture)
    world.sample(0, 20)
    return world


def _frames(transport: Any, decode: Callable[..., int]) -> None:
    """Encode no frame, and decode none."""
    world = _captured(transport)
    assert world.capture is not None
    world.capture.warm_up(world)
    nothing, record, envelope = np.zeros(0, np.uint8), records(1, PACKET), records(1, ENVELOPE)
    decode(nothing, 0, record[0], envelope[0], 1)


def _shards(transport: Any) -> None:
    """What shares the work of a world out among threads."""
    world = _world(transport)
    shards, agenda = records(2, windows.SHARD), records(0, windows.AGENDA)
    crew.bound(windows.Plan(records(1, windows.CREW), shards, agenda), world.net, world.engine)


def loop_of_mrc() -> None:
    """Packets from NIC to NIC: most of the compile time."""
    _world(Transport()).run()


def frames_of_mrc() -> None:
    """Captures of MRC, and its decoder."""
    _frames(Transport(), codec.decode)


def shards_of_mrc() -> None:
    """Shards of MRC, without the loop that each of them runs."""
    _shards(Transport())


def loop_of_roce() -> None:
    """The event loop of RoCEv2."""
    _world(RoceTransport()).run()


def frames_of_roce() -> None:
    """Captures of RoCEv2, and its decoder."""
    _frames(RoceTransport(), roce_codec.decode)


def shards_of_roce() -> None:
    """Shards of RoCEv2, without the loop that each of them runs."""
    _shards(RoceTransport())


def rules_of_balance() -> None:
    """What RoCEv2 needs in addition where switches balance."""
    _world(RoceTransport(routing="adaptive"))


OF_MRC = (loop.advance, mrc_capture._write_frames, codec.decode)
OF_ROCE = (roce_loop.advance, roce_capture._write_frames, roce_codec.decode)
OF_BALANCE = (balance.egress, placement.on_data)


@once("sim", loop_of_mrc, frames_of_mrc, shards_of_mrc, entries=OF_MRC)
def warm_up_mrc() -> None:
    """Compile what runs of MRC need, and its decoder."""
    frames_of_mrc()
    _captured(Transport()).run()
    _world(Transport(), shards=2).run()


@once("sim.roce", loop_of_roce, frames_of_roce, shards_of_roce, entries=OF_ROCE)
def warm_up_roce() -> None:
    """Compile what runs of RoCEv2 need, and its decoder."""
    frames_of_roce()
    _captured(RoceTransport()).run()
    _world(RoceTransport(), shards=2).run()


@once("sim.roce.balance", rules_of_balance, entries=OF_BALANCE)
def warm_up_balance() -> None:
    """Compile what runs of RoCEv2 need in addition where switches balance."""
    rules_of_balance()
