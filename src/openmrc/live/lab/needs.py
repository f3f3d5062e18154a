"""The live world's requirements on a machine: each is tried, not looked up.

A probe performs the operation itself, in namespaces that end with it, and takes a fraction of a
second. A missing requirement is one line with the remedy. `mrc doctor` shows all; a lab that cannot
be brought up shows the first one that explains why.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from openmrc.live.lab.isolation import Refused, run_isolated
from openmrc.live.lab.namespaces import TOOL_PATH, Batch, LabError, Namespaces, missing_tool
from openmrc.live.lab.topology import LINUX, OPENMRC, Settings

ETH_P_IPV6 = 0x86DD
UDP_NO_CHECK6_TX, UDP_NO_CHECK6_RX = 101, 102  # linux/udp.h
IPV6_FREEBIND = 78  # linux/in6.h
FRAME_BYTES = 9014  # the largest frame in an overlay's datagram
WAIT_S = 0.5
PROBE = "probe"


class Finding(NamedTuple):
    """The result of a probe: `lacks` is "" or a line that says what is missing and how to get
    it.
    """

    need: str
    lacks: str
    took_s: float


Probe = Callable[[], str]


def uses() -> dict[str, tuple[str, ...]]:
    """Return the uses of a machine, each with the names of its requirements."""
    links = ("ip", "veth", "packet sockets in a namespace", "tc", "token bucket")
    lab = ("linux", "namespaces", *links)
    return {
        "native": ("linux", "packet sockets"),
        "udp": ("linux", "IPv6 sockets"),
        "overlay": ("linux", "loopback"),
        f"lab {OPENMRC}": lab,
        f"lab {LINUX}": (*lab, "nft", "seg6local", "packet filter"),
    }


def examine() -> list[Finding]:
    """Try every requirement on this machine."""
    found = [_tried(need, probe) for need, probe in _HERE.items()]
    lacks = {finding.need: finding.lacks for finding in found}
    if lacks["linux"]:
        return found
    started = time.monotonic()
    reader, writer = os.pipe()
    try:
        run_isolated(lambda: _report(writer))
        refusal = ""
    except Refused as error:
        refusal = str(error)
    os.close(writer)
    with open(reader, "rb") as stream:
        told = stream.read()
    found.append(Finding("namespaces", refusal, time.monotonic() - started))
    if refusal:
        return found + [Finding(need, refusal, 0.0) for need in _INSIDE]
    return found + [Finding(*row) for row in json.loads(told)]


def lacking(findings: Sequence[Finding]) -> dict[str, list[str]]:
    """Return, for each use, the lines of missing requirements; each line once."""
    lacks = {finding.need: finding.lacks for finding in findings}
    return {
        use: list(dict.fromkeys(line for need in needs if (line := lacks.get(need, ""))))
        for use, needs in uses().items()
    }


@contextmanager
def explained(settings: Settings) -> Iterator[None]:
    """Explain a step that the machine refused by the missing requirement, if there is one.

    For a process that is already isolated.
    """
    try:
        yield
    except LabError as error:
        needs = uses()[f"lab {settings.switch}"]
        for need, probe in _INSIDE.items():
            if need in needs and (lacks := _tried(need, probe).lacks):
                raise LabError(lacks) from None
        raise error from None


def _report(writer: int) -> int:
    found = [_tried(need, probe) for need, probe in _INSIDE.items()]
    os.write(writer, json.dumps(found).encode())
    return 0


def _tried(need: str, probe: Probe) -> Finding:
    started = time.monotonic()
    try:
        lacks = probe()
    except OSError as error:
        lacks = f"{need}: {error.strerror or error}"
    return Finding(need, lacks, time.monotonic() - started)


def _linux() -> str:
    if not sys.platform.startswith("linux"):
        return f"this is {sys.platform}, the live world needs Linux"
    if sys.maxsize < 2**32:
        return "this Python has 32 bits; install one of 64"
    return ""


def _packet_sockets() -> str:
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except PermissionError:
        python = os.path.realpath(sys.executable)
        return f"packet sockets are refused; type: sudo setcap cap_net_raw+ep {python}"
    except (AttributeError, OSError) as error:
        return f"there are no packet sockets ({error}); type: sudo modprobe af_packet"
    return ""


def _ipv6_sockets() -> str:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as one:
            one.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_TX, 1)
            one.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)
            one.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
            one.bind(("::1", 0))
    except OSError as error:
        return (
            f"IPv6 is off ({error.strerror}); type: sudo sysctl -w"
            " net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.lo.disable_ipv6=0"
        )
    return ""


def _loopback() -> str:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        try:
            one.bind(("127.0.0.1", 0))
            other.bind(("127.0.0.1", 0))
            one.connect(other.getsockname())
            other.settimeout(WAIT_S)
            one.send(bytes(FRAME_BYTES))
            if len(other.recv(2 * FRAME_BYTES)) == FRAME_BYTES:
                return ""
        except OSError as error:
            return f"loopback is down ({error}); type: sudo ip link set lo up"
    return "loopback cuts datagrams; type: sudo ip link set lo mtu 65536"


def _tool(name: str) -> Probe:
    return lambda: "" if shutil.which(name, path=TOOL_PATH) else missing_tool(name)


def _veth() -> str:
    try:
        _veth_up(Namespaces([PROBE]))
    except LabError as error:
        return f"{_words(error)}; type: sudo modprobe veth (CONFIG_VETH)"
    return ""


def _veth_up(namespaces: Namespaces) -> None:
    lines = ["link add v1 type veth peer name v2", "link set v1 up", "link set v2 up"]
    namespaces.run([Batch(PROBE, "ip", lines)])


def _step(tool: str, lines: Sequence[str], remedy: str) -> Probe:
    """A probe that runs these lines in a namespace in which v1, a veth, is up."""

    def probe() -> str:
        if lacks := _veth():
            return lacks
        namespaces = Namespaces([PROBE])
        _veth_up(namespaces)
        try:
            namespaces.run([Batch(PROBE, tool, lines)])
        except LabError as error:
            words = _words(error)
            return words if words == missing_tool(tool) else f"{words}; {remedy}"
        return ""

    return probe


def _words(error: LabError) -> str:
    return str(error).removeprefix(f"{PROBE}: ").partition("; see mrc doctor")[0]


_HERE: dict[str, Probe] = {
    "linux": _linux,
    "packet sockets": _packet_sockets,
    "IPv6 sockets": _ipv6_sockets,
    "loopback": _loopback,
}
_END = "route add 2001:db8:1::/48 encap seg6local action End"
_INSIDE: dict[str, Probe] = {
    "ip": _tool("ip"),
    "veth": _veth,
    "packet sockets in a namespace": _packet_sockets,
    "tc": _tool("tc"),
    "nft": _tool("nft"),
    "seg6local": _step(
        "ip",
        [f"{_END} flavors next-csid lblen 32 nflen 16 count dev v1"],
        "it takes Linux 6.1 with CONFIG_IPV6_SEG6_LWTUNNEL and iproute2 6.1, or newer; or use"
        f' switch = "{OPENMRC}"',
    ),
    "token bucket": _step(
        "tc",
        ["qdisc add dev v1 root tbf rate 1gbit burst 30000 limit 60000"],
        "type: sudo modprobe sch_tbf (CONFIG_NET_SCH_TBF)",
    ),
    "packet filter": _step(
        "nft",
        [
            "table netdev t {",
            'chain c { type filter hook egress device "v1" priority 0;'
            " numgen random mod 100 < 5 drop; }",
            "}",
        ],
        "it takes Linux 5.16 with CONFIG_NETFILTER_EGRESS and CONFIG_NFT_NUMGEN; type: sudo"
        " modprobe nf_tables nft_numgen",
    ),
}
