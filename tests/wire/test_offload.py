"""Frames of hosts and mirrors give the packets of the wire, and losses only where they are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.engine import packet
from openmrc.wire import frame
from openmrc.wire.icrc import icrc
from openmrc.wire.meant import MRC, ROCE
from openmrc.wire.offload import COPY, layers
from openmrc.wire.outside import unwrap
from openmrc.wire.pcap import Captured
from openmrc.wire.readers import JOINED, UNKNOWN_OPCODE, Found, Readers, Unread
from openmrc.wire.roce import opcodes as roce
from openmrc.wire.roce.summary import RoceSummary
from openmrc.wire.summary import Summary
from tests.wire.frames import SHAPES, around, sent, trimmed, write
from tests.wire.joined import PAYLOAD, join, some_data, some_sacks
from tests.wire.roce.roce_frames import a_frame, read_only
from tests.wire.test_outside import AROUND, tunnel
from tests.wire.vectors import array

REPEATABLE = settings(derandomize=True, database=None, deadline=None, max_examples=60)
Told = list[tuple[Captured, Found | Unread]]


def captured(data: bytes, length: int | None = None) -> Captured:
    return Captured(1, "", 0, data, len(data) if length is None else length)


def packets(data: bytes, length: int | None = None, check: bool = True) -> Told:
    return [*Readers(check=check).packets(captured(data, length))]


def psns(told: Told) -> list[int]:
    out = []
    for _, found in told:
        counted = found.counted if isinstance(found, Unread) else found
        assert counted is not None, found
        out.append(int(counted.frame.p.psn))
    return out


def totals(*frames: Told) -> dict[str, Any]:
    """The one row of MRC or RoCEv2 that these frames make, and the damage."""
    mrc, of_roce = Summary(), RoceSummary()
    damaged = 0
    for told in frames:
        for one, found in told:
            counted = found.counted if isinstance(found, Unread) else found
            damaged += isinstance(found, Unread) and not found.is_cut
            if counted is not None:
                counted.add_to(one, mrc, of_roce, {})
    [row] = mrc.rows() or of_roce.rows()
    names = ("packets", "payload_bytes", "messages", "psns_missing", "psns_hidden")
    return {name: getattr(row, name) for name in names} | {"damaged": damaged}


# Joined packets


@pytest.mark.parametrize("check", [True, False], ids=["", "without iCRCs"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_frame_of_a_host_is_taken_apart(shape: str, check: bool) -> None:
    """With the bytes of the wire, also where IP lengths are left to the NIC."""
    wire = some_data(shape, 9, psn=packet.PSN_MASK - 3)
    for zero in (False, True):
        told = packets(join(wire, zero), check=check)
        assert [one.data for one, _ in told] == wire
        assert [one.outside[-1] for one, _ in told] == [f"{n} of 9" for n in range(1, 10)]
        assert totals(told) == {
            "packets": 9,
            "payload_bytes": 8 * PAYLOAD + PAYLOAD // 2,
            "messages": 1,
            "psns_missing": 0,
            "psns_hidden": 0,
            "damaged": 0,
        }


def test_answers_to_several_qps_are_taken_apart_by_their_size() -> None:
    sacks = some_sacks("ipv4", 5)
    assert [one.data for one, _ in packets(join(sacks))] == sacks
    assert len(packets(join(sacks), check=False)) == 5


def test_packets_sent_again_are_taken_apart_by_their_icrcs() -> None:
    wire = [some_data("ipv6", 9)[i] for i in (1, 4, 6)]
    assert psns(packets(join(wire))) == [6, 9, 11]


def test_a_damaged_packet_among_joined_ones_is_damaged_alone() -> None:
    for wrong in (0, 3):
        wire = some_data("ipv4", 6)
        wire[wrong] = wire[wrong][:-9] + bytes([wire[wrong][-9] ^ 1]) + wire[wrong][-8:]
        told = packets(join(wire))
        damaged = [i for i, (_, found) in enumerate(told) if isinstance(found, Unread)]
        assert (len(told), damaged) == (6, [wrong])
        assert told[wrong][1].reason == frame.REASONS[frame.ICRC]  # type: ignore[union-attr]  # of damage


def test_rocev2_of_a_host_is_taken_apart_where_the_kernel_counts_its_packets() -> None:
    """GRO keeps the first identification of IPv4; the iCRC covers that of each packet."""
    wire = [a_frame(roce.WRITE_MIDDLE, psn=5 + i, payload_len=512) for i in range(4)]
    assert psns(packets(join(wire))) == [5, 6, 7, 8]
    numbered = [identified(each, 77 + i, again=True) for i, each in enumerate(wire)]
    told = packets(join(numbered))
    assert [isinstance(found, Found) for _, found in told] == [True] * 4
    assert [one.data for one, _ in told] == numbered


def identified(data: bytes, number: int, again: bool) -> bytes:
    """A frame of IPv4 with an identification; its iCRC computed `again`, or as it was."""
    out = bytearray(data)
    out[18:20], out[24:26] = number.to_bytes(2, "big"), bytes(2)
    out[24:26] = (-int.from_bytes(out[14:34], "big") % 0xFFFF).to_bytes(2, "big")
    if again:
        crc = int(icrc(array(bytes(out)), 14, len(out) - 4))
        out[-4:] = crc.to_bytes(4, "little")
    return bytes(out)


def test_an_identification_that_the_kernel_wrote_may_count_as_0() -> None:
    [[_, found]] = packets(identified(some_data("ipv4", 1)[0], 900, again=False))
    assert isinstance(found, Found)
    assert found.numbered_0
    [[_, wrong]] = packets(some_data("ipv4", 1)[0][:-1] + b"\x00")
    assert isinstance(wrong, Unread)


def test_what_a_snap_length_keeps_of_joined_packets_is_shown_and_the_rest_not_missing() -> None:
    one, two = some_data("ipv4", 8), some_data("ipv4", 8, psn=13)
    size = len(one[0]) - layers(one[0], len(one[0])).bth  # type: ignore[union-attr]  # MRC is there
    first, second = join(one), join(two)
    headers_of_three = 42 + 2 * size + 60
    told = packets(first[:headers_of_three], len(first))
    assert psns(told) == [5, 6, 7]
    assert totals(told, packets(second)) == {
        "packets": 11,
        "payload_bytes": 10 * PAYLOAD + PAYLOAD // 2,
        "messages": 1,
        "psns_missing": 0,
        "psns_hidden": 5,
        "damaged": 0,
    }


def test_joined_packets_of_which_one_header_was_kept_are_no_losses() -> None:
    """The first is known, and that there are more; a PSN that nothing hides stays missing."""
    frames = [join(some_data("ipv4", 5, psn=5 + 5 * i, payload=2048)) for i in (0, 1, 2)]
    told = [packets(each[:128], len(each)) for each in frames]
    assert [found.reason for [(_, found)] in told] == [JOINED] * 3  # type: ignore[union-attr]  # of damage
    got = totals(*told)
    assert (got["packets"], got["psns_missing"], got["psns_hidden"], got["damaged"]) == (3, 0, 8, 0)


def test_a_frame_of_one_packet_is_one_whatever_its_payload() -> None:
    """A payload that itself holds packets: the iCRC of the whole decides."""
    inner = some_data("ipv4", 1)[0]
    body = inner[42:]
    p = write(payload_len=len(body) * 4, psn=5, dst_qpn=0x11)
    [(_, found)] = packets(bytes(sent(p, around("ipv4"), body)))
    assert isinstance(found, Found)


# Cut copies


@pytest.mark.parametrize("name", [name for name in AROUND if name != "nothing"])
def test_a_cut_copy_has_the_line_of_the_whole_packet(name: str) -> None:
    whole, _ = AROUND[name]
    inside = unwrap(whole).data
    [(_, right)] = packets(inside)
    for cut in (1, 3):  # of the iCRC
        [(one, found)] = packets(unwrap(whole[:-cut]).data)
        assert isinstance(found, Found)
        assert found.line() == right.line()
        assert (one.outside, one.original_length) == ((COPY,), len(inside))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_cut_copy_counts_as_far_as_its_headers_go(shape: str) -> None:
    whole = some_data(shape, 2)[0]
    bth = layers(whole, len(whole)).bth  # type: ignore[union-attr]  # MRC is there
    for n in range(bth + 12, len(whole)):
        told = packets(whole[:n])
        assert psns(told) == [5]
        got = totals(told)
        messages = int(n >= bth + 16)  # the METH says which message it is
        assert got == {
            "packets": 1,
            "payload_bytes": PAYLOAD,
            "messages": messages,
            "psns_missing": 0,
            "psns_hidden": 0,
            "damaged": 0,
        }
    for n in range(14, bth + 12):
        [(_, found)] = packets(whole[:n])
        assert isinstance(found, Unread)
        assert found.is_cut or found.protocol is None


@pytest.mark.parametrize("shape", SHAPES)
def test_a_cut_copy_without_ip_length_ends_where_udp_says(shape: str) -> None:
    """What a host left to its NIC and a mirror then cut; before UDP nothing says whose it is."""
    wire = some_data(shape, 3, payload=1024)
    one, three = join(wire[:1], zero=True), join(wire, zero=True)
    bth = layers(one, len(one)).bth  # type: ignore[union-attr]  # MRC is there
    [(_, whole)] = packets(wire[0])
    [(copy, found)] = packets(one[: bth + 40])
    assert isinstance(found, Found)
    assert isinstance(whole, Found)
    assert (found.line(), copy.outside) == (whole.line(), (COPY,))
    [(_, first)] = packets(three[: bth + 40])
    assert isinstance(first, Found)
    assert first.more > 1
    [(_, unknown)] = packets(one[: bth - 9])
    assert isinstance(unknown, Unread)
    assert (unknown.is_cut, unknown.counted) == (True, None)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_cut_copy_of_joined_packets_hides_theirs_wherever_it_ends(shape: str) -> None:
    """Also within the headers behind the BTH of the first."""
    frames = [join(some_data(shape, 5, psn=5 + 5 * i)) for i in (0, 1)]
    bth = layers(frames[0], len(frames[0])).bth  # type: ignore[union-attr]  # MRC is there
    for cut in range(bth + 12, bth + 44):
        got = totals(*(packets(each[:cut]) for each in frames))
        assert (got["packets"], got["psns_missing"], got["psns_hidden"]) == (2, 0, 4)


def test_a_cut_copy_longer_than_its_message_holds_another() -> None:
    wire = [some_data("ipv6", 1, psn=psn, opcode=packet.WRITE_ONLY, dma_len=256) for psn in (5, 6)]
    frames = [join([wire[0][0], wire[1][0]]), some_data("ipv6", 1, psn=9)[0]]
    got = totals(*(packets(each[:160]) for each in frames))
    assert (got["packets"], got["psns_missing"], got["psns_hidden"]) == (2, 1, 2)


def test_lengths_that_do_not_agree_are_no_cut_copy() -> None:
    whole = bytearray(some_data("ipv6", 1)[0])
    whole[14 + 40 + 5] ^= 4  # of UDP
    [(_, found)] = packets(bytes(whole[:-20]))
    assert isinstance(found, Unread)
    assert (found.is_cut, found.protocol) == (False, MRC)


# Others


def test_rocev2_that_mrc_lacks_has_its_name_and_its_psns() -> None:
    sends = [read_only(0x04, b"x" * 64, psn=7), read_only(0x00, b"x" * 256, psn=8)]
    sends += [read_only(0x02, b"x" * 64, psn=9)]
    told = [packets(each) for each in sends]
    names = [found.line().split("  ")[2] for [(_, found)] in told]
    assert names == ["RC_SEND_ONLY", "RC_SEND_FIRST", "RC_SEND_LAST"]
    assert totals(*told)["psns_missing"] == 0
    uc = packets(read_only(0x24, b"x" * 8))[0][1]
    assert uc.line().split("  ")[2] == "UC_SEND_ONLY"


def test_psns_that_a_read_takes_are_not_missing() -> None:
    reads = [
        read_only(roce.READ_REQUEST, psn=10, dma_length=8192),
        read_only(roce.READ_REQUEST, psn=18, dma_length=1024),
        read_only(roce.WRITE_ONLY, b"x" * 4, psn=30, dma_length=4),
    ]
    got = totals(*map(packets, reads))
    # 18 to 21 at most are of the second; 22 to 29 are missing
    assert (got["packets"], got["psns_missing"], got["psns_hidden"]) == (3, 8, 7 + 3)


def test_what_was_not_meant_as_mrc_is_not_damaged() -> None:
    """Port 4791 is also that of whoever asked DNS from it."""
    answer = bytes.fromhex("c3a58180000100010000000003777777076578616d706c6503636f6d0000010001")
    good = some_data("ipv4", 1)[0]
    front = bytearray(good[:42])
    front[16:18] = (28 + len(answer)).to_bytes(2, "big")
    front[38:40] = (8 + len(answer)).to_bytes(2, "big")
    front[24:26] = bytes(2)
    front[24:26] = (-int.from_bytes(front[14:34], "big") % 0xFFFF).to_bytes(2, "big")
    [(_, found)] = packets(bytes(front) + answer)
    assert isinstance(found, Unread)
    assert (found.protocol, found.reason) == (None, UNKNOWN_OPCODE)


def test_an_opcode_of_mrcs_group_without_meaning_is_anothers_if_its_icrc_is_right() -> None:
    whole = some_data("ipv4", 1)[0]
    for opcode in (0xC0, 0xCD):
        changed = bytearray(whole)
        changed[42] = opcode
        [(_, found)] = packets(bytes(changed))
        assert isinstance(found, Unread)
        assert (found.protocol, found.reason) == (MRC, frame.REASONS[frame.OPCODE])
        changed[-4:] = int(icrc(array(bytes(changed)), 14, len(changed) - 4)).to_bytes(4, "little")
        [(_, healthy)] = packets(bytes(changed))
        assert isinstance(healthy, Unread)
        assert (healthy.protocol, healthy.reason) == (None, UNKNOWN_OPCODE)


def around_it(data: bytes, segments: int) -> bytes:
    """A frame in other people's SRv6: with a list of segments, or without SRH."""
    inner = 41 if data[12:14] == b"\x86\xdd" else 4
    following, srh = inner, b""
    if segments:
        listed = b"".join(bytes([0x20, 1, 0x0D, 0xB8]) + bytes(11) + b"\1" for _ in range(segments))
        srh = bytes([inner, 2 * segments, 4, 1, segments - 1, 0, 0, 0]) + listed
        following = 43
    length = len(srh) + len(data) - 14
    ip = (6 << 28).to_bytes(4, "big") + length.to_bytes(2, "big") + bytes([following, 64])
    ends = bytes([0x20, 1, 0x0D, 0xB8]) + bytes(12) + bytes([0x20, 1, 0x0D, 0xB8]) + bytes(12)
    return data[:12] + b"\x86\xdd" + ip + ends + srh + data[14:]


