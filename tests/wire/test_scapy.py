"""The scapy layers, held against the published vectors, the plain view and the compiled codec."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.packet import Packet

from openmrc import wire
from openmrc.engine import packet
from openmrc.fabric.dscp import TRIM_LENGTHS
from openmrc.wire import layout
from openmrc.wire import scapy as mrc
from openmrc.wire.layout import Header
from openmrc.wire.scapy import (
    IP,
    LAYERS,
    MRC_BTH,
    MRC_METH,
    MRC_RETH,
    MRC_SETH,
    MRC_TSETH,
    UDP,
    Ether,
    IPv6,
    IPv6ExtHdrSegmentRouting,
    MRC_iCRC,
    Raw,
    get_ev,
    is_trimmed,
    set_ev,
    trim_lengths,
    use_dscps,
)
from tests.wire.frames import SHAPES, any_frame, sent, trimmed
from tests.wire.vectors import ACCEPTED, ELSEWHERE, REFUSED, VECTORS, frame_of, swapped

MACS: dict[str, Any] = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}
NIC: dict[str, Any] = {"src": "fd00::107", "dst": "fd00::209"}
CARRIER: dict[str, Any] = {"src": "fd00::107", "dst": "2001:db8:4000:2003:4002:1009::"}
ETHERNET_BYTES = layout.ETHERNET.size_bytes  # of less, Scapy itself makes an exception
BELOW: dict[str, Callable[[], Packet]] = {
    "ipv6": lambda: IPv6(**NIC),
    "ipv4": lambda: IP(src="10.0.1.7", dst="10.0.2.9"),
    "srv6": lambda: IPv6(**CARRIER) / IPv6(**NIC),
    "srh": lambda: (
        IPv6(**CARRIER) / IPv6ExtHdrSegmentRouting(addresses=["2001:db8:4002:1009::"]) / IPv6(**NIC)
    ),
}


def on(shape: str, transport: Packet, **udp: Any) -> Packet:
    """A frame around BTH and what follows."""
    return Ether(**MACS) / BELOW[shape]() / UDP(**udp) / transport


def write(payload: bytes = b"", **bth: Any) -> Packet:
    return MRC_BTH(**bth) / MRC_METH() / MRC_RETH() / payload


def built_again(frame: Packet) -> bytes:
    """The frame's bytes from its fields alone, without what Scapy kept of those dissected."""
    for layer in frame.iterpayloads():
        layer.raw_packet_cache = None
    return bytes(frame)


def mrc_layers(frame: Packet) -> dict[str, Packet]:
    """The layers of MRC by the header's name."""
    return {layer.header.name: layer for layer in frame.iterpayloads() if hasattr(layer, "header")}


def fields(layer: Packet) -> dict[str, int]:
    """A layer's fields, but reserved ones."""
    return {f.name: layer.getfieldval(f.name) for f in layer.header.fields if f.name != "reserved"}


def check_values(data: bytes) -> None:
    """A frame says the same to scapy and to the plain view."""
    plain, frame = wire.decode(data), Ether(data)
    mine = {view.name: view.fields for view in plain.headers if view.name in LAYERS}
    assert {name: fields(layer) for name, layer in mrc_layers(frame).items()} == mine
    assert bytes(frame) == data
    assert get_ev(frame) == plain.ev
    assert is_trimmed(frame[MRC_BTH]) == plain.trimmed
    if not plain.trimmed:
        assert (frame[Raw].load if Raw in frame else b"") == plain.payload


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_vector_has_the_same_values_for_scapy(name: str) -> None:
    data = frame_of(VECTORS[name])
    check_values(data)
    assert get_ev(Ether(data), swapped=swapped(VECTORS[name])) == VECTORS[name]["ev"]
    assert built_again(Ether(data)) == data


def test_row_37_the_dscps_of_a_fabric_are_told() -> None:
    vector = ELSEWHERE["classes-trimmed-lasthop"]
    frame = bytes.fromhex(vector["frame"])
    assert MRC_iCRC in Ether(frame)
    use_dscps(**vector["dscps"])
    try:
        seen = Ether(frame)
        assert is_trimmed(seen[MRC_BTH])
        assert MRC_iCRC not in seen
    finally:
        use_dscps()
    assert MRC_iCRC in Ether(frame)


