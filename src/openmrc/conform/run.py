"""Runs a rule against a target: it passes, or fails with the two packets that show it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from openmrc.conform import events
from openmrc.conform.events import Event
from openmrc.conform.model.between import AGED_BYTES, AGED_MESSAGES
from openmrc.conform.model.cutting import opcode
from openmrc.conform.model.peer import Network, Requester, Responder
from openmrc.conform.model.received import Told
from openmrc.conform.model.watch import Breach, Watch
from openmrc.conform.script import Rule, Step, Time
from openmrc.engine import packet as pk
from openmrc.engine import parameters
from openmrc.errors import InputError
from openmrc.units import NS, US

PASS, FAIL, NOT_APPLICABLE = "pass", "fail", "not applicable"
BURST = 16  # packets that a target in real time is sent at once
EVENTS_MAX = 100_000  # of one rule: the limit for a target that never falls silent

_PART = re.compile(r"(\d+)/(\d+)")
_OF = re.compile(r"\$(\w+)\.(\w+)([+-]\d+)?")
_BITS = {"tx_timestamp": 16, "psn": 24, "cack_psn": 24, "nack_psn": 24}  # fields that wrap
_DEFAULT_EV = 0x0001_0003
_STAMP_STEP = 0x9E37  # between stamps of the kit: all of 16 bits, and none twice
_SILENT = Time(2, "rto")  # an ended target is watched for so long


class Target(Protocol):
    """An implementation under test. Its events are appended to `log`."""

    name: str
    log: list[Event]
    now_ps: int
    pmtu: int
    patience_ps: int  # real time: the delay allowed in addition to a rule's time
    settle_ps: int  # and for how much longer to wait for packets that must not arrive
    blind: frozenset[str]  # kinds of events that it does not report
    flow_psn: dict[str, int]  # first PSN of the data of a rule, by the target's role
    region: dict[str, tuple[int, int, int]]  # address, rkey and bytes for data, by role

    @property
    def heard_ps(self) -> int:
        """All that came until then is in `log`: a kit that had to wait has not read it yet."""

    @property
    def rtt_ps(self) -> int:
        """The base round trip, ps."""

    @property
    def rto_ps(self) -> int:
        """The retransmission timeout, ps (`rto_ps`)."""

    def send(self, kind: str, given: Mapping[str, int]) -> None:
        """A packet of the kit arrives."""

    def post(self, length: int, imm: int | None) -> None:
        """The application writes."""

    def receives(self, n: int) -> None:
        """The application has this many receives posted."""

    def port(self, number: int, up: bool) -> None:
        """A port goes down or comes up."""

    def advance(self, until_ps: int) -> None:
        """Let time pass until the next event, at most until `until_ps`."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of a rule; if it fails, the statement and both packets, as far as known."""

    rule: Rule
    outcome: str
    why: str = ""
    step: Step | None = None
    sent: Event | None = None
    came: Event | None = None
    breaches: tuple[Breach, ...] = ()  # of rules that hold always
    held: frozenset[str] = frozenset()  # names of those that had a packet to compare


class NotApplicable(Exception):
    """A statement that cannot be carried out against this target."""


class Failed(Exception):
    """A statement that does not hold."""

    def __init__(self, why: str, came: Event | None) -> None:
        super().__init__(why)
        self.why, self.came = why, came


def run(
    rule: Rule, make: Callable[[Mapping[str, int]], Target], always: Sequence[Rule] = ()
) -> Verdict:
    """Run one rule against a fresh target, beside those that hold `always`."""
    try:
        target = make(rule.settings)
    except InputError as error:
        return Verdict(rule, NOT_APPLICABLE, str(error))
    watch = Watch(always, target, rule.settings)
    said = _run(Exchange(rule, target, watch))
    return replace(said, breaches=tuple(watch.breaches), held=frozenset(watch.held))


def _run(exchange: Exchange) -> Verdict:
    rule, step = exchange.rule, exchange.rule.steps[0]
    try:
        for step in rule.steps:
            exchange.do(step)
    except NotApplicable as error:
        return Verdict(rule, NOT_APPLICABLE, str(error))
    except Failed as failed:
        return Verdict(rule, FAIL, failed.why, step, exchange.sent, failed.came)
    except InputError as error:
        raise InputError(f"{rule.group}.rules line {step.line}: {error}") from None
    exchange.end()
    return Verdict(rule, PASS)


