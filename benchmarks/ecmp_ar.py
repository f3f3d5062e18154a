"""htsim's `ecmp_ar` and openmrc's switches that balance on the same files: flow completion times.

    .venv/bin/python benchmarks/ecmp_ar.py --topo X.topo --cm Y.cm [--gbps 400] [--htsim PATH]
        [--seeds 5] [--threads 2]

PATH is a binary of htsim's `htsim_uec` that you built; without it only openmrc runs. Both have
lossless starts at line rate: htsim's endpoints are NSCC's with trimming, RoCEv2's here have no
congestion control (`cc = "none"`, `pfc = false`); `MRC` is the protocol that htsim runs
(`rules = "peer"`) over the same switches. Printed are p50 and p99, us, of each seed and their
means.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from openmrc.run.figures import nearest_rank
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import peer_scenario
from openmrc.units import US

FINISHED = re.compile(r"finished at ([0-9.]+)")
RATE = re.compile(r"(Downlink_speed_Gbps) \d+")
END_US = 20_000
FctPs = npt.NDArray[np.int64]
OURS = {
    "RoCEv2": ("kind=roce", "routing=adaptive", "cc=none", "pfc=false", "ack_every=4"),
    "MRC": ("routing=adaptive",),
}


def of_peer(binary: Path, topo: Path, cm: Path, gbps: int, seed: int) -> FctPs:
    """Return the flow completion times of a run of htsim, ps."""
    rules = ["-strat", "ecmp_ar", "-sender_cc_only", "-sender_cc_algo", "nscc"]
    size = ["-linkspeed", str(gbps * 1000), "-end", str(END_US), "-seed", str(seed)]
    with tempfile.TemporaryDirectory() as directory:  # htsim leaves files where it runs
        done = subprocess.run(
            [binary, "-topo", topo, "-tm", cm, *rules, *size],
            cwd=directory,
            check=True,
            capture_output=True,
            text=True,
        )
    return np.array([round(float(us) * US) for us in FINISHED.findall(done.stdout)], np.int64)


def of_openmrc(keys: tuple[str, ...], topo: Path, cm: Path, seed: int, threads: int) -> FctPs:
    """Return the same of openmrc."""
    overrides = [f"transport.{key}" for key in keys] + [f"seed={seed}"]
    (run,) = simulate(peer_scenario(str(topo), str(cm), overrides), threads=threads).transports
    return run.fct_ps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topo", type=Path, required=True)
    parser.add_argument("--cm", type=Path, required=True)
    parser.add_argument("--gbps", type=int, default=400, help="rate of all links, in place of X's")
    parser.add_argument("--htsim", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    cm = options.cm.absolute()
    with tempfile.TemporaryDirectory() as directory:
        topo = Path(directory) / options.topo.name
        rated = RATE.sub(rf"\1 {options.gbps}", options.topo.read_text(encoding="utf-8"))
        topo.write_text(rated, encoding="utf-8")
        for name in (*(["htsim"] if options.htsim else []), *OURS):
            rows = []
            for seed in range(1, options.seeds + 1):
                if name == "htsim":
                    times = of_peer(options.htsim.absolute(), topo, cm, options.gbps, seed)
                else:
                    times = of_openmrc(OURS[name], topo, cm, seed, options.threads)
                rows.append([nearest_rank(times, share) / US for share in (0.5, 0.99)])
                print(f"{name:7} seed {seed}  {rows[-1][0]:7.2f} / {rows[-1][1]:7.2f}", flush=True)
            means = np.mean(rows, axis=0)
            print(f"{name:7} mean    {means[0]:7.2f} / {means[1]:7.2f}", flush=True)


if __name__ == "__main__":
    main()