@pytest.mark.parametrize("segments", [0, 2, 3])
def test_srv6_of_others_is_unwrapped_or_no_mrc(segments: int) -> None:
    whole = a_frame(roce.WRITE_ONLY, psn=9)
    [(one, found)] = packets(around_it(whole, segments))
    assert isinstance(found, Found)
    assert (found.protocol, one.outside) == (ROCE, ("SRv6" if segments else "IP in IP",))
    tcp = bytearray(whole)
    tcp[23] = 6
    [(_, other)] = packets(around_it(bytes(tcp), segments))
    assert isinstance(other, Unread)
    assert other.protocol is None


@pytest.mark.parametrize("segments", [0, 2])
@pytest.mark.parametrize("payload", [b"x" * 64, b"x" * 4096])
def test_a_wrong_icrc_inside_is_damage_whatever_is_around_it(segments: int, payload: bytes) -> None:
    whole = bytearray(read_only(roce.WRITE_ONLY, payload, psn=9, dma_length=len(payload)))
    whole[-9] ^= 1
    [(one, found)] = packets(around_it(bytes(whole), segments))
    assert isinstance(found, Unread)
    assert (found.protocol, found.reason) == (ROCE, frame.REASONS[frame.ICRC])
    assert one.outside == ("SRv6" if segments else "IP in IP",)


