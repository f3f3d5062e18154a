"""What a run can choose about RoCEv2 endpoints and their network."""

from __future__ import annotations

from dataclasses import dataclass

QPS_MAX = 64
# IB 9.7.6.1.3: the local ACK timeout is 4.096 us x 2^t. t = 14 is what perftest and the libraries
# of collectives began with.
RTO_PS = 4_096_000 << 14
RETRY_CNT = 7  # three bits; everybody's default
BGP_PS = (
    2_000_000_000_000,
    3_000_000_000_000,
)  # see docs/roce.md: a hold time of 3 s, RFC 7938 7.1


@dataclass(frozen=True)
class RoceTransport:
    """RoCEv2 to run a workload with. Times in picoseconds, sizes in bytes."""

    name: str = "roce"
    qps: int = 1  # per pair; messages are striped over them
    pmtu: int = 4096
    cc: str = "dcqcn"  # or "none": line rate
    profile: str = "default"  # of DCQCN: "default", "aggressive", "most-aggressive"
    pfc: bool = True
    buffer_bytes: int | None = None  # of a switch, with PFC; None: 3,200 B per Gb/s of its ports
    ack_every: int = 4  # packets, and the last one of a message
    rto_ps: int = RTO_PS
    retry_cnt: int = RETRY_CNT
    # from a failure or a repair until routing has gone around it: drawn evenly between the two
    convergence_ps: tuple[int, int] = BGP_PS
    base_rtt_ps: int | None = None  # None: from the fabric's longest path
    rules: str = "roce"  # "peer": htsim's packet sizes
