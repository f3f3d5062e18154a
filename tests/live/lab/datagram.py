"""A command for two hosts of a lab in mode "udp": rank 0 sends a datagram on an EV, rank 1 tells.

The destination is the carrier of the path, with two more uSIDs behind the host's own. Rank 1 prints
[destination, interface, source] of what arrives, as its kernel has it.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import time
from ipaddress import IPv6Address
from pathlib import Path

from openmrc.fabric.usid import UsidPlan

UDP_NO_CHECK6_TX, UDP_NO_CHECK6_RX = 101, 102
PORT, SECONDS_MAX = 4793, 60.0


def main() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    from tests.live.lab.exchange import fabric_of

    host = json.loads(Path(os.environ["OPENMRC_HOST"]).read_text())
    fabric = fabric_of(host["fabric"])
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as end:
        if os.environ["RANK"] == "0":
            # The uSIDs fill the address: T0, T1, T0, host, and two more.
            carrier = UsidPlan(fabric).carrier(0, 3, int(sys.argv[1])) | 0x0007_ABCD
            end.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_TX, 1)
            for _ in range(20):  # until the other one listens
                end.sendto(b"hello", (str(IPv6Address(carrier)), PORT))
                time.sleep(0.1)
            return
        end.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)
        end.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        end.bind(("::", PORT))
        end.settimeout(SECONDS_MAX)
        _, control, _, source = end.recvmsg(100, 200)
        ((_, _, data),) = control
        address, interface = struct.unpack("16sI", data)
        print(json.dumps([str(IPv6Address(address)), socket.if_indextoname(interface), source[0]]))


if __name__ == "__main__":
    main()
