"""What passes, what fails and with which two packets, and what is not applicable."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from openmrc.conform.events import Event
from openmrc.conform.run import FAIL, NOT_APPLICABLE, PASS, Verdict, run
from openmrc.conform.script import read
from openmrc.errors import InputError
from openmrc.units import US


class Echo:
    """Answers each packet of data by a SACK 3 us later, and each probe by nothing."""

    name = "echo"
    patience_ps = settle_ps = 0
    blind = frozenset({"error"})
    pmtu = 1024
    rtt_ps, rto_ps = 8 * US, 100 * US
    region = dict.fromkeys(("requester", "responder"), (0x1000, 7, 4096))

    def __init__(self, settings: Mapping[str, int]) -> None:
        if "planes" in settings:
            raise InputError("with: the echo has no planes")
        self.flow_psn = {"requester": 0xFF_FFFF, "responder": 0xFF_FFFF}
        self.now_ps = 0
        self.log: list[Event] = []
        self.heard: list[tuple[str, dict[str, int]]] = []
        self._due: list[tuple[int, Event]] = []
        Echo.last = self

    last: Echo

    @property
    def heard_ps(self) -> int:
        return self.now_ps

    def send(self, kind: str, given: Mapping[str, int]) -> None:
        self.heard.append((kind, dict(given)))
        if kind == "data":
            psn = given["psn"]
            fields = {"cack_psn": psn, "sack_offset": 1, "sack_bitmap": 0b10, "m": 0, "psn": psn}
            self._due.append((self.now_ps + 3 * US, Event(self.now_ps + 3 * US, "sack", fields)))

    def post(self, length: int, imm: int | None) -> None:
        self.heard.append(("post", {"length": length, "imm": imm or 0}))

    def receives(self, n: int) -> None:
        self.heard.append(("receives", {"n": n}))

    def port(self, number: int, up: bool) -> None:
        self.heard.append(("port", {"number": number, "up": int(up)}))

    def advance(self, until_ps: int) -> None:
        due = [each for each in self._due if each[0] <= until_ps]
        self.now_ps = min(due)[0] if due else until_ps
        for each in due:
            self._due.remove(each)
            self.log.append(each[1])


def ran(*statements: str, head: str = "") -> Verdict:
    text = "role responder\nrule r\nSays.\nsource: MRC 1.1\n" + head + "\n".join(statements)
    [rule] = read("g", text)
    return run(rule, Echo)


ONE = "send data psn=+0 a=1"


@pytest.mark.parametrize(
    "statements",
    [
        (ONE, "expect sack cack_psn=+0"),
        (ONE, "expect sack cack_psn=0xffffff has=+0 lacks=+1 has=+2"),
        (ONE, "expect sack m=NONE m!=SKIP_ONCE psn>=+0 within 3us"),
        (ONE, "never sack for 2.9us"),
        (ONE, "expect sack as x", "send data psn=+1", "expect sack psn=$x.psn+1"),
        (ONE, "expect sack", "never sack for 1rto"),
        (ONE, ONE, "expect sack", "expect sack"),
        (ONE, "wait 2us", "never sack", "expect sack within 1us"),
        ("send probe probe_id=1", "never sack for 1rtt"),
    ],
)
def test_what_passes(statements: tuple[str, ...]) -> None:
    assert ran(*statements).outcome == PASS


@pytest.mark.parametrize(
    ("statements", "why", "came"),
    [
        ((ONE, "expect sack m=SKIP_ONCE"), "missing: expect sack m=SKIP_ONCE", "sack"),
        ((ONE, "expect sack within 2.9us"), "missing: expect sack within 2.9us", ""),
        ((ONE, "expect sack lacks=+2"), "missing: expect sack lacks=+2", "sack"),
        ((ONE, "expect nack"), "missing: expect nack", "sack"),
        ((ONE, "never sack for 3us"), "must not come: never sack for 3us", "sack"),
        ((ONE, "expect sack", "expect sack"), "missing: expect sack", ""),
        ((ONE, "expect sack", "send probe probe_id=2", "expect sack"), "missing: expect sack", ""),
    ],
)
def test_what_fails_is_shown_by_two_packets(
    statements: tuple[str, ...], why: str, came: str
) -> None:
    verdict = ran(*statements)
    assert (verdict.outcome, verdict.why) == (FAIL, why)
    assert (verdict.came.kind if verdict.came else "") == came
    assert verdict.sent is not None
    assert verdict.step is not None
    assert verdict.step.line == 4 + len(statements)


def test_an_answer_to_an_earlier_packet_is_no_answer_to_a_later_one() -> None:
    verdict = ran(ONE, "wait 4us", "send probe probe_id=1", "expect sack")
    assert verdict.outcome == FAIL


def test_a_target_that_cannot_be_set_so_is_not_held_against_the_rule() -> None:
    verdict = ran(ONE, "expect nack", head="with: planes=4\n")
    assert (verdict.outcome, verdict.why) == (NOT_APPLICABLE, "with: the echo has no planes")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("send data psn=+0 colour=1", "g.rules line 5: 'colour': data has"),
        ("expect sack m=SOMETIMES", "m=SOMETIMES: neither a number nor a name of it"),
        ("expect answer", "'answer' is no kind"),
        ("expect sack psn=$x.psn", r"\$x: no `expect ... as x` found it"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(statement: str, words: str) -> None:
    statements = (statement,) if statement.startswith("send") else (ONE, statement + " m=0")
    with pytest.raises(InputError, match=words):
        ran(*statements)


def test_headers_of_data_that_are_not_named_are_right() -> None:
    ran("send data psn=+1 packet=2/3 dma_length=2500", "send data psn=+2 packet=3/3 imm=5 at=512")
    (_, middle), (_, last) = Echo.last.heard
    assert (middle["psn"], middle["va"], middle["rkey"]) == (0, 0x1000 + 1024, 7)
    assert (middle["length"], middle["dma_length"], middle["opcode"]) == (1024, 2500, 0xC7)
    assert (last["va"], last["opcode"], last["imm"]) == (0x1000 + 512 + 2048, 0xC9, 5)


def test_what_the_application_and_the_operator_do() -> None:
    ran("post 100 imm=3", "receives 2", "port 1 down", "port 1 up")
    assert Echo.last.heard == [
        ("post", {"length": 100, "imm": 3}),
        ("receives", {"n": 2}),
        ("port", {"number": 1, "up": 0}),
        ("port", {"number": 1, "up": 1}),
    ]
