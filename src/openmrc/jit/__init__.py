"""How code is compiled, state passed by reference, policies called, and progress shown."""

from __future__ import annotations

from openmrc.jit.aligned import CACHE_LINE, apart, fields, offset_of, record_type, records
from openmrc.jit.decorators import compiled, inlined, inner, interpreted

__all__ = [
    "CACHE_LINE",
    "apart",
    "beside",
    "bound",
    "byref",
    "cache",
    "callref",
    "compiled",
    "decorators",
    "fields",
    "heap",
    "inlined",
    "inner",
    "instructions",
    "interpreted",
    "interrupts",
    "offset_of",
    "progress",
    "record_type",
    "records",
    "shared",
    "warmup",
]
