"""The controller behind real sockets of this machine: agents' words, HTTP, a secret, a history."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from openmrc.errors import InputError, OutputError
from openmrc.ops.mapper import words
from openmrc.ops.mapper.admission import PERIODS_MIN, Known, judge
from openmrc.ops.mapper.agent import Loss, Report
from openmrc.ops.mapper.collector import Place, Said
from openmrc.ops.mapper.history import History, JobRow, Row
from openmrc.ops.mapper.jobs import OVER_US, Jobs, reached
from openmrc.ops.mapper.link import Link
from openmrc.ops.mapper.node import known, loops_of
from openmrc.ops.mapper.server import Controller
from openmrc.units import MS
from openmrc.verbs import denylist
from openmrc.verbs.advised import Advice
from openmrc.verbs.exposition import TEXT
from openmrc.verbs.line import CLIENT, STRANGER_MAX, ExchangeError, Line
from openmrc.verbs.secret import of_agent, token
from tests.ops.mapper.world import small

SCHEDULE = small()
SECRET, OTHER = bytes(range(32)), bytes(range(1, 33))
WAIT_S = 60.0  # for what comes at once on a machine that is free


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    with (
        History(tmp_path / "history.sqlite") as history,
        Controller(SCHEDULE, SECRET, history, host="127.0.0.1") as one,
    ):
        yield one


def agent(controller: Controller, nic: int) -> Line:
    line = Line.to("127.0.0.1", controller.port, WAIT_S)
    line.authenticate(SECRET, CLIENT)
    line.send(words.join(SCHEDULE, nic))
    assert line.receive() == {"welcome": 1}
    return line


def report(lost: list[Loss], periods: int = PERIODS_MIN) -> dict[str, Any]:
    return words.said(Report(100 * MS, periods, lost, [], []), [])


def judge_of(loss: Loss) -> int:
    return int(SCHEDULE.judges(loss.turn, [loss.number])[0])


def asked(
    controller: Controller, path: str, method: str = "GET", body: str = "", secret: bytes = SECRET
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", controller.http_port, timeout=WAIT_S)
    connection.request(method, path, body, {"Authorization": f"Bearer {token(secret)}"})
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def until(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + WAIT_S
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return holds()


def test_what_agents_lose_becomes_a_place_a_denylist_a_history_and_advice_on_nodes(
    controller: Controller,
) -> None:
    lines = [agent(controller, nic) for nic in range(8)]
    fabric = SCHEDULE.fabric
    own = fabric.nic_port(3, 2)
    crossing = [
        Loss(number, turn, (90 + turn % 2) * MS)
        for turn in range(4)
        for number, route in enumerate(SCHEDULE.routes(turn).tolist())
        if own in route
    ]
    for line in lines:
        line.send(report([]))
    for nic, line in enumerate(lines):  # each agent says what it judges
        if mine := [one for one in crossing if judge_of(one) == nic]:
            line.send(report(mine, 1))
    assert until(lambda: bool(controller.state()["places"]))
    (place,) = asked(controller, "/state")[1]["places"]
    assert (place["place"], place["until_us"]) == ("nic 3 plane 2 > t0", None)
    status, listed = asked(controller, "/denylist")
    assert (status, listed["version"]) == (200, 1)
    assert [(one["where"], one["source"]) for one in listed["entries"]] == [
        ("nic 3 plane 2 > t0", "mapper")
    ]
    past = asked(controller, "/history")[1]["places"]
    assert [one["place"] for one in past] == ["nic 3 plane 2 > t0"]
    admitted = {one["nic"]: one for one in asked(controller, "/admission?nics=2-3")[1]}
    assert admitted[2]["fit"]
    assert not admitted[3]["fit"]
    assert "nic 3 plane 2 > t0 loses" in admitted[3]["reasons"][0]
    shown = asked(controller, "/page.json")[1]
    assert (shown["live"], shown["fabric"]["nics"]) == (True, 8)
    assert [one["links"] for one in shown["places"]] == [[[14, 1]]]
    for line in lines:
        line.close()
    assert until(lambda: len(controller.state()["silent"]) == 8)
    served = controller.metrics(TEXT)
    assert 'openmrc_place_loss_ratio{place="nic 3 plane 2 > t0",kind="link"} ' in served
    assert served.count("openmrc_agent_silent{") == 8
    gone = asked(controller, "/admission?nics=2")[1][0]
    assert gone["reasons"] == ["no agent speaks for it"]


class Device:
    """A job's, on NIC 3."""

    nic, fabric = 3, SCHEDULE.fabric

    def keep_off(self, denied: Any) -> None:
        raise AssertionError

    def totals(self) -> dict[str, int]:
        return {"sent": 100, "again": 2, "set_aside": 1}


