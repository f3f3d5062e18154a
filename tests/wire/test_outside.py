"""Tags, cooked headers and mirrors' tunnels are taken off, and said."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest

from openmrc.errors import InputError
from openmrc.wire import pcap
from openmrc.wire.outside import (
    LAYERS_MAX,
    LINK_IPV4,
    LINK_IPV6,
    LINK_RAW,
    LINK_SLL,
    LINK_SLL2,
    unwrap,
)
from tests.wire.vectors import VECTORS, frame_of

FRAME = frame_of(VECTORS["sack"])
V4 = frame_of(VECTORS["ipv4"])
MACS = bytes(range(1, 13))


def tagged(frame: bytes, *tags: tuple[int, int]) -> bytes:
    """The frame with tags (type, value), outermost first."""
    front = b"".join(pack("!HH", kind, value) for kind, value in tags)
    return frame[:12] + front + frame[12:]


def tunnel(
    protocol: int, flags: int, more: bytes, inside: bytes, v6: bool = False, options: bytes = b""
) -> bytes:
    """A mirror's tunnel: GRE with `more` behind its first four bytes."""
    body = options + pack("!HH", flags, protocol) + more + inside
    if v6:
        following = 60 if options else 47
        ip = pack("!IHBB", 6 << 28, len(body), following, 64)
        return MACS + b"\x86\xdd" + ip + bytes(32) + body
    front = pack("!BBHHHBBHII", 0x45, 0, 20 + len(body), 0, 0, 64, 47, 0, 0x0A00_0001, 0x0A00_0002)
    return MACS + b"\x08\x00" + front + body


SEQUENCE, KEY, CHECKSUM = 0x1000, 0x2000, 0x8000
AROUND = {
    "nothing": (FRAME, ()),
    "VLAN": (tagged(FRAME, (0x8100, 0x6064)), ("VLAN 100",)),
    "QinQ": (tagged(FRAME, (0x88A8, 7), (0x8100, 100)), ("S-VLAN 7", "VLAN 100")),
    "before QinQ": (tagged(FRAME, (0x9100, 7)), ("S-VLAN 7",)),
    "ERSPAN I": (tunnel(0x88BE, 0, b"", FRAME), ("ERSPAN I",)),
    "ERSPAN II": (tunnel(0x88BE, SEQUENCE, bytes(4) + b"\x10" + bytes(7), FRAME), ("ERSPAN II",)),
    "ERSPAN III": (
        tunnel(0x22EB, SEQUENCE, bytes(4) + b"\x20" + bytes(11), FRAME),
        ("ERSPAN III",),
    ),
    "ERSPAN III, platform": (
        tunnel(
            0x22EB, SEQUENCE, bytes(4) + b"\x20" + bytes(10) + b"\x01" + bytes(8), FRAME, v6=True
        ),
        ("ERSPAN III",),
    ),
    "GRE": (tunnel(0x6558, CHECKSUM | KEY, bytes(8), FRAME, v6=True), ("GRE",)),
    "of Spectrum": (tunnel(0x8949, 0, bytes(22), FRAME), ("GRE 0x8949",)),
    "behind options of Linux": (
        tunnel(0x6558, 0, b"", FRAME, v6=True, options=b"\x2f\0\4\1\4\1\0\0"),
        ("GRE",),
    ),
    "a mirror of a tagged frame": (
        tagged(tunnel(0x88BE, 0, b"", tagged(FRAME, (0x8100, 5))), (0x8100, 9)),
        ("VLAN 9", "ERSPAN I", "VLAN 5"),
    ),
}


@pytest.mark.parametrize("name", AROUND)
def test_the_frame_within_is_found(name: str) -> None:
    data, said = AROUND[name]
    assert unwrap(data) == (FRAME, len(data) - len(FRAME), said)


def test_ip_in_gre_becomes_a_frame() -> None:
    for kind, frame in ((0x86DD, FRAME), (0x0800, V4)):
        found = unwrap(tunnel(kind, 0, b"", frame[14:]))
        assert (found.data, found.said) == (bytes(12) + frame[12:], ("GRE",))


def test_a_fragment_is_no_tunnel() -> None:
    """Behind the first one what looks like a tunnel's header is the middle of a frame."""
    data = tunnel(0x88BE, 0, b"", FRAME)
    for fragment, said in ((0x2000, ("ERSPAN I",)), (0x2001, ()), (0x0001, ())):
        assert unwrap(data[:20] + fragment.to_bytes(2) + data[22:]).said == said


COOKED = {
    LINK_IPV4: lambda f: f[14:],
    LINK_IPV6: lambda f: f[14:],
    LINK_SLL: lambda f: pack("!HHH", 0, 1, 6) + f[6:12] + bytes(2) + f[12:],
    LINK_SLL2: lambda f: (
        f[12:14] + bytes(2) + pack("!IHBB", 3, 1, 0, 6) + f[6:12] + bytes(2) + f[14:]
    ),
    LINK_RAW: lambda f: f[14:],
}


@pytest.mark.parametrize("link", COOKED)
@pytest.mark.parametrize("frame", [FRAME, V4], ids=["IPv6", "IPv4"])
def test_a_cooked_packet_becomes_a_frame(link: int, frame: bytes) -> None:
    found = unwrap(COOKED[link](frame), link)
    source = frame[6:12] if link in (LINK_SLL, LINK_SLL2) else bytes(6)
    assert found.data == bytes(6) + source + frame[12:]


@pytest.mark.parametrize("link", [1, *COOKED])
def test_any_bytes_are_taken_as_they_come(link: int) -> None:
    """Every beginning of everything above; what is too short stays what it is."""
    for data, _ in AROUND.values():
        for n in range(len(data)):
            found = unwrap(data[:n], link)
            assert len(found.data) == n - found.removed


def test_tags_have_an_end() -> None:
    data = tagged(FRAME, *[(0x8100, 1)] * (LAYERS_MAX + 1))
    assert len(unwrap(data).said) == LAYERS_MAX


def classic(path: Path, link: int, data: bytes) -> Path:
    path.write_bytes(
        pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, link)
        + pack("<IIII", 1, 2, len(data), len(data) + 10)
        + data
    )
    return path


def test_a_capture_gives_frames_and_says_what_was_around_them(tmp_path: Path) -> None:
    data = COOKED[LINK_SLL](tagged(FRAME, (0x8100, 100)))
    with pcap.read(classic(tmp_path / "any.pcap", LINK_SLL, data)) as reader:
        [one] = reader
    assert one.data[6:] == FRAME[6:]
    assert one.outside == ("cooked", "VLAN 100")
    assert one.original_length == len(FRAME) + 10  # what was not captured is still missing
    with pytest.raises(InputError, match="link type 127"):
        pcap.read(classic(tmp_path / "air.pcap", 127, data))
