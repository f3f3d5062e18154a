"""The plain view: what people read, what programs read as JSON, and captures that are cut short."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from openmrc.engine import packet
from openmrc.jit import records
from openmrc.wire import Packet, WireError, decode, encode, frame
from tests.wire.vectors import ACCEPTED, VECTORS, frame_of

SHOWN = """\
RELIABILITY_SACK, EV 0x01234567, 178 bytes, 0 of payload
Ethernet    dst_mac = 02:00:00:00:00:02  src_mac = 02:00:00:00:00:01  ethertype = 0x86dd (IPv6)
outer IPv6  version = 6  dscp = 46 (CONTROL)  ecn = 0 (Not-ECT)  flow_label = 0x00123
            payload_length = 124  next_header = 43 (Routing)  hop_limit = 64  src = fd00::107
            dst = 2001:db8:4000:2003:4002:1009:: (uSIDs 4000 2003 4002 1009)
SRH         next_header = 41 (IPv6)  hdr_ext_len = 2  routing_type = 4 (SRH)  segments_left = 1
            last_entry = 0  srh_flags = 0  tag = 0  segment = 2001:db8:4002:1009:: (uSIDs 4002 1009)
IPv6        version = 6  dscp = 46 (CONTROL)  ecn = 0 (Not-ECT)  flow_label = 0x00123
            payload_length = 60  next_header = 17 (UDP)  hop_limit = 64  src = fd00::107
            dst = fd00::209
UDP         src_port = 0x4567  dst_port = 4791  length = 60  checksum = 0x0000
BTH         opcode = 0xdc (RELIABILITY_SACK)  se = 0  m = 0  pad = 0  tver = 0  pkey = 0xffff
            dest_qpn = 0x00abcd  a = 0  r = 0  rtx = 0  ts = 0  psn = 66048
SETH        type = 0  nxt = 0  m = 0 (NONE)  pr = 0  ack_psn_offset = 3  entropy = 0x008900ab
            spdcid = 0x1111  dpdcid = 0xabcd  cack_psn = 66048  cc_type = 0  cc_flags = 0  mpr = 0
            sack_offset = 1  sack_bitmap = 0x0000000000000006
CC_STATE    tx_timestamp = 4660  ooo_count = 2  restore_cwnd = 0  rcv_cwnd_pen = 0
            rcvd_bytes = 284280
