"""RoCEv2 on the wire: opcodes of reliable connections.

From the InfiniBand specification (volume 1, section 9 and annex A17): a packet is Ethernet, IPv4,
UDP to port 4791, BTH, extension headers, payload, iCRC. An RDMA WRITE carries its address once, in
the RETH of its first packet.
"""

from __future__ import annotations

UDP_PORT = 4791
UDP = 17  # the IP protocol

# opcodes of the reliable connection service, table 38; CNP is annex A17.9.2
WRITE_FIRST = 0x06
WRITE_MIDDLE = 0x07
WRITE_LAST = 0x08
WRITE_LAST_IMM = 0x09
WRITE_ONLY = 0x0A
WRITE_ONLY_IMM = 0x0B
LAST_DATA = WRITE_ONLY_IMM
ACKNOWLEDGE = 0x11
CNP = 0x81

# AETH syndromes, tables 44 and 46
AETH_ACK = 0x1F  # no credits counted
AETH_NAK_SEQUENCE = 0x60
