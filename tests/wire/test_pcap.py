"""Capture files: what is written is read, by us and by Wireshark; what is damaged is named."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.wire import pcap
from openmrc.wire.pcap import Captured, Reader, Writer

SECOND = 10**9
REPEATABLE = settings(derandomize=True, database=None, deadline=None, max_examples=300)
ORDERS = pytest.mark.parametrize("order", ["<", ">"])


def read(file: bytes) -> list[Captured]:
    return list(Reader(io.BytesIO(file), "a.pcapng"))


def written(packets: list[tuple[int, int, bytes]], names: list[str], **more: int) -> bytes:
    file = io.BytesIO()
    writer = Writer(file, names, **more)
    for interface, time_ns, data in packets:
        writer.write(interface, time_ns, data)
    return file.getvalue()


# Files that others wrote, built by hand.


def block(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    return pack(order + "II", kind, 12 + len(body)) + body + pack(order + "I", 12 + len(body))


def option(order: str, code: int, value: bytes) -> bytes:
    return pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def section(order: str, options: bytes = b"") -> bytes:
    return block(order, 0x0A0D0D0A, pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1) + options)


def interface(order: str, options: bytes = b"", link: int = 1, snap: int = 0) -> bytes:
    return block(order, 1, pack(order + "HHI", link, 0, snap) + options)


def statistics(order: str, number: int, counts: list[tuple[int, int]]) -> bytes:
    options = b"".join(option(order, code, pack(order + "Q", count)) for code, count in counts)
    return block(order, 5, pack(order + "III", number, 0, 0) + options)


def enhanced(order: str, number: int, units: int, data: bytes, options: bytes = b"") -> bytes:
    head = pack(order + "IIIII", number, units >> 32, units & 0xFFFF_FFFF, len(data), len(data) + 1)
    return block(order, 6, head + data + bytes(-len(data) % 4) + options)


def simple(order: str, original: int, data: bytes) -> bytes:
    return block(order, 3, pack(order + "I", original) + data)


def older(order: str, number: int, units: int, data: bytes) -> bytes:
    head = (order + "HHIIII", number, 7, units >> 32, units & 0xFFFF_FFFF, len(data), len(data))
    return block(order, 2, pack(*head) + data)


def classic(order: str, magic: int, *records: bytes, link: int = 1) -> bytes:
    return pack(order + "IHHIIII", magic, 2, 4, 0, 0, 65535, link) + b"".join(records)


def record(order: str, seconds: int, fraction: int, data: bytes, original: int = 0) -> bytes:
    return pack(order + "IIII", seconds, fraction, len(data), original or len(data)) + data


# Written and read


def test_what_is_written_is_read() -> None:
    names = ["plane 0 t0 1 - t1 0", "nic 3 port 2"]
    packets = [(0, 0, b""), (1, 5, b"a"), (0, 2**32, b"abcde"), (1, 2**64 - 1, bytes(range(256)))]
    assert read(written(packets, names)) == [
        Captured(n, names[i], t, data, len(data)) for n, (i, t, data) in enumerate(packets, 1)
    ]


def test_a_file_without_packets_is_a_capture() -> None:
    assert read(written([], ["a"])) == []


def test_the_writer_keeps_the_first_bytes_and_says_how_many_there_were() -> None:
    file = written([(0, 1, bytes(64)), (0, 2, bytes(65))], ["a"], snap_bytes=64)
    assert [(len(p.data), p.original_length) for p in read(file)] == [(64, 64), (64, 65)]


def test_a_packet_that_was_cut_before_keeps_its_length() -> None:
    file = io.BytesIO()
    Writer(file, ["a"]).write(0, 1, b"begin", original_length=4262)
    assert [(p.data, p.original_length) for p in read(file.getvalue())] == [(b"begin", 4262)]


@pytest.mark.parametrize("snap_bytes", [0, -1, pcap.PACKET_BYTES_MAX + 1])
def test_a_snap_length_outside_the_limits_is_refused(snap_bytes: int) -> None:
    with pytest.raises(InputError, match=f"snap_bytes: {snap_bytes} is refused; 1 to 262144"):
        Writer(io.BytesIO(), ["a"], snap_bytes)


def test_more_interfaces_than_can_be_numbered_are_refused() -> None:
    with pytest.raises(InputError, match="65537 interfaces; at most 65536"):
        Writer(io.BytesIO(), ["a"] * (pcap.INTERFACES_MAX + 1))


def test_the_bytes_of_a_capture_are_these() -> None:
    file = written([(0, 0x1_0000_0002, b"\xaa\xbb\xcc")], ["ab"])
    section_options = b"\4\0\7\0openmrc\0" + bytes(4)
    interface_options = b"\2\0\2\0ab\0\0" + b"\x09\0\1\0\x09\0\0\0" + bytes(4)
    little = (
        block("<", 0x0A0D0D0A, pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + section_options),
        block("<", 1, pack("<HHI", 1, 0, 262144) + interface_options),
        block("<", 6, pack("<IIIII", 0, 1, 2, 3, 3) + b"\xaa\xbb\xcc\0"),
    )
    assert file == b"".join(little)


# Files of others


@ORDERS
@pytest.mark.parametrize(("magic", "unit_ns"), [(0xA1B2C3D4, 1000), (0xA1B23C4D, 1)])
def test_classic_pcap_in_both_byte_orders_and_both_units(
    order: str, magic: int, unit_ns: int
) -> None:
    file = classic(order, magic, record(order, 7, 123_456, b"abc", 90), record(order, 8, 0, b""))
    assert read(file) == [
        Captured(1, "", 7 * SECOND + 123_456 * unit_ns, b"abc", 90),
        Captured(2, "", 8 * SECOND, b"", 0),
    ]


@ORDERS
def test_the_fcs_bits_beside_the_link_type_are_not_part_of_it(order: str) -> None:
    assert len(read(classic(order, 0xA1B2C3D4, record(order, 1, 1, b"a"), link=0x54000001))) == 1


@ORDERS
@pytest.mark.parametrize(
    ("resolution", "units", "time_ns"),
    [
        (None, 3, 3000),
        (6, 3, 3000),
        (9, 3, 3),
        (12, 3999, 3),
        (0, 3, 3 * SECOND),
        (127, 10**18, 0),
        (0x80 | 1, 3, 3 * SECOND // 2),
        (0x80 | 30, 2**30, SECOND),
        (0x80 | 127, 2**63, 0),
    ],
)
def test_times_are_nanoseconds_whatever_the_interface_counts(
    order: str, resolution: int | None, units: int, time_ns: int
) -> None:
    options = b"" if resolution is None else option(order, 9, bytes([resolution]))
    file = section(order) + interface(order, options) + enhanced(order, 0, units, b"a")
    assert [p.time_ns for p in read(file)] == [time_ns]


@ORDERS
def test_an_interface_may_count_from_another_second(order: str) -> None:
    options = option(order, 9, b"\x09") + option(order, 14, pack(order + "q", -2))
    file = section(order) + interface(order, options) + enhanced(order, 0, 5, b"a")
    assert [p.time_ns for p in read(file)] == [5 - 2 * SECOND]


@ORDERS
def test_all_three_packet_blocks_are_read_and_unknown_blocks_and_options_passed_over(
    order: str,
) -> None:
    unknown = block(order, 0x0BAD, b"what others have made up")
    options = option(order, 0x7777, b"abc") + option(order, 2, b"eth0") + option(order, 0, b"")
    comment = option(order, 1, b"a comment") + option(order, 0, b"")
    file = b"".join(
        [
            section(order, option(order, 3, b"an operating system")),
            unknown,
            interface(order, options + b"behind the end"),
            enhanced(order, 0, 1, b"one", comment),
            unknown,
            simple(order, 3, b"two"),
            older(order, 0, 2, b"three"),
        ]
    )
    assert read(file) == [
        Captured(1, "eth0", 1000, b"one", 4),
        Captured(2, "eth0", None, b"two", 3),
        Captured(3, "eth0", 2000, b"three", 5),
    ]


@ORDERS
def test_a_simple_packet_is_as_long_as_the_interface_lets_it_be(order: str) -> None:
    file = section(order) + interface(order, snap=5) + simple(order, 90, b"abcde")
    assert [(p.data, p.original_length) for p in read(file)] == [(b"abcde", 90)]


@ORDERS
def test_a_capture_says_what_it_lost(order: str) -> None:
    """By the interface (5) and by the system (7); a newer count takes the place of an older one."""
    lost = [(4, 1000), (5, 1), (7, 20)]
    one = section(order) + 2 * interface(order) + statistics(order, 0, [(5, 9)])
    one += statistics(order, 0, lost) + statistics(order, 1, lost)
    file = Reader(io.BytesIO(one + one), "a.pcapng")
    assert [*file] == []
    assert file.dropped == 4 * 21


def test_each_section_has_its_own_byte_order_and_interfaces() -> None:
    file = b""
    for order, name in (("<", b"a"), (">", b"b"), ("<", b"c")):
        file += section(order) + interface(order, option(order, 2, name))
        file += enhanced(order, 0, 1, name)
    assert [(p.number, p.interface, p.data) for p in read(file)] == [
        (1, "a", b"a"),
        (2, "b", b"b"),
        (3, "c", b"c"),
    ]


def test_classic_files_that_were_joined_are_read_one_after_the_other() -> None:
    first = classic("<", 0xA1B2C3D4, record("<", 7, 5, b"abc"))
    second = classic(">", 0xA1B23C4D, record(">", 8, 5, b"def"), record(">", 9, 0, b"g"))
    packets = read(first + second)
    assert [packet.time_ns for packet in packets] == [7 * 10**9 + 5000, 8 * 10**9 + 5, 9 * 10**9]
    assert [packet.data for packet in packets] == [b"abc", b"def", b"g"]
    with pytest.raises(InputError, match=r"the file has link type 105 \(IEEE802_11\)"):
        read(first + classic("<", 0xA1B2C3D4, link=105))


def test_a_name_cannot_speak_to_the_terminal() -> None:
    name = b"eth\x1b[2J0\xff" + b"x" * 300
    file = section("<") + interface("<", option("<", 2, name)) + enhanced("<", 0, 1, b"a")
    (packet,) = read(file)
    assert packet.interface.startswith(r"eth\x1b[2J0" "\N{REPLACEMENT CHARACTER}xxx")
    assert len(packet.interface) == pcap.NAME_CHARACTERS_MAX


# Files that are no captures, and files that contradict themselves


def test_what_is_no_capture_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("not a capture")
    (tmp_path / "short").write_bytes(b"\xd4\xc3\xb2\xa1 too short")
    for name, words in {
        "missing": r"cannot be read \(No such file or directory\); name a capture file",
        ".": r"cannot be read \(Is a directory\); name a capture file",
        "empty": "is empty; name a capture file",
        "text": r"is not a capture \(it begins with 6e6f7420\); pcap and pcapng are read",
        "short": "ends within its first header; name a capture file",
    }.items():
        with pytest.raises(InputError, match=words) as refusal:
            pcap.read(tmp_path / name)
        assert str(refusal.value).startswith(str(tmp_path))


def test_other_links_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"a.pcapng: the file has link type 105 \(IEEE802_11\); only"
    ):
        read(classic("<", 0xA1B2C3D4, link=105))
    with pytest.raises(
        InputError, match="link type 999; only Ethernet, Linux cooked and raw IP are"
    ):
        read(classic("<", 0xA1B2C3D4, link=999))
    other = section("<") + interface("<", option("<", 2, b"ib0"), link=247)
    with pytest.raises(InputError, match=r"interface 0 'ib0' has link type 247 \(INFINIBAND\)"):
        read(other + enhanced("<", 0, 1, b"a"))
    # beside an interface that can be read its packets are of no known Ethernet type
    [one, two] = read(
        other + interface("<") + enhanced("<", 0, 1, b"a") + enhanced("<", 1, 1, b"b")
    )
    assert (one.data, one.outside) == (bytes(14) + b"a", ("link type 247",))
    assert (two.data, two.outside) == (b"b", ())


GOOD = section("<") + interface("<") + enhanced("<", 0, 1, b"good")
HUGE = pcap.BLOCK_BYTES_MAX + 4
CONTRADICTIONS: dict[str, tuple[bytes, str]] = {
    "a block of no length": (pack("<III", 6, 0, 0), "a block of 0 bytes, where a multiple of 4"),
    "a block below the least": (pack("<III", 6, 8, 8), "a block of 8 bytes"),
    "a length that is no multiple of 4": (pack("<III", 6, 13, 13) + b"a", "a block of 13 bytes"),
    "a length beyond the limit": (pack("<II", 6, HUGE) + bytes(64), f"a block of {HUGE} bytes"),
    "two lengths that differ": (
        pack("<II", 77, 16) + bytes(4) + pack("<I", 20),
        "a block of 16 bytes whose second length is 20",
    ),
    "a packet longer than its block": (
        block("<", 6, pack("<IIIII", 0, 0, 0, 5, 5) + bytes(4)),
        "a packet of 5 bytes, where at most 4 fit",
    ),
    "a packet beyond the limit": (
        block("<", 6, pack("<IIIII", 0, 0, 0, 262145, 262145) + bytes(262148)),
        "a packet of 262145 bytes, where at most 262144 fit",
    ),
    "a simple packet longer than its block": (
        simple("<", 9, bytes(8)),
        "a packet of 9 bytes, where at most 8 fit",
    ),
    "half a packet block": (block("<", 6, bytes(16)), "a block with 16 of the 20 bytes"),
    "half an older packet block": (block("<", 2, bytes(16)), "a block with 16 of the 20 bytes"),
    "an empty simple packet block": (block("<", 3, b""), "a block with 0 of the 4 bytes"),
    "half an interface": (block("<", 1, bytes(4)), "a block with 4 of the 8 bytes"),
    "a packet of an unknown interface": (
        enhanced("<", 1, 1, b"a"),
        "a packet of interface 1, which is not described before it",
    ),
    "an option longer than its block": (
        interface("<", pack("<HH", 2, 5) + b"abcd"),
        "an option of 5 bytes, longer than its block",
    ),
    "a section in no byte order": (
        block("<", 0x0A0D0D0A, pack("<IHHq", 0x1A2B3C4E, 1, 0, -1)),
        "a section whose byte order is 4e3c2b1a",
    ),
    "a section of another version": (
        block("<", 0x0A0D0D0A, pack("<IHHq", 0x1A2B3C4D, 2, 0, -1)),
        "version 2 of pcapng, not 1",
    ),
    "a section shorter than a section": (
        block("<", 0x0A0D0D0A, pack("<I", 0x1A2B3C4D)),
        "a block with 0 of the 4 bytes",
    ),
    "a section of 12 bytes": (
        pack("<III", 0x0A0D0D0A, 12, 0x1A2B3C4D),
        "a block of 12 bytes",
    ),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_a_contradiction_is_named_with_its_offset_after_the_packets_before_it(what: str) -> None:
    bad, words = CONTRADICTIONS[what]
    packets = iter(Reader(io.BytesIO(GOOD + bad + GOOD), "a.pcapng"))
    assert next(packets).data == b"good"
    with pytest.raises(InputError) as refusal:
        next(packets)
    assert f"a.pcapng: byte {len(GOOD)}: {words}" in str(refusal.value)


def test_a_classic_packet_beyond_the_limit_is_refused() -> None:
    file = classic("<", 0xA1B2C3D4, record("<", 1, 1, b"a"), pack("<IIII", 1, 1, 262145, 262145))
    with pytest.raises(InputError, match="byte 41: a packet of 262145 bytes, where at most 262144"):
        read(file)


def test_another_version_of_classic_pcap_is_refused() -> None:
    with pytest.raises(InputError, match="byte 0: version 1 of pcap, not 2"):
        read(pack("<IHHIIII", 0xA1B2C3D4, 1, 4, 0, 0, 0, 1))


def test_more_interfaces_than_the_limit_are_refused() -> None:
    with pytest.raises(InputError, match="more than 65536 interfaces"):
        read(section("<") + interface("<") * (pcap.INTERFACES_MAX + 1))


# Cut off


@pytest.mark.parametrize("packets", [1, 2])
@pytest.mark.parametrize(
    ("head", "one"),
    [
        (section(">") + interface(">"), enhanced(">", 0, 1, b"abcdef")),
        (classic("<", 0xA1B23C4D), record("<", 1, 1, b"abcdef")),
    ],
    ids=["pcapng", "pcap"],
)
def test_an_interrupted_capture_is_read_up_to_its_last_whole_packet(
    head: bytes, one: bytes, packets: int
) -> None:
    whole = head + one * packets
    for kept in range(1, len(one)):
        reader = Reader(io.BytesIO(whole + one[:kept]), "a")
        assert [p.number for p in reader] == list(range(1, packets + 1))
        assert reader.cut_at == len(whole)
        assert reader.offset == len(whole) + kept
    reader = Reader(io.BytesIO(whole), "a")
    assert len(list(reader)) == packets
    assert reader.cut_at is None


def test_a_length_is_not_believed_before_its_bytes_are_there() -> None:
    """16 MiB are promised and nothing follows: the end of the file, not a wait and not memory."""
    reader = Reader(io.BytesIO(GOOD + pack("<II", 6, pcap.BLOCK_BYTES_MAX)), "a")
    assert len(list(reader)) == 1
    assert reader.cut_at == len(GOOD)


def test_the_file_is_closed_after_its_last_packet_or_by_leaving(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(GOOD)
    reader = pcap.read(tmp_path / "a")
    assert len(list(reader)) == 1
    assert reader._stream.closed
    with pcap.read(tmp_path / "a") as left:
        pass
    assert left._stream.closed


# Hostile bytes


def outcome(file: bytes) -> list[Captured]:
    """Read to the end or to the refusal; anything else that is raised fails the test."""
    packets: list[Captured] = []
    try:
        for packet in Reader(io.BytesIO(file), "a"):
            packets.append(packet)
    except InputError:
        pass
    assert sum(len(p.data) for p in packets) <= len(file)
    assert [p.number for p in packets] == list(range(1, len(packets) + 1))
    return packets


SEEDS = [
    GOOD + simple("<", 3, b"two") + older("<", 0, 2, b"three") + block("<", 5, bytes(12)),
    section(">") + interface(">", option(">", 9, b"\x89")) + enhanced(">", 0, 9, b"a"),
    classic("<", 0xA1B2C3D4, record("<", 1, 1, b"abc"), record("<", 2, 1, b"abcdef")),
    classic(">", 0xA1B23C4D, record(">", 1, 1, b"abc")),
]


@REPEATABLE
@given(data=st.data(), seed=st.sampled_from(SEEDS))
def test_damaged_captures_end_in_packets_or_a_refusal(data: st.DataObject, seed: bytes) -> None:
    file = bytearray(seed * data.draw(st.integers(1, 2)))
    for at in data.draw(st.lists(st.integers(0, len(file) - 1), max_size=4)):
        file[at] = data.draw(st.sampled_from([0, 1, 4, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    outcome(bytes(file[: data.draw(st.integers(0, len(file)) | st.just(len(file)))]))


@REPEATABLE
@given(
    magic=st.sampled_from(["0a0d0d0a1c0000004d3c2b1a", "d4c3b2a1", "a1b23c4d", ""]),
    noise=st.binary(max_size=300),
)
def test_noise_ends_in_packets_or_a_refusal(magic: str, noise: bytes) -> None:
    outcome(bytes.fromhex(magic) + noise)


@REPEATABLE
@given(
    packets=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2**64 - 1), st.binary(max_size=40))
    ),
    snap_bytes=st.integers(1, 64),
)
def test_all_that_is_written_is_read(
    packets: list[tuple[int, int, bytes]], snap_bytes: int
) -> None:
    names = ["a", "", "plane 1 t0 2 - t1 3"]
    assert outcome(written(packets, names, snap_bytes=snap_bytes)) == [
        Captured(n, names[i], t, data[:snap_bytes], len(data))
        for n, (i, t, data) in enumerate(packets, 1)
    ]


# Wireshark's own reading


def tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed: our captures were not read by Wireshark")
    return path


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    file = tmp_path / "a.pcapng"
    times = (0, 1, 999_999_999, 1_000_000_000, 1_700_000_000_123_456_789)
    packets = [(n % 2, t, bytes(60 + n)) for n, t in enumerate(times)]
    file.write_bytes(written(packets, ["plane 0 t0 1 - t1 0", "nic 3"], snap_bytes=62))
    return file


def test_tshark_reads_the_same_packets_names_and_times(capture: Path) -> None:
    fields = ("number", "interface_name", "time_epoch", "cap_len", "len")
    asked = [word for field in fields for word in ("-e", f"frame.{field}")]
    output = subprocess.run(
        [tool("tshark"), "-n", "-r", capture, "-T", "fields", "-E", "separator=;", *asked],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    ours = [
        f"{p.number};{p.interface};{(p.time_ns or 0) // SECOND}.{(p.time_ns or 0) % SECOND:09}"
        f";{len(p.data)};{p.original_length}"
        for p in pcap.read(capture)
    ]
    assert output.splitlines() == ours
    assert len(ours) == 5


def test_capinfos_finds_nanoseconds_and_nothing_wrong(capture: Path) -> None:
    output = subprocess.run(
        [tool("capinfos"), "-M", capture], capture_output=True, text=True, check=True
    )
    assert output.stderr == ""
    assert "Number of packets:   5" in output.stdout
    assert "Name = plane 0 t0 1 - t1 0" in output.stdout
    assert output.stdout.count("Time precision = nanoseconds (9)") == 2


@pytest.mark.parametrize("kind", ["pcap", "nsecpcap", "modpcap"])
def test_what_wireshark_converts_is_read_or_refused(
    kind: str, capture: Path, tmp_path: Path
) -> None:
    other = tmp_path / "b.pcap"
    subprocess.run([tool("editcap"), "-F", kind, capture, other], check=True)
    if kind == "modpcap":
        with pytest.raises(InputError, match="is not a capture"):
            pcap.read(other)
        return
    unit_ns = 1000 if kind == "pcap" else 1
    expected = [
        p._replace(interface="", time_ns=(p.time_ns or 0) // unit_ns * unit_ns)
        for p in pcap.read(capture)
    ]
    assert list(pcap.read(other)) == expected
