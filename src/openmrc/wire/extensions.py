"""BTH and the headers after it, up to the payload, between bytes and the packet record; compiled.

Writers expect zeroed buffers, readers expect checked headers.
"""

from __future__ import annotations

from openmrc.engine import packet as pk
from openmrc.jit import inlined
from openmrc.wire import layout
from openmrc.wire.words import (
    AETH,
    BTH,
    CC_STATE,
    EETH,
    ERTH,
    IMMDT,
    METH,
    NETH,
    PETH,
    RETH,
    SETH,
    TSETH,
    add,
    get,
    high,
    joined,
    low,
    put_word,
    signed16,
    word,
)

_ALL_PORTS = 0xFFFF_FFFF


@inlined
def put_bth(out, at, p, pkey, pad, ts):
    """MRC 2.4."""
    flag_bits = int(p.flag_bits)
    add(out, at, BTH.opcode, p.opcode)
    add(out, at, BTH.pad, pad)
    add(out, at, BTH.pkey, pkey)
    add(out, at, BTH.dest_qpn, p.dst_qpn)
    add(out, at, BTH.a, 1 if flag_bits & pk.ACK_REQ else 0)
    add(out, at, BTH.rtx, 1 if flag_bits & pk.RTX else 0)
    add(out, at, BTH.ts, ts)
    add(out, at, BTH.psn, p.psn)


@inlined
def put_data(out, at, p, ts):
    """MRC 2.5: METH, TSETH, RETH, ImmDt."""
    add(out, at, METH.rqmsn, p.rqmsn)
    add(out, at, METH.msn, p.msn)
    at += METH.size_bytes
    if ts:
        _put_stamp(out, at, TSETH, p)
        at += TSETH.size_bytes
    put_reth(out, at, p)
    if p.opcode == pk.WRITE_LAST_IMM or p.opcode == pk.WRITE_ONLY_IMM:
        add(out, at + RETH.size_bytes, IMMDT.imm, p.imm)


@inlined
def _put_stamp(out, at, header, p):
    """Write the time stamp of TSETH, PETH or ERTH."""
    if p.flag_bits & pk.UNSTAMPED == 0:
        add(out, at, header.tx_timestamp, p.timestamp)
        add(out, at, header.ftype, layout.FTYPE_TIMESTAMP)


@inlined
def put_reth(out, at, p):
    """IBTA 9.3.3."""
    put_word(out, at + RETH.va, p.va >> 32)
    put_word(out, at + RETH.va + 4, p.va)
    add(out, at, RETH.rkey, p.rkey)
    add(out, at, RETH.dma_length, p.dma_len)


@inlined
def put_aeth(out, at, p):
    """IBTA 9.3.5."""
    add(out, at, AETH.syndrome, p.reason)
    add(out, at, AETH.msn, p.msn)


@inlined
def put_answer(out, at, p, e):
    """Write the extension headers of a packet without payload."""
    if p.opcode == pk.SACK:
        _put_sack(out, at, p, e)
    elif p.opcode == pk.NACK:  # MRC 2.8
        add(out, at, NETH.nack_reason, p.reason)
        _put_answered(out, at, NETH, p, e)
        add(out, at, NETH.nack_psn, p.psn)
        add(out, at, NETH.cc_type, layout.CC_TYPE_NACK)
        add(out, at, NETH.tx_timestamp, p.timestamp)
    elif p.opcode == pk.PROBE:  # MRC 2.9
        add(out, at, PETH.probe_id, p.ack_offset)
        add(out, at, PETH.spdcid, e.spdcid)
        add(out, at, PETH.dpdcid, e.dpdcid)
        _put_stamp(out, at, PETH, p)
    elif p.opcode == pk.ACKNOWLEDGE:
        put_aeth(out, at, p)
    elif p.opcode == pk.ENDPOINT_REQUEST:  # MRC 2.10
        add(out, at, ERTH.op, p.reason)
        add(out, at, ERTH.vendor, p.m)
        mask = int(p.imm)
        add(out, at, ERTH.port_status_mask, (mask << 1) & _ALL_PORTS if e.ports_from_1 else mask)
        _put_stamp(out, at, ERTH, p)
    else:  # row 4
        add(out, at, EETH.op, p.reason)
        add(out, at, EETH.tx_timestamp, p.timestamp)


@inlined
def _put_answered(out, at, header, p, e):
    """Write the fields of SETH and NETH about the packet that they answer."""
    add(out, at, header.entropy, p.entropy)
    add(out, at, header.spdcid, e.spdcid)
    add(out, at, header.dpdcid, e.dpdcid)


@inlined
def _put_sack(out, at, p, e):
    """MRC 2.6, 2.7: SETH and CC_STATE."""
    add(out, at, SETH.m, p.m)
    add(out, at, SETH.pr, 1 if p.flag_bits & pk.PROBE_ANSWER else 0)
    add(out, at, SETH.ack_psn_offset, p.ack_offset)
    _put_answered(out, at, SETH, p, e)
    add(out, at, SETH.cack_psn, p.cack_psn)
    add(out, at, SETH.mpr, p.mpr)
    add(out, at, SETH.sack_offset, p.sack_offset)
    put_word(out, at + SETH.sack_bitmap, high(p.bitmap))
    put_word(out, at + SETH.sack_bitmap + 4, low(p.bitmap))
    at += SETH.size_bytes
    add(out, at, CC_STATE.tx_timestamp, p.timestamp)
    add(out, at, CC_STATE.ooo_count, p.ooo_count)
    add(out, at, CC_STATE.restore_cwnd, 1 if p.penalty & pk.RESTORE else 0)
    add(out, at, CC_STATE.rcv_cwnd_pen, p.penalty & pk.PENALTY_MAX)
    add(out, at, CC_STATE.rcvd_bytes, p.rcvd_units)


