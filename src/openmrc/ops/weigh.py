"""The localiser's sums over rows and causes, compiled: each replaces a dozen calls of NumPy, which
for a handful of rows would take longer than all of their arithmetic.

Rows are columns here: `columns` [width, rows] holds the causes that each row crosses, -1 for none,
as `causes.of_routes` returns them. Work arrays come from the caller; `place`, [causes], is -1
everywhere before and after a call.
"""

from __future__ import annotations

import math

from openmrc.jit import compiled, inlined

CERTAIN = 1 - 1e-9  # a cause that let nothing through might let the next one
LEAST = 1e-300  # the smallest argument of a logarithm


@compiled
def causes_of(routes, peer_switch, port_nic, peer_nic, n_ports, n_switches, longest_way, found):
    """Write the causes of `routes` [rows, hops] to `found` [2 x hops + 1, rows]: ports, then
    switches, then NICs. Of ways longer than `longest_way` each switch is written once.
    """
    n_rows, n_hops = routes.shape
    first_nic = n_ports + n_switches
    for row in range(n_rows):
        last = routes[row, 0]
        for hop in range(n_hops):
            port = routes[row, hop]
            found[hop, row] = port
            if port >= 0:
                last = port
            if hop == n_hops - 1:
                continue
            switch = peer_switch[port] + n_ports if port >= 0 and peer_switch[port] >= 0 else -1
            if n_hops > longest_way:
                for before in range(n_hops, n_hops + hop):
                    if found[before, row] == switch:
                        switch = -1
            found[n_hops + hop, row] = switch
        src, dst = port_nic[routes[row, 0]], peer_nic[last]
        found[2 * n_hops - 1, row] = src + first_nic
        found[2 * n_hops, row] = dst + first_nic if dst != src else -1


@compiled
def total(columns, weights, found):
    """Add to `found` [causes] the weights [rows] of the rows that cross each: packets, or parts of
    them.
    """
    for k in range(columns.shape[0]):
        for row in range(columns.shape[1]):
            if columns[k, row] >= 0:
                found[columns[k, row]] += weights[row]


@compiled
def renumber(columns, part, place, rows, ids):
    """Write the causes that the rows `part` cross to `ids`, in ascending order, and their places in
    it to `rows` [width, len(part)]; return how many there are.
    """
    low, high = len(place), -1
    for k in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            cause = columns[k, part[i]]
            if cause >= 0:
                place[cause] = 0
                low, high = min(low, cause), max(high, cause)
    n = 0
    for cause in range(low, high + 1):
        if place[cause] >= 0:
            place[cause] = n
            ids[n] = cause
            n += 1
    for k in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            cause = columns[k, part[i]]
            rows[k, i] = place[cause] if cause >= 0 else -1
    for i in range(n):
        place[ids[i]] = -1
    return n


@inlined
def _nats(lost, log_chance, crossed):
    crossed = max(crossed, lost)
    if lost <= 0.0:
        return 0.0
    share, chance = max(lost, LEAST) / max(crossed, LEAST), math.exp(log_chance / max(lost, LEAST))
    if not share > chance:
        return 0.0
    came = math.log1p(-min(share, CERTAIN)) - math.log1p(-min(chance, CERTAIN))
    return lost * math.log(share) - log_chance + (crossed - lost) * came


@compiled
def against(lost, log_chance, crossed, nats):
    """Write to `nats` by how much a cause of its own explains losses better than chance does, for
    each element of these arrays.
    """
    for i in range(len(lost)):
        nats[i] = _nats(lost[i], log_chance[i], crossed[i])


@compiled
def scores(rows, lost, left, background, crossed, least, work, nats):
    """Write to `nats` [causes] how well each explains what is `left` of each row's losses. Packets
    of which other causes explain the loss did not cross it, but at least `least` did; `work` [3,
    causes] is 0.
    """
    for i in range(rows.shape[1]):
        explained, log_chance = lost[i] - left[i], left[i] * math.log(background[i])
        for k in range(rows.shape[0]):
            cause = rows[k, i]
            if cause >= 0:
                work[0, cause] += left[i]
                work[1, cause] += explained
                work[2, cause] += log_chance
    for cause in range(len(nats)):
        came = max(crossed[cause] - work[1, cause], least)
        nats[cause] = _nats(work[0, cause], work[2, cause], came)


@compiled
def instead(rows, lost, q, crossed, worse, work, nats):
    """Write to `nats` [causes] the gain if each had caused all losses of the packets that cross it,
    where so far each row loses `q`; `work` [2, causes] is 0.
    """
    n = len(nats)
    total(rows, lost, work[0])
    for cause in range(n):
        nats[cause] = 0.0
        work[1, cause] = min(work[0, cause] / crossed[cause], CERTAIN)
    for k in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            cause = rows[k, i]
            if cause >= 0 and work[1, cause] > worse * q[i]:
                nats[cause] += lost[i] * math.log1p(work[1, cause] * (1 - q[i]) / q[i])
    for cause in range(n):
        # A sample may contain more losses than its share of the crossings.
        came = max(crossed[cause] - work[0, cause], 0.0)
        nats[cause] += came * math.log1p(-work[1, cause])


@compiled
def foremost(rows, lost, score, nats, work):
    """Write to `work` [2, causes], which is 0: how many losses each cause has the best score for,
    and how many cross it, of those of rows for which some cause scores at least `nats`.
    """
    for i in range(rows.shape[1]):
        best, most = -1, 0.0
        for k in range(rows.shape[0]):
            cause = rows[k, i]
            if cause >= 0 and score[cause] > most:
                best, most = cause, score[cause]
        if most < nats:
            continue
        work[0, best] += lost[i]
        for k in range(rows.shape[0]):
            if rows[k, i] >= 0:
                work[1, rows[k, i]] += lost[i]


@compiled
def suspects_met(columns, first, last, place, n):
    """Count in `n` [rows], which is 0, how many suspects each row meets in these columns: those
    that have a `place`; return the largest number.
    """
    most = 0
    for k in range(first, last):
        for row in range(columns.shape[1]):
            cause = columns[k, row]
            if cause >= 0 and place[cause] >= 0:
                n[row] += 1
                most = max(most, n[row])
    return most


@compiled
def meet(columns, first, last, place, n, found):
    """Write the places of those suspects to `found` [rows, most], -1 after the last; `n` is 0."""
    for row in range(found.shape[0]):
        for k in range(found.shape[1]):
            found[row, k] = -1
    for k in range(first, last):
        for row in range(columns.shape[1]):
            cause = columns[k, row]
            if cause >= 0 and place[cause] >= 0:
                found[row, n[row]] = place[cause]
                n[row] += 1


@inlined
def row_loss(pattern, row, through, p, innocent):
    """Return the probability of loss of a packet of this row, as in `loss`; `through` is the
    logarithm of the probability that chance lets it through.
    """
    for k in range(pattern.shape[1]):
        if pattern[row, k] >= 0 and pattern[row, k] != innocent:
            through += math.log1p(-p[pattern[row, k]])
    return -math.expm1(through)


@compiled
def loss(pattern, p, background, innocent, found):
    """Write to `found` [rows] the probability of loss of a packet that crosses the suspects
    `pattern` [rows, width], -1 for none, if `innocent` is none of them (-1: they all are).
    """
    for row in range(len(found)):
        found[row] = row_loss(pattern, row, math.log1p(-background[row]), p, innocent)
