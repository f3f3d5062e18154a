"""The Linux export, run as it is: the lab's switches, made by scripts alone."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from openmrc.fabric.usid import UsidPlan
from openmrc.live.lab.linux import LinuxFabric
from openmrc.live.lab.topology import LINUX, Settings, topology
from openmrc.scenario.scenario import load_lab
from tests.live.lab.conftest import needed
from tests.ops.export import walk
from tests.ops.export.conftest import Export

# Numbers of Linux: no UDP checksum, since switches shift the destination that it covers.
RECEIVER = """
import json, socket
end = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
end.setsockopt(socket.IPPROTO_UDP, 102, 1)
end.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
end.bind(("::", 4793))
end.settimeout(30)
print("ready", flush=True)
for _ in range(N):
    data, control, _, _ = end.recvmsg(100, 200)
    interface = int.from_bytes(control[0][2][16:20], "little")
    print(json.dumps([data.decode(), socket.if_indextoname(interface)]), flush=True)
"""
SENDER = """
import socket
end = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
end.setsockopt(socket.IPPROTO_UDP, 101, 1)
for name, carrier in CARRIERS:
    end.sendto(name.encode(), (carrier, 4793))
"""
HOST = """
ip -n h{nic} link set dev lo up
ip -n h{nic} route add local {own} dev lo
"""
PLANE = """
ip -n h{nic} addr add fd00::{nic}:{plane}/128 dev lo nodad
ip -n h{nic} neigh add fe80::1 lladdr {mac} dev e{plane} nud permanent
ip -n h{nic} route add {t0} via fe80::1 dev e{plane} src fd00::{nic}:{plane}
"""


def test_the_scripts_are_the_labs_own_lines_and_the_blackhole(exported: Export) -> None:
    """The same function makes both: nothing of the lab's is missing, one route is more."""
    out = exported("linux", "planes")
    scenario = load_lab(out.parent / "x.toml")
    lab = topology(scenario.fabric.build(), Settings(switch=LINUX))
    fabric = LinuxFabric(lab, None, scenario.fabric.queues())  # type: ignore[arg-type]
    for number, name in enumerate(lab.switches):
        _, plane, tier, index = name.replace(" t", " ").split(" ")
        text = (out / f"p{plane}-t{tier}-{index}.sh").read_text()
        batches = [batch for batch in fabric.batches() if batch.namespace == name]
        assert [batch.tool for batch in batches] == ["ip", "tc"]
        blocks = [block.splitlines() for block in text.split("<<'END'\n")[1:]]
        ours = [block[: block.index("END")] for block in blocks]
        assert ours == [
            [*batches[0].lines, "route add blackhole 2001:db8::/32"],
            list(batches[1].lines),
        ]
        mac = f"02:ff:00:00:00:{number:02x}"
        assert text.count(f"address {mac} mtu 9000") == len(batches[1].lines)


@pytest.mark.parametrize("named", ["planes", "links"])
def test_run_as_they_are_they_carry_every_path(
    named: str, exported: Export, tmp_path: Path
) -> None:
    """A datagram on every path from host 0 to host 7, told by the names of its path."""
    needed("linux")
    out = exported("linux", named)
    fabric = load_lab(out.parent / "x.toml").fabric.build()
    plan, far = UsidPlan(fabric), walk.read("linux", out)
    carriers, expected = [], set()
    for plane in range(2):
        for path in range(3):
            ev = fabric.ev_of_path(0, 7, plane, path)
            carriers.append((f"{plane} {path}", str(IPv6Address(plan.carrier(0, 7, ev)))))
            expected.add((f"{plane} {path}", f"e{plane}"))
    lines = [
        "set -e",
        "mount -t tmpfs none /run",
        f"sh {out}/setup.sh",
        hosts(plan, far),
        "ip -n p0-t0-0 -6 -j route show > routes.json",
        f"ip netns exec h7 {shlex.quote(sys.executable)} receiver.py > received &",
        "until grep -q ready received; do :; done",
        f"ip netns exec h0 {shlex.quote(sys.executable)} sender.py",
        "wait $!",
    ]
    (tmp_path / "receiver.py").write_text(RECEIVER.replace("N)", f"{len(carriers)})"))
    (tmp_path / "sender.py").write_text(SENDER.replace("CARRIERS", repr(carriers)))
    (tmp_path / "run.sh").write_text("\n".join(lines))
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "--mount", "sh", "run.sh"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    _, *received = (tmp_path / "received").read_text().splitlines()
    assert {tuple(json.loads(line)) for line in received} == expected
    routes = {row["dst"]: row for row in json.loads((tmp_path / "routes.json").read_text())}
    assert routes["2001:db8:4000::/48"]["encap"] == "seg6local"
    assert routes["2001:db8::/32"]["type"] == "blackhole"


def hosts(plan: UsidPlan, far: walk.Plant) -> str:
    """What the kernels of hosts 0 and 7 need in order to send and take carriers."""
    lines = []
    for nic in (0, 7):
        lines.append(HOST.format(nic=nic, own=f"2001:db8:{plan.nic(nic):x}::/48"))
        for plane in range(2):
            t0 = plan.t0(plane, plan.fabric.t0_of(nic))
            switch = plan.fabric.port_peer_switch[plan.fabric.nic_port(nic, plane)]
            assert far.far[f"h{nic}", f"e{plane}"][0].startswith(f"p{plane}-t0-")
            mac = f"02:ff:00:00:00:{int(switch):02x}"
            words = {"nic": nic, "plane": plane, "mac": mac, "t0": f"2001:db8:{t0:x}::/48"}
            lines.append(PLANE.format(**words))
    return "".join(lines)


@pytest.mark.parametrize("key", ["lab.switch=openmrc", "lab.mtu=1500"])
def test_what_lab_says_of_the_switch_is_linux_here_and_its_mtu_holds(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from openmrc.cli import main

    (tmp_path / "x.toml").write_text("[fabric]\nnics = 2\nplanes = 1\nt0_down = 1\n")
    line = ["switches", "linux", str(tmp_path / "x.toml"), "--switch", "p0-t0-0", "--set", key]
    assert main(line) == 0
    mtu = "1500" if "1500" in key else "9000"
    assert f" mtu {mtu} " in capsys.readouterr().out
