"""A command for two hosts of a lab: rank 0 sends MRC frames, rank 1 says what arrives.

    python exchange.py COUNT EV [EV ...]       rank 0 sends COUNT frames on each EV

Rank 1 has its packet sockets open before rank 0 sends: they meet by TCP over the management
network. Rank 1 prints {"plane", "carrier", "hop_limit", "code", "psn", "to_me"} for each frame, and
ends when nothing has come for a while.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from contextlib import suppress
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import numpy as np

from openmrc.engine import packet
from openmrc.fabric.model import Fabric
from openmrc.fabric.usid import UsidPlan
from openmrc.jit import records
from openmrc.scenario.fabric import FABRICS
from openmrc.wire import addresses, codec, layout
from openmrc.wire.frame import ENVELOPE

PORT = 7000
ETH_P_IPV6 = 0x86DD
SILENCE_S = 1.0  # a frame crosses in microseconds; a busy machine may pause
FIRST_S, SECONDS_MAX = 10.0, 60.0  # rank 0 may have to compile before it sends


def fabric_of(table: dict[str, Any]) -> Fabric:
    from openmrc.scenario.toml import read_table

    section = FABRICS[table["kind"]]
    return read_table(table, section, "fabric", Path(), kind=table["kind"]).build()


def frame_of(fabric: Fabric, src: int, dst: int, ev: int, psn: int, gateway_mac: str) -> bytes:
    """One data packet as a NIC sends it."""
    plane = fabric.hops(ev).plane
    p = records(1, packet.PACKET)[0]
    p.opcode, p.klass, p.payload_len = packet.WRITE_MIDDLE, packet.CLASS_DATA, 4096
    p.psn, p.ev, p.dst_qpn = psn, ev, 5
    e = records(1, ENVELOPE)[0]
    e.srv6, e.tseth, e.hop_limit, e.inner_hop_limit = 1, 1, 64, 64
    e.udp_port, e.pkey = layout.UDP_PORT, layout.PKEY_DEFAULT
    addresses.write_nic_mac(e.src_mac, 0, src, plane)
    e.dst_mac = list(bytes.fromhex(gateway_mac.replace(":", "")))
    addresses.write_ipv6(e.inner_src, 0, src, plane)
    addresses.write_ipv6(e.inner_dst, 0, dst, plane)
    addresses.write_ipv6(e.outer_src, 0, src, plane)
    e.carrier = list(UsidPlan(fabric).carrier(src, dst, ev).to_bytes(16))
    room = np.zeros(9014, np.uint8)
    n = codec.encode(p, e, np.arange(4096, dtype=np.uint8), room, 1)
    assert n > 0
    return room[:n].tobytes()


def described(fabric: Fabric, nic: int, plane: int, data: bytes) -> dict[str, Any]:
    p, e = records(1, packet.PACKET)[0], records(1, ENVELOPE)[0]
    frame = np.frombuffer(bytearray(data), np.uint8)
    code = int(codec.decode(frame, len(frame), p, e, 1))
    return {
        "plane": plane,
        "carrier": str(IPv6Address(e.carrier.tobytes())),
        "hop_limit": int(e.hop_limit),
        "code": code,
        "psn": int(p.psn),
        "to_me": data[:6].hex(":") == addresses.nic_mac(nic, plane),
    }


def open_port(interface: str) -> socket.socket:
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    port.bind((interface, ETH_P_IPV6))
    return port


def meet(peer: str) -> socket.socket:
    until = time.monotonic() + SECONDS_MAX
    while True:
        try:
            return socket.create_connection((peer, PORT), timeout=SECONDS_MAX)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def send(count: int, evs: list[int], host: dict[str, Any], peer: str) -> None:
    fabric = fabric_of(host["fabric"])
    ports = [open_port(port["interface"]) for port in host["ports"]]
    with meet(peer) as meeting, meeting.makefile() as lines:
        dst = int(lines.readline())
        for psn in range(count):
            for ev in evs:
                plane = fabric.hops(ev).plane
                gateway = host["ports"][plane]["gateway_mac"]
                frame = frame_of(fabric, host["nic"], dst, ev, psn, gateway)
                with suppress(OSError):  # the port's link is down: to be seen at the other end
                    ports[plane].send(frame)
        lines.readline()  # until the other one has seen enough


def receive(host: dict[str, Any]) -> None:
    fabric = fabric_of(host["fabric"])
    described(fabric, host["nic"], 0, bytes(64))  # compiled before anything is to be seen
    ports = [open_port(port["interface"]) for port in host["ports"]]
    with socket.create_server(("", PORT)) as server:
        meeting, _ = server.accept()
    with meeting:
        meeting.sendall(f"{host['nic']}\n".encode())
        wait_s = FIRST_S
        while ready := select.select(ports, [], [], wait_s)[0]:
            for port in ready:
                with suppress(OSError):  # its link went down
                    data, address = port.recvfrom(9014)
                    if address[2] != socket.PACKET_OUTGOING:
                        plane = ports.index(port)
                        print(json.dumps(described(fabric, host["nic"], plane, data)))
                        wait_s = SILENCE_S


def main() -> None:
    host = json.loads(Path(os.environ["OPENMRC_HOST"]).read_text())
    hosts = os.environ["OPENMRC_HOSTS"].split(",")
    count, *evs = map(int, sys.argv[1:])
    if os.environ["OPENMRC_RANK"] == "0":
        send(count, evs, host, hosts[1])
    else:
        receive(host)


if __name__ == "__main__":
    main()
