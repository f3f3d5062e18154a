"""Every packet of an exchange against the model: what it finds that no statement asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openmrc.conform import script
from openmrc.conform.events import Event
from openmrc.conform.run import Verdict, run
from openmrc.engine import packet as pk
from openmrc.units import US

ALWAYS = script.rules(kind=script.ALWAYS)
SACK = {
    "pr": 0, "ack_psn_offset": 0, "cack_psn": 0, "psn": 0, "sack_offset": 1, "sack_bitmap": 0,
    "m": 0, "mpr": 0, "ooo_count": 0, "rcvd_bytes": 5, "rcv_cwnd_pen": 0, "restore_cwnd": 0,
    "class": pk.CLASS_CONTROL, "plane": 1, "ev": 0x1_0003, "entropy": 0x1_0003,
    "tx_timestamp": 0x9E37,
}  # fmt: skip


class Sacks:
    """Answers the first packet of data by one SACK."""

    name, blind = "sacks", frozenset[str]()
    patience_ps = settle_ps = now_ps = heard_ps = 0
    pmtu = 1024
    rtt_ps, rto_ps = 8 * US, 100 * US
    region = dict.fromkeys(("requester", "responder"), (0x1000, 7, 4096))
    flow_psn = dict.fromkeys(("requester", "responder"), 0)
    changed: Mapping[str, int] = {}

    def __init__(self, _: Mapping[str, int]) -> None:
        self.log: list[Event] = []

    def send(self, kind: str, given: Mapping[str, int]) -> None:
        """A packet arrives: it is placed, and answered."""
        placed = Event(0, "delivered", {"psn": given["psn"], "va": given["va"]})
        self.log += [placed, Event(0, "sack", {**SACK, **self.changed})]


def broken(**changed: int) -> set[str]:
    """The rules that one SACK breaks, with some fields of it changed."""
    text = "role responder\nrule r\nSays.\nsource: MRC 1.1\nsend data psn=+0 packet=1/8 a=1"
    [rule] = script.read("g", text)
    target: Any = type("Changed", (Sacks,), {"changed": changed})
    said: Verdict = run(rule, target, ALWAYS)
    return {breach.rule.name for breach in said.breaches}


def test_a_right_answer_breaks_nothing() -> None:
    assert broken() == set()


def test_each_field_of_an_answer_has_its_rule() -> None:
    for field, value, name in [
        ("cack_psn", 1, "every-sack-says-what-came-in-a-row"),
        ("sack_bitmap", 2, "every-bitmap-shows-what-came"),
        ("rcvd_bytes", 6, "every-sack-counts-the-bytes"),
        ("ooo_count", 1, "every-sack-counts-what-is-out-of-order"),
        ("m", 1, "every-mark-is-told-and-no-other"),
        ("mpr", 4, "every-sack-tells-the-window"),
        ("restore_cwnd", 1, "no-penalty-is-made-up"),
        ("entropy", 5, "every-answer-reflects-its-packet"),
        ("tx_timestamp", 0x9E38, "every-answer-reflects-its-packet"),
        ("ack_psn_offset", 1, "every-sack-names-its-packet"),
        ("class", pk.CLASS_DATA, "answers-are-in-the-control-class"),
        ("plane", 0, "answers-take-turns-of-planes"),
        ("ev", 0x1_0004, "answers-take-the-way-that-delivers"),
    ]:
        assert name in broken(**{field: value}), field


def test_an_answer_that_does_not_come_is_missed() -> None:
    text = "role responder\nrule r\nSays.\nsource: MRC 1.1\nsend data psn=+0 packet=1/8 a=1"
    [rule] = script.read("g", text)
    silent: Any = type("Silent", (Sacks,), {"send": lambda *_: None})
    names = {breach.rule.name for breach in run(rule, silent, ALWAYS).breaches}
    assert names == {"sacks-come-when-they-are-due", "payloads-are-placed-once"}


class Stalled(Sacks):
    """Answers at once, while the kit is stopped for long between any two of its steps."""

    patience_ps, settle_ps = 20 * US, 3 * US

    def __init__(self, _: Mapping[str, int]) -> None:
        self._seen_ps = self.heard_ps = 0
        self.log: list[Event] = []
        self._came: list[Event] = []

    @property
    def now_ps(self) -> int:  # type: ignore[override]  # the engine has an attribute
        """The time, which passes."""
        self._seen_ps += 1000 * US
        return self._seen_ps

    def send(self, kind: str, given: Mapping[str, int]) -> None:
        """A packet arrives, and is answered: the kit has not read that yet."""
        own = {"entropy": given["ev"], "tx_timestamp": given["tx_timestamp"]}
        self._came.append(Event(0, "sack", {**SACK, **own}))
        self._came.append(Event(0, "delivered", {"psn": given["psn"], "va": given["va"]}))

    def advance(self, _: int) -> None:
        """The kit reads what came."""
        self.heard_ps = self.now_ps
        self.log += self._came
        self._came = []


def test_what_a_stopped_kit_has_not_read_is_not_missing() -> None:
    text = "role responder\nrule r\nSays.\nsource: MRC 1.1\n"
    twice = "send data psn=+0 packet=1/8 a=1\nwait 1us\n"
    [rule] = script.read("g", text + twice + twice.replace("a=1", "a=1 rtx=1"))
    target: Any = Stalled
    missed = {breach.rule.name for breach in run(rule, target, ALWAYS).breaches}
    assert "sacks-come-when-they-are-due" not in missed
