"""Packets as bytes and records: encoding, decoding, forwarding and display.

`decode` and `encode` convert bytes to records and back in plain Python; `wire.codec` does so
compiled, on the caller's buffers. `layout` is the only definition of the headers. `decode_roce`
reads RoCEv2, and `roce_layout` defines the headers that differ there.
"""

from __future__ import annotations

from openmrc.wire.frame import WireError
from openmrc.wire.roce.view import decode as decode_roce
from openmrc.wire.view import DecodedFrame, Packet, decode, encode
from openmrc.wire.walk import HeaderView

__all__ = [
    "DecodedFrame",
    "HeaderView",
    "Packet",
    "WireError",
    "addresses",
    "checks",
    "classes",
    "codec",
    "decode",
    "decode_roce",
    "encode",
    "frame",
    "framing",
    "icrc",
    "layout",
    "lines",
    "meant",
    "offload",
    "pcap",
    "profile",
    "readers",
    "roce",
    "srv6",
    "summary",
    "view",
    "walk",
    "words",
]
