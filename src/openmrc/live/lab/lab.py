"""A lab: a fabric of namespaces that is up, commands on its hosts, and faults while it runs.

`run_lab` creates one around a function, in namespaces of its own (`isolation`), and nothing of it
is left when the function returns or anything is killed.
"""

from __future__ import annotations

import resource
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from openmrc.errors import InputError
from openmrc.fabric.actions import FaultSchedule
from openmrc.fabric.faults import compile_faults
from openmrc.fabric.kinds import Fault
from openmrc.fabric.model import Fabric, LongArray
from openmrc.fabric.places import kind_of, ports
from openmrc.live.closing import Closing
from openmrc.live.lab import commands, control, hosts
from openmrc.live.lab.clock import Clock
from openmrc.live.lab.commands import Command, Write
from openmrc.live.lab.health import healing
from openmrc.live.lab.isolation import run_isolated
from openmrc.live.lab.linux import LinuxFabric
from openmrc.live.lab.namespaces import ROOT, Batch, Namespaces
from openmrc.live.lab.topology import LINUX, Settings, topology
from openmrc.live.lab.totals import Totals
from openmrc.units import US

# The fault that `mrc lab fail` applies to a place of this form by default.
FAIL_DEFAULT = {
    "nic": "link-down",
    "link": "link-down",
    "switch": "switch-down",
    "transceiver": "transceiver-down",
}


@dataclass(frozen=True)
class LabSpec:
    """The specification of a lab.

    `queues` are the keys of `[fabric]` about queues; `fabric_table` is that table itself, which
    hosts receive together with `base_rtt_us`.
    """

    fabric: Fabric
    settings: Settings
    queues: Any
    schedule: FaultSchedule
    fabric_table: Mapping[str, Any]
    base_rtt_us: float | None = None
    seed: int = 1
    pmtu: int = 4096  # this and the next determine the queues of openmrc's own switches
    senders_per_nic: int | None = None  # the most QPs that send to one NIC; None: one per other NIC
    secret: str = field(default_factory=lambda: secrets.token_hex(16))


def run_lab(spec: LabSpec, work: Callable[[Lab], int]) -> int:
    """Bring a lab up, run `work` with it, and return the status that it returned.

    Raises `InputError` for labs that cannot be built, and for what the machine refuses. The caller
    must not have threads yet (`run_isolated`).
    """
    return run_isolated(lambda: inside_lab(spec, work), own_user=not spec.settings.bpf)


def inside_lab(spec: LabSpec, work: Callable[[Lab], int]) -> int:
    """`run_lab` for a process that is already isolated."""
    with Lab(spec) as lab:
        return work(lab)


