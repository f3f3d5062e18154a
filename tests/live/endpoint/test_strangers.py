"""Whatever strangers send: no byte of memory changes, nothing healthy ends, all is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from openmrc.engine import packet as pk
from openmrc.jit import interpreted
from openmrc.verbs import QpState
from openmrc.wire import decode, layout
from openmrc.wire.frame import REASONS
from tests.live.busy import CANARY, PAGE, Busy

pytestmark = pytest.mark.skipif(interpreted(), reason="a transfer in plain Python takes minutes")

TIMES = 50  # of each kind of frame

BAD_KEY = "wrong rkey, out of bounds or no write right"
NEVER_SENT = "refers to a packet that was never sent"
CONTRADICTORY = "headers that contradict each other or the message's other packets"
OTHER_PLANE = "not for this port's address"


@pytest.fixture(scope="module")
def busy() -> Iterator[Busy]:
    one = Busy()
    yield one
    one.close()


def counted(busy: Busy, reason: str, make: Callable[[], bytes], nic: int = 1) -> None:
    """Send such frames while the transfer goes on, until `TIMES` are counted under `reason`.

    Not all are: a machine that is busy with other tests lets sockets fill up, and the transfer may
    be further than when the frame was made.
    """
    before = busy.refused(nic).get(reason, 0)

    def enough() -> bool:
        busy.send([make() for _ in range(5)], nic)
        return busy.refused(nic).get(reason, 0) >= before + TIMES

    with busy.unharmed():
        busy.wait_for(enough)


def ahead(busy: Busy, **fields: Any) -> Callable[[], bytes]:
    """Data that device 1 waits for: a sequence within its window that its peer has not sent."""
    return lambda: busy.forge(psn=busy.psn(450), msn=next_msn(busy), **fields)


def next_msn(busy: Busy) -> int:
    return int(busy.devices[1]._host.st.qp[busy.peer.index].rx_msn) + 100 & 0xFFFF


# --- data: who, where to, and what is said of it ----------------------------------------------

MEMORY: dict[str, Callable[[Busy], dict[str, Any]]] = {
    "wrong rkey": lambda b: {"rkey": b.target.rkey ^ 1 << 31},
    "rkey 0": lambda b: {"rkey": 0, "va": 0},
    "rkey of nobody": lambda b: {"rkey": b.target.rkey ^ 1},
    "before the region": lambda b: {"va": b.target.addr - 1},
    "behind the region": lambda b: {"va": b.target.addr + 2 * PAGE},
    "over the end": lambda b: {"va": b.target.addr + 2 * PAGE - 63},
    "va just under 2^63": lambda b: {"va": (1 << 63) - 32},
    "va 2^63": lambda b: {"va": -(1 << 63)},
    "va just under 2^64": lambda b: {"va": -32},
    "va 0": lambda b: {"va": 0},
    "no right": lambda b: {"rkey": b.read_only.rkey, "va": b.read_only.addr},
}


@pytest.mark.parametrize("what", MEMORY)
def test_memory_that_is_not_offered_is_not_touched(busy: Busy, what: str) -> None:
    make = ahead(busy, **MEMORY[what](busy))
    counted(busy, BAD_KEY, make)


def test_a_burst_of_guesses_at_the_very_next_packet_ends_nothing(busy: Busy) -> None:
    """Even with its PSN: three refusals end a QP only if its peer repeats them, as it would."""
    with busy.unharmed():
        for _ in range(TIMES):
            busy.send([busy.forge(psn=busy.psn(0), rkey=1)])


CONTRADICTIONS = {
    "one packet, said to be of a longer message": {"dma_len": 5000},
    "one packet, said to be of an empty message": {"dma_len": 0},
    "the first of one": {"opcode": pk.WRITE_FIRST},
    "a middle of one": {"opcode": pk.WRITE_MIDDLE},
    "a middle of 2^32": {"opcode": pk.WRITE_MIDDLE, "dma_len": 0xFFFF_FFFF},
    "the last of one": {"opcode": pk.WRITE_LAST},
    "a short first of two": {"opcode": pk.WRITE_FIRST, "dma_len": 8192},
    "the last, of another length": {"opcode": pk.WRITE_LAST, "dma_len": 4097},
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_headers_that_contradict_each_other_are_refused(busy: Busy, what: str) -> None:
    make = ahead(busy, **CONTRADICTIONS[what])
    counted(busy, CONTRADICTORY, make)


@pytest.mark.parametrize("ahead_of", [-5, 400, 40_000])
def test_messages_that_cannot_be_open_are_refused(busy: Busy, ahead_of: int) -> None:
    def make() -> bytes:
        return busy.forge(psn=busy.psn(450), msn=next_msn(busy) - 100 + ahead_of & 0xFFFF)

    counted(busy, CONTRADICTORY, make)


OTHERS: dict[str, tuple[str, Callable[[Busy], dict[str, Any]]]] = {
    "unknown QPN": ("no such queue pair", lambda b: {"dst_qpn": b.peer.qp_num ^ 1 << 23}),
    "QPN beyond": ("no such queue pair", lambda b: {"dst_qpn": 0xFF_FFFF}),
    "QPN 0": ("no such queue pair", lambda b: {"dst_qpn": 0}),
    "QPN of endpoints": ("no such queue pair", lambda b: {"dst_qpn": 2}),
    "from a third NIC": ("not from the queue pair's peer", lambda b: {"src": 2}),
    "from itself": ("not from the queue pair's peer", lambda b: {"src": 1}),
    "from no NIC": ("not from the queue pair's peer", lambda b: {"src": 1 << 20}),
    "from another plane": ("source is no port of this plane", lambda b: {"src_plane": 1}),
    "for another plane": (OTHER_PLANE, lambda b: {"dst_plane": 1}),
    "for another NIC": (OTHER_PLANE, lambda b: {"dst": 2}),
    "longer than the PMTU": (
        "longer than the path MTU",
        lambda b: {"payload": bytes(4100), "opcode": pk.WRITE_FIRST},
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_strangers_are_counted_for_what_they_are(busy: Busy, what: str) -> None:
    reason, fields = OTHERS[what]
    make = ahead(busy, **fields(busy))
    counted(busy, reason, make)


def test_a_psn_outside_the_window(busy: Busy) -> None:
    counted(busy, "PSN outside the window", lambda: busy.forge(psn=busy.psn(5_000_000)))


def test_what_is_here_already_changes_nothing_and_costs_few_answers(busy: Busy) -> None:
    flags = pk.RTX | pk.ACK_REQ
    counted(busy, "received before", lambda: busy.forge(psn=busy.psn(-1000), flag_bits=flags))


def test_a_wrong_icrc(busy: Busy) -> None:
    def make() -> bytes:
        frame = bytearray(ahead(busy)())
        frame[-1 - len(frames) % 4] ^= 1 << len(frames) % 8
        frames.append(bytes(frame))
        return frames[-1]

    frames: list[bytes] = []
    counted(busy, REASONS[-1], make)


def test_a_queue_pair_that_is_no_more(busy: Busy) -> None:
    device = busy.devices[1]
    old = device.create_qp(device.create_cq())
    old.connect(busy.qp.attributes)
    number = old.qp_num
    old.destroy()
    counted(busy, "queue pair is not ready", lambda: busy.forge(dst_qpn=number))


def test_a_queue_pair_that_is_not_connected_yet(busy: Busy) -> None:
    device = busy.devices[1]
    young = device.create_qp(device.create_cq())
    counted(busy, "queue pair is not ready", lambda: busy.forge(dst_qpn=young.qp_num))
    assert young.state == QpState.RESET
    young.destroy()


# --- answers to what nobody asked -------------------------------------------------------------


def sack(busy: Busy, **fields: Any) -> bytes:
    """A SACK for device 0 that says what is so, but for `fields`."""
    q = busy.devices[0]._host.st.qp[busy.qp.index]
    una = int(q.una)
    true = {
        "cack_psn": int(q.first_psn) + una - 1 & 0xFF_FFFF,
        "rcvd_units": int(q.rcvd_high) & 0xFF_FFFF,
    }
    return busy.forge(pk.SACK, 1, 0, dst_qpn=busy.qp.qp_num, **(true | fields))


def ahead_of_sent(busy: Busy, n: int) -> int:
    q = busy.devices[0]._host.st.qp[busy.qp.index]
    return int(q.first_psn) + int(q.nxt) + n & 0xFF_FFFF


NEVER: dict[str, Callable[[Busy], bytes]] = {
    "SACK of what was never sent": lambda b: sack(b, cack_psn=ahead_of_sent(b, 5_000)),
    "SACK far behind": lambda b: sack(b, cack_psn=ahead_of_sent(b, -5_000_000)),
    "SACK with a bit for what was never sent": lambda b: sack(
        b, sack_offset=30_000, bitmap=np.uint64(1)
    ),
    "SACK of more bytes than were sent": lambda b: sack(
        b, rcvd_units=(int(b.devices[0]._host.st.qp[b.qp.index].rcvd_high) + 4_000_000) & 0xFF_FFFF
    ),
    "ACK of messages never sent": lambda b: b.forge(
        pk.ACKNOWLEDGE,
        1,
        0,
        dst_qpn=b.qp.qp_num,
        reason=pk.AETH_ACK,
        msn=int(b.devices[0]._host.st.qp[b.qp.index].msg_cur) + 1000 & 0xFF_FFFF,
    ),
    "NAK about messages never sent": lambda b: b.forge(
        pk.ACKNOWLEDGE,
        1,
        0,
        dst_qpn=b.qp.qp_num,
        reason=pk.AETH_NAK_ACCESS_ERROR,
        msn=int(b.devices[0]._host.st.qp[b.qp.index].msg_cur) + 1000 & 0xFF_FFFF,
    ),
    "NAK about messages long done": lambda b: b.forge(
        pk.ACKNOWLEDGE,
        1,
        0,
        dst_qpn=b.qp.qp_num,
        reason=pk.AETH_NAK_INVALID_REQUEST,
        msn=int(b.devices[0]._host.st.qp[b.qp.index].msg_done) - 1000 & 0xFF_FFFF,
    ),
    "NACK about what was never sent": lambda b: b.forge(
        pk.NACK,
        1,
        0,
        dst_qpn=b.qp.qp_num,
        reason=pk.NACK_NO_RESOURCE,
        psn=ahead_of_sent(b, 5_000),
    ),
    "the end, about what was never sent": lambda b: b.forge(
        pk.NACK,
        1,
        0,
        dst_qpn=b.qp.qp_num,
        reason=pk.NACK_UNEXP_EVENT,
        psn=ahead_of_sent(b, 5_000_000),
    ),
}


@pytest.mark.parametrize("what", NEVER)
def test_answers_about_what_was_never_sent_change_nothing(busy: Busy, what: str) -> None:
    counted(busy, NEVER_SENT, lambda: NEVER[what](busy), nic=0)


@pytest.mark.parametrize("opcode", [pk.SACK, pk.NACK, pk.ACKNOWLEDGE, pk.PROBE])
def test_answers_of_others_are_not_heard(busy: Busy, opcode: int) -> None:
    frame = busy.forge(opcode, 2, 0, dst_qpn=busy.qp.qp_num, reason=pk.NACK_UNEXP_EVENT)
    counted(busy, "not from the queue pair's peer", lambda: frame, nic=0)


@pytest.mark.parametrize("opcode", [pk.SACK, pk.NACK, pk.ACKNOWLEDGE, pk.PROBE])
@pytest.mark.parametrize("last_hop", [False, True])
def test_only_data_is_trimmed(busy: Busy, opcode: int, last_hop: bool) -> None:
    """A trimmed packet has no iCRC: as such, answers would need none."""
    frame = bytearray(busy.forge(opcode, 1, 0, dst_qpn=busy.qp.qp_num, reason=0x19))
    dscp = layout.DSCP_TRIMMED_LASTHOP if last_hop else layout.DSCP_TRIMMED
    frame[14], frame[15] = 0x60 | dscp >> 2, (dscp & 3) << 6
    assert decode(bytes(frame)).trimmed
    counted(busy, "an opcode out of place", lambda: bytes(frame), nic=0)


def test_trimmed_headers_place_nothing(busy: Busy) -> None:
    with busy.unharmed():
        busy.send([ahead(busy, flag_bits=pk.TRIMMED)() for _ in range(TIMES)])
        busy.send([busy.forge(psn=busy.psn(-9), flag_bits=pk.TRIMMED) for _ in range(TIMES)])


# --- endpoint requests ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opcode", "op"),
    [
        (pk.ENDPOINT_REQUEST, pk.OP_PORT_STATUS),
        (pk.ENDPOINT_RESPONSE, pk.OP_PORT_STATUS),
        (pk.ENDPOINT_RESPONSE, pk.OP_EV_PROBE),
    ],
)
def test_who_is_no_peer_has_nothing_to_say_about_ports(busy: Busy, opcode: int, op: int) -> None:
    frame = busy.forge(opcode, 2, 1, dst_qpn=2, reason=op, imm=2, psn=7)
    counted(busy, "from no peer of this device", lambda: frame)


def test_a_port_that_says_it_is_down_is_not_believed(busy: Busy) -> None:
    lie = {"dst_qpn": 2, "reason": pk.OP_PORT_STATUS, "imm": 2, "psn": 7}
    frame = busy.forge(pk.ENDPOINT_REQUEST, 0, 1, **lie)
    counted(busy, CONTRADICTORY, lambda: frame)


def test_a_lie_about_other_ports_costs_them_for_a_while_and_no_more(busy: Busy) -> None:
    """What a plaintext protocol cannot tell from the truth: row 19's probe finds it out."""
    peer = busy.devices[1]._host.st.peer
    lie = {"dst_qpn": 2, "reason": pk.OP_PORT_STATUS, "imm": 0xFFFF_FFFD, "psn": 10}
    with busy.unharmed():
        busy.send([busy.forge(pk.ENDPOINT_REQUEST, 0, 1, **lie)])
        busy.wait_for(lambda: int(peer[0].status_id) == lie["psn"])  # it is believed
        busy.wait_for(lambda: int(peer[0].remote_mask) == 0b11)  # nor are there other ports


