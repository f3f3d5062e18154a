"""How a message is cut into packets (MRC 1.3, 2.3)."""

from __future__ import annotations

from openmrc.engine import packet as pk

OVERHEAD = 88  # nominal bytes of a packet beside its payload


def packets_of(length: int, pmtu: int) -> int:
    """The packets of a message; one of no bytes has one."""
    return max(-(-length // pmtu), 1)


def opcode(index: int, n: int, with_imm: bool) -> int:
    """The opcode of packet `index` of `n`; an immediate stands in the last one."""
    if n == 1:
        return pk.WRITE_ONLY_IMM if with_imm else pk.WRITE_ONLY
    if index == n - 1:
        return pk.WRITE_LAST_IMM if with_imm else pk.WRITE_LAST
    return pk.WRITE_FIRST if index == 0 else pk.WRITE_MIDDLE
