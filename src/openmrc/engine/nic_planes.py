"""What the QPs of a NIC learn about a plane together: if it delivers nothing to any peer, all of
them leave it, for control packets too, before each has lost packets of its own (row 12).

Losses to a single peer are no evidence: that peer's own port may be dead. The QPs that lost packets
keep probing their paths; the first answer brings the plane back, and so does a timeout, in case
none of these QPs is left.
"""

from __future__ import annotations

from openmrc.engine import account, rotation
from openmrc.engine.account import PLANE_BACK, PLANE_SILENT
from openmrc.engine.state import NEVER
from openmrc.jit import inlined, inner

LOSSES = 8  # in a row on one plane, and not all to one peer
SEVERAL = -1  # in place of a peer
SILENCE_MAX_PS = 100_000_000_000  # the largest spacing of probes, row 11


@inlined
def note_delivery(st, q, k, sent_at):
    """A packet that a QP sent on plane `k` is known received."""
    n = st.nic[q.nic]
    if sent_at > n.delivered_at[k]:
        n.delivered_at[k] = sent_at
        n.losses[k] = 0


@inner
def note_loss(st, q, k, sent_at, now):
    """A packet was judged lost. Together with others this may show that the plane is silent."""
    n = st.nic[q.nic]
    if sent_at <= n.delivered_at[k]:
        return
    if n.losses[k] == 0:
        n.loser[k] = q.peer_nic
    elif n.loser[k] != q.peer_nic:
        n.loser[k] = SEVERAL
    n.losses[k] += 1
    if n.losses[k] < LOSSES or n.loser[k] != SEVERAL or (n.silent_mask >> k) & 1:
        return
    again = now - n.silent_until < SILENCE_MAX_PS  # soon after the plane was last tried
    n.silence = min(2 * n.silence, SILENCE_MAX_PS) if again else q.rto
    n.silent_until = now + n.silence
    n.deadline = min(n.deadline, n.silent_until)
    _set(st, q.nic, n.silent_mask | (1 << k), now)


@inlined
def note_answer(st, q, k, now):
    """A path of plane `k` answered its probes."""
    n = st.nic[q.nic]
    n.delivered_at[k] = max(n.delivered_at[k], now)
    n.losses[k] = 0
    if (n.silent_mask >> k) & 1:
        _set(st, q.nic, n.silent_mask & ~(1 << k), now)


@inner
def on_deadline(st, nic, now):
    """Try silent planes again when it is time; returns the next such time."""
    n = st.nic[nic]
    if n.silent_mask == 0:
        return NEVER
    if now < n.silent_until:
        return n.silent_until
    for k in range(n.n_ports):
        n.losses[k] = 0
    _set(st, nic, 0, now)
    return NEVER


@inner
def _set(st, nic, mask, now):
    n = st.nic[nic]
    for k in range(n.n_ports):
        if (n.silent_mask ^ mask) >> k & 1:
            what = PLANE_SILENT if mask >> k & 1 else PLANE_BACK
            account.note_plane(st, nic, -1, k, what, 0, now)
    n.silent_mask = mask
    for qi in range(n.qp0, n.qp0 + n.n_qps):
        rotation.refresh_planes(st, st.qp[qi], now)
