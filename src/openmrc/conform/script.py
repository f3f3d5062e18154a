"""Rules as text: one file per group, one exchange per rule, readable without Python.

    role responder

    rule sack-when-asked
        A packet with AckReq is answered by a SACK at once.
        source: MRC 2.4, row 5
        send data psn=+0 a=1
        expect sack cack_psn=+0 ack_psn_offset=0

Lines before the first statement are the rule's sentence; `source:` states its origin, and `with:`
the settings that the target needs. The statements:

    send KIND FIELD=VALUE ...             the kit sends this, now
    expect KIND FIELD=VALUE ...           this must arrive after the last `send`, within a round
                                          trip unless `within TIME` says otherwise; found once
    never KIND FIELD=VALUE ...            this must not, after the last `send`, and `for TIME`
    wait TIME                             let time pass
    post BYTES [imm=N]                    the target's application writes
    receives N                            it has this many receives posted
    port N down|up                        a port of the target
    arrive N CHANCE=PERCENT ...           the kit sends messages of N packets, by a network that
                                          loses, until all have come: see `model.peer`
    serve TIME CHANCE=PERCENT ...         the kit answers as a whole responder, by such a network
    each KIND ...: ...                    for captures alone: see `passive`
    for i in 0..15: ...; ...              these statements once for each number, both ends included;
                                          "{i}", "{i+1}" and "{2*i}" are the number, or follow it

A TIME is "5us", "2rtt" or "1.5rto". A VALUE is a number, a name of the field's values, "+3" for a
PSN, an address or a key counted from the first, or "$x.FIELD+1" of what an `expect ... as x` found.
In `expect` and `never` FIELD may be followed by =, !=, <= or >=; the fields are those of the wire.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources

from openmrc.errors import InputError

ROLES = ("requester", "responder")
SOURCES = ("MRC", "row", "IBTA", "UET")  # public text, our choice, what MRC builds on
_WORDS = {"send", "expect", "never", "wait", "post", "receives", "port", "each", "arrive", "serve"}
OF_CAPTURES = "capture-"  # prefix of the groups whose rules check captures
ALWAYS = "always-"  # and of those whose rules hold in every exchange
_CONDITION = re.compile(r"(\w+)(=|!=|<=|>=)(\S+)")
_TIME = re.compile(r"([\d.]+)(us|rtt|rto)")
_FOR = re.compile(r"for i in (\d+)\.\.(\d+):(.*)")
_NUMBER = re.compile(r"\{(?:(\d+)\*)?i(?:([+-])(\d+))?\}")


@dataclass(frozen=True)
class Time:
    """A time in a unit of its own."""

    amount: float
    unit: str  # "us", "rtt" or "rto"


@dataclass(frozen=True)
class Step:
    """One statement: its line, word, subject, and its conditions (field, sign, value)."""

    line: int
    text: str
    word: str
    kind: str
    conditions: tuple[tuple[str, str, str], ...] = ()
    time: Time | None = None
    name: str = ""  # `as NAME`


@dataclass(frozen=True)
class Rule:
    """One rule of a group."""

    name: str
    group: str
    role: str
    says: str
    source: str
    settings: dict[str, int] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()


def rules(role: str | None = None, kind: str = "") -> list[Rule]:
    """Return the kit's own rules, of one role or of both, in the order of their files: those with
    an exchange, or of another kind.
    """
    found = []
    for group, text in sorted(_files()):
        if kind == next((one for one in (ALWAYS, OF_CAPTURES) if group.startswith(one)), ""):
            found += read(group, text)
    return [rule for rule in found if role in (None, rule.role)]


def _files() -> Iterator[tuple[str, str]]:
    for entry in resources.files("openmrc.conform").joinpath("rules").iterdir():
        if entry.name.endswith(".rules"):
            yield entry.name.removesuffix(".rules"), entry.read_text(encoding="utf-8")


def read(group: str, text: str) -> list[Rule]:
    """Return the rules of a file. Raises `InputError` with group and line."""
    role, found, head = "", [], _Head()
    for number, full in enumerate(text.splitlines(), 1):
        line = full.split("#")[0].strip()
        try:
            if line.startswith("role "):
                role = _one_of(line[5:].strip(), ROLES)
            elif line.startswith("rule "):
                found += head.finished(group, role)
                head = _Head(line[5:].strip())
            elif line:
                for one in _repeated(line):
                    head.take(number, one)
        except InputError as error:
            raise InputError(f"{group}.rules line {number}: {error}") from None
    found += head.finished(group, role)
    return found


def _repeated(line: str) -> Iterator[str]:
    """The statements that a line stands for: itself, or those of a `for`."""
    if not line.startswith("for "):
        yield line
        return
    matched = _FOR.fullmatch(line)
    if not matched:
        raise InputError(f"{line!r}: such as `for i in 0..15: send data psn=+{{i}}; wait 1us`")

    for i in range(int(matched[1]), int(matched[2]) + 1):

        def value(of: re.Match[str], i: int = i) -> str:
            times, sign, by = of.groups()
            number = int(times or 1) * i + (-1 if sign == "-" else 1) * int(by or 0)
            return str(number)

        for statement in matched[3].split(";"):
            yield _NUMBER.sub(value, statement.strip())


class _Head:
    """A rule while it is read."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._says: list[str] = []
        self._source = ""
        self._settings: dict[str, int] = {}
        self._steps: list[Step] = []

    def take(self, number: int, line: str) -> None:
        """Read one line of it."""
        word, _, rest = line.partition(" ")
        if not self.name:
            raise InputError(f"{line!r} comes before the first rule")
        if word == "source:":
            self._source = rest
        elif word == "with:":
            pairs = (pair.split("=") for pair in rest.split())
            self._settings = {name: int(value, 0) for name, value in pairs}
        elif word in _WORDS:
            self._steps.append(_step(number, line, word, rest))
        elif self._steps:
            raise InputError(f"{word!r} is no statement; {', '.join(sorted(_WORDS))} are")
        else:
            self._says.append(line)

    def finished(self, group: str, role: str) -> list[Rule]:
        """Return the rule, if there is one."""
        if not self.name:
            return []
        if not (self._says and self._steps and role):
            raise InputError(f"{group}.rules: {self.name} needs a role, a sentence and an exchange")
        if not self._source.startswith(SOURCES):
            raise InputError(f"{group}.rules: {self.name} needs a source: {', '.join(SOURCES)}")
        says, steps = " ".join(self._says), tuple(self._steps)
        return [Rule(self.name, group, role, says, self._source, self._settings, steps)]


