"""DCTCP as a policy: the window is cut by the share of marked bytes, once per window.

    [transport]
    cc = "policies/dctcp.py:step"

After Alizadeh and others, SIGCOMM 2010. A SACK reports at most one marked packet, so marks are
counted in packets. The last hop of an MRC fabric makes no marks: there trims take their place.
"""

from openmrc.engine.policy import ON_LOSS, ON_SACK, ON_TRIM
from openmrc.jit import compiled

GAIN = 1.0 / 16.0

# numbers in st.own of a QP
ALPHA, HEARD_BYTES, MARKED_BYTES = 0, 1, 2


@compiled
def step(st, q, event, now, new_bytes, rtt_ps, marked):
    own = st.own[q.index]
    if event == ON_TRIM or event == ON_LOSS:
        q.cwnd -= q.pkt / 2.0
        own[MARKED_BYTES] += q.pkt
    if event == ON_SACK:
        own[HEARD_BYTES] += new_bytes
        if marked:
            own[MARKED_BYTES] += q.pkt
    if own[HEARD_BYTES] >= q.cwnd:  # once per window
        share = min(own[MARKED_BYTES] / own[HEARD_BYTES], 1.0)
        own[ALPHA] += GAIN * (share - own[ALPHA])
        if share > 0.0:
            q.cwnd *= 1.0 - own[ALPHA] / 2.0
        else:
            q.cwnd += q.pkt
        own[HEARD_BYTES] = 0.0
        own[MARKED_BYTES] = 0.0