class Exchange:
    """A rule in progress."""

    def __init__(self, rule: Rule, target: Target, watch: Watch) -> None:
        self.rule, self.target, self._watch = rule, target, watch
        self.sent: Event | None = None
        self._since = 0  # index in the log at the last `send`, `post` or `port`
        self._heard = 0  # at the last `send`: earlier packets cannot answer it
        self._stamps = 0  # packets that the kit has sent
        self._peer: Responder | None = None  # the kit, where it serves
        self._served = 0  # index in the log up to which it does
        self._used: set[int] = set()
        self._named: dict[str, Event] = {}

    def do(self, step: Step) -> None:
        """Run one statement. Raises `Failed`."""
        if step.kind in self.target.blind:
            raise NotApplicable(f"it does not show what its application sees: {step.kind}")
        if step.word in ("send", "post", "port"):
            self._since = len(self.target.log)
        if step.word == "send":
            self._heard = self._since
        getattr(self, f"_{step.word}")(step)
        self._watch.looks()

    def end(self) -> None:
        """What has ended stays silent: time passes, where it costs nobody any."""
        if self._watch.received.ended and self.target.patience_ps == 0:
            self._until(self._at(_SILENT), lambda: False)

    def _wait(self, step: Step) -> None:
        self._until(self._at(step.time), lambda: False)

    def _post(self, step: Step) -> None:
        given = dict(self._fields(step, "receive"))
        length, imm = self._number("length", step.kind), given.get("imm")
        self._watch.posts(length, imm)
        self.target.post(length, imm)

    def _receives(self, step: Step) -> None:
        self._watch.receives(int(step.kind))
        self.target.receives(int(step.kind))

    def _port(self, step: Step) -> None:
        number, _, direction = step.kind.partition(" ")
        self._watch.port(int(number), direction == "up")
        self.target.port(int(number), direction == "up")

    def _send(self, step: Step) -> None:
        words = {name: value for name, _, value in step.conditions}
        part = _PART.fullmatch(words.pop("packet", "1/1"))
        at = words.pop("at", "0")
        got = words.pop("got", "")
        given: dict[str, int] = {}
        for name, value in words.items():
            events.check_field(step.kind, name)
            given[name] = self._number(name, value)
        if step.kind == "data":
            if part is None:
                raise InputError("packet: such as 2/3")
            given = self._data(given, int(part[1]), int(part[2]), int(at))
        elif step.kind in ("sack", "nack") and self.rule.role == "requester":
            given = self._answer(step.kind, given, got)
        elif step.kind in ("data", "probe"):
            given = self._path() | given
        if given.get(events.FRAME) and events.FRAME in self.target.blind:
            raise NotApplicable("it is given packets, not frames")
        self._put(step.kind, given)

    def _put(self, kind: str, given: dict[str, int]) -> None:
        """The kit sends a packet, now."""
        if "ev" in given:
            given.setdefault("plane", given["ev"] >> 16)
        self.sent = Event(self.target.now_ps, kind, given)
        self._watch.sends(kind, given)
        self.target.send(kind, given)
        self._watch.looks()

    def _arrive(self, step: Step) -> None:
        """The kit is a whole requester, on a bad network."""
        network, with_ = _network(step), self.rule.settings
        exact = self.target.patience_ps == 0  # in real time other paths and classes overtake
        planes, evs = (with_.get("planes", 2), with_.get("evs", 4)) if exact else (1, 1)
        kit = Requester(self._told("responder"), network, planes, evs)
        klass = pk.CLASS_DATA
        for kind, fields in kit.packets(int(step.kind), self._watch.received):
            before, klass = klass, fields.get("class", pk.CLASS_DATA)
            if not exact and (klass != before or self._stamps % BURST == 0):
                self._until(self.target.now_ps + self.target.patience_ps, self._watch.is_answered)
                self._until(self.target.now_ps + self.target.settle_ps, lambda: False)
            self._put(kind, self._path() | fields)

    def _serve(self, step: Step) -> None:
        """The kit is a whole responder, on a bad network, for a time."""
        told = self._told("requester")
        rtt_ps = self.target.rtt_ps - self.target.patience_ps  # what comes late must not be overdue
        self._peer = self._peer or Responder(told, rtt_ps)
        self._peer.network(_network(step))
        end_ps, log = self._at(step.time), self.target.log
        while self.target.now_ps < end_ps:
            while self._served < len(log):
                self._peer.hears(log[self._served])
                self._served += 1
            for kind, fields in self._peer.answers(self.target.now_ps, self._watch.may_believe):
                self._put(kind, fields)
            self.target.advance(min(end_ps, self._peer.next_at or end_ps))
            self._watch.looks()

    def _told(self, role: str) -> Told:
        """What is agreed between the target, in this role, and the kit."""
        with_, target = self.rule.settings, self.target
        first, region, mpr = target.flow_psn[role], target.region[role], with_.get("mpr", 512)
        messages, n_bytes = AGED_MESSAGES * with_.get("aged", 0), AGED_BYTES * with_.get("aged", 0)
        return Told(
            first, target.pmtu, mpr, region, with_.get("max_wimm", 128), messages=messages,
            n_bytes=n_bytes,
        )  # fmt: skip

    def _path(self) -> dict[str, int]:
        """The path and the time stamp of a packet, which tell it from the others."""
        self._stamps += 1
        return {"ev": _DEFAULT_EV, "tx_timestamp": self._stamps * _STAMP_STEP & 0xFFFF}

    def _data(self, given: dict[str, int], part: int, of: int, at: int) -> dict[str, int]:
        """Fill in the headers of packet `part` of `of` with their correct values."""
        pmtu, (va, rkey, _) = self.target.pmtu, self.target.region[self.rule.role]
        length = given.get("dma_length", of * pmtu)
        again = given.get("rtx", 0)
        full = {
            "opcode": opcode(part - 1, of, "imm" in given),
            "va": va + at + (part - 1) * pmtu,
            "rkey": rkey,
            "dma_length": length,
            "length": min(pmtu, length - (part - 1) * pmtu),
            "class": pk.CLASS_RETRANSMIT if again else pk.CLASS_DATA,
        }
        full |= self._path() | given
        if given.get("trimmed") or given.get("trimmed_lasthop"):
            full |= {"length": 0, "class": pk.CLASS_CONTROL}
        return full

    def _answer(self, kind: str, given: dict[str, int], got: str) -> dict[str, int]:
        """Fill in what a SACK or NACK reflects of the packet that it answers."""
        if kind == "nack":
            about = given["nack_psn"]
        else:
            first = self.target.flow_psn[self.rule.role]
            count = (given["cack_psn"] - first + 1) & pk.PSN_MASK
            given.setdefault("sack_offset", 1)
            if got:
                psns = [self._number("psn", text) for text in got.split(",")]
                places = [
                    (p - given["cack_psn"] - given["sack_offset"]) & pk.PSN_MASK for p in psns
                ]
                given["sack_bitmap"] = sum(1 << place for place in places if place < 64)
                count += len(psns)
                given.setdefault("ack_psn_offset", places[-1] + given["sack_offset"])
            given.setdefault("rcvd_bytes", count * self.target.pmtu // pk.RCVD_UNIT_BYTES)
            offset = 0 if given.get("pr") else given.get("ack_psn_offset", 0)
            about = (given["cack_psn"] + offset) & pk.PSN_MASK
        copies = [e for e in self.target.log if e.kind == "data" and e.fields["psn"] == about]
        if copies:  # the last one counts
            last = copies[-1].fields
            given = {"entropy": last["ev"], "tx_timestamp": last["tx_timestamp"]} | given
        return given

    def _expect(self, step: Step) -> None:
        found: list[int] = []

        def is_there() -> bool:
            found[:] = [
                i
                for i, event in enumerate(self.target.log[self._heard :], self._heard)
                if i not in self._used and event.kind == step.kind and self._fits(step, event)
            ][:1]
            return bool(found)

        for name, _, _ in step.conditions:
            events.check_field(step.kind, name)
        end_ps = self._at(step.time or Time(1, "rtt")) + self.target.patience_ps
        self._until(end_ps, is_there)
        if not found:
            raise Failed(f"missing: {step.text}", self._nearest(step))
        self._used.add(found[0])
        if step.name:
            self._named[step.name] = self.target.log[found[0]]

    def _never(self, step: Step) -> None:
        for name, _, _ in step.conditions:
            events.check_field(step.kind, name)
        if step.time:
            self._until(self._at(step.time) + self.target.settle_ps, lambda: False)
        for i in range(self._since, len(self.target.log)):
            event = self.target.log[i]
            if i not in self._used and event.kind == step.kind and self._fits(step, event):
                raise Failed(f"must not come: {step.text}", event)

    def _fits(self, step: Step, event: Event) -> bool:
        for name, sign, text in step.conditions:
            value = self._number(name, text) if name != "reason" else text
            if name in _BITS:  # it wraps
                holds = events.COMPARE[sign](_signed(event.says(name) - value, _BITS[name]), 0)
            elif name in ("has", "lacks"):
                holds = event.shows(int(value)) == (name == "has")
            else:
                holds = events.COMPARE[sign](event.says(name), value)
            if not holds:
                return False
        return True

    def _nearest(self, step: Step) -> Event | None:
        """The last packet of that kind that did not match, for people to compare."""
        rest = [e for i, e in enumerate(self.target.log) if i not in self._used]
        return next((e for e in reversed(rest) if e.kind == step.kind), rest[-1] if rest else None)

    def _fields(self, step: Step, kind: str) -> list[tuple[str, int]]:
        for name, _, _ in step.conditions:
            events.check_field(kind, name)
        return [(name, self._number(name, value)) for name, _, value in step.conditions]

    def _number(self, name: str, text: str) -> int:
        """The value of a text as a number."""
        if matched := _OF.fullmatch(text):
            if matched[1] not in self._named:
                raise InputError(f"${matched[1]}: no `expect ... as {matched[1]}` found it")
            value: Any = self._named[matched[1]].fields[matched[2]]
            value += int(matched[3] or 0)
            return int(value & pk.PSN_MASK if name in events.PSNS else value)
        if text[0] in "+-" and name in events.PSNS:
            return self.target.flow_psn[self.rule.role] + int(text) & pk.PSN_MASK
        if text[0] in "+-" and name in ("va", "rkey"):
            return self.target.region[self.rule.role][name == "rkey"] + int(text, 0)
        names = {name: value for value, name in events.NAMES.get(name, {}).items()}
        if text in names:
            return names[text]
        try:
            return int(text, 0)
        except ValueError:
            raise InputError(f"{name}={text}: neither a number nor a name of it") from None

    def _at(self, time: Time | None) -> int:
        if time is None:
            return self.target.now_ps
        units = {"us": US, "rtt": self.target.rtt_ps, "rto": self.target.rto_ps}
        return self.target.now_ps + int(time.amount * units[time.unit])

    def _until(self, end_ps: int, holds: Callable[[], bool]) -> None:
        """Let time pass until a condition holds, at most until `end_ps`."""
        while not holds() and self.target.heard_ps < end_ps:
            self.target.advance(end_ps)
            self._watch.looks()
            if len(self.target.log) > EVENTS_MAX:
                raise Failed(f"more than {EVENTS_MAX:,} packets", self.target.log[-1])


def _network(step: Step) -> Network:
    return Network(**{name: int(value) for name, _, value in step.conditions})


def rto_ps(told_ps: int, rtt_ps: int) -> int:
    """The RTO by which a target is judged: what it says itself, if that follows from its base round
    trip (row 9, for a target delay from none to a round trip).
    """
    least_ps = 1024 * NS << parameters.Parameters().rto_exponent
    low, high = (max(least_ps, 4 * rtts * rtt_ps) for rtts in (1, 2))
    return min(max(told_ps, low), high)


def _signed(difference: int, bits: int) -> int:
    """A difference of two numbers that wrap."""
    half = 1 << (bits - 1)
    return (difference + half & 2 * half - 1) - half
