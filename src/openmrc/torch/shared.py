"""Two ranks of one host communicate through memory that both have mapped: no packets, and no kernel
except to wake.

One file for every two ranks holds a ring in each direction, which one side fills and the other
empties: each entry is a header of `pair` and its bytes, in units of 64. A small message is one
entry. A large one waits for READY as it does on a wire, and then comes in pieces (CHUNK), which the
receiver copies to their destination. A rank that does not poll is woken by an empty datagram at its
`Bell`.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import secrets
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from openmrc.errors import InputError
from openmrc.torch.memory import Bytes
from openmrc.torch.pair import (
    HEADER_BYTES,
    WITH_BYTES,
    Header,
    Key,
    Waiting,
    nothing,
    pack,
    unpacked,
    waiting,
)

VARIABLE = "OPENMRC_SHARED_MEMORY"
PLACE = Path("/dev/shm")
UNIT = HEADER_BYTES
WORDS_BYTES = 4 * UNIT  # a cache line for each
RING_BYTES, RING_BYTES_MANY, MANY = 1 << 20, 1 << 18, 4  # with more ranks each ring is smaller
NAMED_MAX = 4  # pairs of ranks in an error message
CHUNKS = 4  # pieces that fill a ring: one is copied out while the next is copied in
CHUNK = 16  # a kind of header in addition to those of `pair`; `key.seq` is the offset of the piece
FILLED, EMPTIED, AWAY, STARVED = (i * UNIT // 8 for i in range(4))  # offsets of words, in words


class Store(Protocol):
    """The part of torch's store that is used."""

    def set(self, key: str, value: str) -> None:
        """Write a value."""

    def get(self, key: str) -> bytes:
        """Read a value, once it is there."""


def wanted() -> bool:
    """Whether ranks of one host should share memory: `OPENMRC_SHARED_MEMORY`, 1 or 0."""
    given = os.environ.get(VARIABLE, "1")
    if given not in ("0", "1"):
        raise InputError(f"{VARIABLE} = {given!r}: 0 and 1 are accepted")
    return given == "1"


def host() -> str:
    """The identity of this machine since its boot, its name, and this process's network
    namespace.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{socket.gethostname()} {boot} {os.stat('/proc/self/ns/net').st_ino}"


def refusal(pairs: Sequence[tuple[int, int]]) -> str:
    """The message about ranks that could not share memory, and what to do, in one line."""
    named = ", ".join(f"{a} and {b}" for a, b in pairs[:NAMED_MAX])
    more = f" and {len(pairs) - NAMED_MAX} more pairs" if len(pairs) > NAMED_MAX else ""
    mib = -(-len(pairs) * 2 * (WORDS_BYTES + RING_BYTES) >> 20)
    return (
        f"no room in {PLACE}: ranks {named}{more} of one host reach each other over the wire;"
        f" {mib} MiB more would do (in a container: --shm-size)"
    )


class Bell:
    """A socket that is readable when it was rung; any process of this host may ring it."""

    def __init__(self) -> None:
        self.name = f"openmrc-{secrets.token_hex(16)}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(f"\0{self.name}")

    def fileno(self) -> int:
        """For poll."""
        return self._socket.fileno()

    def heard(self) -> None:
        """Silence the bell."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(1)

    def ring(self, name: str) -> None:
        """Wake a peer; one that is gone, or was rung ten times already, is left alone."""
        with contextlib.suppress(OSError):
            self._socket.sendto(b"", f"\0{name}")

    def close(self) -> None:
        """Close it."""
        self._socket.close()


