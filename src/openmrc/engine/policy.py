"""Congestion control and path selection: the built-in ones, and how a user's own are called.

A policy is a compiled function in a file of its own (`openmrc.sim.mrc.policies` loads it); CONFIG
holds its address. A call through the address costs as much as any other, and the engine is not
compiled again. The functions and their arguments:

    step(st, q, event, now, new_bytes, rtt_ps, marked)
        replaces NSCC: sets q.cwnd (bytes) of QP record `q`. `event` is ON_SACK (`new_bytes` more
        are received; `rtt_ps` < 0 without a sample; `marked` 1 if the packet it answers met CE),
        ON_TRIM or ON_LOSS (one packet; the others are 0, -1, 0). The engine keeps the window
        between q.pkt, one full packet, and q.max_wnd.

    choose(st, q, plane, avoid) -> int
        replaces MRC's rotation: index within the QP of the EV that the next packet on `plane`
        takes; `avoid` is one that just failed, or -1. The EVs of a plane are those from
        st.plane[q.plane0 + plane].ev0 on, n_evs of them; st.ev[q.ev0 + i] is an EV's record.

    learn(st, q, ev, event, now)
        optional, in the same file as `choose`: feedback on EV `ev`: HEARD_CLEAN, HEARD_MARKED,
        HEARD_TRIMMED or HEARD_LOST. MRC's own states of EVs, and their probes, are kept as well.

Each QP has OWN numbers for its policies, floats that start at 0: st.own[q.index, k]. Random numbers
come from `engine.bits.draw_below(st.stream, q.index, n)`.
"""

from __future__ import annotations

from typing import NamedTuple

# EVs of control packets: fixed at set-up, 32 random bits for each (hashed EVs), kept fresh by
# probes (MRC 3.9), or drawn from the EVs of the plane
REVERSE_FIXED, REVERSE_RANDOM, REVERSE_PROBED, REVERSE_SPRAYED = 0, 1, 2, 3

# CONFIG.paths and CONFIG.cc
PATHS_MRC, PATHS_OBLIVIOUS, PATHS_SINGLE, PATHS_REPS = 0, 1, 2, 3
CC_NONE, CC_NSCC, CC_OWN = 0, 1, 2
# In place of an address in CONFIG: MRC's rotation, or the built-in functions of these modules.
ROTATION, REPS, RECYCLING = 0, 1, 2


class PathPolicy(NamedTuple):
    """A built-in path selection; `chooses` names functions in place of MRC's rotation, which
    `rotation._choose_own` and `_tell` call.
    """

    number: int
    reverse: int = REVERSE_PROBED
    chooses: int = ROTATION


PATHS = {  # by its name in a scenario
    "mrc": PathPolicy(PATHS_MRC),
    "oblivious": PathPolicy(PATHS_OBLIVIOUS, REVERSE_SPRAYED),
    "reps": PathPolicy(PATHS_REPS, chooses=REPS),
    "single": PathPolicy(PATHS_SINGLE, REVERSE_FIXED),
}
OWN_PATHS = PathPolicy(PATHS_MRC)  # a user's choice; the rest is as in MRC
# CONFIG.skip_turns where it is no number: the rounds of a round trip, and those times the square of
# the marks in a row
SKIP_TURNS = {"rtt": 0, "squared": -1}
CONGESTION = {"nscc": CC_NSCC, "none": CC_NONE}

ON_SACK, ON_TRIM, ON_LOSS = 0, 1, 2
HEARD_CLEAN, HEARD_MARKED, HEARD_TRIMMED, HEARD_LOST = 0, 1, 2, 3
OWN = 24  # numbers that a QP has for its policies


def skip_turns(given: int | str) -> int:
    """Return what CONFIG.skip_turns holds for a number of turns, or a name of `SKIP_TURNS`."""
    return SKIP_TURNS[given] if isinstance(given, str) else given


SIGNATURES = {
    "step": ("st", "q", "event", "now", "new_bytes", "rtt_ps", "marked"),
    "choose": ("st", "q", "plane", "avoid"),
    "learn": ("st", "q", "ev", "event", "now"),
}