@pytest.mark.parametrize("name", [name for name in ACCEPTED if VECTORS[name]["canonical"]])
def test_what_scapy_works_out_is_what_a_vector_has(name: str) -> None:
    frame = Ether(frame_of(VECTORS[name]))
    for layer in frame.iterpayloads():
        for field in ("len", "plen", "chksum", "nh", "proto", "pad", "ts", "padding", "icrc"):
            if field in layer.fields:
                layer.delfieldval(field)
    assert bytes(frame) == frame_of(VECTORS[name])


@pytest.mark.parametrize(
    "name", [name for name in REFUSED if len(frame_of(VECTORS[name])) >= ETHERNET_BYTES]
)
def test_scapy_takes_bytes_that_are_refused(name: str) -> None:
    data = frame_of(VECTORS[name])
    assert bytes(Ether(data)) == data


@settings(max_examples=20)
@given(st.data())
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("opcode", layout.OPCODES)
def test_a_frame_of_the_codec_has_the_same_values_for_scapy(
    opcode: int, shape: str, data: st.DataObject
) -> None:
    p, e = any_frame(lambda least, most: data.draw(st.integers(least, most)), opcode, shape)
    p.payload_len %= 64  # long enough for every pad; scapy is slow
    e.ev_swapped = 0
    frame = bytes(sent(p, e))
    check_values(frame)
    assert built_again(Ether(frame)) == frame


@settings(max_examples=20)
@given(st.data())
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("opcode", layout.OPCODES)
def test_a_frame_of_scapy_has_the_same_values_for_the_decoder(
    opcode: int, shape: str, data: st.DataObject
) -> None:
    """Every field of every header at its full width."""
    fixed = {"opcode": opcode, "tver": 0, "ftype": layout.FTYPE_TIMESTAMP}
    if opcode <= packet.LAST_DATA:
        fixed["ts"] = data.draw(st.integers(0, 1))
    chain = [layout.BTH, *layout.EXTENSIONS[opcode]]
    if not fixed.get("ts") and layout.METH in chain:
        chain.remove(layout.TSETH)
    drawn = {header.name: draw_fields(header, data, fixed) for header in chain}
    del drawn["BTH"]["pad"]
    layers = [LAYERS[name](**values) for name, values in drawn.items()]
    payload = data.draw(st.binary(max_size=9)) if opcode <= packet.LAST_DATA else b""
    transport = layers[0]
    for layer in [*layers[1:], Raw(payload)] if payload else layers[1:]:
        transport /= layer
    frame = bytes(set_ev(on(shape, transport), ev := data.draw(st.integers(0, 2**32 - 1))))

    plain = wire.decode(frame)
    said = {view.name: view.fields for view in plain.headers if view.name in drawn}
    assert said.pop("BTH") == drawn.pop("BTH") | {"pad": -len(payload) % 4}
    assert said == drawn
    assert plain.ev == (ev & 0xFFFF if shape == "ipv4" else ev)
    assert plain.payload == payload
    assert int(plain.record.opcode) == opcode
    check_values(frame)


def draw_fields(header: Header, data: st.DataObject, fixed: dict[str, int]) -> dict[str, Any]:
    drawn = {}
    for field in header.fields:
        if field.name != layout.RESERVED:
            least, most = 0, 2**field.bits - 1
            if field.signed:
                least, most = -(2 ** (field.bits - 1)), 2 ** (field.bits - 1) - 1
            drawn[field.name] = fixed.get(field.name, data.draw(st.integers(least, most)))
    return drawn


