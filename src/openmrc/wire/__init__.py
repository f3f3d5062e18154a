"""Bytes and packet records: what an MRC NIC sends, a switch forwards and a sniffer shows.

`decode` and `encode` are the plain way from bytes to records and back; the compiled one, on the
caller's buffers, is `wire.codec`. `layout` is the one place where headers are written down.
`decode_roce` reads RoCEv2, and `roce_layout` has what that has otherwise.
"""

from __future__ import annotations

from openmrc.wire.frame import WireError
from openmrc.wire.roce.view import decode as decode_roce
from openmrc.wire.view import DecodedFrame, Packet, decode, encode
from openmrc.wire.walk import HeaderView

__all__ = ["DecodedFrame", "HeaderView", "Packet", "WireError", "decode", "decode_roce", "encode"]
