"""The options of RoCEv2 endpoints and their network in a run."""

from __future__ import annotations

from dataclasses import dataclass

from openmrc.sim.net.balance import LOAD_STEPS
from openmrc.units import MS

QPS_MAX = 64
# IB 9.7.6.1.3: the local ACK timeout is 4.096 us x 2^t; t = 20 is NCCL's (docs/roce.md has all
# sources). NICs begin with shorter timers than that: 2^11 is the first of those measured on a
# ConnectX-6, and longer than a full buffer of 51.2 Tb/s takes to drain through one port.
RTO_PS = 4_096_000 << 20
RTO_FIRST_PS = 4_096_000 << 11
RETRY_CNT = 7  # three bits; the usual default
LOCAL_REPAIR_PS = 1 * MS
BGP_PS = (50 * MS, 1_000 * MS)  # a session ends with its link: RFC 7938, section 7
HOLD_PS = (2_000 * MS, 3_000 * MS)  # or by silence, with a hold time of 3 s: its section 7.1
# Published, second hand, for a NIC of four planes that has lost one (docs/adaptive.md)
FAILOVER_HARDWARE_PS, FAILOVER_SOFTWARE_PS = 3 * MS, 1_080 * MS


@dataclass(frozen=True)
class RoceTransport:
    """RoCEv2 to run a workload with. Times in picoseconds, sizes in bytes."""

    name: str = "roce"
    qps: int = 1  # per pair; messages are striped over them
    pmtu: int = 4096
    cc: str = "dcqcn"  # or "rtt", see `delay`; or "none": line rate
    profile: str = "default"  # of DCQCN: or "lenient", "aggressive", "most-aggressive", "paper"
    pfc: bool = True
    buffer_bytes: int | None = None  # of a switch, with PFC; None: 3,200 B per Gb/s of its ports
    ack_every: int = 4  # packets, and the last one of a message
    rto_ps: int = RTO_PS
    rto_first_ps: int | None = None  # the first timer without progress; None: RTO_FIRST_PS, or rto
    retry_cnt: int = RETRY_CNT
    # until a switch stops using its own link that is down; routing may do it earlier
    local_repair_ps: int = LOCAL_REPAIR_PS
    # from a failure or a repair until routing has converged: drawn uniformly between the two
    convergence_ps: tuple[int, int] = BGP_PS
    # "adaptive" or "spray": switches choose a port for each packet, and NICs a plane
    routing: str = "hashed"
    # where the next step of a port's load begins, BDPs of its data queue; of "adaptive"
    load_steps: tuple[float, ...] = LOAD_STEPS
    ties: str = "random"  # among ports of equal load; or "rotation"
    recovery: str = "selective"  # or "timer": a receiver reports nothing that is missing
    # how long a packet may be missing after a later one has arrived; None: the base round trip
    reordering_ps: int | None = None
    failover_ps: int = FAILOVER_HARDWARE_PS  # until NICs leave a plane without a way to the peer
    base_rtt_ps: int | None = None  # None: from the fabric's longest path
    rules: str = "roce"  # "peer": htsim's packet sizes

    @property
    def balances(self) -> bool:
        """Whether packets of a QP take different paths."""
        return self.routing != "hashed"
