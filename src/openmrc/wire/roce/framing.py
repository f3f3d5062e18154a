"""The size of each packet of RoCEv2 on the wire: preamble, frame and gap."""

from __future__ import annotations

from openmrc.wire import layout
from openmrc.wire.framing import PEER_FRAMING, Framing, by_opcode
from openmrc.wire.roce.layout import BTH, EXTENSIONS
from openmrc.wire.roce.opcodes import ACKNOWLEDGE, WRITE_MIDDLE


class RoceFraming(Framing):
    """Wire sizes of RoCEv2; `header_bytes` by its own opcodes."""

    def data_bytes(self, payload: int) -> int:
        """A packet with this payload that is neither the first nor the last of its message."""
        return self.header_bytes[WRITE_MIDDLE] + payload

    @property
    def sack_bytes(self) -> int:
        """An acknowledgement."""
        return self.header_bytes[ACKNOWLEDGE]


def _of(header_bytes: tuple[int, ...]) -> RoceFraming:
    return RoceFraming(header_bytes, trimmed_bytes=0, nominal_overhead=0)


ROCE_FRAMING = _of(
    by_opcode(EXTENSIONS, layout.ETHERNET, layout.IPV4, layout.UDP, BTH, layout.ICRC)
)
PEER_ROCE_FRAMING = _of(PEER_FRAMING.header_bytes)


def roce_framing(rules: str) -> RoceFraming:
    """The sizes for a transport's `rules`."""
    return PEER_ROCE_FRAMING if rules == "peer" else ROCE_FRAMING
