"""Everything that a target does in an exchange, beside what it must do: the rules that hold always.

    each sack: cack_psn=$.cack_psn

`$.x` is what the model says of the packet. Where it says nothing, as of what a target on a network
may do a little later, nothing is compared. Of each packet that the kit has sent there is an event
`sent`, with how many answers it had, once these must have come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openmrc.conform import events
from openmrc.conform.events import Event
from openmrc.conform.model.answering import Answering
from openmrc.conform.model.between import Between, Sent
from openmrc.conform.model.received import Received
from openmrc.conform.model.sending import Sending
from openmrc.conform.script import Rule, Step
from openmrc.conform.sentences import Sentence, read

SENT = "sent"  # the kind of the events of the kit's own packets
MISSING = "missing"  # a time in which a packet is not received
UNASKED, IDLE = "unasked", "idle"  # data that nothing followed; a time in which nothing left
_ANSWERS = ("sack", "nack", "ack", "response")
_COUNTED = {events.DELIVERED: "placed", events.DONE: "completions", events.RECEIVED: "receives"}


@dataclass(frozen=True)
class Breach:
    """A rule that did not hold, at a packet; and the packet before it."""

    rule: Rule
    step: Step
    sent: Event | None
    came: Event
    why: str


class Watch:
    """The rules that hold always, beside an exchange."""

    def __init__(self, rules: Sequence[Rule], target: Any, with_: Mapping[str, int]) -> None:
        self.breaches: list[Breach] = []
        self.held: set[str] = set()
        self._rules: dict[str, list[tuple[Rule, Step, Sentence]]] = {}
        for rule in rules:
            for step in rule.steps:
                sentence = read(step)
                self._rules.setdefault(sentence.kind, []).append((rule, step, sentence))
        self._link = Between(target, with_)
        self._answering, self._sending = Answering(self._link), Sending(self._link)
        a, b = self._answering, self._sending
        self._on = {
            "sack": a.on_sack, "nack": a.on_nack, "ack": a.on_ack, "request": a.on_request,
            "response": a.on_response, events.DELIVERED: a.on_delivered,
            events.RECEIVED: a.on_receive, "data": b.on_data, "probe": b.on_probe,
            events.DONE: b.on_completion, events.FAILED: self._on_error,
        }  # fmt: skip
        self._open: list[Sent] = []  # whose answers may still come
        self._seen = 0  # events of the log

    @property
    def received(self) -> Received:
        """What the target must have received."""
        return self._answering.received

    def may_believe(self, kind: str, fields: Mapping[str, int]) -> bool:
        """Whether the target may believe such an answer."""
        return self._sending.may_believe(kind, fields)

    # --- what is done to the target

    def sends(self, kind: str, fields: Mapping[str, int]) -> None:
        """The kit sends a packet, now."""
        right: dict[str, int] = {}
        ups = self._link.up
        if kind == "data":
            right = self._answering.data(fields)
        elif kind == "probe":
            right = self._answering.probe(fields)
        elif kind == "request":
            right = {"responses": self._answering.request(fields)}
        elif kind == "response":
            self._answering.response(fields)
        elif not fields.get(events.FRAME):
            if (idle := self._sending.idle()) is not None:
                self._check(Event(self._link.now_ps, IDLE, {}), idle)
            right = self._sending.hears(kind, fields)
        if ups != self._link.up:
            self._sending.disturbed()
        event = Event(self._link.now_ps, kind, dict(fields))
        one = Sent(event, kind, fields, right, self.received.now)
        self._answering.remember(one)
        self._link.sent.append(one)
        self._open.append(one)
        self._sending.waiting = None

    def posts(self, length: int, imm: int | None) -> None:
        """The application writes."""
        self._sending.posts(length, imm)

    def receives(self, n: int) -> None:
        """The application has this many receives posted."""
        self.received.receives = n

    def port(self, number: int, up: bool) -> None:
        """A port of the target goes down or comes up."""
        own = self._link.own_up
        own = own | 1 << number if up else own & ~(1 << number)
        self._link.turns(own, self._link.peers_up)
        self._sending.disturbed()

    # --- what the target does

    def looks(self) -> None:
        """Take what the target has done since, and what it has not."""
        if not self._rules:
            return
        log = self._link.target.log
        while self._seen < len(log):
            event = log[self._seen]
            self._seen += 1
            waited = self._sending.waiting if event.kind == "data" else None
            self._check(event, self._on[event.kind](event))
            self._check_asked(waited, 1)
            last = self._link.sent[-1] if self._link.sent and self._link.exact else None
            if last and event.kind in (events.DONE, events.RECEIVED, "ack"):
                last.answers[event.kind] += 1
        if self._sending.is_alone:
            self._check_asked(self._sending.waiting, 0)
            self._sending.waiting = None
        if (missing := self._sending.missing()) is not None:
            self._check(Event(self._link.now_ps, MISSING, {}), missing)
        late = self._link.target.heard_ps - 2 * self._link.target.patience_ps
        while self._open and (self._link.exact or self._open[0].event.at_ps < late):
            self._close(self._open.pop(0))

    def is_answered(self) -> bool:
        """Whether the newest packet that surely brings an answer has brought one, so that nothing
        before it is on its way.
        """
        owed = (
            one for one in reversed(self._open) if one.right.get("sacks") or one.right.get("nacks")
        )
        newest = next(owed, None)
        return newest is None or any(newest.answers[kind] for kind in ("sack", "nack"))

    def _close(self, one: Sent) -> None:
        """The answers to a packet must have come."""
        counts = {f"{kind}s": one.answers[kind] for kind in _ANSWERS}
        counts |= {name: one.answers[kind] for kind, name in _COUNTED.items()}
        self._check(Event(one.event.at_ps, SENT, {**one.fields, **counts}), one.right, one.event)

    def _check_asked(self, one: Event | None, followed: int) -> None:
        """Data that asked for nothing was followed by more, or not (row 5)."""
        if one is not None:
            self._check(Event(one.at_ps, UNASKED, one.fields), {"followed": followed}, one)

    def _on_error(self, _: Event) -> dict[str, int]:
        self.received.ended = self._sending.posted.ended = True
        self._sending.waiting = None
        return {}

    def _check(self, event: Event, right: Mapping[str, int], sent: Event | None = None) -> None:
        """Hold a packet against what is right."""
        for rule, step, sentence in self._rules.get(event.kind, ()):
            fields = event.fields
            if sentence.chosen and not all(c.holds(right, fields) for c in sentence.chosen):
                continue
            says = [c.says(right, fields) for c in sentence.must]
            if any(each is not None for each in says):
                self.held.add(rule.name)
            if False in says:
                wrong = sentence.must[says.index(False)]
                whole = {t.name: right.get(t.name) for t in wrong.right if t.own}
                why = f"{step.text} ({', '.join(f'{n} is {v}' for n, v in whole.items())})"
                last = sent or (self._link.sent[-1].event if self._link.sent else None)
                self.breaches.append(Breach(rule, step, last, event, why))
