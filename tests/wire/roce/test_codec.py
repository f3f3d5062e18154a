"""RoCEv2 packets to bytes and back: two readers that agree on any bytes, and scapy beside them."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.engine import packet
from openmrc.jit import records
from openmrc.wire import DecodedFrame, decode_roce, frame
from openmrc.wire.roce import codec
from openmrc.wire.roce import layout as roce_layout
from openmrc.wire.roce import opcodes as roce
from openmrc.wire.roce.framing import ROCE_FRAMING
from tests.wire.roce.refused import BTH_AT, REFUSED, UDP_AT
from tests.wire.roce.roce_frames import DATA, a_frame, a_packet, an_envelope, both, read_only
from tests.wire.vectors import array, values

REPEATABLE = settings(derandomize=True, database=None, deadline=None, max_examples=400)
BESIDE_THE_FRAME = 24  # bytes: FCS 4, preamble 8, gap 12


@pytest.mark.parametrize("opcode", roce.WRITTEN, ids=roce_layout.OPCODES.get)
def test_a_frame_comes_back_as_it_was_and_is_as_long_as_it_is_charged(opcode: int) -> None:
    data = a_frame(opcode)
    found = both(data)
    assert isinstance(found, DecodedFrame)
    assert found.notes == ()
    p, e = records(1, packet.PACKET)[0], records(1, frame.ENVELOPE)[0]
    assert codec.decode(array(data), len(data), p, e, 1) == frame.OK
    assert values(p, packet.PACKET) == values(a_packet(opcode), packet.PACKET)
    sent = an_envelope()
    for name in ("dst_mac", "src_mac", "inner_src", "inner_dst"):
        assert e[name].tobytes() == sent[name].tobytes()
    assert (int(e.hop_limit), int(e.pkey), int(e.ipv4), int(e.srv6)) == (61, 0xFFFF, 1, 0)
    payload = int(a_packet(opcode).payload_len)
    charged = ROCE_FRAMING.header_bytes[opcode] + payload
    assert len(data) + BESIDE_THE_FRAME == charged + (-payload & 3)


@pytest.mark.parametrize("payload_len", [0, 1, 2, 3, 4, 4096])
@pytest.mark.parametrize("opcode", DATA)
def test_a_payload_is_padded_to_words(opcode: int, payload_len: int) -> None:
    data = a_frame(opcode, payload_len=payload_len)
    found = both(data)
    assert isinstance(found, DecodedFrame)
    assert found["BTH"]["pad"] == -payload_len & 3
    assert found.payload == bytes(payload_len)
    charged = ROCE_FRAMING.header_bytes[opcode] + payload_len
    assert len(data) + BESIDE_THE_FRAME == charged + (-payload_len & 3)


SIZES = {  # bytes of the headers between BTH and payload, as IBTA's table 38 lists them
    "RC_SEND_MIDDLE": 0,
    "RC_SEND_ONLY_IMM": 4,
    "RC_SEND_LAST_INVALIDATE": 4,
    "RC_READ_REQUEST": 16,
    "RC_READ_RESPONSE_MIDDLE": 0,
    "RC_READ_RESPONSE_LAST": 4,
    "RC_ATOMIC_ACKNOWLEDGE": 12,
    "RC_COMPARE_SWAP": 28,
    "RC_FLUSH": 20,
    "UC_SEND_ONLY": 0,
    "UC_WRITE_ONLY_IMM": 20,
    "RD_WRITE_ONLY_IMM": 32,
    "RD_ACKNOWLEDGE": 8,
    "RD_READ_RESPONSE_MIDDLE": 4,
    "UD_SEND_ONLY": 8,
    "UD_SEND_ONLY_IMM": 12,
    "XRC_WRITE_FIRST": 20,
    "XRC_READ_RESPONSE_ONLY": 4,
}


@pytest.mark.parametrize("opcode", roce_layout.OPCODES, ids=roce_layout.OPCODES.get)
def test_every_opcode_of_others_is_read(opcode: int) -> None:
    most = roce_layout.payload_bytes_max(opcode)
    payload = bytes(range(min(most, 13)))
    data = read_only(opcode, payload, va=0x1000, rkey=7, dma_length=13, imm=9, syndrome=0x1F)
    found = both(data)
    assert isinstance(found, DecodedFrame)
    assert (found.payload, found.notes) == (payload, ())
    name = roce_layout.OPCODES[opcode]
    assert SIZES.get(name, found.payload_at - BTH_AT - 12) == found.payload_at - BTH_AT - 12
    too_much = read_only(opcode, bytes(most + 4))
    assert both(too_much) == (frame.PAYLOAD_LENGTH, found.payload_at)


def test_a_full_packet_takes_what_the_page_says() -> None:
    assert len(a_frame(roce.WRITE_MIDDLE, payload_len=4096)) + BESIDE_THE_FRAME == 4178
    assert len(a_frame(roce.WRITE_FIRST, payload_len=4096)) + BESIDE_THE_FRAME == 4194


def test_class_and_marks_are_in_the_ip_header() -> None:
    def tos(opcode: int, ect: int, flag_bits: int) -> tuple[int, int]:
        ip = decode_roce(a_frame(opcode, ect, flag_bits=flag_bits))["IPv4"]
        return ip["dscp"], ip["ecn"]

    assert tos(roce.WRITE_MIDDLE, 1, 0) == (26, 2)
    assert tos(roce.WRITE_MIDDLE, 1, packet.CE) == (26, 3)
    assert tos(roce.WRITE_MIDDLE, 0, 0) == (26, 0)
    assert tos(roce.ACKNOWLEDGE, 1, 0) == (48, 0)
    assert tos(roce.CNP, 1, 0) == (48, 0)


def test_a_cnp_says_so_twice_and_reserves_sixteen_bytes() -> None:
    found = decode_roce(a_frame(roce.CNP, psn=0))
    assert (found["BTH"]["becn"], found["BTH"]["fecn"]) == (1, 0)
    assert found.frame[found.payload_at - 16 : found.payload_at] == bytes(16)
    assert [view.name for view in found.headers][3:] == ["BTH", "CNP", "iCRC"]


@pytest.mark.parametrize("opcode", roce.WRITTEN, ids=roce_layout.OPCODES.get)
def test_the_icrc_is_zlibs_over_the_masked_packet(opcode: int) -> None:
    """By the words of IBTA A17.3, with offsets of IPv4, UDP and BTH written down here."""
    data = bytearray(a_frame(opcode))
    for at in (1, 8, 10, 11, 20 + 6, 20 + 7, 28 + 4):  # TOS, TTL, sums, and BTH's fifth byte
        data[14 + at] = 0xFF
    right = zlib.crc32(bytes([0xFF] * 8) + data[14:-4])
    assert a_frame(opcode)[-4:] == right.to_bytes(4, "little")


@pytest.mark.parametrize("opcode", roce.WRITTEN, ids=roce_layout.OPCODES.get)
def test_scapy_reads_the_same_and_computes_the_same_icrc(opcode: int) -> None:
    scapy = pytest.importorskip(
        "scapy.contrib.roce", reason="scapy is not installed: no comparison"
    )
    from scapy.layers.inet import IP
    from scapy.layers.l2 import Ether

    data = a_frame(opcode)
    udp = Ether(data)[IP].payload
    layer = scapy.BTH(bytes(udp.payload))  # whatever other layers are bound to the port
    assert (layer.opcode, layer.psn, layer.dqpn) == (opcode, 0x123456, 0xABCDEF)
    assert (layer.becn, layer.fecn, layer.padcount) == (
        int(opcode == roce.CNP),
        0,
        3 if opcode in DATA else 0,
    )
    if opcode == roce.ACKNOWLEDGE:
        aeth = layer[scapy.AETH]
        assert (aeth.syndrome, aeth.msn) == (roce.AETH_NAK_SEQUENCE, 0x89ABCD)
    udp.remove_payload()
    udp.add_payload(layer)
    assert layer.compute_icrc(b"") == data[-4:]
    ip = Ether(data)[IP]
    sum_ = ip.chksum
    del ip.chksum
    assert IP(bytes(ip)).chksum == sum_


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"opcode": 0x04}, frame.OPCODE),  # SEND Only, which our NICs do not send
        ({"opcode": packet.WRITE_ONLY}, frame.OPCODE),  # MRC's
        ({"opcode": roce.ACKNOWLEDGE, "payload_len": 1}, frame.PAYLOAD_LENGTH),
        ({"opcode": roce.WRITE_ONLY, "payload_len": -1}, frame.PAYLOAD_LENGTH),
        ({"opcode": roce.WRITE_ONLY, "payload_len": 8193}, frame.PAYLOAD_LENGTH),
        ({"opcode": roce.WRITE_ONLY, "payload_len": 4000}, frame.TOO_SHORT),
    ],
)
def test_what_is_no_frame_is_not_written(fields: dict[str, int], code: int) -> None:
    out = np.zeros(4000, np.uint8)
    assert codec.encode(a_packet(**fields), an_envelope(), 1, out) == -code
    assert not out.any()


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_named_with_its_place(name: str) -> None:
    data, code, at = REFUSED[name]
    assert both(data) == (code, at)


# Hostile bytes


def with_lengths(data: bytearray) -> bytes:
    """Right lengths and sum in IPv4 and UDP, so that what stands behind is looked at."""
    if len(data) >= BTH_AT:
        data[16:18] = (len(data) - 14).to_bytes(2, "big")
        data[UDP_AT + 4 : UDP_AT + 6] = (len(data) - UDP_AT).to_bytes(2, "big")
        data[24:26] = b"\0\0"
        words = int.from_bytes(data[14:34], "big")
        data[24:26] = (-words % 0xFFFF).to_bytes(2, "big")
    return bytes(data)


@REPEATABLE
@given(
    opcode=st.sampled_from(sorted(roce_layout.OPCODES)),
    payload=st.integers(0, 40),
    changes=st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), max_size=4),
    end=st.integers(0, 140),
    right=st.booleans(),
)
def test_both_decoders_give_the_same_verdict_on_any_bytes(
    opcode: int, payload: int, changes: list[tuple[int, int]], end: int, right: bool
) -> None:
    least = min(payload, roce_layout.payload_bytes_max(opcode))
    data = bytearray(read_only(opcode, bytes(range(least)), va=1 << 63, syndrome=0x60))
    for at, value in changes:
        data[at % len(data)] = value
    data = data[:end]
    whole = with_lengths(data) if right else bytes(data)
    both(whole)
    found = both(whole, check=False)
    if isinstance(found, DecodedFrame):
        assert found.as_dict()["payload_length"] == found.payload_length


def test_noise_is_refused_alike() -> None:
    dice = random.Random(11)
    for _ in range(2000):
        both(dice.randbytes(dice.randrange(120)), check=False)
    seen = set()
    for _ in range(2000):
        tail = dice.randbytes(dice.randrange(80))
        found = both(with_lengths(bytearray(a_frame(0x0A)[: BTH_AT + 1] + tail)), check=False)
        seen.add(found[0] if isinstance(found, tuple) else 0)
    assert {0, frame.TRANSPORT_VERSION, frame.EXTENSION_LENGTH, frame.PAD} <= seen


def test_a_refused_frame_changes_nothing_but_the_place() -> None:
    p, e = a_packet(roce.WRITE_FIRST), an_envelope()
    before = p.tobytes(), values(e, frame.ENVELOPE)
    data = REFUSED["iCRC"][0]
    assert codec.decode(array(data), len(data), p, e, 1) == frame.ICRC
    assert p.tobytes() == before[0]
    assert values(e, frame.ENVELOPE) == before[1] | {"error_at": BTH_AT + 16}