def test_a_jobs_devices_tell_what_they_lost_and_where_it_may_have_been(tmp_path: Path) -> None:
    file = tmp_path / "history.sqlite"
    with History(file) as history, Controller(SCHEDULE, SECRET, history, host="127.0.0.1") as one:
        lossy = Row(
            "nic 3 plane 2 > t0", "link", 1 << 60, 1 << 60, None, 1 << 60, 1.0, 9, 9, 9.0, 0
        )
        history.place(None, lossy)
        history.place(None, lossy._replace(place="nic 4 plane 2 > t0"))
        for _ in range(2):  # two processes of one host
            advice = Advice(Device(), f"http://127.0.0.1:{one.http_port}", SECRET, job="train")
            advice.look(0)
            advice.look(0)
        (job,) = asked(one, "/jobs")[1]["jobs"]
        assert (job["job"], job["nics"], job["until_us"]) == ("train", "3", None)
        assert (job["sent"], job["again"], job["set_aside"]) == (200, 4, 2)
        assert job["places"] == ["nic 3 plane 2 > t0"]
        (shown,) = asked(one, "/page.json")[1]["jobs"]
        assert (shown["name"], shown["again"]) == ("train", 4)
        assert shown["words"] == "Lossy on its ways: nic 3 plane 2 > t0."
        good = {"job": "x", "device": "y", "nic": 0, "sent": 0, "again": 0, "set_aside": 0}
        refused: list[Any] = [None, -1, 1 << 63, "", "\n", "z" * 200, []]
        for key in good:
            for bad in refused:
                body = json.dumps(good | {key: bad})
                assert asked(one, "/jobs", "POST", body)[0] == 400
    with History(file) as history:
        history.close_open()  # as the next controller does
        assert [(row.sent, row.until_us == row.last_us) for row in history.jobs()] == [(200, True)]


def test_a_job_of_which_nobody_says_anything_is_over_and_its_name_may_come_again() -> None:
    jobs = Jobs(SCHEDULE.fabric)
    row = {"job": "a", "device": "d", "nic": 5, "sent": 7, "again": 0, "set_aside": 0}
    for at_us, nic in ((0, 5), (1, 6), (2, 0)):
        jobs.hear(at_us, row | {"nic": nic, "device": str(nic)})
    assert jobs.over(2 + OVER_US) == []
    assert jobs.over(3 + OVER_US) == [JobRow("a", 0, 2, 2, "0,5-6", 21, 0, 0)]
    jobs.hear(4 + OVER_US, row)
    assert jobs.rows() == [JobRow("a", 4 + OVER_US, 4 + OVER_US, None, "5", 7, 0, 0)]


def test_a_job_of_one_t0_meets_no_link_between_switches() -> None:
    row = Row("plane 1 t0 0 > t1 1", "link", 5, 6, None, 5, 1.0, 9, 9, 9.0, 0)
    job = JobRow("a", 0, 9, None, "0-3", 0, 0, 0)
    assert reached(SCHEDULE.fabric, job, [row]) == []
    assert reached(SCHEDULE.fabric, job._replace(nics="0,4"), [row]) == ["plane 1 t0 0 > t1 1"]
    assert reached(SCHEDULE.fabric, job._replace(nics="0,4", until_us=4), [row]) == []
    ended = row._replace(until_us=6)
    assert reached(SCHEDULE.fabric, job._replace(nics="0,4", since_us=7), [ended]) == []


def test_an_operators_own_entry_has_an_end(controller: Controller) -> None:
    body = json.dumps({"where": "plane 0 t1 1", "reason": "optics are swapped", "for_s": 600})
    status, listed = asked(controller, "/denylist", "POST", body)
    (entry,) = listed["entries"]
    assert (status, entry["source"], entry["reason"]) == (200, "operator", "optics are swapped")
    assert entry["until_us"] - entry["since_us"] == 600 * 10**6
    for bad in ("{}", "[]", "{", json.dumps({"where": "plane 9", "reason": "x", "for_s": 1})):
        assert asked(controller, "/denylist", "POST", bad)[0] == 400


