"""A decoded packet: one record for every opcode; nothing here knows bytes.

Fields hold what the headers of MRC 2.3 to 2.10 carry; fields that an opcode does not use are zero.
Small integers are signed where their full width is not needed, so that they widen alike in compiled
and plain Python; PSN, MSN and `rcvd_units` are kept modulo their width on the wire.
"""

from __future__ import annotations

import numpy as np

# MRC 2.3: opcodes
WRITE_FIRST = 0xC6
WRITE_MIDDLE = 0xC7
WRITE_LAST = 0xC8
WRITE_LAST_IMM = 0xC9
WRITE_ONLY = 0xCA
WRITE_ONLY_IMM = 0xCB
ACKNOWLEDGE = 0xD1
ENDPOINT_REQUEST = 0xD8
ENDPOINT_RESPONSE = 0xD9
SACK = 0xDC
NACK = 0xDD
PROBE = 0xDE
LAST_DATA = WRITE_ONLY_IMM

# flags
RTX = 1  # MRC 2.4: a retransmission
ACK_REQ = 2  # MRC 2.4: answer with a SACK at once
PROBE_ANSWER = 4  # MRC 2.6: `pr`, the SACK answers a probe and `ack_offset` holds its id
NO_TRIM = 8  # MRC 2.13: DSCP_NO_TRIM
CE = 16  # MRC 2.14: congestion experienced, set by a switch
TRIMMED = 32  # MRC 2.13: DSCP_TRIMMED
TRIMMED_LASTHOP = 64  # MRC 2.13: DSCP_TRIMMED_LASTHOP
UNSTAMPED = 128  # row 31: a PETH or ERTH whose ftype says that there is no time stamp

# traffic classes, strict priority, row 15
CLASS_CONTROL = 0
CLASS_RETRANSMIT = 1
CLASS_DATA = 2

# MRC 2.6: SACK `m`
M_NONE = 0
M_SKIP_ONCE = 1
M_ALWAYS_SKIP = 2

# MRC 2.8: NACK reasons
NACK_TRIMMED = 0x01
NACK_TRIMMED_LASTHOP = 0x02
NACK_NO_BITMAP = 0x06
NACK_NO_PKT_BUFFER = 0x07
NACK_NO_RESOURCE = 0x0A
NACK_PSN_OOR_WINDOW = 0x0B
NACK_UNEXP_EVENT = 0x19
NACKS_OF_RESOURCES = (NACK_NO_BITMAP, NACK_NO_PKT_BUFFER, NACK_NO_RESOURCE, NACK_PSN_OOR_WINDOW)

# AETH syndromes (IBTA 9.7.5.2.1; "no credit" is MRC 1.2)
AETH_ACK = 0x1F
AETH_NAK_INVALID_REQUEST = 0x61
AETH_NAK_ACCESS_ERROR = 0x62

# MRC 2.10: endpoint operations
OP_PORT_STATUS = 0
OP_EV_PROBE = 1
ENDPOINT_QPN = 2
SAME_EV = 1  # of the vendor byte of an EV probe, our own: the answer takes the EV of the probe

PSN_MASK = 0xFF_FFFF
PSN_HALF = 0x80_0000
RCVD_UNIT_BYTES = 256  # MRC 2.7: unit of rcvd_bytes
TIMESTAMP_UNIT_PS = 128_000  # MRC 2.5
TIMESTAMP_MASK = 0xFFFF
MPR_UNIT = 128  # MRC 1.5
RESTORE = 0x80  # of `penalty`: take back what the penalties before have cut
PENALTY_MAX = 0x7F

PACKET = np.dtype(
    [
        ("va", "i8"),  # RETH
        ("dma_len", "i8"),  # RETH, of the whole message (32 bit on the wire)
        ("bitmap", "u8"),  # SETH
        ("dst_qpn", "i4"),
        # BTH; of endpoint operations the request id, of a NACK the nack_psn, of a SACK cack_psn, of
        # an ACK the last packet of the newest message that it covers (row 30)
        ("psn", "i4"),
        ("cack_psn", "i4"),  # SETH
        ("rcvd_units", "i4"),  # CC_STATE rcvd_bytes, units of 256 B modulo 2^24
        ("ev", "u4"),  # the EV that it is sent on: its path
        ("entropy", "u4"),  # the EV of the packet that this one answers
        ("rkey", "u4"),  # RETH
        ("imm", "u4"),  # ImmDt; ERTH port mask
        ("src", "i4"),  # address of the endpoint that sent it
        ("dst", "i4"),  # address of the endpoint that it is for
        ("msn", "i4"),  # METH 16 bit; AETH 24 bit
        ("payload_len", "i2"),
        ("rqmsn", "u2"),  # METH
        ("ack_offset", "i2"),  # SETH, signed 16 bit, or the probe id; PETH probe_id
        ("sack_offset", "i2"),  # SETH
        ("ooo_count", "i2"),  # CC_STATE, 15 bit
        ("timestamp", "u2"),  # TSETH of the packet, or reflected, 16 bit of 128 ns
        ("opcode", "u1"),
        ("flag_bits", "u1"),
        ("klass", "i1"),
        ("plane", "i1"),  # the port that it leaves through, and the plane of its path
        ("m", "u1"),  # SETH; ERTH vendor
        ("mpr", "u1"),  # SETH, units of 128; 0 without dynamic MPR
        ("penalty", "u1"),  # CC_STATE: rcv_cwnd_pen, 0..127, and restore_cwnd (`RESTORE`)
        ("reason", "u1"),  # NETH; AETH syndrome; ERTH op
    ],
    align=True,
)
# Fields that every packet has; the others are zero unless its opcode uses them.
EVERY_PACKET = {"ev", "src", "dst", "dst_qpn", "opcode", "klass", "plane"}
