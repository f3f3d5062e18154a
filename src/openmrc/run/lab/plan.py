"""A workload's arrays cut into one job for each host, and what is refused.

A host gets its queue pairs, the messages it sends and receives, and which message releases which of
its own. Releases never cross hosts: messages released by an arrival are sent by the receiver, and
those released by a completion by the sender, because a NIC knows nothing else.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from openmrc.engine import parameters
from openmrc.errors import InputError
from openmrc.live.endpoint.limits import Limits
from openmrc.live.endpoint.pmtu import IP_BYTES
from openmrc.scenario.fabric import FabricSection
from openmrc.scenario.lab import LabSection
from openmrc.scenario.transports import MRC_KEYS, AnyTransport, RoceSection, TransportSection
from openmrc.sim.mrc.derive import Derived
from openmrc.traffic.traffic import IntArray, LongArray, Traffic, unroll

# Each host is a process, each message some lines of Python, each byte is held by both ends.
HOSTS_MAX, MESSAGES_MAX, BYTES_MAX = 64, 100_000, 2_000_000_000
QPS_MAX = 1024  # of a host
DEPTH_MAX = 256  # requests posted on a queue pair at a time
OF_A_RUN = ("name", "base_rtt")  # keys that are no property of an endpoint
# The other keys that no live device has; each is accepted with its default alone.
SIMULATED_ONLY = [
    key
    for key, parameter in MRC_KEYS.items()
    if key not in OF_A_RUN
    and parameter.name not in {each.name for each in fields(parameters.Parameters)}
]
RECORDS = 2**16  # of the engine's account, between two looks of an agent
GAP_BYTES = 64  # between two messages in memory: nobody may write there


@dataclass(frozen=True, eq=False)
class Plan:
    """`traffic` lists every message; `entry` says to which entry of the scenario each belongs.

    `jobs[nic]` is the job of the agent on that host, for JSON.
    """

    traffic: Traffic
    entry: IntArray
    jobs: dict[int, dict[str, Any]]


def make_plan(
    traffic: Traffic,
    transport: TransportSection,
    derived: Derived,
    trim: bool,
    seed: int,
    keeps_account: bool = False,
) -> Plan:
    """Return the plan of a workload, of whose packets and paths hosts may keep an account;
    `InputError` for what they, or this machine, cannot do.
    """
    _check_sizes(traffic)
    listed = unroll(traffic)
    entry = np.repeat(np.arange(traffic.n_msgs, dtype=np.int32), traffic.msg_count)
    _check_releases(listed)
    depth = int(min(np.bincount(listed.msg_qp).max(), DEPTH_MAX))
    nics = np.union1d(traffic.qp_src, traffic.qp_dst).tolist()
    ends = np.bincount(np.concatenate([traffic.qp_src, traffic.qp_dst]))
    if ends.max() > QPS_MAX:
        raise InputError(
            f"workload: nic {ends.argmax()} has {ends.max()} queue pairs; a lab's have {QPS_MAX}"
        )
    limits = limits_of(transport, derived, trim, depth, int(ends.max()))
    if keeps_account:
        limits = replace(limits, account=RECORDS)
    offsets = [_offsets(listed, by) for by in (listed.msg_src, listed.msg_dst)]
    # An arrival that releases something must be reported: only an immediate is (MRC 1.2).
    told = listed.msg_imm | (np.diff(listed.recv_first) > 0)
    jobs = {
        nic: {
            "nic": nic,
            "seed": seed,
            "depth": depth,
            "limits": asdict(limits),
            "qps": _qps(listed, nic),
            "sends": _sends(listed, nic, offsets, told),
            "receives": _receives(listed, nic, offsets[1], told),
            "on_sent": _released(
                listed, listed.msg_src == nic, listed.sent_first, listed.sent_next
            ),
            "on_received": _released(
                listed, listed.msg_dst == nic, listed.recv_first, listed.recv_next
            ),
        }
        for nic in nics
    }
    return Plan(listed, entry, jobs)


def limits_of(
    transport: TransportSection, derived: Derived, trim: bool, depth: int, qps: int
) -> Limits:
    """Return the limits of every host's device: the keys of `[transport]`."""
    stated = transport.build()
    keys = {each.name: getattr(stated, each.name) for each in fields(parameters.Parameters)}
    keys["mpr"] = derived.mpr_packets
    return Limits(
        qps=qps,
        send_depth=depth,
        receive_depth=depth,
        regions=2,
        cqs=1,
        cq_depth=2 * depth * qps,
        trimming=trim,
        **keys,
    )


