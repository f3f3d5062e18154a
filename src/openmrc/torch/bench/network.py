"""Hosts of an ordinary network on this machine: namespaces, joined by virtual Ethernets.

A plane is an interface of each host, `e0`, `e1` ...; two hosts have a cable for each plane, more
have a bridge. Addresses are 10.77.PLANE.(HOST + 1), or fd77:PLANE::(HOST + 1). This process is
already isolated (`live.lab.isolation`), so nothing is left over.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Any

from openmrc.live.lab.namespaces import ROOT, Batch, Namespaces

CUT_AFTER_S, CUT_S = 0.3, 0.5  # of a cut: when, from a row's first call, and how long
PORT = 29_471  # of torch's store
QUEUE = "latency 20ms burst 32k"  # of a link with a rate: queue and burst


def address(host: int, plane: int, version: int = 4) -> str:
    """The address of a host on a plane."""
    return f"10.77.{plane}.{host + 1}" if version == 4 else f"fd77:{plane}::{host + 1:x}"


class Network:
    """Hosts and planes; `rate_mbps` 0 is no limit."""

    def __init__(
        self, hosts: int, planes: int, *, mtu: int = 9000, version: int = 4, rate_mbps: int = 0
    ) -> None:
        self.hosts = [f"h{host}" for host in range(hosts)]
        self.planes, self.version = planes, version
        self.namespaces = Namespaces(self.hosts)
        self.namespaces.run([Batch(ROOT, "ip", self._links(mtu))])
        self.namespaces.run(
            Batch(name, "ip", self._addresses(host)) for host, name in enumerate(self.hosts)
        )
        if rate_mbps:
            shape = [f"qdisc add dev e{p} root tbf rate {rate_mbps}mbit {QUEUE}" for p in self._all]
            self.namespaces.run(Batch(name, "tc", shape) for name in self.hosts)

    @property
    def _all(self) -> range:
        return range(self.planes)

    @property
    def interfaces(self) -> str:
        """All planes, as `OPENMRC_INTERFACES` and `mrc perf --planes` take them."""
        return ",".join(f"e{plane}" for plane in self._all)

    def start(self, host: int, words: Sequence[str], **more: Any) -> subprocess.Popen[str]:
        """Start a command on a host; `more` goes to `Popen`."""
        with self.namespaces.inside(self.hosts[host]):
            return subprocess.Popen(words, text=True, **more)

    def rank(self, rank: int, words: Sequence[str], **more: Any) -> subprocess.Popen[str]:
        """Start a rank of torch on the host of its number: MRC has all planes, Gloo the first."""
        told = {
            **{"RANK": str(rank), "WORLD_SIZE": str(len(self.hosts)), "OMP_NUM_THREADS": "1"},
            **{"MASTER_ADDR": address(0, 0, self.version), "MASTER_PORT": str(PORT)},
            "OPENMRC_INTERFACES": self.interfaces,
            "OPENMRC_SHARED_MEMORY": "0",
            "GLOO_SOCKET_IFNAME": "e0",
        }
        return self.start(rank, words, env={**os.environ, **told}, **more)

    def cut(self, plane: int) -> None:
        """From now on a plane loses every packet at every host; carriers stay up."""
        drop = f"type filter hook ingress device e{plane} priority 0; policy drop;"
        self._filter(f"table netdev cut{plane} {{ chain c {{ {drop} }}; }}")

    def heal(self, plane: int) -> None:
        """End the cut."""
        self._filter(f"delete table netdev cut{plane}")

    def _filter(self, rule: str) -> None:
        self.namespaces.run(Batch(name, "nft", [rule]) for name in self.hosts)

    def _links(self, mtu: int) -> list[str]:
        ends = [self.namespaces.path(name) for name in self.hosts]
        if len(ends) == 2:
            return [
                f"link add e{p} mtu {mtu} netns {ends[0]} type veth"
                f" peer name e{p} mtu {mtu} netns {ends[1]}"
                for p in self._all
            ]
        lines = []
        for p in self._all:
            lines.append(f"link add b{p} mtu {mtu} up type bridge")
            for host, end in enumerate(ends):
                lines += [
                    f"link add p{p}h{host} mtu {mtu} type veth"
                    f" peer name e{p} mtu {mtu} netns {end}",
                    f"link set p{p}h{host} master b{p} up",
                ]
        return lines

    def _addresses(self, host: int) -> list[str]:
        width = "24" if self.version == 4 else "64"
        nodad = "" if self.version == 4 else " nodad"
        lines = ["link set lo up"]
        for p in self._all:
            lines += [
                f"address add {address(host, p, self.version)}/{width} dev e{p}{nodad}",
                f"link set e{p} up",
            ]
        return lines
