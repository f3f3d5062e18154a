"""All ranks of a job, connected through the torch store, and their failures.

Every error names the peer, its host, each path to it and since when it has been silent. Which timer
expires when:

    a process has ended, its host lives     its kernel closes the connection: at once
    nothing arrives on any path             `OPENMRC_TIMEOUT`, 30 s, or the group's if that is less
    all ranks live, but an operation of
    the group is not complete               the group's timeout
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from openmrc.errors import InputError, OpenMrcError
from openmrc.say import say
from openmrc.torch import crossing
from openmrc.torch.lines import LOOPBACK, Lines, own_address
from openmrc.torch.operation import Operation
from openmrc.torch.pair import PING, Header, Key, Pair, Told
from openmrc.torch.prepared import prepare
from openmrc.torch.progress import Progress
from openmrc.torch.record import Recorder
from openmrc.torch.shared import Hall, Store, host, refusal
from openmrc.torch.wire import Wire, open_wire
from openmrc.verbs import QueuePair
from openmrc.verbs.attributes import QpAttributes, RemoteRegion
from openmrc.verbs.status import EventKind, Status

TIMEOUT_VARIABLE, TIMEOUT_S = "OPENMRC_TIMEOUT", 30.0
PING_S = 1.0  # how often a waiting rank checks whether paths to its peer carry anything
REACH_S = 3.0  # for the first answer of a peer, when a job is set up
DOWN = "down at this host"
LEAVE_S = 5.0  # for the last acknowledgements, when a rank leaves


class PeerError(OpenMrcError):
    """A peer is gone, or cannot be reached. `rank` says which."""

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(message)
        self.rank = rank


def silence_s() -> float:
    """How long a peer may be silent while something is due from it, s."""
    given = os.environ.get(TIMEOUT_VARIABLE, str(TIMEOUT_S))
    try:
        value = float(given)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise InputError(f"{TIMEOUT_VARIABLE} = {given!r}: seconds, more than 0")
    return value


class World:
    """This process among the others. `ranks[i]` is the name of rank i in errors."""

    def __init__(
        self, store: Store, rank: int, ranks: list[int], timeout_s: float, told: bool = True
    ) -> None:
        self.rank, self.ranks, self.size = rank, ranks, len(ranks)
        self.silence_s = min(silence_s(), timeout_s)
        self.groups = 0
        self._turns: dict[tuple[int, ...], int] = {}  # groups created, by members
        self.closed = False
        self.left_over: list[str] = []  # operations that were not over when it was closed
        self.wire: Wire | None = None
        self.hall: Hall | None = None
        self._wired: dict[int, Pair] = {}  # peers reached by packets
        self.lines: Lines | None = None
        self.progress = Progress(rank, ranks)
        self._who: dict[int, dict[str, Any]] = {}
        self._bad: dict[tuple[int, int, int], float] = {}  # (device, QP, EV): since when
        self._heard: dict[int, tuple[int, float]] = {}
        self._asked: dict[int, float] = {}
        self._cause: PeerError | None = None  # the first failure, which others are told, too
        self._recorder = Recorder(ranks[rank])
        try:
            if self.size > 1:
                self._join(store, timeout_s, told)
            self.progress.on_tick = self._tick
            self.progress.running.timed_out = self._timed_out
            self.progress.matching.on_broken = self._on_broken
            self.progress.start()
        except BaseException:
            with contextlib.suppress(OpenMrcError, OSError):  # the first error is the one to tell
                self._release()
            raise

    # --- set-up

    def _join(self, store: Store, timeout_s: float, told: bool) -> None:
        if self.rank == 0:
            store.set("secret", secrets.token_hex(32))
        secret = bytes.fromhex(store.get("secret").decode())
        peers = [peer for peer in range(self.size) if peer != self.rank]
        store.set(f"host/{self.rank}", host())
        hosts = [store.get(f"host/{rank}") for rank in range(self.size)]
        self.hall = Hall(store, self.rank, self.size)
        self.progress.bell = self.hall.bell
        far = [peer for peer in peers if peer not in self.hall.pairs]
        prepare(store, self.rank, hosts, bool(far))
        if far:
            self.wire = open_wire(store, self.rank, far)
            self._wired = {peer: Pair(*self.wire.at(peer), peer) for peer in far}
        together = len(set(hosts)) == 1
        planes = [] if self.wire is None else self.wire.addresses
        address = LOOPBACK if together else own_address(store, planes)
        self.lines = Lines(self.rank, self.size, secret, address)
        self.progress.pairs.update({**self._wired, **self.hall.pairs})
        store.set(f"rank/{self.rank}", json.dumps(self._own()))
        self._who = {peer: json.loads(store.get(f"rank/{peer}")) for peer in peers}
        told_us = {peer: self._told_by(peer) for peer in self._wired}
        for peer, pair in self._wired.items():
            pair.qp.agree_pmtu(told_us[peer].qp)
        for peer, pair in self._wired.items():
            pair.connect(told_us[peer])
        self.lines.connect({p: tuple(w["line"]) for p, w in self._who.items()}, timeout_s)
        self._meet(store, "up")  # no rank sends before all can receive
        if self.wire is not None and self.wire.measures:
            self._measure(store, secret, told)
        for peer in peers:
            fd = self.lines.to[peer].fileno()
            self.progress.watch(fd, partial(self.lines.hear, peer, self._on_end))
        self._recorder.join(secret, **self._there())
        if told and self.rank == 0:
            if refused := self._refused():
                say(f"mrc: {refusal(refused)}")
            say(
                f"mrc: {self.size} ranks; {self._words()}; silence of {self.silence_s:g} s ends"
                f" the job"
            )

    def _told_by(self, peer: int) -> Told:
        """What a peer says about its end of this rank's queue pair."""
        mine = self._who[peer]["pairs"][str(self.rank)]
        return Told(QpAttributes(**mine["qp"]), RemoteRegion(**mine["ring"]))

    def _meet(self, store: Store, where: str) -> None:
        """Wait until all ranks have come here."""
        store.set(f"{where}/{self.rank}", "")
        for rank in range(self.size):
            store.get(f"{where}/{rank}")

    def _refused(self) -> list[tuple[int, int]]:
        """Ranks of one host that could not share memory."""
        assert self.hall is not None
        told = {peer: who["refused"] for peer, who in self._who.items()}
        told[self.rank] = self.hall.refused
        ranks = self.ranks
        return [(ranks[a], ranks[b]) for a in sorted(told) for b in sorted(told[a]) if a < b]

    def _words(self) -> str:
        """How ranks reach each other, as seen by rank 0."""
        near = "ranks of a host share memory"
        if self.wire is None:
            return near
        return f"{self.wire.words}, {near}" if self.hall and self.hall.pairs else self.wire.words

    def _measure(self, store: Store, secret: bytes, told: bool) -> None:
        """Measure rank by rank, so that the network is idle; T follows from the longest round
        trip. `OpenMrcError` if planes are crossed, or none answers.
        """
        assert self.wire is not None
        silent: dict[tuple[int, int], set[int]] = {}  # planes between two ranks
        sizes = set()  # of full packets
        for turn in range(self.size):
            if turn == self.rank:
                store.set(f"measured/{turn}", json.dumps(self._measured()))
            said = json.loads(store.get(f"measured/{turn}"))
            if said["why"]:
                raise OpenMrcError(f"as seen by rank {self.ranks[turn]}: {said['why']}")
            for peer, planes in said["silent"].items():
                two = min(turn, int(peer)), max(turn, int(peer))
                silent.setdefault(two, set()).update(planes)
            sizes.add(said["pmtu"])
            for pair in self._wired.values():
                pair.qp.lower_pmtu(said["pmtu"], self._queue_pairs)
        # No rank sends before all have lowered theirs; what the first one says all know by now.
        if len(sizes) > 1:
            self._meet(store, "lowered")
        if not any(silent.values()):
            return
        came: list[crossing.Came] = []
        if self.wire.planes:
            came = crossing.asked(store, self.rank, list(self._wired), self.wire.planes, secret)
        why, lines = crossing.judged(silent, came, self.wire.n_planes, self.ranks)
        if why:
            raise OpenMrcError(f"{why}{self._ways()}")
        if told and self.rank == 0:
            for line in lines:
                say(f"mrc: {line}")

    def _measured(self) -> dict[str, Any]:
        """What this rank finds: the planes towards each peer that do not answer, how much full
        packets carry, and why the job cannot be.
        """
        silent = {peer: self._silent_planes(pair) for peer, pair in self._wired.items()}
        try:
            for peer, pair in self._wired.items():
                if pair.device.check_mtu and len(silent[peer]) < pair.device.n_planes:
                    pair.qp.check_path_mtu(self._queue_pairs)
        except OpenMrcError as error:
            return {"why": str(error), "silent": {}}
        size = min(pair.device.pmtu for pair in self._wired.values())
        return {"why": "", "silent": silent, "pmtu": size}

    @property
    def _queue_pairs(self) -> list[QueuePair]:
        return [pair.qp for pair in self._wired.values()]

    def _silent_planes(self, pair: Pair) -> list[int]:
        until = time.monotonic() + REACH_S
        while not (planes := pair.qp.measure().planes) and time.monotonic() < until:
            continue
        return sorted(set(range(pair.device.n_planes)) - set(planes))

    def _ways(self) -> str:
        """This rank's address on each plane, if planes have some."""
        assert self.wire is not None
        here = [f"{one.interface} {one.address}" for one in self.wire.planes]
        return f"; planes of rank {self.ranks[self.rank]}: {', '.join(here)}" if here else ""

    def _own(self) -> dict[str, Any]:
        assert self.lines is not None
        pairs = {
            peer: {"qp": pair.told.qp.as_dict(), "ring": asdict(pair.told.ring)}
            for peer, pair in self._wired.items()
        }
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "line": [self.lines.address, self.lines.port],
            "pairs": pairs,
            "refused": [] if self.hall is None else self.hall.refused,
        }

    def _there(self) -> dict[str, Any]:
        """This rank's host, and for each peer reached by packets its host, queue pair and number of
        paths on each plane.
        """
        peers = {}
        for peer, pair in self._wired.items():
            planes: dict[str, int] = {}
            for ev in pair.qp.evs():
                planes[str(ev["plane"])] = planes.get(str(ev["plane"]), 0) + 1
            host = self._who[peer]["host"]
            peers[str(self.ranks[peer])] = {"host": host, "qp": pair.qp.qp_num, "paths": planes}
        return {"host": socket.gethostname(), "size": self.size, "peers": peers}

    def turn_of(self, members: Sequence[int]) -> int:
        """Count the groups of these members: all of them create the same ones."""
        at = tuple(members)
        self._turns[at] = self._turns.get(at, 0) + 1
        return self._turns[at]

    # --- who lives

    def name(self, peer: int) -> str:
        """A peer's name for people."""
        who = self._who.get(peer, {})
        return f"rank {self.ranks[peer]} (host {who.get('host')}, process {who.get('pid')})"

    def _on_end(self, peer: int, said: dict[str, Any] | None) -> None:
        """On the progress thread, without its lock: a connection has closed, or a rank leaves."""
        assert self.lines is not None
        self.progress.unwatch(self.lines.to[peer].fileno())
        self.progress.do(partial(self._gone, peer, said))

    def _gone(self, peer: int, said: dict[str, Any] | None) -> None:
        name = self.name(peer)
        if said is None:
            why = f"Connection closed by peer: {name} has ended: its process is gone"
        elif "failed" in said:
            why = f"{name} has given up: {said['failed']}"
        else:
            why = f"Connection closed by peer: {name} has left the job (destroy_process_group)"
        error = PeerError(self.ranks[peer], f"{why}; {self.paths(peer)}")
        if said is not None and "placed" in said:
            self.progress.left(peer, int(said["placed"]), error)
        if said is None or "failed" in said:
            self._cause = self._cause or error
            self.progress.running.fail_peer(peer, error)

    def paths(self, peer: int) -> str:
        """Each path to a peer, by plane: how many there are, and since when some are bad."""
        pair = self._wired.get(peer)
        if pair is None:
            return "it shares this host's memory"
        now = time.monotonic()
        states = self._states_here(pair)
        planes: dict[int, list[float]] = {}  # for how long each path has been bad; 0 if it is not
        for ev in pair.qp.evs():
            since = self._bad.get((id(pair.device), pair.qp.qp_num, int(ev["ev"])), now)
            planes.setdefault(int(ev["plane"]), []).append(now - since)
        told = [
            f"plane {plane}: {states[plane] or _summed(bad_s)}"
            for plane, bad_s in sorted(planes.items())
        ]
        quiet = now - self._heard.get(peer, (0, now))[1]
        return f"last heard {quiet:.1f} s ago; paths: {', '.join(told) or 'none'}"

    def _states_here(self, pair: Pair) -> list[str]:
        """Of each plane, what is wrong with this host's port: "" if nothing is."""
        named = [one.interface for one in self.wire.planes] if self.wire is not None else []
        here = {name for _, name in socket.if_nameindex()}
        return [
            ""
            if port["up"]
            else DOWN
            if plane >= len(named) or named[plane] in here
            else f"interface {named[plane]} of this host is gone"
            for plane, port in enumerate(pair.device.counters()["ports"])
        ]

    def _note_events(self, now: float) -> None:
        peers = {(id(p.device), p.qp.qp_num): peer for peer, p in self._wired.items()}
        for device in {id(p.device): p.device for p in self._wired.values()}.values():
            for event in device.events(0.0):
                at = (id(device), event.qp_num, event.ev)
                peer = peers.get((id(device), event.qp_num))
                self._recorder.write(
                    event.kind.name.lower(),
                    at_us=event.at_us,
                    peer=None if peer is None else self.ranks[peer],
                    plane=event.plane,
                    ev=event.ev,
                )
                if event.kind == EventKind.PATH_BAD:
                    self._bad.setdefault(at, now)
                elif event.kind == EventKind.PATH_REVIVED:
                    self._bad.pop(at, None)

    def _tick(self, now: float) -> None:
        """A few times a second, with the lock of `progress`."""
        self._note_events(now)
        self.progress.agreement.ask_calls(now)
        waited = {t.peer for op in self.progress.running.ops for t in op.live}
        for peer, pair in self._wired.items():
            if self.progress.running.is_away(peer):
                continue
            heard, since = self._heard.get(peer, (-1, now))
            if pair.heard != heard or not pair.outstanding:
                self._heard[peer] = (pair.heard, now)
            elif now - since >= self.silence_s:
                self._silent(peer)
                continue
            elif now - since >= self.silence_s / 2 and self.lines is not None:
                self.lines.ask(peer)
            if peer in waited and not pair.outstanding and now - self._asked.get(peer, 0) > PING_S:
                self._asked[peer] = now
                pair.send(Header(PING, Key(0, 0, 0, 0), 0))

    def _silent(self, peer: int) -> None:
        error = PeerError(
            self.ranks[peer],
            f"{self.name(peer)}: nothing has come back on any path for {self.silence_s:g} s"
            f" ({TIMEOUT_VARIABLE}): {self._verdict(peer)}; {self.paths(peer)}",
        )
        self._cause = self._cause or error
        self.progress.running.fail_peer(peer, error)
        if self.lines is not None:
            for other in self.lines.to:
                self.lines.say(other, {"failed": str(error)})

    def _verdict(self, peer: int) -> str:
        """What the silence of a peer is, as far as the connection to it tells."""
        assert self.lines is not None
        states = self._states_here(self._wired[peer])
        if all(states):
            is_gone = all(one != DOWN for one in states)
            what = "interfaces of this host are gone" if is_gone else "planes of this host are down"
            return f"all {what}"
        if peer in self.lines.answered:
            return (
                "its process lives and answers by TCP, so that only MRC's packets are lost: its"
                " planes are down or cut, or a firewall drops them"
            )
        if self.lines.is_heard(peer):
            return "its host acknowledges by TCP, its process does not answer: stopped, or stuck"
        return "its host does not answer by TCP either: cut off, or down"

    def _on_broken(self, pair: Pair, status: Status) -> None:
        if self.progress.running.is_away(pair.peer):
            return
        why = f"{self.name(pair.peer)}: its queue pair has failed ({status.name}"
        error = PeerError(
            self.ranks[pair.peer], f"{why}: {pair.qp.error}); {self.paths(pair.peer)}"
        )
        self._cause = self._cause or error
        self.progress.running.fail_peer(pair.peer, error)

    def _timed_out(self, op: Operation, now: float) -> BaseException:
        told = "; ".join(f"{self.name(p)}, {self.paths(p)}" for p in op_peers(op))
        return OpenMrcError(
            f"{op.name}: Timed out waiting for {told or 'its messages, which are on the way'}: not"
            f" over after {op.timeout_s:g} s, the group's timeout"
        )

    # --- the end

    def close(self, said: dict[str, Any] | None = None) -> None:
        """Leave: what was sent arrives, the others are told, and nothing is left over."""
        if self.closed:
            return
        self.closed = True
        pending = list(self.progress.running.ops)
        for error in self.progress.agreement.late.values():
            say(f"mrc: {error}")
        if said is None:
            until = time.monotonic() + LEAVE_S
            while time.monotonic() < until and any(
                pair.outstanding or pair.behind
                for peer, pair in self.progress.pairs.items()
                if not self.progress.running.is_away(peer)
            ):
                time.sleep(0.001)
        self.left_over = [op.name for op in pending if not op.over or op.error is not None]
        if said is None and self._cause is not None:
            said = {"failed": str(self._cause)}
        if self.lines is not None:
            for peer, pair in self.progress.pairs.items():
                self.lines.say(peer, {"placed": pair.placed, **(said or {})})
        self._release()

    def forget(self) -> None:
        """In a child that a rank has forked, which is no rank: let go of what it has inherited. Its
        parent's connections must end with its parent.
        """
        self.closed = True
        self.progress.forget()
        if self.lines is not None:
            self.lines.close()  # those of the parent stay open
        if self.wire is not None:
            self.wire.close()
        if self.hall is not None:
            self.hall.forget()

    def _release(self) -> None:
        self.closed = True
        self.progress.stop()
        if self._recorder.writes and self._wired:
            self._note_events(time.monotonic())
        self._recorder.write("left", cause=None if self._cause is None else str(self._cause))
        self._recorder.close()
        if self.wire is not None:
            self.wire.close()
        if self.lines is not None:
            self.lines.close()
        if self.hall is not None:
            self.hall.close()


def op_peers(op: Operation) -> list[int]:
    """Peers without which an operation cannot continue."""
    return sorted({t.peer for t in op.live if t.peer >= 0})


def _summed(bad_s: list[float]) -> str:
    """How many paths are good, and bad."""
    bad = [one for one in bad_s if one > 0]
    words = [f"{len(bad_s) - len(bad)} good"] if len(bad) < len(bad_s) else []
    if bad:
        words.append(f"{len(bad)} bad for {'' if len(bad) == 1 else 'up to '}{max(bad):.1f} s")
    return " and ".join(words)
