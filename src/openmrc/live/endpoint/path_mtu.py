"""Whether paths carry full packets, asked before the first one is sent (row 20).

A data packet with a PSN below the window is ignored and answered with a SACK (rows 5, 16). One full
and one empty packet below the first PSN of a QP differ in their size alone: a path on which the
empty one is answered time after time, and the full one never, is too narrow. One that answers
neither says nothing of its MTU: it is down, or the peer is not connected yet.

Loss hits either size alike, so N empty ones are answered before any full one on a path that is wide
enough at most once in 2^N, however lossy it is; and far seldomer where little is lost.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from openmrc.engine.ev import GOOD
from openmrc.engine.parameters import PMTUS
from openmrc.live.endpoint import loop
from openmrc.live.endpoint.host import Host, mtu_for
from openmrc.live.endpoint.state import SIZE_MASK
from openmrc.units import S

PATHS_ASKED = (SIZE_MASK + 1) // 2  # in all; what a peer answers at once is twice that
EMPTY_ANSWERED = 10  # then a path is too narrow
SILENT_ROUNDS = 5  # after which a path that answered nothing is left alone
ROUNDS = 2 * EMPTY_ANSWERED
ROUND_RTTS, ROUND_MIN_S = 4, 0.02  # a thread that is woken may be late
LOOK_S = 0.0005


@dataclass
class Path:
    """A path that is asked, and how often its empty packets were answered."""

    at: int  # index among the QP's EVs
    plane: int
    ev: int
    answers: int = 0
    carries: bool = False


def narrow(host: Host, i: int) -> list[Path]:
    """Return the paths of QP `i`, of those asked, that carry small packets and no full ones.

    The QP is in RTS and has sent nothing. Not on the loop's thread. A path that carries full ones
    costs a round trip; a silent one `SILENT_ROUNDS` rounds of some round trips.
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


def remedy(found: Sequence[Path], pmtu: int) -> str:
    """Return what to do about paths that are too narrow, in one line."""
    evs: dict[int, list[str]] = {}
    for path in found:
        evs.setdefault(path.plane, []).append(f"{path.ev:#010x}")
    which = "; ".join(f"plane {plane}, EV {', '.join(those)}" for plane, those in evs.items())
    smaller = f", or open the device with pmtu={PMTUS[0]}" if pmtu > PMTUS[0] else ""
    return (
        f"{which}: small packets arrive, those with {pmtu} B of data do not;"
        f" set the MTU to {mtu_for(pmtu)} or more on every link of the path"
        f" (ip link set DEVICE mtu {mtu_for(pmtu)}){smaller}"
    )


def _some_of_each_plane(host: Host, i: int) -> list[Path]:
    """Equally many paths of each plane that is up at both ends; a QP's are in random order."""
    st, q = host.st, host.st.qp[i]
    mask = int(st.nic[host.nic].up_mask) & int(st.peer[int(q.peer)].remote_mask)
    up = [plane for plane in range(int(q.n_planes)) if mask >> plane & 1][:PATHS_ASKED]
    found = []
    for plane in up:
        record = st.plane[int(q.plane0) + plane]
        first = int(record.ev0)
        good = [
            at
            for at in range(first, first + int(record.n_evs))
            if st.ev[int(q.ev0) + at].state == GOOD
        ]
        for at in good[: PATHS_ASKED // len(up)]:
            found.append(Path(at, plane, int(st.ev[int(q.ev0) + at].value)))
    return found


def _is_open(path: Path, rounds: int) -> bool:
    """Is there more to learn of a path, after so many rounds?"""
    if path.carries or path.answers >= EMPTY_ANSWERED:
        return False
    return path.answers > 0 or rounds < SILENT_ROUNDS


def _full(k: int) -> int:
    return 2 * k


def _empty(k: int) -> int:
    return 2 * k + 1


def _ask(host: Host, i: int, asked: Sequence[Path], left: Sequence[int], empty: bool) -> None:
    """On the loop's thread: a full packet on each path, and an empty one if the first round is
    over; where all is well none is needed.

    In random order: SACKs come back over the planes in turn (row 14), and in an order of their own
    those of full packets might all meet the plane that is dead.
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
    """Until full packets were answered on all of these paths, at most so long."""
    wanted = sum(1 << _full(k) for k in left)
    until = time.monotonic() + wait_s
    while int(host.ep.qp[i].carried) & wanted != wanted and time.monotonic() < until:
        time.sleep(LOOK_S)