def test_an_operators_own_entry_is_replaced_and_withdrawn(controller: Controller) -> None:
    def denied(where: str, for_s: float) -> list[tuple[str, float]]:
        body = json.dumps({"where": where, "reason": "x", "for_s": for_s})
        status, listed = asked(controller, "/denylist", "POST", body)
        assert status == 200
        return [
            (one["where"], (one["until_us"] - one["since_us"]) / 10**6) for one in listed["entries"]
        ]

    assert denied("plane 0 t1 1", 600) == [("plane 0 t1 1", 600)]
    assert denied("plane 0 t1 1", 60) == [("plane 0 t1 1", 60)]
    assert denied("plane 1 t1 0", 9) == [("plane 0 t1 1", 60), ("plane 1 t1 0", 9)]
    assert denied("plane 0 t1 1", 0) == denied("plane 0 t1 1", 0) == [("plane 1 t1 0", 9)]


def test_what_an_operator_does_is_written_down_and_on_the_page(controller: Controller) -> None:
    note = {"where": "plane 0 t1 0", "text": "rebooting"}
    status, row = asked(controller, "/notes", "POST", json.dumps(note))
    assert (status, row["who"], row["what"]) == (200, "operator", "acknowledged")
    deny = {"where": "plane 0 t1 0", "reason": "broken", "for_s": 60}
    for for_s in (60, 0, 0):  # the second 0 lifts nothing, and is not written down
        assert asked(controller, "/denylist", "POST", json.dumps(deny | {"for_s": for_s}))[0] == 200
    notes = controller.page()["notes"]
    assert [(one["what"], one["text"]) for one in notes] == [
        ("acknowledged", "rebooting"), ("denied", "broken"), ("lifted", "broken"),
    ]  # fmt: skip
    for wrong in (
        note | {"where": "the cellar"}, note | {"where": 7}, note | {"where": ""},
        note | {"text": None}, note | {"text": "x" * 401}, {},
    ):  # fmt: skip
        assert asked(controller, "/notes", "POST", json.dumps(wrong))[0] == 400
    assert asked(controller, "/notes", "POST", json.dumps(note), OTHER)[0] == 401
    assert controller.page()["notes"] == notes


def test_who_does_not_know_the_secret_learns_and_changes_nothing(controller: Controller) -> None:
    for path in ("/state", "/denylist", "/history", "/events", "/"):
        assert asked(controller, path, secret=OTHER)[0] == 401
    assert asked(controller, "/denylist", "POST", "{}", OTHER)[0] == 401
    line = Line.to("127.0.0.1", controller.port, WAIT_S)
    with contextlib.suppress(ExchangeError):  # it sees that the controller knows another
        line.authenticate(OTHER, CLIENT)
    with pytest.raises((ExchangeError, OSError)):
        line.receive()
    line.close()
    assert controller.state()["agents"] == []


def test_what_is_no_word_ends_a_connection_and_nothing_else(controller: Controller) -> None:
    good = agent(controller, 1)
    for bad in ({"report": 1}, {"counted": -1, "heard": []}, {"join": 1}):
        line = agent(controller, 2)
        line.send(bad)
        with pytest.raises((ExchangeError, OSError)):
            line.receive()
        line.close()
    raw = Line.to("127.0.0.1", controller.port, WAIT_S)
    raw._socket.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)) * 10)
    raw.close()
    good.send(report([]))
    assert until(lambda: controller.state()["agents"] == [1])
    for path, status in (
        ("/history?since_us=x", 400),
        ("/admission?nics=99", 400),
        ("/nowhere", 404),
        ("/state?" + "a=1&" * 40, 400),
    ):
        assert asked(controller, path)[0] == status
    assert asked(controller, "/state", "POST", "{}")[0] == 405
    good.close()


