"""Whether paths carry full packets, tested before the first one is sent (row 20).

A data packet with a PSN below the window is ignored and answered with a SACK (rows 5, 16). One full
and one empty packet below the first PSN of a QP differ only in size: a path on which the empty one
is answered repeatedly, and the full one never, has too small an MTU. A path that answers neither
says nothing of its MTU: it is down, or the peer is not connected yet.

Loss hits both sizes alike. So on a path with a sufficient MTU, N empty packets are answered before
any full one with probability 1 / 2^N at most, however lossy the path is, and far less often where
little is lost.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from openmrc.engine import ev, place, setup
from openmrc.engine.parameters import PMTUS
from openmrc.live.endpoint import loop
from openmrc.live.endpoint.host import Host
from openmrc.live.endpoint.pmtu import mtu_for
from openmrc.live.endpoint.state import SIZE_MASK
from openmrc.units import S

PATHS_ASKED = (SIZE_MASK + 1) // 2  # in all; a peer answers a burst of twice as many
EMPTY_ANSWERED = 10  # empty packets answered: then the path's MTU is too small
SILENT_ROUNDS = 5  # rounds after which a path that answered nothing is given up
ROUNDS = 2 * EMPTY_ANSWERED
ROUND_RTTS, ROUND_MIN_S = 4, 0.02  # a woken thread may be late
LOOK_S = 0.0005


@dataclass
class Path:
    """A path under test, and how often its empty packets were answered."""

    at: int  # index among the QP's EVs
    plane: int
    ev: int
    answers: int = 0
    carries: bool = False


def narrow(host: Host, i: int) -> list[Path]:
    """Return the tested paths of QP `i` that carry small packets but no full ones.

    The QP is in RTS and has sent nothing. Not on the loop's thread. A path that carries full
    packets costs a round trip; a silent one `SILENT_ROUNDS` rounds of some round trips.
    """
    asked = host.call(partial(_some_of_each_plane, host, i))
    wait_s = max(ROUND_RTTS * host.base_rtt_ps / S, ROUND_MIN_S)
    for number in range(ROUNDS):
        left = [k for k, path in enumerate(asked) if _is_open(path, number)]
        if not left:
            break
        host.call(partial(_ask, host, i, asked, left, number > 0))
        _wait(host, i, left, wait_s)
        carried = int(host.ep.qp[i].carried)
        for k in left:
            asked[k].carries = bool(carried >> _full(k) & 1)
            asked[k].answers += carried >> _empty(k) & 1
    return [path for path in asked if not path.carries and path.answers >= EMPTY_ANSWERED]


def remedy(found: Sequence[Path], host: Host) -> str:
    """Return what to do about paths whose MTU is too small, in one line."""
    evs: dict[int, list[str]] = {}
    for path in found:
        evs.setdefault(path.plane, []).append(f"{path.ev:#010x}")
    which = "; ".join(f"plane {plane}, EV {', '.join(those)}" for plane, those in evs.items())
    pmtu = host.pmtu
    mtu = mtu_for(pmtu)
    smaller = f", or open the device with pmtu={PMTUS[0]}" if pmtu > PMTUS[0] else ""
    return (
        f"{which}: small packets arrive, those with {pmtu} B of data do not;"
        f" set the MTU to {mtu} or more on every link of the path"
        f" (ip link set DEVICE mtu {mtu}){smaller}"
    )


def _some_of_each_plane(host: Host, i: int) -> list[Path]:
    """Equally many paths of each plane that is up at both ends; a QP's are in random order."""
    st, q = host.st, host.st.qp[i]
    evs, up = st.ev[place.evs(q)], setup.planes_up(st, q)[:PATHS_ASKED]
    found = []
    for plane in up:
        good = np.flatnonzero((evs.plane == plane) & (evs.state == ev.GOOD)).tolist()
        for at in good[: PATHS_ASKED // len(up)]:
            found.append(Path(at, plane, int(evs[at].value)))
    return found


def _is_open(path: Path, rounds: int) -> bool:
    """Whether a path needs more packets, after so many rounds."""
    if path.carries or path.answers >= EMPTY_ANSWERED:
        return False
    return path.answers > 0 or rounds < SILENT_ROUNDS


def _full(k: int) -> int:
    return 2 * k


def _empty(k: int) -> int:
    return 2 * k + 1


def _ask(host: Host, i: int, asked: Sequence[Path], left: Sequence[int], empty: bool) -> None:
    """On the loop's thread: send a full packet on each path, and an empty one after the first
    round; if all paths are fine none is needed.

    In random order: SACKs return over the planes in turn (row 14), and in a fixed order those of
    full packets might all meet a dead plane.
    """
    questions = [(k, _full(k)) for k in left]
    if empty:
        questions += [(k, _empty(k)) for k in left]
    random.shuffle(questions)
    for k in left:
        host.ep.qp[i].carried &= ~(1 << _empty(k))
    for k, number in questions:
        loop.ask_size(host.ep, host.st, host.tx, host.headend, i, asked[k].at, number)


def _wait(host: Host, i: int, left: Sequence[int], wait_s: float) -> None:
    """Wait until full packets were answered on all of these paths, at most this long."""
    wanted = sum(1 << _full(k) for k in left)
    until = time.monotonic() + wait_s
    while int(host.ep.qp[i].carried) & wanted != wanted and time.monotonic() < until:
        time.sleep(LOOK_S)
