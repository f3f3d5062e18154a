"""A probe as bytes, and the frames that carry it.

On the wire it is a UDP datagram without checksum after one IPv6 header, whose destination is the
carrier: switches turn it round, so nothing on its path reads more than that header. It travels in
the class of control packets, so that full queues of data do not look like damage.

    magic 2, kind 1, plane 1, NIC that sends 4, period or burst or check 4, number 4   network order
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from openmrc.ops.schedule import PAYLOAD_BYTES
from openmrc.wire import addresses, layout

PORT = 61_791  # of UDP, in the range that IANA does not assign
MAGIC = 0x6D70
SCHEDULED, BURST, CHECK = range(3)  # kinds; a check shows that others had their time: no evidence
HOP_LIMIT = 64
LAYOUT = np.dtype(
    [
        ("magic", ">u2"),
        ("kind", "u1"),
        ("plane", "u1"),
        ("nic", ">u4"),
        ("period", ">u4"),
        ("number", ">u4"),
    ]
)
assert LAYOUT.itemsize == PAYLOAD_BYTES
ETHERNET_BYTES, IPV6_BYTES, UDP_BYTES = 14, 40, 8
PAYLOAD_AT = ETHERNET_BYTES + IPV6_BYTES + UDP_BYTES
FRAME_BYTES = PAYLOAD_AT + PAYLOAD_BYTES
CARRIER_BYTES = 16
CARRIER_AT = ETHERNET_BYTES + IPV6_BYTES - CARRIER_BYTES
ByteArray = npt.NDArray[np.uint8]


def payloads(
    kind: npt.ArrayLike,
    nic: npt.ArrayLike,
    planes: npt.ArrayLike,
    period: npt.ArrayLike,
    numbers: Sequence[int],
) -> ByteArray:
    """Return the payloads of these probes, [n, PAYLOAD_BYTES]; `period`: of a burst, its number."""
    found = np.zeros(len(numbers), LAYOUT)
    found["magic"], found["kind"], found["nic"] = MAGIC, kind, nic
    found["plane"], found["period"], found["number"] = planes, period, numbers
    return found.view(np.uint8).reshape(len(numbers), PAYLOAD_BYTES)


def heads(nic: int, gateways: Sequence[bytes]) -> ByteArray:
    """Return the headers before the payload of a NIC's probes on each plane, [planes, PAYLOAD_AT],
    without a carrier; `gateways`: MACs by plane.
    """
    found = np.zeros((len(gateways), PAYLOAD_AT), np.uint8)
    for plane, gateway in enumerate(gateways):
        own = bytes.fromhex(addresses.nic_mac(nic, plane).replace(":", ""))
        head = gateway + own + layout.ETHERTYPE_IPV6.to_bytes(2, "big")
        head += (6 << 28 | layout.DSCP_CONTROL << 22).to_bytes(4, "big")
        head += (UDP_BYTES + PAYLOAD_BYTES).to_bytes(2, "big") + bytes([17, HOP_LIMIT])
        head += addresses.ipv6(nic, plane).packed + bytes(CARRIER_BYTES)
        head += PORT.to_bytes(2, "big") * 2 + (UDP_BYTES + PAYLOAD_BYTES).to_bytes(2, "big")
        found[plane, : len(head)] = np.frombuffer(head, np.uint8)
    return found


def frames(
    heads: ByteArray, planes: Sequence[int], carriers: ByteArray, payload: ByteArray
) -> ByteArray:
    """Return [n, FRAME_BYTES] the Ethernet frames of probes with these carriers, [n, 16]."""
    found = np.concatenate([heads[np.asarray(planes, np.int64)], payload], axis=1)
    found[:, CARRIER_AT : CARRIER_AT + CARRIER_BYTES] = carriers
    return found