@pytest.mark.parametrize("opcode", [pk.ENDPOINT_REQUEST, pk.ENDPOINT_RESPONSE])
@pytest.mark.parametrize(("op", "qpn"), [(2, 2), (3, 2), (0, 3)])
def test_endpoint_packets_out_of_place(busy: Busy, opcode: int, op: int, qpn: int) -> None:
    frame = busy.forge(opcode, 0, 1, dst_qpn=qpn, reason=op, imm=3)
    counted(busy, "an opcode out of place", lambda: frame)


# --- what is no frame -------------------------------------------------------------------------


def test_every_byte_of_every_header_damaged_is_counted_once(busy: Busy) -> None:
    """Of every opcode, for a queue pair that is not there: whatever is damaged, it is refused."""
    opcodes = [*range(pk.WRITE_FIRST, pk.LAST_DATA + 1), 0xD1, 0xD8, 0xD9, 0xDC, 0xDD, 0xDE]
    frames = []
    for opcode in opcodes:
        whole = busy.forge(opcode, 2, 1, dst_qpn=0xABCDE5)
        assert decode(whole)["BTH"]["opcode"] == opcode
        for at in range(12, len(whole)):
            for flip in (0xFF, 1 << at % 8):
                damaged = bytearray(whole)
                damaged[at] ^= flip
                frames.append(bytes(damaged))
        frames += [whole[:n] for n in range(len(whole))]
    before, n = sum(busy.refused().values()), len(frames)
    with busy.unharmed():
        busy.send(frames)
        # a frame may find the socket full; but none is refused twice, and none is taken
        busy.wait_for(lambda: sum(busy.refused().values()) >= before + n * 0.9)
    assert sum(busy.refused().values()) <= before + n + busy.refused()["received before"]


