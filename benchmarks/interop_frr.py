"""FRR's own daemons switch a two-tier fabric: what `mrc switches` writes is loaded as it is, and
`mrc perf` runs over it while a plane falls silent. A part of `interop.py`, in which FRR is built
and installed by the reader; it is not in this repository.

Every switch is a network namespace with zebra, mgmtd and staticd of its own; the namespaces, links
and hosts are those of `mrc switches containerlab`, so its topology is deployed, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openmrc.errors import InputError
from openmrc.live.lab.isolation import run_isolated
from openmrc.live.lab.namespaces import ROOT, Batch, Namespaces, set_sysctl
from openmrc.verbs import secret as secrets

LAB = Path(__file__).resolve().parents[1] / "examples/lab/linux.toml"
MRC = [sys.executable, "-m", "openmrc.cli"]
NEEDED = (10, 5)  # the first version with static uSIDs (`static-sids`)
DAEMONS = ("mgmtd", "zebra", "staticd")  # in the order in which they are started
FROM, TO = 0, 7  # under different T0s
CUT = "p1-"  # switches of the plane that falls silent
CUT_AFTER_S, READY_S, PATIENCE_S = 1.0, 30.0, 120.0
RUNS = ((False, 200), (True, 600))  # whether a plane is cut, messages
SIZE = 1 << 20
NO_DUMMY = "type dummy", "type bridge"  # for SIDs any interface does; some kernels lack `dummy`


@dataclass(frozen=True)
class Installed:
    """An FRR: where its programs are, its version, and where it keeps sockets and files."""

    prefix: Path
    version: str
    state: Path

    def make_room(self, name: str) -> None:
        """The daemons make only the last of these folders by themselves."""
        for kind in ("run", "lib"):
            (self.state / kind / "frr" / name).mkdir(parents=True, exist_ok=True)


def checked(prefix: Path) -> Installed:
    """The FRR that is installed there; `InputError` if it cannot be used."""
    zebra = prefix / "sbin/zebra"
    try:
        said = subprocess.run([zebra, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise InputError(f"FRR={prefix}: {zebra} does not run ({error})") from None
    found = re.match(r"zebra version ((\d+)\.(\d+)\S*)", said.stdout)
    if found is None:
        raise InputError(f"FRR={prefix}: {zebra} does not say its version")
    if (int(found[2]), int(found[3])) < NEEDED:
        raise InputError(
            f"FRR={prefix}: version {found[1]}; {'.'.join(map(str, NEEDED))} is needed"
        )
    state = re.search(r"--localstatedir=([^'\"\s]+)", said.stdout)
    return Installed(prefix, found[1], Path(state[1] if state else "/var"))


def frr(prefix: Path) -> None:
    """Switch a fabric by the FRR that is installed below `prefix`, and print what came of it."""
    installed = checked(prefix)
    print(f"FRR {installed.version}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [*MRC, "switches", "containerlab", str(LAB), "--out", f"{folder}/fabric"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        if status := run_isolated(lambda: _run(installed, Path(folder))):
            raise SystemExit(status)


def _run(installed: Installed, folder: Path) -> int:
    fabric = folder / "fabric"
    topology = json.loads((fabric / "topology.clab.yml").read_text())["topology"]
    nodes = topology["nodes"]
    switches = [name for name in nodes if not name.startswith("nic")]
    spaces = Namespaces(nodes)
    for name in nodes:  # neighbour discovery starts from addresses of the link itself
        with spaces.inside(name):
            set_sysctl("ipv6/conf/default/addr_gen_mode", 0)
    spaces.run([Batch(ROOT, "ip", _links(spaces, topology["links"]))])
    spaces.run([Batch(ROOT, "ip", _management(spaces))])
    spaces.run(Batch(name, "ip", _inside(name, topology)) for name in nodes)
    with contextlib.ExitStack() as running:
        for name in switches:
            with spaces.inside(name):
                _router(topology, name)
                running.enter_context(_daemons(installed, fabric, name))
        _wait_for_sids(spaces, switches)
        for cut, n in RUNS:
            said = _written(spaces, fabric, n, _silent(spaces, switches) if cut else [])
            print(f"{n} writes of {SIZE} bytes{', plane cut' if cut else ''}: {said}")
    return 0


def _links(spaces: Namespaces, links: list[dict[str, Any]]) -> list[str]:
    lines = []
    for link in links:
        one, other = (
            f"name {end['interface']} address {end['mac']} mtu {link['mtu']}"
            f" netns {spaces.path(end['node'])}"
            for end in link["endpoints"]
        )
        lines.append(f"link add {one} type veth peer {other}")
    return lines


def _management(spaces: Namespaces) -> list[str]:
    """Both hosts agree on a transfer by TCP, beside the fabric."""
    ends = [spaces.path(f"nic{nic}") for nic in (FROM, TO)]
    return [f"link add name meet netns {ends[0]} type veth peer name meet netns {ends[1]}"]


def _inside(name: str, topology: Mapping[str, Any]) -> list[str]:
    """What one node runs before its daemons: its links come up, and what the topology asks."""
    own = [
        end["interface"]
        for link in topology["links"]
        for end in link["endpoints"]
        if end["node"] == name
    ]
    asked = [
        line.removeprefix("ip ").removeprefix("-6 ") for line in topology["nodes"][name]["exec"]
    ]
    lines = [line.replace(*NO_DUMMY) for line in asked if not line.startswith("vtysh")]
    lines += [f"link set {one} up" for one in ("lo", *own)]
    if name in (f"nic{FROM}", f"nic{TO}"):
        lines += [f"address add {_meeting(name)}/24 dev meet", "link set meet up"]
    return lines


def _meeting(name: str) -> str:
    return f"10.78.0.{1 + int(name.removeprefix('nic'))}"


def _router(topology: Mapping[str, Any], name: str) -> None:
    """The kernel's part of a switch."""
    for key, value in topology["nodes"][name]["sysctls"].items():
        set_sysctl(key.removeprefix("net.").replace(".", "/"), value)
    for interface in os.listdir("/proc/sys/net/ipv6/conf"):
        set_sysctl(f"ipv6/conf/{interface}/seg6_enabled", 1)


