"""The options of MRC endpoints in a run."""

from __future__ import annotations

from dataclasses import dataclass

from openmrc.engine import parameters

COUNTED = {  # counters of a run by that of MRC's QPs; 0 for transports that count none
    "sack": "sack",
    "nack": "nack",
    "probe": "probe",
    "trials": "trial",
    "duplicates": "dup",
    "assumed_bad": "bad_total",
    "revived": "revived",
    "skips": "skips",
    "false_alarms": "false",
    "inferred": "inferred",
    "timeouts": "timeouts",
    "epochs": "epochs",
}


@dataclass(frozen=True, kw_only=True)
class Transport(parameters.Variants):
    """A transport to run a workload with: the parameters of its endpoints, and those of the run.

    `paths` and `cc` may be a policy, "FILE.py:NAME" (openmrc.sim.mrc.policies).
    """

    name: str = "mrc"
    # "peer": htsim's packet sizes, hashed EVs, alpha by 12 us, control on random EVs
    rules: str = "mrc"
    # from a fault until routing has converged
    convergence_ps: int = parameters.stated(50_000_000_000, "docs/scenario.md", "ps", only="single")
    # "adaptive" or "spray": switches choose a port for each packet, and an EV names its plane alone
    routing: str = "evs"
    # T; None: from the fabric's longest path
    base_rtt_ps: int | None = parameters.stated(None, "MRC 4.6", "ps")
    # False: no carriers; an EV is a source port, and switches hash the 5-tuple
    srv6: bool = True
    # True, without SRv6: fields of the EV select the uplink at each tier, and no switch hashes
    ev_fields: bool = False
    # whether switches trim in this run; None: as the fabric's queues say
    trim: bool | None = None

    @property
    def hashed(self) -> bool:
        """Whether switches hash: an EV then names no path."""
        return self.rules == "peer" or not (self.srv6 or self.ev_fields)

    @property
    def balances(self) -> bool:
        """Whether switches choose the path of each packet."""
        return self.routing != "evs"

    @property
    def carried(self) -> bool:
        """Whether packets have carriers."""
        return self.srv6 and not self.hashed
