"""ECMP: at every switch a hash of the 5-tuple selects among the next hops that routing knows.

After a change of a group (`net.routing`) the hash selects among the current members, so that
unaffected flows may move too (no resilient hashing). Upwards the members for a destination are the
uplinks through which routing knows a path to its T0. The NIC chooses the plane, as a bond does: a
hash over the planes that are up at both ends and have a path between them.
"""

from __future__ import annotations

from openmrc.engine import bits
from openmrc.jit import compiled, inlined, inner
from openmrc.jit.callref import call_int
from openmrc.sim.net import routing
from openmrc.sim.net.state import TO_NICS, TO_SWITCHES
from openmrc.sim.net.switch import first_down
from openmrc.wire.roce.opcodes import UDP, UDP_PORT

PORTS_OF_A_PATH = 6  # at most: NIC, T0, T1, T2, T1, T0


@inlined
def flow_hash(src_ip, dst_ip, sport):
    """32 bits of the 5-tuple: addresses, protocol, ports. A NIC's number stands for its address."""
    h = bits.mix32(src_ip + 1)
    h = bits.mix32(h ^ dst_ip)
    h = bits.mix32(h ^ ((sport << 16) | UDP_PORT))
    return bits.mix32(h ^ UDP)


@compiled
def hash_flows(qp):
    """Before a run: compute the hash of each QP's 5-tuple."""
    for i in range(qp.shape[0]):
        q = qp[i]
        q.flow = flow_hash(int(q.nic), int(q.peer_nic), int(q.sport))


@inlined
def _usable(net, port_no, groups):
    """Whether routing considers a switch's own port up, which it sees go down by itself."""
    return net.route[port_no].own_up != 0 and routing.in_service(net, port_no, groups)


@inner
def _parallel(net, first, n, choice, groups):
    """The `choice`-th, modulo their number, of those of a switch's own `n` ports that are usable,
    or -1.
    """
    members = 0
    for port_no in range(first, first + n):
        if _usable(net, port_no, groups):
            members += 1
    if members == 0:
        return -1
    left = choice % members
    for port_no in range(first, first + n):
        if _usable(net, port_no, groups):
            if left == 0:
                return port_no
            left -= 1
    return -1


@inner
def _member(net, s, dst, choice, groups):
    """The uplink that a hash selects among the members for a destination, or -1 if there is
    none.
    """
    members = 0
    for port_no in range(s.first_up, s.first_up + s.n_up):
        if _usable(net, port_no, groups) and routing.leads(
            net, int(net.port[port_no].peer), dst, groups
        ):
            members += 1
    if members == 0:
        return -1
    left = choice % members
    for port_no in range(s.first_up, s.first_up + s.n_up):
        if _usable(net, port_no, groups) and routing.leads(
            net, int(net.port[port_no].peer), dst, groups
        ):
            if left == 0:
                return port_no
            left -= 1
    return -1


@inner
def _around(net, s, src, dst, choice):
    """As `egress`, if something is out of service."""
    groups = routing.groups_of(net, src) | TO_SWITCHES
    if s.lo <= dst < s.hi:
        first = int(first_down(s, dst))
        if s.tier == 0:  # the subnet is here, whatever the state of a host's link
            return first
        return _parallel(net, first, int(s.bundle), choice, groups)
    return _member(net, s, dst, choice, groups)


@inlined
def egress(net, switch, n, dst, flow):
    """Egress port of packet `n` of a flow at a switch; -1 if it has no route. Where it has a choice
    a switch that balances makes it for every packet (`balance`).
    """
    s = net.switch[switch]
    if net.calls[0].egress != 0 and (s.bundle > 1 or dst < s.lo or dst >= s.hi):
        return call_int(net.calls[0].egress, (net, switch, n))
    choice = bits.mix32(flow ^ int(s.salt))
    if net.routing[0].broken != 0:
        return _around(net, s, int(net.packet[n].src), dst, choice)
    if s.lo <= dst < s.hi:
        port_no = first_down(s, dst)
        if s.bundle > 1:
            port_no += choice % int(s.bundle)
        return port_no
    return s.first_up + choice % int(s.n_up)


@inner
def _has_way(net, src, dst, plane, who):
    """Whether a path from NIC to NIC in a plane is known, including their own links."""
    n_planes = net.ctl[0].n_planes
    groups = routing.groups_of(net, src) | who
    port_no = src * n_planes + plane
    if not routing.in_service(net, port_no, groups):
        return False
    far = net.switch[net.port[dst * n_planes + plane].peer]
    last = int(first_down(far, dst))
    if not routing.in_service(net, last, groups):
        return False
    return routing.leads(net, int(net.port[port_no].peer), dst, groups)


@inner
def _usable_planes(net, nic, dst, who):
    """The ports of its bond on which a NIC may send to another, a mask."""
    n_planes = int(net.ctl[0].n_planes)
    up = int(net.nic[nic].up_ports)
    usable = 0
    for plane in range(n_planes):
        if (up >> plane) & 1 and (
            net.routing[0].broken == 0 or n_planes == 1 or _has_way(net, nic, dst, plane, who)
        ):
            usable |= 1 << plane
    return usable


@inner
def choose_planes(net, rq):
    """Choose the port of its bond on which a QP's end sends, -1 if none is usable; where switches
    balance, all that it may choose from for each packet.
    """
    balances = net.calls[0].egress != 0
    who = TO_NICS if balances else TO_SWITCHES
    usable = int(_usable_planes(net, int(rq.nic), int(rq.peer_nic), who))
    members = 0
    for plane in range(net.ctl[0].n_planes):
        members += (usable >> plane) & 1
    rq.planes = usable if balances else 0
    rq.plane = -1
    if members == 0:
        return
    left = int(rq.flow) % members
    for plane in range(net.ctl[0].n_planes):
        if (usable >> plane) & 1:
            if left == 0:
                rq.plane = plane
            left -= 1


@compiled
def way(net, src, dst, plane, flow, ports):
    """Write the directed ports on a flow's current path into `ports`; return their number, 0 if
    there is no route.
    """
    spare = net.hop.shape[0] - 1  # the last packet is never given out
    net.packet[spare].src = src
    port_no = src * net.ctl[0].n_planes + plane
    n = 0
    while True:
        ports[n] = port_no
        n += 1
        if net.port[port_no].peer < 0:
            return n
        port_no = int(egress(net, int(net.port[port_no].peer), spare, dst, flow))
        if port_no < 0:
            return 0