@pytest.mark.parametrize("header", layout.HEADERS[layout.HEADERS.index(layout.BTH) : -1])
def test_every_header_of_mrc_is_a_layer_of_its_size(header: Header) -> None:
    layer = LAYERS[header.name]
    assert layer.__name__ == f"MRC_{header.name}"
    assert layer.__name__ in mrc.__all__
    names = [field.name for field in layer.fields_desc]
    wanted = [f.name for f in header.fields]
    assert [name.rstrip("0123456789") for name in names] == [n.rstrip("0123456789") for n in wanted]
    assert len(set(names)) == len(names)
    assert len(layer().self_build()) == header.size_bytes


@pytest.mark.parametrize("length", range(5))
def test_padding_is_added_and_counted(length: int) -> None:
    frame = Ether(bytes(on("srv6", write(bytes(range(length))))))
    assert frame[MRC_BTH].pad == -length % 4
    assert frame[MRC_iCRC].padding == bytes(-length % 4)
    assert len(frame[UDP]) % 4 == 0


def test_a_wrong_pad_and_a_wrong_icrc_are_built_as_asked() -> None:
    with pytest.raises(wire.WireError, match="padding"):
        wire.decode(bytes(on("srv6", write(b"abcd", pad=2))))
    frame = bytes(on("srv6", write(b"abcd") / MRC_iCRC(icrc=0x12345678)))
    assert frame.endswith(b"abcd\x78\x56\x34\x12")
    with pytest.raises(wire.WireError, match="wrong iCRC"):
        wire.decode(frame)


def test_after_a_change_the_icrc_is_worked_out_anew_on_request() -> None:
    frame = Ether(bytes(on("srv6", write(b"abcde"))))
    frame[MRC_METH].msn = 99
    with pytest.raises(wire.WireError, match="wrong iCRC"):
        wire.decode(bytes(frame))
    del frame[MRC_iCRC].icrc
    assert wire.decode(bytes(frame))["METH"]["msn"] == 99


def test_a_time_stamp_sets_the_bit_that_announces_it() -> None:
    frame = on("ipv4", MRC_BTH() / MRC_METH() / MRC_TSETH(tx_timestamp=7) / MRC_RETH())
    plain = wire.decode(bytes(frame))
    assert (plain["BTH"]["ts"], plain["TSETH"]["tx_timestamp"]) == (1, 7)
    assert wire.decode(bytes(on("ipv4", write())))["BTH"]["ts"] == 0


@pytest.mark.parametrize("opcode", [op for op in layout.OPCODES if op > packet.LAST_DATA])
def test_the_layer_behind_the_bth_says_the_opcode(opcode: int) -> None:
    transport = MRC_BTH()
    for header in layout.EXTENSIONS[opcode]:
        transport /= LAYERS[header.name]()
    assert wire.decode(bytes(on("srv6", transport)))["BTH"]["opcode"] == opcode


def test_without_ip_below_there_is_no_icrc_to_work_out() -> None:
    assert bytes(MRC_BTH() / MRC_SETH() / mrc.MRC_CC_STATE())[-4:] == bytes(4)


def test_row_02_a_swapped_ev() -> None:
    frame = set_ev(on("srv6", write()), 0x0002_C003, swapped=True)
    assert frame[UDP].sport == 2
    assert [layer.fl for layer in frame.iterpayloads() if isinstance(layer, IPv6)] == [0xC003] * 2
    assert get_ev(frame, swapped=True) == 0x0002_C003
    assert wire.decode(bytes(frame), ev_swapped=True).ev == 0x0002_C003


@pytest.mark.parametrize("shape", SHAPES)
def test_row_21_a_trimmed_frame_has_no_icrc(shape: str) -> None:
    whole = bytes(on(shape, write(bytes(300), psn=5)))
    frame = Ether(bytes(trimmed(whole)))
    assert is_trimmed(frame[MRC_BTH])
    assert (frame[MRC_BTH].psn, MRC_iCRC in frame) == (5, False)
    assert len(bytes(frame)) == 14 + (256 if shape == "srh" else 128)
    assert built_again(frame) == bytes(trimmed(whole))