def test_an_overlay_and_an_ethernet_frame_in_srv6_are_unwrapped() -> None:
    whole = some_data("ipv4", 1)[0]
    for port, front, name in (
        (4789, b"\x08" + bytes(7), "VXLAN"),
        (6081, b"\x01\0\x65\x58" + bytes(8), "GENEVE"),
    ):
        body = front + whole
        udp = (50_000).to_bytes(2) + port.to_bytes(2) + (8 + len(body)).to_bytes(2) + bytes(2)
        outer = bytearray(tunnel(0, 0, b"", b"")[:34])
        outer[23] = 17
        assert unwrap(bytes(outer) + udp + body) == (whole, 42 + len(front), (name,))


# Hostile bytes


@REPEATABLE
@given(st.data())
def test_any_bytes_are_one_packet_or_several_and_never_an_exception(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from(SHAPES))
    wire = data.draw(
        st.sampled_from(
            [some_data(shape, 4), some_sacks(shape, 3), [read_only(0x0C), read_only(4)]]
        )
    )
    whole = bytearray(join(wire, zero=data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255) | st.sampled_from([0, 1, 0x80, 0xFF]))
    end = data.draw(st.integers(0, len(whole)))
    length = end + data.draw(st.sampled_from([0, 0, 1, 40, 70_000]))
    readers = Readers(check=data.draw(st.booleans()))
    told = [*readers.packets(captured(bytes(whole[:end]), length))]
    assert told
    for one, found in told:
        assert found.line()
        assert len(one.data) <= max(one.original_length, end)
        if isinstance(found, Found) and found.protocol != "PFC":
            fields = readers.fields(one, found.protocol)
            assert fields["headers"]["BTH"]["dest_qpn"] == found.qpn


@REPEATABLE
@given(
    n=st.integers(2, 12),
    payload=st.integers(1, 300).map(lambda words: 4 * words),
    shape=st.sampled_from(SHAPES),
    psn=st.integers(0, packet.PSN_MASK),
    fill=st.binary(min_size=1, max_size=8),
)
def test_joined_packets_come_back(n: int, payload: int, shape: str, psn: int, fill: bytes) -> None:
    e = around(shape)
    wire = [
        bytes(sent(write(psn=psn + i & packet.PSN_MASK, payload_len=payload, dst_qpn=9), e, fill))
        for i in range(n)
    ]
    assert [one.data for one, _ in packets(join(wire))] == wire


@pytest.mark.parametrize("shape", SHAPES)
def test_trimmed_packets_that_a_host_joined_are_told_apart_by_their_qp(shape: str) -> None:
    """Whatever a switch leaves of each, with PSNs in any order."""
    cut = [bytes(trimmed(some_data(shape, 1, psn=psn, payload=4096)[0])) for psn in (5, 9, 6)]
    assert psns(packets(join(cut))) == [5, 9, 6]
    assert psns(packets(cut[0])) == [5]
