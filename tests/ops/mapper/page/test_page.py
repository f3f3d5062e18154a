"""The operator's page in a real browser: what is bad is drawn, the slider moves it, and a step
of it draws no healthy link anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openmrc.fabric import Fabric, multiplane
from openmrc.ops.mapper.history import History, Row
from openmrc.ops.mapper.page.data import DOWN, UP, links, of_history
from openmrc.ops.mapper.page.html import html
from openmrc.ops.mapper.tell import of_history as told
from tests.report import browser
from tests.report.browser import LEFT, Browser

SMALL = multiplane(8, 4, 10**8, 4, 2, 0, 0)
HALL = multiplane(1024, 8, 10**11, 32, 32, 0, 0)
BEGIN = 1_790_000_000 * 10**6
MINUTE = 60 * 10**6
WIDTHS = (1300, 420)


def row(place: str, since: int, until: int | None, rate: float = 1.0, kind: str = "link") -> Row:
    """A place that lost packets, in minutes since the beginning."""
    end = None if until is None else BEGIN + until * MINUTE
    since_us = BEGIN + since * MINUTE
    return Row(place, kind, since_us, end or since_us, end, since_us + 30_000, rate, 40, 400, 90, 0)


ROWS = [
    row("plane 1 t0 0 > t1 1", 0, 20),
    row("nic 3 plane 2 < t0", 10, 30, 0.1),
    row("plane 1 t0 0 > t1 1", 40, 50),
    row("plane 1 t0 0 > t1 1", 55, None),
]


def page(fabric: Fabric, rows: list[Row], file: Path) -> Path:
    file.write_text(html(of_history(fabric, rows, BEGIN + 60 * MINUTE, "a hall </script>")))
    return file


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    if absent := browser.missing():
        pytest.skip(f"{' and '.join(absent)} not installed: the page was not opened in a browser")
    with Browser() as one:
        yield one


def test_a_place_is_its_links_with_their_directions() -> None:
    base = 8 * 4
    assert links(SMALL, "nic 3 plane 2 > t0") == [[14, UP]]
    assert links(SMALL, "nic 3 plane 2 < t0") == [[14, DOWN]]
    assert links(SMALL, "plane 1 t0 0 < t1 1") == [[base + 5, DOWN]]
    assert links(SMALL, "plane 1 t0 0 - t1 1") == [[base + 5, UP | DOWN]]
    assert links(SMALL, "plane 1 t1 1") == [[base + 5, 3], [base + 7, 3]]
    assert links(SMALL, "nic 7") == [[28 + plane, 3] for plane in range(4)]
    assert links(SMALL, "plane 0 t0 1 transceiver 0") == [[16 + 4 * i, 3] for i in range(4)]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_shows_what_is_bad_at_the_sliders_time(
    window: Browser, tmp_path: Path, width: int
) -> None:
    window.open(page(SMALL, ROWS, tmp_path / "page.html"), width=width)
    assert window.js("document.documentElement.dataset.ready") == "yes"
    assert window.text("h1") == "a hall </script>"
    assert window.text("#facts") == "8 NICs, 4 planes, 16 switches, 48 links"
    assert window.text("#state") == "1 place loses packets"
    assert "plane 1 t0 0 > t1 1" in window.text("#places")
    assert window.js("document.querySelectorAll('figure.bad').length") == 1
    assert window.js("document.documentElement.scrollWidth") <= width
    window.js("(slider => { slider.value = 250; slider.dispatchEvent(new Event('input')) })"
              "(document.getElementById('at'))")  # fmt: skip
    window.settle()
    assert window.text("#state") == "2 places lose packets"
    assert window.js("document.querySelectorAll('figure.bad').length") == 2
    assert "loses 10 %" in window.text("#places")
    window.click("#places li button")
    assert window.text("#link") == "plane 1 t0 0 - t1 1"
    assert "Lost packets 3 times, 120 in all." in window.text("#words")
    window.press("#at", LEFT)
    window.click("#now")
    assert window.text("#state") == "1 place loses packets"


def test_a_link_is_found_under_the_mouse(window: Browser, tmp_path: Path) -> None:
    window.open(page(SMALL, ROWS, tmp_path / "page.html"), width=1300)
    y = window.js("(layout.leafY + layout.spineY) / 2 / layout.height")
    window.point("figure:nth-child(2) canvas", 0.25, y)  # T0 0 stands below T1 0
    assert window.text("#under") == "plane 1 t0 0 - t1 0: well"


def test_a_step_of_the_slider_draws_none_of_sixteen_thousand_healthy_links_anew(
    window: Browser, tmp_path: Path
) -> None:
    """What a step of the slider draws: eight kept pictures, and the bad links over them."""
    rows = [row(HALL.port_name(port), 0, None, 0.01) for port in range(0, HALL.n_ports, 300)]
    window.open(page(HALL, rows, tmp_path / "page.html"), width=1300)
    assert window.text("#facts") == "1,024 NICs, 8 planes, 512 switches, 16,384 links"
    strokes: Any = window.js(
        "(() => { let n = 0; const own = CanvasRenderingContext2D.prototype.stroke;"
        " CanvasRenderingContext2D.prototype.stroke = function () { n += 1; own.call(this); };"
        " draw(); CanvasRenderingContext2D.prototype.stroke = own; return n; })()"
    )
    assert strokes <= len(rows) + 10


def test_a_history_is_told_with_what_still_loses_first_and_what_flaps(tmp_path: Path) -> None:
    answer = told(ROWS)
    first, second = answer.sentences
    assert first.startswith("Plane 1 t0 0 > t1 1 let nothing through since ")
    assert first.endswith("It lost probes 3 times: it flaps.")
    assert second.startswith("Nic 3 plane 2 < t0 lost 10 % of probes from ")
    assert answer.lines[0] == "Still broken: plane 1 t0 0 > t1 1."
    assert len(told(ROWS, ago_us=4 * MINUTE).rows) == 1
    assert told([]).as_json()["nothing_broke"]
    with History(tmp_path / "a.sqlite") as history:
        for one in ROWS:
            history.place(None, one)
        assert history.places() == ROWS