@pytest.mark.parametrize("n", [0, 1, 13, 14, 53, 54, 4257, 4400, 9000, 60_000])
def test_datagrams_of_any_length(busy: Busy, n: int) -> None:
    rng = np.random.default_rng(n)
    before = busy.received()
    whole = busy.forge(dst_qpn=5)
    with busy.unharmed():
        busy.send([rng.bytes(n) for _ in range(TIMES)])
        busy.send([(whole + bytes(n))[:n] for _ in range(TIMES)])
    assert busy.received() >= before + TIMES


def test_a_canary_would_sing(busy: Busy) -> None:
    """The offer is real: with its own key and rights the region can be written."""
    data = np.full(10, 0x11, np.uint8)
    source = busy.devices[0].reg_mr(data)
    qp = busy.devices[0].create_qp(cq := busy.devices[0].create_cq())
    peer = busy.devices[1].create_qp(busy.devices[1].create_cq())
    qp.connect(peer.attributes)
    peer.connect(qp.attributes)
    qp.post_write(1, source, remote_addr=busy.target.addr, rkey=busy.target.rkey)
    assert cq.wait(timeout=20)
    assert (busy.room[PAGE : PAGE + 10] == 0x11).all()
    busy.room[PAGE : PAGE + 10] = CANARY
    qp.destroy()
    peer.destroy()