@pytest.mark.parametrize(
    "hello",
    [
        b'{"openmrc": 3, "nonce": "\\ud800"}\n{"proof": "\\ud800"}\n',
        b'{"openmrc": 3, "nonce": "' + b"0" * 64 + b'", "nic": 1e3}\n{"proof": ""}\n',
        b'{"openmrc": 3, "nonce": "' + b"0" * 64 + b'", "nic": 8}\n{"proof": ""}\n',
        b"a" * (STRANGER_MAX + 1),
        b'{"a": ' * 100_000 + b"\n",
        b'{"openmrc": ' + b"9" * 5000 + b"}\n",
        b"[" * 2_000_000,
        b"\n\xff\n",
        b"null\n",
        b"",
    ],
)
def test_a_stranger_ends_its_own_connection_and_no_other(
    controller: Controller, hello: bytes
) -> None:
    good = agent(controller, 1)
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", controller.port), timeout=WAIT_S) as raw:
            with contextlib.suppress(OSError):  # it may be sent away before it has said all
                raw.sendall(hello)
                raw.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                while raw.recv(1 << 16):
                    pass
    late = agent(controller, 2)
    good.send(report([]))
    assert until(lambda: controller.state()["agents"] == [1, 2])
    assert controller.failure is None
    late.close()
    good.close()


def joins(controller: Controller, key: bytes, about: dict[str, Any], nic: int) -> dict[str, Any]:
    """What the controller answers to an agent with this key."""
    with contextlib.closing(Line.to("127.0.0.1", controller.port, WAIT_S)) as line:
        line.authenticate(key, CLIENT, about)
        line.send(words.join(SCHEDULE, nic))
        return line.receive()


def test_the_place_of_one_that_has_proven_nothing_is_given_up_first(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller._door, "_most", 4)
    good = agent(controller, 0)
    silent = [
        socket.create_connection(("127.0.0.1", controller.port), timeout=WAIT_S) for _ in range(8)
    ]
    agent(controller, 1).close()  # at once, though all places are taken
    with silent[0].makefile("rb") as said:
        assert said.read().count(b"\n") == 1  # a hello, and the end
    good.send(report([]))
    assert until(lambda: 0 in controller.state()["agents"])
    for one in silent:
        one.close()
    good.close()


def test_the_key_of_a_nic_speaks_for_that_nic_alone(controller: Controller) -> None:
    key = of_agent(SECRET, 4)
    assert joins(controller, key, {"nic": 4}, 4) == {"welcome": 1}
    assert until(lambda: controller.state()["agents"] == [])
    assert joins(controller, key, {"nic": 4}, 5) == {"refused": "nic 5: the key is that of nic 4"}
    for about in ({"nic": 5}, {}):
        with pytest.raises(ExchangeError, match="the secrets of both ends differ"):
            joins(controller, key, about, 5)
    assert controller.state()["agents"] == []


def test_an_agents_link_proves_its_key_or_the_secret(controller: Controller) -> None:
    said: list[str] = []
    join = words.join(SCHEDULE, 4)
    for key, is_key in ((of_agent(SECRET, 4), True), (SECRET, False)):
        with Link("127.0.0.1", controller.port, key, join, said.append, is_key) as link:
            assert until(partial(getattr, link, "connected"))
            link.send(report([]))
            assert until(lambda: controller.state()["agents"] == [4])
        assert until(lambda: controller.state()["agents"] == [])
    with Link("127.0.0.1", controller.port, of_agent(SECRET, 5), join, said.append, True):
        assert until(lambda: bool(said))
    assert said[0].endswith("the secrets of both ends differ); probing goes on")


