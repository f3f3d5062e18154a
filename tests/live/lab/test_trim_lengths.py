"""What the Linux kernel does with trimmed packets on their way to UDP sockets (docs/wire.md)."""

from __future__ import annotations

import subprocess
import sys

from openmrc.fabric.dscp import TRIM_LENGTHS
from tests.live.lab.conftest import needed

CLAIMED = 4000  # bytes that a length of the whole packet says there are
SENDS = """
import socket, subprocess, sys
from ipaddress import ip_address

lines = (
    "link add v0 type veth peer name v1", "link set v0 up", "link set v1 up",
    "addr add 10.0.0.2/24 dev v1", "-6 addr add fd00::2/64 dev v1 nodad",
)
for line in lines:
    subprocess.run(["ip", *line.split()], check=True)
link = subprocess.run(["ip", "-o", "link", "show", "v1"], capture_output=True, text=True).stdout
mac = bytes.fromhex(link.split("link/ether ")[1][:17].replace(":", ""))
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind(("v0", 0))
src, dst = (
    {4: ip_address(four).packed, 6: ip_address(six).packed}
    for four, six in (("10.0.0.1", "fd00::1"), ("10.0.0.2", "fd00::2"))
)

def put(n):
    return n.to_bytes(2, "big")

def frame(version, ip_bytes, udp_bytes):
    body = put(4791) * 2 + put(8 + udp_bytes) + bytes(2 + 32)
    if version == 6:
        ip = b"\\x60\\0\\0\\0" + put(8 + ip_bytes) + bytes((17, 64)) + src[6] + dst[6]
        return mac + bytes(6) + put(0x86DD) + ip + body
    ip = b"\\x45\\0" + put(28 + ip_bytes) + bytes((0, 0, 64, 0, 64, 17, 0, 0)) + src[4] + dst[4]
    total = 0xFFFF - int.from_bytes(ip, "big") % 0xFFFF
    return mac + bytes(6) + put(0x0800) + ip[:10] + put(total) + ip[12:] + body

claimed = int(sys.argv[1])
for version, family in ((4, socket.AF_INET), (6, socket.AF_INET6)):
    ear = socket.socket(family, socket.SOCK_DGRAM)
    ear.bind(("::" if version == 6 else "", 4791))
    if version == 6:
        ear.setsockopt(socket.IPPROTO_UDP, 102, 1)  # UDP_NO_CHECK6_RX
    for ip_bytes, udp_bytes in ((32, claimed), (claimed, claimed), (32, 32)):
        wire.send(frame(version, ip_bytes, udp_bytes))
    ear.settimeout(5)
    heard = [len(ear.recv(9000))]  # in the order of sending: what was sent before has been dropped
    ear.setblocking(False)
    try:
        heard.append(len(ear.recv(9000)))
    except BlockingIOError:
        pass
    print(version, *heard)
"""


def test_the_kernel_gives_sockets_only_packets_with_all_lengths_adjusted() -> None:
    """The last of three packets, which has them, is the first that arrives."""
    needed("linux")
    assert TRIM_LENGTHS == ("all", "outer", "none")
    command = ["unshare", "--map-root-user", "--net", sys.executable, "-c", SENDS, str(CLAIMED)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("4 32\n6 32\n", 0), done.stderr