iCRC        icrc = 0xde96e2bf"""


def vector(name: str) -> Packet:
    return decode(frame_of(VECTORS[name]))


def test_a_packet_shows_itself_header_by_header() -> None:
    assert vector("sack-srh").show() == SHOWN


def test_what_is_unusual_is_said_below() -> None:
    told = vector("trimmed-lasthop-srh").show().splitlines()
    assert told[0] == "RDMA_WRITE_ONLY, EV 0x01234567, 270 bytes, 0 of payload, trimmed"
    assert told[-1] == "note: trimmed: 108 bytes are left behind the headers"
    assert "dscp = 16 (TRIMMED_LASTHOP)" in told[2]


def test_a_carrier_is_spelled_up_to_its_last_usid() -> None:
    assert "(uSIDs 4000 2003 8001 2005 4002 1009)" in vector("carrier-full").show()
    assert "(uSIDs 1009)" in vector("carrier-last").show()


def test_a_packet_as_json_has_every_field_by_its_name() -> None:
    told = json.loads(json.dumps(vector("write-last-imm").as_dict()))
    assert list(told) == [
        *("length", "headers", "ev", "trimmed", "icrc_ok", "payload_at", "payload_length", "notes")
    ]
    assert told["length"] == 162
    assert told["notes"] == []
    headers = told["headers"]
    assert list(headers) == [
        *("Ethernet", "outer IPv6", "IPv6", "UDP"),
        *("BTH", "METH", "TSETH", "RETH", "ImmDt", "iCRC"),
    ]
    assert headers["Ethernet"] == {
        "dst_mac": "02:00:00:00:00:02",
        "src_mac": "02:00:00:00:00:01",
        "ethertype": 0x86DD,
        "ethertype_name": "IPv6",
    }
    assert headers["outer IPv6"]["dst"] == "2001:db8:4000:2003:4002:1009::"
    assert headers["outer IPv6"]["dscp_name"] == "TRIMMABLE"
    assert headers["BTH"]["opcode_name"] == "RDMA_WRITE_LAST_IMM"
    assert headers["RETH"] == {"va": "0x7f0000001000", "rkey": 0x0BADCAFE, "dma_length": 16}
    assert vector("ipv4").as_dict()["headers"]["IPv4"]["src"] == "10.0.1.7"


def test_a_header_is_found_by_its_name() -> None:
    found = vector("srv6")
    assert (found["outer IPv6"].offset, found["IPv6"].offset) == (14, 54)
    assert found["BTH"]["psn"] == 0x01_0203
    assert found["BTH"].at("psn") == found["BTH"].offset + 9
    with pytest.raises(KeyError, match="SRH"):
        found["SRH"]


def test_one_of_two_ipv6_headers_is_the_outer_one_and_a_single_one_is_not() -> None:
    assert [view.name for view in vector("plain-ipv6").headers][:3] == ["Ethernet", "IPv6", "UDP"]


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("sack-reserved-bits", "SETH: reserved bits set"),
        ("sack-reserved-bits", "CC_STATE: reserved bits set"),
        ("bytes-behind", "6 bytes behind the IP packet"),
        (
            "flow-labels-differ",
            "the flow labels of the outer and the inner header differ; the inner one counts",
        ),
        ("trimmed", "trimmed: 4 bytes are left behind the headers"),
    ],
)
def test_a_note_says_what_is_unusual(name: str, note: str) -> None:
    assert note in vector(name).notes


def test_a_usual_packet_needs_no_note() -> None:
    noted = {name for name in ACCEPTED if vector(name).notes}
    assert noted == {
        *("reserved-bits", "bytes-behind", "sack-reserved-bits", "nack-vendor"),
        *("endpoint-reserved-bits", "flow-labels-differ"),
        *(name for name in ACCEPTED if ACCEPTED[name]["trimmed"]),
    }


def test_the_payload_comes_without_its_padding() -> None:
    assert vector("pad-3").payload == bytes([0, 1, 2, 3, 4])
    assert vector("no-payload").payload == b""
    assert vector("trimmed").payload == b""


def test_a_wrong_icrc_is_refused_or_reported() -> None:
    data = frame_of(VECTORS["write-only"])
    wrong = data[:-1] + bytes([data[-1] ^ 1])
    with pytest.raises(WireError, match="byte 154: wrong iCRC") as caught:
        decode(wrong)
    assert (caught.value.code, caught.value.offset) == (frame.ICRC, 154)
    assert caught.value.reason == "wrong iCRC"
    found = decode(wrong, check=False)
    assert found.icrc_ok is False
    (note,) = found.notes
    assert note.startswith("wrong iCRC: 0x")
    assert decode(data).icrc_ok is True
    assert vector("trimmed").icrc_ok is None


def test_a_capture_that_is_cut_short_keeps_its_headers() -> None:
    data = frame_of(VECTORS["payload-256"])
    found = decode(data[:150], length=len(data))
    assert found.notes == ("cut short by the capture: 150 of 398 bytes",)
    assert (found.length, found.payload_length, found.icrc_ok) == (398, 256, None)
    assert found.payload == bytes(range(12))
    whole = decode(data)
    assert found.headers == whole.headers[:-1]
    assert found.record == whole.record
    assert found.envelope == whole.envelope
    with pytest.raises(WireError, match="byte 18: the IP length does not fit the frame"):
        decode(data[:150])


def test_a_capture_without_the_icrc_keeps_the_payload() -> None:
    data = frame_of(VECTORS["payload-256"])
    found = decode(data[:-1], length=len(data))
    assert (found.payload, found.icrc_ok) == (bytes(range(256)), None)


def test_a_capture_must_hold_the_headers() -> None:
    data = frame_of(VECTORS["payload-256"])
    with pytest.raises(WireError, match="byte 122: the frame ends within a header"):
        decode(data[:137], length=len(data))
    assert decode(data[:138], length=len(data)).payload == b""


def test_a_length_below_what_is_there_says_nothing() -> None:
    data = frame_of(VECTORS["write-only"])
    assert decode(data, length=10) == decode(data)


def test_a_length_beyond_all_bounds_costs_no_memory() -> None:
    data = frame_of(VECTORS["write-only"])
    found = decode(data, length=1 << 60)
    assert int(found.record.psn) == 0x01_0203
    assert found.icrc_ok is True


def test_decoding_needs_no_compiled_code() -> None:
    program = (
        "import sys; from openmrc.wire import decode;"
        f" print(decode(bytes.fromhex('{VECTORS['write-only']['frame']}')).show());"
        " assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_a_payload_is_continued_with_zeros() -> None:
    found = vector("write-only")
    again = decode(encode(found.record, found.envelope, b"\x11\x22"))
    assert again.payload == b"\x11\x22" + bytes(14)


def test_a_record_that_says_trimmed_is_sent_trimmed() -> None:
    found = vector("payload-256")
    for flag, name in (
        (packet.TRIMMED, "trimmed"),
        (packet.TRIMMED_LASTHOP, "trimmed-lasthop"),
    ):
        p = records(1, packet.PACKET)
        p[0] = found.record
        p[0].flag_bits = flag
        assert encode(p[0], found.envelope, found.payload) == frame_of(VECTORS[name])


def test_records_that_are_no_frame_are_refused() -> None:
    p, e = records(1, packet.PACKET), records(1, frame.ENVELOPE)
    p[0], e[0] = vector("write-only").record, vector("write-only").envelope
    p[0].opcode = 0x0A
    with pytest.raises(WireError, match="not an opcode of MRC"):
        encode(p[0], e[0])
    p[0].opcode, p[0].payload_len = packet.WRITE_ONLY, 8193
    with pytest.raises(WireError, match="a payload where there is none, or one longer"):
        encode(p[0], e[0])
    p[0].payload_len = 8192
    assert decode(encode(p[0], e[0])).payload_length == 8192


def test_the_largest_payload_is_the_largest_pmtu() -> None:
    found = vector("write-only")
    p = records(1, packet.PACKET)
    p[0] = found.record
    p[0].payload_len = 8192
    data = bytearray(encode(p[0], found.envelope))
    assert decode(bytes(data)).payload_length == 8192
    longer = data[:-4] + bytes(8)  # four more bytes
    longer[18:20], longer[58:60], longer[98:100] = (
        (int.from_bytes(data[at : at + 2], "big") + 4).to_bytes(2, "big") for at in (18, 58, 98)
    )
    with pytest.raises(WireError, match="byte 138: a payload where there is none, or one longer"):
        decode(bytes(longer), check=False)