def test_while_an_agent_lives_no_other_takes_its_place(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = agent(controller, 4)
    first.send(report([]))
    for key, about in ((SECRET, {}), (of_agent(SECRET, 4), {"nic": 4})):
        refused = joins(controller, key, about, 4)["refused"]
        assert refused.startswith("nic 4: its agent is connected")
    monkeypatch.setattr(controller._collector, "hears", lambda *_: False)  # it is silent for long
    second = agent(controller, 4)
    with pytest.raises(ExchangeError):
        first.receive()
    second.close()
    first.close()


def test_an_agent_reports_about_its_own_probes_alone(controller: Controller) -> None:
    """Of a loop its sender knows, of a probe sent one way its receiver."""
    per_port = SCHEDULE.per_port * SCHEDULE.fabric.n_planes
    every = [Loss(number, 0, 90 * MS) for number in range(4 * per_port, 5 * per_port)]
    mine = [one for one in every if judge_of(one) == 4]
    others = [one for one in every if judge_of(one) != 4]  # sent one way, by NIC 4
    assert mine
    assert others
    line = agent(controller, 4)
    line.send(report(mine))
    assert until(lambda: bool(controller._collector._losses))
    assert [one.loss.number for one in controller._collector._losses] == [
        one.number for one in mine
    ]
    for key in ("lost", "late"):
        message = report([])
        message["report"][key] = [[others[0].number, 0, 90_000]]
        line.send(message)
        with pytest.raises(ExchangeError):  # the connection ends
            line.receive()
        line.close()
        line = agent(controller, 4)
    assert len(controller._collector._losses) == len(mine)
    line.close()


def get(controller: Controller, path: str, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", controller.http_port, timeout=WAIT_S)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_the_page_asks_for_the_token_and_keeps_it_in_a_cookie_that_only_reads(
    controller: Controller,
) -> None:
    status, asks = get(controller, "/")
    assert status == 401
    assert b'<form method="post" action="/login">' in asks
    connection = http.client.HTTPConnection("127.0.0.1", controller.http_port, timeout=WAIT_S)
    connection.request("POST", "/login", f"token={token(OTHER)}")
    wrong = connection.getresponse()
    assert (wrong.status, wrong.headers["Set-Cookie"]) == (401, None)
    assert b"mrc secret --token" in wrong.read()
    connection.request("POST", "/login", f"token=+{token(SECRET)}+")
    taken = connection.getresponse()
    assert (taken.status, taken.headers["Location"]) == (303, "/")
    cookie, *attributes = taken.headers["Set-Cookie"].split("; ")
    assert attributes == ["HttpOnly", "SameSite=Strict", "Path=/"]
    taken.read()
    for path in ("/", "/page.json", "/state"):
        assert get(controller, path, Cookie=f"a=b; {cookie}")[0] == 200
    connection.request("POST", "/denylist", "{}", {"Cookie": cookie})
    assert connection.getresponse().status == 401
    connection.close()


@pytest.mark.parametrize("path", ["/state", "/", "/denylist", "/nowhere"])
def test_a_token_in_an_address_is_refused_with_a_word(controller: Controller, path: str) -> None:
    status, why = get(controller, f"{path}?token={token(SECRET)}")
    assert status == 400
    assert "Authorization: Bearer" in json.loads(why)["error"]


def test_whatever_is_open_the_end_comes_at_once(tmp_path: Path) -> None:
    """Strangers, agents that wait, half a request, half a body and a stream of events."""
    with History(tmp_path / "history.sqlite") as history:
        one = Controller(SCHEDULE, SECRET, history, host="127.0.0.1")
        agents = [agent(one, nic) for nic in range(2)]
        bearer = f"Authorization: Bearer {token(SECRET)}\r\n".encode()
        said = (
            (one.port, b""),
            (one.port, b'{"openmrc'),
            (one.http_port, b""),
            (one.http_port, b"GET /sta"),
            (one.http_port, b"GET /events HTTP/1.1\r\n" + bearer + b"\r\n"),
            (one.http_port, b"POST /jobs HTTP/1.1\r\n" + bearer + b"Content-Length: 9\r\n\r\n{"),
        )
        held = []
        for port, words_ in said:
            held.append(socket.create_connection(("127.0.0.1", port), timeout=WAIT_S))
            held[-1].sendall(words_)
        assert until(lambda: len(one._streams) == 1)
        began = time.monotonic()
        one.close()
        assert time.monotonic() - began < WAIT_S / 3  # 2 s on a machine that is free; or never
        for each in held:
            with contextlib.suppress(OSError):
                while each.recv(1 << 16):
                    pass
            each.close()
        for line in agents:
            with pytest.raises(ExchangeError):
                line.receive()
            line.close()


def test_a_request_that_is_too_much_is_refused_and_answered(controller: Controller) -> None:
    row = {"where": "plane 0 t1 1", "reason": "x", "for_s": 10**400}
    assert asked(controller, "/denylist", "POST", json.dumps(row))[0] == 400
    assert asked(controller, "/denylist", "POST", "[" * 60_000)[0] == 400
    assert asked(controller, "/admission?nics=0-" + "9" * 400)[0] == 400
    connection = http.client.HTTPConnection("127.0.0.1", controller.http_port, timeout=WAIT_S)
    headers = {"Authorization": f"Bearer {token(SECRET)}", "Content-Length": "9" * 5000}
    connection.request("POST", "/jobs", headers=headers)
    assert connection.getresponse().status == 400
    connection.close()
    assert asked(controller, "/state")[0] == 200


def test_a_controller_that_was_killed_goes_on_with_its_versions_and_ends_what_was_open(
    tmp_path: Path,
) -> None:
    file = tmp_path / "history.sqlite"
    row = Row("nic 1 plane 0 > t0", "link", 10, 20, None, 15, 1.0, 9, 9, 99.0, 0)
    with History(file) as history, Controller(SCHEDULE, SECRET, history) as one:
        one.deny("plane 0 t1 1", "a test", 1000)
        history.place(None, row)
    with History(file) as history, Controller(SCHEDULE, SECRET, history) as two:
        assert two.denied()["version"] == 1
        assert not two.denied()["entries"]  # advice of the dead is no advice
        two.deny("plane 0 t1 0", "a test", 1000)
        assert two.denied()["version"] == 2
    with History(file, read_only=True) as history:
        assert history.places() == [row._replace(until_us=20)]
        assert history.places(since_us=21) == []


def test_a_file_that_is_no_history_is_refused_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("no database at all, but long enough to be one" * 9)
    with pytest.raises(InputError, match="mrc ops controller"):
        History(file, read_only=True)
    with pytest.raises(OutputError, match="--history"):
        History(file)


def test_a_nodes_own_reports_say_which_planes_answer() -> None:
    per_port = SCHEDULE.per_port
    loops = loops_of(SCHEDULE, 3)
    assert 0 < loops < per_port

    def losses(plane: int, n: int) -> list[Loss]:
        return [Loss((3 * 4 + plane) * per_port, 0, i) for i in range(n)]

    def of(lost: list[Loss], late: list[Loss] | None = None) -> Known:
        reports = [Report(0, PERIODS_MIN, lost, late or [], [])]
        return known(SCHEDULE, 3, PERIODS_MIN, reports, [])

    half = PERIODS_MIN * loops // 2
    assert of(losses(2, half)).unreached == (2,)
    assert of(losses(2, half - 1)).unreached == ()
    assert of(losses(2, half), losses(2, 1)).unreached == ()
    foreign = [Loss(0, 0, 0)] * half  # of NIC 0, which this one counts
    assert of(foreign).lost == 0
    fabric = SCHEDULE.fabric
    assert judge(fabric, of([])).fit
    assert judge(fabric, of(losses(1, 1))).reasons == (f"1 of {40 * loops} probes were lost",)


def place(where: str, kind: str, cause: int) -> Place:
    return Place(where, kind, cause, 0, 0, 0, 0.1, 9, 90, 50.0)


def test_a_node_fails_for_what_is_its_own_and_says_so() -> None:
    fabric = SCHEDULE.fabric
    fine = Known(1, True, PERIODS_MIN, ())
    assert judge(fabric, fine).fit
    assert not judge(fabric, Known(1, True, PERIODS_MIN - 1, ())).fit
    down = judge(fabric, Known(1, True, PERIODS_MIN, (2,), (2, 3)))
    assert down.reasons == (
        "port of plane 2 is down",
        "plane 3 is not reached: no probe came back",
    )
    own = fabric.nic_port(1, 0)
    bad = place("nic 1 plane 0 > t0", "link", own)
    assert judge(fabric, fine, [bad]).reasons == ("nic 1 plane 0 > t0 loses 10 % of probes",)
    far = int(fabric.port_reverse[own])
    assert not judge(fabric, fine, [place("nic 1 plane 0 < t0", "link", far)]).fit
    assert judge(fabric, Known(2, True, PERIODS_MIN, ()), [bad]).fit
    up = int(fabric.sw_first_up[0])
    assert judge(fabric, fine, [place("plane 0 t0 0 > t1 0", "link", up)]).fit
    assert not judge(fabric, fine, [place("nic 1", "nic", fabric.n_ports)]).fit


def test_a_nic_that_is_named_is_not_denied_since_no_path_avoids_it(controller: Controller) -> None:
    fabric = SCHEDULE.fabric
    port = fabric.nic_port(3, 2)
    found = [
        place("nic 1", "nic", fabric.n_ports + fabric.n_switches + 1),
        place(fabric.port_name(port), "link", port),
    ]
    with controller._lock:
        controller._collector.places |= {one.cause: one for one in found}
        controller._carry_out(Said([], found))
        listed = controller._denylist
    assert [one.where for one in listed.entries] == ["nic 3 plane 2 > t0"]
    denylist.read(fabric, json.dumps(listed.as_json()))
