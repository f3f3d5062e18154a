"""A controller's page in a real browser: what an operator does there is done, and written down."""

from __future__ import annotations

from pathlib import Path

from openmrc.ops.mapper.history import History
from openmrc.ops.mapper.server import Controller
from openmrc.verbs.secret import token
from tests.ops.mapper.world import small
from tests.report.browser import Browser

SECRET = bytes(range(32))
PLACE = "plane 0 t0 0 - t1 0"


def act(window: Browser, button: str) -> str:
    """Press a button, and return what the page says once the controller has answered."""
    window.js("document.getElementById('said').textContent = ''")
    window.click(f"#act button[value={button}]")
    while not (said := window.text("#said")):
        window.settle()
    return said


def test_an_operator_acknowledges_denies_and_lifts(window: Browser, tmp_path: Path) -> None:
    with (
        History(tmp_path / "history.sqlite") as history,
        Controller(small(), SECRET, history, host="127.0.0.1") as controller,
    ):
        window.visit(f"http://127.0.0.1:{controller.http_port}/", width=420)
        window.press("input[name=token]", token(SECRET))
        window.click("button")
        silent = len(controller.state()["silent"])
        assert window.text("#state") == f"nothing is broken · {silent} silent agents"
        assert window.text("#silent li:nth-child(2)") == "nic 1"
        assert window.text("#entries") == "No place is denied."
        window.js(f"choose('{PLACE}')")
        assert "does not follow from the job's secret" in act(window, "deny")  # a cookie only reads
        assert not controller.denied()["entries"]

        window.press("#token", token(SECRET))
        window.press("#text", "cable ordered")
        assert act(window, "note") == "Done, and logged."
        assert "operator acknowledged " in window.text("#events")
        assert act(window, "deny") == "Done, and logged."  # the token is asked for once
        (entry,) = controller.denied()["entries"]
        assert (entry["where"], entry["source"]) == (PLACE, "operator")
        assert entry["until_us"] - entry["since_us"] == 3600 * 10**6
        assert window.text("#entries").startswith(f"{PLACE}operator, since ")
        assert act(window, "lift") == "Done, and logged."
        assert not controller.denied()["entries"]
        assert window.js("document.getElementById('lift').hidden")

        window.js("choose('nic 3')")
        assert "nothing that can be denied" in act(window, "deny")
        assert window.js("document.documentElement.scrollWidth") <= 420
        done = [(row.who, row.what, row.place) for row in history.notes()]
    assert done == [("operator", what, PLACE) for what in ("acknowledged", "denied", "lifted")]