@contextlib.contextmanager
def _daemons(installed: Installed, fabric: Path, name: str) -> Iterator[None]:
    """FRR in the namespace of the calling thread, with the configuration of a switch."""
    installed.make_room(name)
    log = (fabric / f"{name}.log").open("w")
    words = ["-N", name, "--log", "stdout"]
    running = []
    try:
        for daemon in DAEMONS:
            command = [installed.prefix / "sbin" / daemon, *words]
            running.append(subprocess.Popen(command, stdout=log, stderr=log))
        vtysh = [installed.prefix / "bin/vtysh", "-N", name]
        _wait_for_daemons([*vtysh, "-c", "show mgmt backend-adapter all"])
        subprocess.run([*vtysh, "-f", fabric / f"{name}.conf"], stdout=log, stderr=log, check=True)
        yield
    finally:
        for one in running:
            one.terminate()
        for one in running:
            one.wait()
        log.close()


def _wait_for_daemons(asked: list[Any]) -> None:
    """Until mgmtd knows the others: what it is told before does not reach them."""
    until = time.monotonic() + READY_S
    while True:
        told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
        if all(daemon in told for daemon in DAEMONS[1:]):
            return
        if time.monotonic() > until:
            raise InputError(f"FRR's daemons do not meet: {told}")
        time.sleep(0.2)


def _wait_for_sids(spaces: Namespaces, switches: list[str]) -> None:
    """Until each switch's kernel has its uSID, and a route for each neighbour's."""
    until = time.monotonic() + READY_S
    for name in switches:
        while "seg6local" not in (told := spaces.output(name, "ip", "-6", "route")):
            if time.monotonic() > until:
                raise InputError(f"{name}: FRR installed no uSID; its kernel has\n{told}")
            time.sleep(0.2)
    print(f"{len(switches)} switches have their uSIDs; {switches[0]}:")
    told = spaces.output(switches[0], "ip", "-6", "route").splitlines()
    print("".join(f"  {line}\n" for line in told if "seg6local" in line or "via" in line), end="")


def _silent(spaces: Namespaces, switches: list[str]) -> list[Batch]:
    """The batches after which the switches of a plane lose every packet, with carriers up."""
    batches = []
    for name in (one for one in switches if one.startswith(CUT)):
        ports = re.findall(r"(swp\d+)[@:]", spaces.output(name, "ip", "-o", "link"))
        devices = ", ".join(dict.fromkeys(ports))
        drop = f"type filter hook ingress devices = {{ {devices} }} priority 0; policy drop;"
        batches.append(Batch(name, "nft", [f"table netdev cut {{ chain c {{ {drop} }}; }}"]))
    return batches


def _written(spaces: Namespaces, fabric: Path, n: int, cut: list[Batch]) -> str:
    """What `mrc perf write_bw` says of a transfer between two hosts."""
    words = [*MRC, "perf", "write_bw"]
    client = [_meeting(f"nic{TO}"), "-s", str(SIZE), "-n", str(n), "--json"]
    env = {**os.environ, "OPENMRC_SECRET": secrets.new().hex()}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    ends = []
    for nic, more in ((TO, []), (FROM, client)):
        with spaces.inside(f"nic{nic}"):
            own = {**env, "OPENMRC_HOST": str(fabric / f"nic{nic}.json")}
            ends.append(subprocess.Popen([*words, *more], env=own, **pipes))
    if cut:
        time.sleep(CUT_AFTER_S)
        spaces.run(cut)
    said = [end.communicate(timeout=PATIENCE_S)[0] for end in reversed(ends)]
    if any(end.returncode for end in ends):
        raise InputError("\n".join(said))
    report = json.loads(said[0][said[0].index("{") :])
    [row], ports = report["rows"], report["device"]["ports"]
    answers = ", ".join(str(port["rx_packets"]) for port in ports)
    rate = f"{1000 * row['bw_average_gbps']:.0f} Mb/s, PMTU {report['pmtu_bytes']}"
    return f"{row['iterations']} complete, {rate}; packets heard by plane: {answers}"
