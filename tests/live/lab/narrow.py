"""A lab of Linux's switches in which one link between two of them has a smaller MTU.

python narrow.py LAB.toml    bring it up, and run this script on hosts 0 and 3
python narrow.py             on a host: connect to the other one, print {"pmtu", "error"}
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from openmrc.errors import OpenMrcError
from openmrc.fabric.places import ports
from openmrc.live.lab import commands
from openmrc.live.lab.lab import Lab, run_lab
from openmrc.live.lab.namespaces import Batch
from openmrc.run.lab.spec import lab_spec
from openmrc.scenario.scenario import load_lab
from openmrc.verbs import Device, exchange, hostfile

PORT, PATIENCE_S = 7471, 60.0
LINK, MTU = "plane 1 t0 0 - t1 1", 1500


def bring_up(file: str) -> int:
    """Narrow the link at both ends, then run this script on both hosts."""

    def work(lab: Lab) -> int:
        for port in ports(lab.spec.fabric, LINK).tolist():
            end = lab.topology.switch_end(port)
            line = f"link set dev {end.interface} mtu {MTU}"
            lab.namespaces.run([Batch(end.namespace, "ip", [line])])
        words = [sys.executable, __file__]
        return commands.watch(
            [lab.command([0, 3], rank, words, _writer(1), _writer(2)) for rank in range(2)],
            lambda: 0,
        )

    return run_lab(lab_spec(load_lab(Path(file))), work)


def _writer(fd: int) -> Callable[[bytes], None]:
    def write(line: bytes) -> None:
        os.write(fd, line)

    return write


def meet() -> None:
    """Connect to the other host, and say how it went."""
    rank, hosts = int(os.environ["OPENMRC_RANK"]), os.environ["OPENMRC_HOSTS"].split(",")
    error = ""
    with Device.open() as device:
        qp = device.create_qp(device.create_cq())
        try:
            if rank == 1:
                with exchange.Listener(PORT, hostfile.secret(), "0.0.0.0") as listener:
                    peer = listener.accept(qp)
                peer.wait(PATIENCE_S)
            else:
                peer = exchange.connect(qp, hosts[1], PORT, hostfile.secret())
            peer.close()
        except OpenMrcError as raised:
            error = str(raised)
        print(json.dumps({"pmtu": device.pmtu, "error": error}))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(bring_up(sys.argv[1]))
    meet()