def refuse(transport: AnyTransport, fabric: FabricSection, lab: LabSection) -> TransportSection:
    """Raise `InputError` for what a live device does not support; return the transport, an MRC."""
    name = transport.name
    if isinstance(transport, RoceSection):
        raise InputError(
            f"transport.kind: 'roce' of {name!r} is only simulated; --world lab accepts 'mrc'"
        )
    defaults = TransportSection()
    for key in SIMULATED_ONLY:
        value, only = getattr(transport, key), getattr(defaults, key)
        if value != only:
            raise InputError(
                f"transport.{key}: {_word(value)} of {name!r} is only simulated;"
                f" --world lab accepts {_word(only)}"
            )
    if fabric.ecn_last_hop:
        raise InputError("fabric.ecn_last_hop: true is only simulated; --world lab accepts false")
    room = int(lab.mtu) - IP_BYTES
    if transport.pmtu > room:
        raise InputError(
            f"transport.pmtu: {transport.pmtu} of {name!r} does not fit lab.mtu = {int(lab.mtu)};"
            f" at most {room}"
        )
    return transport


def _word(value: Any) -> str:
    """A value of a key as a scenario writes it."""
    if value is None:
        return '"auto"'
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _check_sizes(traffic: Traffic) -> None:
    nics = len(np.union1d(traffic.qp_src, traffic.qp_dst))
    for what, n, most in (
        ("hosts with traffic", nics, HOSTS_MAX),
        ("messages", traffic.n_sends, MESSAGES_MAX),
        ("bytes in all", int(traffic.msg_total_bytes.sum()), BYTES_MAX),
    ):
        if n > most:
            raise InputError(f"workload: {n} {what}; --world lab accepts {most} at most")
    if traffic.n_calcs:
        raise InputError(
            f"workload: {traffic.n_calcs} computations; --world lab accepts none, its hosts send"
        )


def _check_releases(t: Traffic) -> None:
    """Refuse releases that would have to cross hosts: there is no message for them."""
    for word, at, first, nxt in (
        ("arrival", t.msg_dst, t.recv_first, t.recv_next),
        ("completion", t.msg_src, t.sent_first, t.sent_next),
    ):
        giving = np.repeat(np.arange(t.n_msgs), np.diff(first))
        astray = np.flatnonzero(at[giving] != t.msg_src[nxt])
        if len(astray):
            m, r = int(giving[astray[0]]), int(nxt[astray[0]])
            raise InputError(
                f"workload message {r}: nic {t.msg_src[r]} sends it after the {word} of message"
                f" {m} at nic {t.msg_dst[m] if word == 'arrival' else t.msg_src[m]}, of which it"
                " knows nothing; --world lab accepts releases within a host"
            )


def _offsets(t: Traffic, by: IntArray) -> LongArray:
    """Return where each message begins in its host's memory, host by host."""
    offsets = np.zeros(t.n_msgs, np.int64)
    room = -(-(t.msg_bytes + GAP_BYTES) // GAP_BYTES) * GAP_BYTES
    for nic in np.unique(by):
        mine = by == nic
        offsets[mine] = np.cumsum(room[mine]) - room[mine] + GAP_BYTES
    return offsets


def _qps(t: Traffic, nic: int) -> list[dict[str, int]]:
    """The ends of queue pairs on a host."""
    mine = np.flatnonzero((t.qp_src == nic) | (t.qp_dst == nic)).tolist()
    return [
        {
            "qp": qp,
            "sends": int(t.qp_src[qp] == nic),
            "peer": int(t.qp_src[qp] + t.qp_dst[qp] - nic),
        }
        for qp in mine
    ]


def _sends(t: Traffic, nic: int, offsets: list[LongArray], told: Any) -> dict[str, list[int]]:
    mine = np.flatnonzero(t.msg_src == nic)
    return {
        "message": mine.tolist(),
        "qp": t.msg_qp[mine].tolist(),
        "bytes": t.msg_bytes[mine].tolist(),
        "from": offsets[0][mine].tolist(),
        "to": offsets[1][mine].tolist(),
        "start_ps": t.msg_start_ps[mine].tolist(),
        "compute_ps": t.msg_compute_ps[mine].tolist(),
        "releases": t.msg_deps[mine].tolist(),
        "told": told[mine].astype(int).tolist(),
    }


def _receives(t: Traffic, nic: int, to: LongArray, told: Any) -> dict[str, list[int]]:
    mine = np.flatnonzero(t.msg_dst == nic)
    return {
        "message": mine.tolist(),
        "qp": t.msg_qp[mine].tolist(),
        "bytes": t.msg_bytes[mine].tolist(),
        "to": to[mine].tolist(),
        "told": told[mine].astype(int).tolist(),
    }


def _released(t: Traffic, mine: Any, first: IntArray, nxt: IntArray) -> dict[str, list[int]]:
    """By message, as JSON keys: what it releases."""
    giving = np.flatnonzero(mine & (np.diff(first) > 0)).tolist()
    return {str(m): nxt[first[m] : first[m + 1]].tolist() for m in giving}
