"""A fabric's table of DSCPs in compiled code: one number, `fabric.dscp.Dscps.packed`.

0 means the default table, so that an empty envelope has one.
"""

from __future__ import annotations

from openmrc.fabric.dscp import BITS, DEFAULT, MASK
from openmrc.jit import inlined

# positions in a table
NO_TRIM, TRIMMABLE, TRIMMABLE_RETX, TRIMMED, TRIMMED_LASTHOP, CONTROL = range(6)
_DEFAULT = DEFAULT.packed


@inlined
def dscp(table, place):
    """The DSCP of a class."""
    table = int(table)
    if table == 0:
        table = _DEFAULT
    return table >> BITS * place & MASK


@inlined
def is_trimmed(table, value):
    """Whether a DSCP marks a packet that a switch trimmed."""
    return value == dscp(table, TRIMMED) or value == dscp(table, TRIMMED_LASTHOP)
