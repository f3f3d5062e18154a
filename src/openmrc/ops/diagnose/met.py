"""Which components packets met, compiled: a packet meets a component once, at its first link."""

from __future__ import annotations

from openmrc.jit import compiled


@compiled
def meet(routes, of_port, worth, tells, met, first, packet, hop):
    """Write to `packet` and `hop` the packets that met each component, and where on their routes
    [packets, hops] first, from the place `first` [components + 1] on, which moves; of no room, only
    count there.

    `of_port` [ports + 1, most] has the components of each port; `worth` [components + 1] and
    `tells` [packets] say which count. `met` [components + 1]: the last packet that met each, -1.
    """
    for i in range(len(routes)):
        if not tells[i]:
            continue
        for k in range(routes.shape[1]):
            for c in of_port[routes[i, k]]:
                if c < 0:
                    break
                if not worth[c] or met[c] == i:
                    continue
                met[c] = i
                if len(packet):
                    packet[first[c]], hop[first[c]] = i, k
                first[c] += 1