class Ring:
    """One direction: the view of its producer or its consumer."""

    def __init__(self, memory: memoryview, fence: threading.Lock) -> None:
        self._words = memory[:WORDS_BYTES].cast("q")
        self._data = memory[WORDS_BYTES:]
        self.bytes = len(self._data)
        self._fence_lock = fence

    def _fence(self) -> None:
        """Make writes visible before the next read."""
        with self._fence_lock:
            pass

    def put(self, header: bytes | memoryview, data: Any = b"") -> bool:
        """Add an entry; False if there is no room, and the consumer will report when there is."""
        words, n = self._words, len(data)
        size = UNIT + -(-n // UNIT) * UNIT
        filled = words[FILLED]
        if self.bytes - (filled - words[EMPTIED]) < size:
            words[STARVED] = 1
            self._fence()
            if self.bytes - (filled - words[EMPTIED]) < size:
                return False
        at = filled % self.bytes
        self._data[at : at + len(header)] = header
        at = (at + UNIT) % self.bytes
        first = min(n, self.bytes - at)
        if first:
            self._data[at : at + first] = data[:first]
        if first < n:
            self._data[: n - first] = data[first:]
        words[FILLED] = filled + size
        self._fence()
        return True

    @property
    def away(self) -> bool:
        """Whether the consumer must be woken."""
        return bool(self._words[AWAY])

    def look_away(self, away: bool) -> bool:
        """The consumer stops polling, or resumes; return whether there is an entry."""
        self._words[AWAY] = int(away)
        if away:
            self._fence()
        return self._words[FILLED] != self._words[EMPTIED]

    def first(self) -> tuple[memoryview, memoryview] | None:
        """The oldest entry's header and what may be its bytes, or None; `done` frees it."""
        words = self._words
        if words[FILLED] == words[EMPTIED]:
            return None
        at = words[EMPTIED] % self.bytes
        return self._data[at : at + UNIT], self._data[(at + UNIT) % self.bytes :]

    def wrapped(self, tail: memoryview, n: int) -> memoryview:
        """The `n` bytes that begin with `tail`: the ring's beginning follows its end."""
        if n <= len(tail):
            return tail[:n]
        return memoryview(bytes(tail) + bytes(self._data[: n - len(tail)]))

    def done(self, n: int) -> bool:
        """Free the oldest entry, of `n` bytes; return whether the producer waits for room."""
        words = self._words
        words[EMPTIED] += UNIT + -(-n // UNIT) * UNIT
        self._fence()
        if not words[STARVED]:
            return False
        words[STARVED] = 0
        return True

    def close(self) -> None:
        """Release the memory."""
        self._words.release()
        self._data.release()


class Shared:
    """The connection to `peer` on this host: the counterpart of `Pair`."""

    eager = RING_BYTES_MANY // 4

    def __init__(self, peer: int, out: Ring, into: Ring, bell: Bell, its_bell: str) -> None:
        self.peer, self._out, self._into = peer, out, into
        self._bell, self._its_bell = bell, its_bell
        self._queue: deque[Waiting] = deque()
        self._head = memoryview(bytearray(HEADER_BYTES))
        self._large: deque[tuple[int, Bytes, int, int]] = deque()  # wr_id, data, number, done
        self.placed = self.written = 0
        self.sent: list[int] = []  # large messages that have left
        self.outstanding = False  # nothing can be lost

    def send(
        self, header: Header, data: Bytes | None = None, left: Callable[[], None] = nothing
    ) -> bool:
        """As `Pair.send`."""
        if not self._queue and self._put(header, data):
            return True
        self._queue.append(waiting(header, data, left))
        return False

    def write(self, wr_id: int, data: Bytes, to: Header) -> None:
        """Send a large message to where a READY requests it; `sent` has `wr_id` once it has
        left.
        """
        self._large.append((wr_id, data, to.number, 0))
        self.flush()

    def close(self) -> None:
        """Release the memory; nothing may be called afterwards."""
        self._out.close()
        self._into.close()

    def keep(self, wr_id: int) -> None:
        """The memory of a large message is about to be freed: copy what has not left."""
        for i, (number, data, to, at) in enumerate(self._large):
            if number == wr_id:
                self._large[i] = (number, data.copy(), to, at)

    @property
    def full(self) -> bool:
        """Whether a small message waits for room."""
        return bool(self._queue)

    @property
    def behind(self) -> bool:
        """Whether a message waits for room."""
        return bool(self._queue or self._large)

    def flush(self) -> None:
        """Write waiting messages, as far as there is room now."""
        while self._queue and self._put(self._queue[0].header, self._queue[0].data):
            self._queue.popleft().left()
        while self._large and not self._queue:
            wr_id, data, number, at = self._large[0]
            end = min(at + self._out.bytes // CHUNKS - UNIT, len(data))
            piece = Header(CHUNK, Key(0, 0, at, 0), end - at, number=number)
            if not self._put(piece, data[at:end]):
                return
            self._large[0] = (wr_id, data, number, end)
            if end == len(data):
                self._large.popleft()
                self.sent.append(wr_id)

    def _put(self, header: Header, data: Bytes | None) -> bool:
        pack(header, self._head, 0)
        there = self._out.put(self._head, b"" if data is None else data)
        if there and self._out.away:
            self._bell.ring(self._its_bell)
        return there

    def look_away(self, away: bool) -> bool:
        """Stop polling on this rank, or resume; return whether there is an entry."""
        return self._into.look_away(away)

    def take(
        self,
        on_header: Callable[[int, Header, Any], None],
        on_piece: Callable[[int, int, Any], None],
    ) -> bool:
        """Process arrivals; False if there are none."""
        busy = False
        while (entry := self._into.first()) is not None:
            busy = True
            header, _ = unpacked(entry[0])
            n = header.n if header.kind == CHUNK or header.kind in WITH_BYTES else 0
            data = self._into.wrapped(entry[1], n)
            if header.kind == CHUNK:
                on_piece(header.number, header.key.seq, data)
            else:
                on_header(self.peer, header, data)
            if self._into.done(n):
                self._bell.ring(self._its_bell)
        return busy


class Hall:
    """What this rank shares with the others of its host: `pairs` by rank. It would share with ranks
    in `refused`, but there is no room: they are reached like those of other hosts.
    """

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self.bell = Bell()
        self.pairs: dict[int, Shared] = {}
        self.refused: list[int] = []
        self._maps: list[mmap.mmap] = []
        self._names: list[str] = []  # files made here; each peer removes its own
        try:
            self._join(store, rank, size)
        except BaseException:
            self.close()
            raise

    def _join(self, store: Store, rank: int, size: int) -> None:
        here = host()
        store.set(f"hall/{rank}", json.dumps([here if wanted() else "", self.bell.name]))
        told = {peer: json.loads(store.get(f"hall/{peer}")) for peer in range(size)}
        local = [peer for peer, (its, _) in told.items() if its == here and told[rank][0]]
        ring_bytes = RING_BYTES if len(local) <= MANY else RING_BYTES_MANY
        for peer in local:
            if peer > rank:  # the lower rank creates it
                fd, name = _made(2 * (WORDS_BYTES + ring_bytes))
                self._names.append(name)
                store.set(f"shared/{rank}/{peer}", name)
                self._meet(rank, peer, fd, name, told[peer][1])
        for peer in local:
            if peer < rank:
                name = store.get(f"shared/{peer}/{rank}").decode()
                fd = os.open(name, os.O_RDWR | os.O_CLOEXEC) if name else -1
                self._meet(rank, peer, fd, name, told[peer][1])

    def _meet(self, rank: int, peer: int, fd: int, name: str, bell: str) -> None:
        if fd < 0:
            self.refused.append(peer)
            return
        try:
            self._maps.append(mmap.mmap(fd, 0))
        finally:
            os.close(fd)
        fence = threading.Lock()
        with memoryview(self._maps[-1]) as whole:
            half = len(whole) // 2
            up, down = Ring(whole[:half], fence), Ring(whole[half:], fence)
        out, into = (up, down) if rank < peer else (down, up)
        into.look_away(True)
        self.pairs[peer] = Shared(peer, out, into, self.bell, bell)
        if rank > peer:
            os.unlink(name)  # both have it open: nothing is left over, however they end

    def forget(self) -> None:
        """In a forked child: let go of the bell. The memory is left to the kernel."""
        self.bell.close()

    def close(self) -> None:
        """Close the bell; the memory is freed with its last user. A file that no peer has opened is
        removed.
        """
        for name in self._names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        for pair in self.pairs.values():
            pair.close()
        for one in self._maps:
            one.close()
        self.pairs, self._maps = {}, []
        self.bell.close()


def _made(n: int) -> tuple[int, str]:
    """Create a file of `n` bytes and return it with its name; (-1, "") if there is no room."""
    name = PLACE / f"openmrc-{secrets.token_hex(16)}"
    fd = -1
    try:
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.posix_fallocate(fd, 0, n)
    except OSError:
        if fd >= 0:
            os.close(fd)
            name.unlink()
        return -1, ""
    return fd, str(name)
