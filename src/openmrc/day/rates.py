"""What a day assumes beside `mrc plan`: what else breaks, what a restart needs, and how long a
failure stalls a job. `--set NAME=VALUE` replaces one.
"""

from __future__ import annotations

from collections.abc import Mapping

from openmrc.planning.assumptions import ASSUMPTIONS, MTBF_MIN_H, OWN, Assumption

LLAMA = "Llama 3 (arXiv 2407.21783), table 5 and section 3.3.4: 54 days of 16,384 GPUs"
MEASURED = "benchmarks/day.py: packet by packet, median of the seeds it prints"
# Of the plan's, what is about a fabric that is bought, or replaced by what follows here.
NOT_OF_A_DAY = (
    *("switch_w_per_tbps", "optics_w_per_tbps", "switch_usd_per_tbps", "optics_usd_per_tbps"),
    *("cable_usd", "checkpoint_s", "restart_s", "stall_s", "convergence_s", "exposed_share"),
    "balance_port_s",
)

OF_A_DAY: Mapping[str, Assumption] = {
    "gpu_mtbf_h": Assumption(
        16_384 * 54 * 24 / 374,
        "h",
        "mean time between failures of a GPU, with its part of a host and of its software",
        f"{LLAMA}, 374 interruptions by neither the network nor power supplies",
        MTBF_MIN_H,
    ),
    "rack_mtbf_h": Assumption(
        1024 * 54 * 24 / 3,
        "h",
        "of a rack's power",
        f"{LLAMA}, 3 interruptions by power supplies; racks of 16 GPUs",
        MTBF_MIN_H,
    ),
    "updates_per_day": Assumption(
        47 / 54,
        "a job and day",
        "restarts for updates and by operators",
        f"{LLAMA}, 47 planned interruptions",
    ),
    "shocks_per_day": Assumption(
        0.0,
        "a fabric and day",
        "moments in which a technician's hand takes many cables of one T0",
        "nothing is published as a rate: none, in favour of the single plane",
    ),
    "shock_nics": Assumption(8.0, "NICs", "whose links such a moment takes", OWN, 1.0, 1e6),
    "host_gpus": Assumption(8.0, "GPUs", "of a host, which are replaced together", LLAMA, 1.0, 1e4),
    "rack_gpus": Assumption(16.0, "GPUs", "of a rack", LLAMA, 1.0, 1e5),
    "spare_share": Assumption(
        0.01, "of hosts", "that stand by, and take the place of one that fails", OWN, most=1.0
    ),
    "admit_ports": Assumption(
        0.0,
        "ports",
        "that a NIC may lack when a job starts, where a spare is left; else it is replaced",
        "all ports must be up before a job starts (MRC's evaluation, operation)",
    ),
    "gpu_hour_usd": Assumption(2.5, "USD", "of an hour of a GPU", OWN),
    "noticed_share": Assumption(
        0.01, "of a step", "by which a step must be longer for somebody to notice", OWN, most=1.0
    ),
    "mrc_port_stall_s": Assumption(
        4e-6, "s", "for which all wait when a NIC of MRC loses a port", MEASURED
    ),
    "mrc_path_stall_s": Assumption(
        4e-6, "s", "for which all wait when MRC loses a path between switches", MEASURED
    ),
    "balance_port_stall_s": Assumption(
        0.00026,
        "s",
        "for which all wait when a NIC at switches that balance loses a port",
        MEASURED,
    ),
    "balance_path_share": Assumption(
        0.2, "of the time until routing knows", "lost where switches balance", MEASURED, most=1.0
    ),
}

KNOWN: Mapping[str, Assumption] = {
    **{name: each for name, each in ASSUMPTIONS.items() if name not in NOT_OF_A_DAY},
    **OF_A_DAY,
}