def _step(number: int, line: str, word: str, rest: str) -> Step:
    words = rest.split()
    if word == "each":  # `passive` reads it
        return Step(number, line, word, "")
    if word == "wait":
        return Step(number, line, word, "", time=_time(rest))
    kind, words = words[0], words[1:]
    conditions, time, name = [], None, ""
    if word == "serve":
        time = _time(kind)
    while words:
        head = words.pop(0)
        if head in ("within", "for") and words:
            time = _time(words.pop(0))
        elif head == "as" and words:
            name = words.pop(0)
        elif matched := _CONDITION.fullmatch(head):
            conditions.append((matched[1], matched[2], matched[3]))
        elif word == "port":
            kind = f"{kind} {_one_of(head, ('down', 'up'))}"
        else:
            raise InputError(f"{head!r} is neither FIELD=VALUE nor within, for, as")
    return Step(number, line, word, kind, tuple(conditions), time, name)


def _time(text: str) -> Time:
    matched = _TIME.fullmatch(text)
    if not matched:
        raise InputError(f"{text!r} is no time; such as 5us, 2rtt or 1.5rto")
    return Time(float(matched[1]), matched[2])


def _one_of(text: str, accepted: tuple[str, ...]) -> str:
    if text not in accepted:
        raise InputError(f"{text!r}: {', '.join(accepted)} are accepted")
    return text