@inlined
def get_bth(data, at, p, e):
    """Read the BTH."""
    p.opcode = get(data, at, BTH.opcode)
    p.dst_qpn = get(data, at, BTH.dest_qpn)
    p.psn = get(data, at, BTH.psn)
    flag_bits = pk.RTX if get(data, at, BTH.rtx) else 0
    if get(data, at, BTH.a):
        flag_bits |= pk.ACK_REQ
    p.flag_bits = flag_bits
    e.pkey = get(data, at, BTH.pkey)
    e.tseth = get(data, at, BTH.ts) if p.opcode <= pk.LAST_DATA else 0


@inlined
def get_data(data, at, stop, p, e):
    """Read METH, TSETH, RETH, and ImmDt if the headers reach that far before `stop`."""
    p.rqmsn = get(data, at, METH.rqmsn)
    p.msn = get(data, at, METH.msn)
    at += METH.size_bytes
    if e.tseth:
        p.timestamp = get(data, at, TSETH.tx_timestamp)
        at += TSETH.size_bytes
    get_reth(data, at, p)
    at += RETH.size_bytes
    if at < stop:
        p.imm = get(data, at, IMMDT.imm)


@inlined
def get_reth(data, at, p):
    """Read a RETH."""
    get_target(data, at, p)
    p.dma_len = get(data, at, RETH.dma_length)


@inlined
def get_target(data, at, p):
    """Read address and key of a RETH; addresses are signed in the record."""
    high = word(data, at + RETH.va)
    p.va = (high - ((high & 0x8000_0000) << 1)) << 32 | word(data, at + RETH.va + 4)
    p.rkey = get(data, at, RETH.rkey)


@inlined
def get_aeth(data, at, p):
    """Read an AETH."""
    p.reason = get(data, at, AETH.syndrome)
    p.msn = get(data, at, AETH.msn)


@inlined
def get_answer(data, at, p, e):
    """Read the extension headers of a packet without payload."""
    if p.opcode == pk.SACK:
        _get_sack(data, at, p, e)
    elif p.opcode == pk.NACK:
        p.reason = get(data, at, NETH.nack_reason)
        _get_answered(data, at, NETH, p, e)
        p.psn = get(data, at, NETH.nack_psn)
        p.timestamp = get(data, at, NETH.tx_timestamp)
    elif p.opcode == pk.PROBE:
        p.ack_offset = signed16(get(data, at, PETH.probe_id))
        e.spdcid = get(data, at, PETH.spdcid)
        e.dpdcid = get(data, at, PETH.dpdcid)
        _get_stamp(data, at, PETH, p)
    elif p.opcode == pk.ACKNOWLEDGE:
        get_aeth(data, at, p)
    elif p.opcode == pk.ENDPOINT_REQUEST:
        p.reason = get(data, at, ERTH.op)
        p.m = get(data, at, ERTH.vendor)
        mask = get(data, at, ERTH.port_status_mask)
        p.imm = mask >> 1 if e.ports_from_1 else mask
        _get_stamp(data, at, ERTH, p)
    else:  # row 4: others write the operation two bits higher
        op = get(data, at, EETH.op)
        p.reason = op if op else get(data, at, EETH.op_alternative)
        p.timestamp = get(data, at, EETH.tx_timestamp)


@inlined
def _get_stamp(data, at, header, p):
    """Read the time stamp of PETH and ERTH, if there is one (row 31)."""
    if get(data, at, header.ftype) == layout.FTYPE_NONE:
        p.flag_bits = int(p.flag_bits) | pk.UNSTAMPED
    else:
        p.timestamp = get(data, at, header.tx_timestamp)


@inlined
def _get_answered(data, at, header, p, e):
    """Read the fields of SETH and NETH about the packet that they answer."""
    p.entropy = get(data, at, header.entropy)
    e.spdcid = get(data, at, header.spdcid)
    e.dpdcid = get(data, at, header.dpdcid)


@inlined
def _get_sack(data, at, p, e):
    """Read SETH and CC_STATE."""
    p.m = get(data, at, SETH.m)
    if get(data, at, SETH.pr):
        p.flag_bits = int(p.flag_bits) | pk.PROBE_ANSWER
    p.ack_offset = signed16(get(data, at, SETH.ack_psn_offset))
    _get_answered(data, at, SETH, p, e)
    p.cack_psn = get(data, at, SETH.cack_psn)
    p.mpr = get(data, at, SETH.mpr)
    p.sack_offset = signed16(get(data, at, SETH.sack_offset))
    high, low = word(data, at + SETH.sack_bitmap), word(data, at + SETH.sack_bitmap + 4)
    p.bitmap = joined(high, low)
    at += SETH.size_bytes
    p.timestamp = get(data, at, CC_STATE.tx_timestamp)
    p.ooo_count = get(data, at, CC_STATE.ooo_count)
    p.penalty = get(data, at, CC_STATE.rcv_cwnd_pen)
    if get(data, at, CC_STATE.restore_cwnd):
        p.penalty = int(p.penalty) | pk.RESTORE
    p.rcvd_units = get(data, at, CC_STATE.rcvd_bytes)
