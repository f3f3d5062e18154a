"""What a run can choose about the endpoints (`Transport`) and about the switches' queues
(`Queues`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MPR_UNIT = 128
MPR_MAX = 32_640


@dataclass(frozen=True)
class Transport:
    """One transport to run a workload with.

    Times in picoseconds, sizes in bytes, windows in packets.
    """

    name: str = "mrc"
    paths: str = (
        # "mrc", "oblivious" (spray, learn nothing), "reps" (recycle EVs), "single" (one hashed path
        # per QP), or a policy, "FILE.py:NAME" (openmrc.policies)
        "mrc"
    )
    cc: str = "nscc"  # or "none": a fixed window; or a policy
    evs_active: int = 128
    evs_backup: int = 64
    pmtu: int = 4096
    mpr: int | None = None  # multiple of 128; None: from 4 BDP (row 16)
    sack_bytes: int = 16_384
    convergence_ps: int = 50_000_000_000  # "single": from a fault to new paths
    base_rtt_ps: int | None = None  # T; None: from the fabric's longest path
    rto_exponent: int = 8
    linear_cnt: int = 7
    exp_cnt: int = 10
    always_skip_after: int = 0  # row 23: CE marks in a row on one EV; 0: never
    srv6: bool = True  # False: no carriers; an EV is a source port, and switches hash the 5-tuple
    trim: bool | None = None  # whether switches trim in this run; None: as the fabric's queues say
    freezing_ps: int = 10_000_000_000  # "reps": after a loss; as in its authors' own simulator
    ecn_skip: bool = True  # False: a CE mark moves the window only, and makes no EV SKIP
    rules: str = (
        "mrc"  # "peer": htsim's packet sizes, hashed EVs, alpha by 12 us, control on random EVs
    )

    @property
    def hashed(self) -> bool:
        """Whether switches hash: an EV then names no path."""
        return self.rules == "peer" or not self.srv6


@dataclass(frozen=True)
class Queues:
    """Egress queues of every switch port, and how it forwards. `None` means the default in the
    comment.
    """

    trim: bool = True
    queue_bytes: int | None = None  # data and retransmissions: 1 BDP of a port
    queue_last_hop_bytes: int | None = None  # 1.5 BDP
    control_bytes: int | None = None  # 64 KB, or 256 B x fan-in if larger (row 15)
    ecn_low: float = 0.2  # of BDP
    ecn_high: float = 0.8
    ecn_last_hop: bool = False
    by_usid: bool = False  # forward by carriers and tables, not by arithmetic: the same, slower

    def under(self, transport: Transport) -> Queues:
        """Return the queues of a run with this transport, which may say itself what is trimmed."""
        return self if transport.trim is None else replace(self, trim=transport.trim)