class Lab(Closing):
    """A fabric that is up, in the namespaces of this process; `close` stops what runs in it.

    `up_s` is how long it took to come up. The fault schedule starts with `begin`, its time 0.
    """

    def __init__(self, spec: LabSpec) -> None:
        started = time.monotonic()
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # one for each namespace and port
        self.spec = spec
        self.topology = topology(spec.fabric, spec.settings)
        self.namespaces = Namespaces([*self.topology.hosts, *self.topology.switches])
        self.commands: list[Command] = []
        self._switching = self._make_switching()
        self._switching.refuse(spec.schedule)
        self._lock = threading.Lock()
        self._taps: list[Any] = []
        self._name = ""  # once it listens
        self._clock: Clock | None = None
        self._error: InputError | None = None
        self._bring_up()
        self.up_s = time.monotonic() - started

    def begin(self) -> None:
        """Start the fault schedule: its time 0 is now."""
        left = self._switching.start(self.spec.schedule)
        self._clock = Clock(left, self._carry_out)
        self._clock.start()

    def check(self) -> None:
        """Raise the error of a scheduled fault that was refused since `begin`, if there is one."""
        if self._error is not None:
            raise self._error

    def command(
        self, chosen: Sequence[int], rank: int, command: Sequence[str], out: Write, err: Write
    ) -> Command:
        """Start a command as a rank of the hosts `chosen`; see `commands.start`."""
        nic = chosen[rank]
        started = commands.start(
            self.namespaces,
            self.topology.hosts[nic],
            command,
            self.environment(chosen, rank),
            out,
            err,
        )
        self.commands.append(started)
        return started

    def environment(self, chosen: Sequence[int], rank: int) -> dict[str, str]:
        """Return the environment of a process on a host: `hosts.environment`."""
        spec = self.spec
        content = hosts.host_file(
            self.topology, chosen[rank], spec.fabric_table, spec.base_rtt_us, spec.secret
        )
        own = {control.VARIABLE: self._name} if self._name else {}
        return own | hosts.environment(rank, chosen, hosts.keep_file(content), spec.secret)

    def tap(self, places: Sequence[str], stream: BinaryIO) -> None:
        """Capture the links of these places to `stream`, until the lab is closed."""
        found: dict[int, None] = {}
        for place in places:
            try:
                found |= dict.fromkeys(ports(self.spec.fabric, place).tolist())
            except InputError as error:
                raise error.at(f"--at {place!r}") from None
        self._taps.append(self._switching.tap(list(found), stream))

    def fail(self, where: str, kind: str | None = None, **how: float) -> list[dict[str, str]]:
        """Break a place now, as a fault of `[[fault]]` would; return the current faults."""
        kind = kind or FAIL_DEFAULT.get(kind_of(where), "link-down")
        if kind in ("deny", "allow"):
            raise InputError(f"--kind {kind}: applies to endpoints, a lab has switches")
        fault = Fault(at_ps=0, kind=kind, where=where, **how)  # type: ignore[arg-type]  # numbers by name
        try:
            schedule = compile_faults([fault], self.spec.fabric)
        except InputError as error:
            raise InputError(str(error).removeprefix("fault[0].")) from None
        self._switching.refuse(schedule)
        return self._act(schedule.events)

    def heal(self, where: str) -> list[dict[str, str]]:
        """Repair what `where` names (`health.healing`); return the remaining faults."""
        return self._act(healing(self.spec.fabric, where))

    def status(self) -> dict[str, Any]:
        """Return the running commands, the faults and the counters."""
        return {
            "switch": self.spec.settings.switch,
            "mode": self.spec.settings.mode,
            "up_s": round(self.up_s, 3),
            "hosts": [
                {"host": command.host, "pid": command.process.pid, "status": command.status}
                for command in self.commands
            ],
            "faults": self._switching.health.troubles(),
            "counters": self._switching.counters(),
        }

    def totals(self) -> Totals:
        """Return the counters of all switches together."""
        counted: Totals = self._switching.totals()
        return counted

    def queue_drops(self) -> LongArray:
        """Return, by directed port, the packets that it dropped because its queue was full."""
        found: LongArray = self._switching.queue_drops()
        return found

    def answer(self, request: dict[str, Any]) -> Any:
        """Handle a request of `mrc lab fail`, `heal` or `status`."""
        what = request.pop("do", "")
        if what == "fail":
            return self.fail(**request)
        if what == "heal":
            return self.heal(**request)
        if what == "status":
            return self.status()
        raise InputError(f"{what!r}: a lab can fail, heal, status")

    def listen(self, name: str, outside: socket.socket | None = None) -> None:
        """Answer requests: on `outside`, a socket of the machine, and on the lab's own sockets."""
        self._name = name
        servers = [] if outside is None else [outside]
        for place in (ROOT, *self.topology.hosts):
            with self.namespaces.inside(place):
                servers.append(control.listen(name))
        control.serve(servers, self.answer)

    def close(self) -> None:
        """End faults, captures and switches; kill what still runs on hosts."""
        if self._clock is not None:
            self._clock.stop()
        for tap in self._taps:
            tap.close()
        self._taps.clear()
        for command in self.commands:
            with suppress(ProcessLookupError):
                if command.status is None:
                    command.process.kill()
        self._switching.stop()

    def _make_switching(self) -> Any:
        spec = self.spec
        rtt_ps = None if spec.base_rtt_us is None else round(spec.base_rtt_us * US)
        sizes: dict[str, Any] = {
            "pmtu": spec.pmtu,
            "base_rtt_ps": rtt_ps,
            "senders_per_nic": spec.senders_per_nic,
        }
        if spec.settings.switch == LINUX:
            return LinuxFabric(self.topology, self.namespaces, spec.queues, **sizes)
        from openmrc.live.lab.compiled import CompiledFabric

        return CompiledFabric(self.topology, self.namespaces, spec.queues, spec.seed, **sizes)

    def _bring_up(self) -> None:
        hosts.prepare(self.topology, self.namespaces)
        self._switching.prepare()
        self.namespaces.run([Batch(ROOT, "ip", self._links())])
        hosts.bring_up(self.topology, self.namespaces)
        self._switching.bring_up()
        self.namespaces.run([*hosts.batches(self.topology), *self._switching.batches()])

    def _links(self) -> list[str]:
        """The lines of `ip` that create every link of the lab."""
        mtu, path = self.spec.settings.mtu, self.namespaces.path
        ends = [
            [
                f"name {end.interface} netns {path(end.namespace)} mtu {mtu} address {end.mac}"
                for end in (link.lower, link.upper)
            ]
            for link in self.topology.links
        ]
        lines = [f"link add {lower} type veth peer {upper}" for lower, upper in ends]
        return lines + hosts.management_links(self.topology, self.namespaces)

    def _carry_out(self, events: Any) -> None:
        """Carry out actions of the schedule; an error ends the lab (`check`)."""
        try:
            self._act(events, scheduled=True)
        except InputError as error:
            self._error = error

    def _act(self, events: Any, scheduled: bool = False) -> list[dict[str, str]]:
        with self._lock:
            self._switching.act(events, scheduled)
            troubles: list[dict[str, str]] = self._switching.health.troubles()
            return troubles