@pytest.mark.parametrize("lengths", TRIM_LENGTHS)
@pytest.mark.parametrize("shape", SHAPES)
def test_row_21_lengths_of_a_trimmed_frame(shape: str, lengths: str) -> None:
    whole = bytes(on(shape, write(bytes(300), psn=5)))
    data = bytes(trimmed(whole, lengths=TRIM_LENGTHS.index(lengths)))
    seen = Ether(data)
    assert is_trimmed(seen[MRC_BTH])
    assert (seen[MRC_BTH].psn, MRC_iCRC in seen, trim_lengths(seen)) == (5, False, lengths)
    assert bytes(seen) == data
    assert trim_lengths(Ether(whole)) is None


def test_a_trimmed_frame_can_be_built() -> None:
    below = IPv6(**NIC, tc=layout.DSCP_TRIMMED_LASTHOP << 2)
    frame = Ether(**MACS) / below / UDP() / write(bytes(48), psn=5)
    plain = wire.decode(bytes(frame))
    assert (plain.trimmed, plain["BTH"]["psn"], len(bytes(frame))) == (True, 5, 14 + 128)


@pytest.mark.parametrize("port", [layout.UDP_PORT, layout.UDP_PORT_ALTERNATIVE])
def test_row_01_both_ports_are_dissected(port: int) -> None:
    assert MRC_BTH in Ether(bytes(on("srv6", write(), dport=port)))


def run(program: str) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr.strip().rpartition("\n")[2]


ROCE = "import scapy.contrib.roce as roce"
OURS = "from openmrc.wire.scapy import *"


@pytest.mark.parametrize("imports", [(OURS, ROCE), (ROCE, OURS)], ids=["ours first", "roce first"])
def test_beside_roce_each_opcode_goes_to_its_own(imports: tuple[str, str]) -> None:
    told = run(f"""
{imports[0]}
{imports[1]}
M = "02:00:00:00:00:01"
below = Ether(src=M, dst=M) / IPv6(src="::1", dst="::2") / UDP(sport=9, dport=4791)
for opcode in (0x0a, 0x11, 0x81, 0xc6, 0xcb, 0xd1, 0xde, 0xc0):
    frame = Ether(bytes(below / Raw(bytes([opcode]) + bytes(40))))
    print(hex(opcode), MRC_BTH in frame, roce.BTH in frame)
""")
    ours, theirs = "True False", "False True"
    assert told.splitlines() == [
        f"0xa {theirs}",
        f"0x11 {theirs}",
        f"0x81 {theirs}",
        f"0xc6 {ours}",
        f"0xcb {ours}",
        f"0xd1 {ours}",
        f"0xde {ours}",
        f"0xc0 {ours}",
    ]


def test_an_ev_that_looks_like_the_port_of_another_protocol_is_no_matter() -> None:
    told = run("""
M = "02:00:00:00:00:01"
from scapy.layers import dns, ntp, vxlan
from openmrc.wire.scapy import *
below = Ether(src=M, dst=M) / IPv6(src="::1", dst="::2")
for port in (53, 123, 4789):
    frame = below / UDP(sport=port) / MRC_BTH() / MRC_PETH()
    print(MRC_PETH in Ether(bytes(frame)))
""")
    assert told == "True\n" * 3


def test_without_scapy_the_error_says_what_to_install() -> None:
    told = run("import sys\nsys.modules['scapy'] = None\nimport openmrc.wire.scapy")
    error, _, message = told.partition(": ")
    assert error == "openmrc.errors.MissingExtra"
    assert message == "openmrc.wire.scapy needs an extra: pip install 'openmrc[scapy]'"


@given(st.data())
@pytest.mark.parametrize("shape", SHAPES)
def test_a_frame_cut_anywhere_is_dissected(shape: str, data: st.DataObject) -> None:
    opcode = data.draw(st.sampled_from(list(layout.OPCODES)))
    p, e = any_frame(lambda least, most: data.draw(st.integers(least, most)), opcode, shape)
    p.payload_len %= 64
    frame = bytes(sent(p, e))
    cut = frame[: data.draw(st.integers(ETHERNET_BYTES, len(frame)))]
    assert bytes(Ether(cut)) == cut
