"""The operator's page in a real browser: what is bad is drawn, the slider moves it, a step of it
draws no healthy link anew, and every place is found by its name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openmrc.fabric import Fabric, multiplane
from openmrc.fabric.clos import Tier, build
from openmrc.ops.mapper.history import History, NoteRow, Row
from openmrc.ops.mapper.page.data import of_history
from openmrc.ops.mapper.page.html import html
from openmrc.ops.mapper.tell import of_history as told
from tests.report.browser import ENTER, LEFT, Browser

SMALL = multiplane(8, 4, 10**8, 4, 2, 0, 0)
HALL = multiplane(1024, 8, 10**11, 32, 32, 0, 0)
LINE = (10**11, 0, 0)
# 64 T0s, 32 T1s in two pods and 16 T2s a plane, with four links between T1 and T2.
TALL = build("multiplane", 512, 2, [Tier(8, 16, *LINE), Tier(32, 4, *LINE), Tier(0, 0, *LINE, 4)])
LOADED_MS_MAX = 2000
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


def page(fabric: Fabric, rows: list[Row], file: Path, **more: Any) -> Path:
    content = of_history(fabric, rows, BEGIN + 60 * MINUTE, "a hall </script>")
    file.write_text(html(content | more))
    return file


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
    assert window.text("#link") == "plane 1 t0 0 > t1 1"
    assert "Lost packets 3 times, 120 in all." in window.text("#words")
    window.press("#at", LEFT)
    window.click("#now")
    assert window.text("#state") == "1 place loses packets"


def point(window: Browser, plane: int, x: str, y: str) -> None:
    """Move the mouse to a place in a plane's picture, in its own coordinates."""
    shares = (window.js(f"({at}) / layout.{size}") for at, size in ((x, "width"), (y, "height")))
    window.point(f"figure:nth-child({plane + 1}) canvas", *shares)


def test_a_link_is_found_under_the_mouse(window: Browser, tmp_path: Path) -> None:
    window.open(page(SMALL, ROWS, tmp_path / "page.html"), width=1300)
    point(window, 1, "(layout.x(0, 0) + layout.x(1, 0)) / 2", "(layout.y(0) + layout.y(1)) / 2")
    assert window.text("#under") == "plane 1 t0 0 - t1 0: well"
    point(window, 1, "layout.x(1, 1)", "layout.y(1)")
    assert window.text("#under") == (
        "plane 1 t1 1: 1 of 2 links bad, plane 1 t0 0 > t1 1 lets nothing through"
    )
    point(window, 2, "layout.x(-1, 3)", "layout.y(-1)")
    assert window.text("#under") == "nic 3: well"


def test_three_tiers_are_drawn_whole_with_the_names_that_the_fabric_gives(
    window: Browser, tmp_path: Path
) -> None:
    """With several pods, parallel links, and a bad link and a bad switch above the T1s."""
    rows = [row("plane 0 t1 3 > t2 3 link 2", 0, None), row("plane 1 t2 7", 0, None, 0.3, "switch")]
    window.open(page(TALL, rows, tmp_path / "page.html"), width=420)
    lower = [port for port in range(TALL.n_ports) if " > " in TALL.port_name(port)]
    found = window.js("Array.from({length: names.count}, (_, link) => names.linkName(link))")
    assert found == [TALL.link_name(port) for port in lower]
    assert window.text("figcaption") == "plane 0 · 1 bad link"
    assert window.text("figure:nth-child(2) figcaption") == "plane 1 · 8 bad links"
    point(window, 1, "layout.x(2, 7)", "layout.y(2)")
    assert window.text("#under") == "plane 1 t2 7: 8 of 8 links bad, loses 30 %"
    rows_y = window.js("[-1, 0, 1, 2].map(tier => layout.y(tier))")
    assert rows_y == sorted(rows_y, reverse=True)
    columns: Any = window.js("[0, 1, 2].map(t => layout.x(t, 1) - layout.x(t, 0))")
    assert min(columns) >= 4  # px: a finger's neighbour at worst, and no two in one
    assert window.js("document.documentElement.scrollWidth") <= 420


@pytest.mark.parametrize(
    ("typed", "chosen"),
    [
        ("plane 2 t0 1", "plane 2 t0 1"),
        ("nic 1", "nic 1"),
        ("  T1  1 ", "plane 0 t1 1"),
        ("t0 0 >", "plane 1 t0 0 > t1 1"),
        ("plane 3", "plane 3"),
    ],
)
def test_a_place_is_found_by_its_name_or_a_part_of_it(
    window: Browser, tmp_path: Path, typed: str, chosen: str
) -> None:
    window.open(page(SMALL, ROWS, tmp_path / "page.html"), width=1300)
    window.press("#find", typed + ENTER)
    assert window.text("#link") == chosen
    window.press("#find", "nic 9")
    assert window.text("#found") == "No place has this name."


def test_past_incidents_are_listed_flaps_as_one_and_a_choice_shows_them_as_they_were(
    window: Browser, tmp_path: Path
) -> None:
    healed = [*ROWS[:3], row("nic 5 plane 0 > t0", 12, 13)._replace(withdrawn=1)]
    window.open(page(SMALL, healed, tmp_path / "page.html"), width=1300)
    assert window.text("#state") == "nothing is broken"
    assert window.text("#incidents-title") == "Incidents (2)"  # what was withdrawn is none
    worst, second = (window.text(f"#incidents li:nth-child({i}) button") for i in (1, 2))
    assert worst.startswith("plane 1 t0 0 > t1 1lets nothing through · 2 times from ")
    assert second.startswith("nic 3 plane 2 < t0loses 10 % · since ")
    assert ", for 20 min · 40 lost" in second
    window.click("#incidents li:nth-child(2) button")
    assert window.text("#link") == "nic 3 plane 2 < t0"
    assert window.text("#state") == "1 place loses packets"  # at 20 min, when the first was over
    window.js("(order => { order.value = 'time'; order.dispatchEvent(new Event('change')) })"
              "(document.getElementById('order'))")  # fmt: skip
    assert "t0 0 > t1 1" in window.text("#incidents li:nth-child(1)")  # the last that began


def test_the_headline_stands_first_and_its_places_are_chosen(
    window: Browser, tmp_path: Path
) -> None:
    said = {
        "state": "Still broken: plane 1 t0 0 to t1 1.",
        "to_do": [["plane 1 t0 0 > t1 1", "exchange the transceiver"], ["", "tell the <users>"]],
        "cost": "It took 4 min longer.",
    }
    window.open(page(SMALL, ROWS, tmp_path / "page.html", headline=said), width=420)
    assert window.text("main > :first-child") == (
        "Still broken: plane 1 t0 0 to t1 1.plane 1 t0 0 > t1 1exchange the transceiver"
        "tell the <users>It took 4 min longer."
    )
    window.click("#do li button")
    assert window.text("#link") == "plane 1 t0 0 > t1 1"
    window.open(page(SMALL, ROWS[:1], tmp_path / "page.html"), width=420)
    assert window.text("#broken").startswith("Nothing is broken any more")
    assert window.text("#do") == ""  # what works again is an incident, and nothing to do


def test_what_links_carried_follows_the_slider_and_is_told_by_direction(
    window: Browser, tmp_path: Path
) -> None:
    """Link 38 is plane 1 t0 1 - t1 0; half a load upwards in the first half of the hour."""
    n = 2 * 48
    first, second, sent, trimmed = ([0] * n for _ in range(4))
    first[76], second[77], sent[76], sent[77], trimmed[77] = 500, 1000, 70_000, 140_000, 3
    half, end = BEGIN + 30 * MINUTE, BEGIN + 60 * MINUTE
    told = {
        "ends_us": [half, end], "share": [first, second], "of": "of its rate",
        "totals": {"packets sent": sent, "trimmed": trimmed},
    }  # fmt: skip
    window.open(page(SMALL, ROWS, tmp_path / "page.html", loads=told), width=1300)
    window.js("choose('plane 1 t0 1 - t1 0')")
    cells = "[...document.querySelectorAll('#carried td, #carried th')].map(x => x.textContent)"
    window.settle()
    assert window.js(cells) == [
        "", "upwards", "downwards", "load now", "0 %", "100 %",
        "packets sent", "70,000", "140,000", "trimmed", "0", "3",
    ]  # fmt: skip
    window.js(f"show({half - 1})")
    window.js("choose('plane 1 t0 1')")  # a switch: what it sends goes upwards here
    window.settle()
    assert window.js(cells)[:6] == ["", "sent by it", "sent to it", "load now", "8 %", "0 %"]
    point(window, 1, "(layout.x(0, 1) + layout.x(1, 0)) / 2", "(layout.y(0) + layout.y(1)) / 2")
    assert window.text("#under").endswith(": well · load 50 % upwards, 0 % downwards")
    window.js("(colour => { colour.value = 'load'; colour.dispatchEvent(new Event('change')) })"
              "(document.getElementById('colour'))")  # fmt: skip
    assert window.js("loadOf(sharesAt(now())[76])") == "--load3"
    assert window.js("[data.from_us, data.until_us + 1].map(us => sharesAt(us)[76])") == [500, 0]


def test_who_counted_nothing_says_so(window: Browser, tmp_path: Path) -> None:
    window.open(page(SMALL, ROWS, tmp_path / "page.html"), width=1300)
    assert window.js("document.getElementById('colours').hidden")
    window.js("choose('nic 3')")
    assert window.text("#carried") == "A controller knows probes alone: not what links carry."
    run = {"unix": False, "knows": False, "places": []}  # of a transport whose senders tell nothing
    window.open(page(SMALL, [], tmp_path / "page.html", **run), width=1300)
    assert window.text("#state") == "nothing is known to be broken"
    window.js("choose('nic 3')")
    assert window.text("#carried") == "What links carried was not counted in this run."


def test_what_operators_noted_stands_at_the_place(window: Browser, tmp_path: Path) -> None:
    noted = NoteRow(BEGIN + 56 * MINUTE, "operator", "acknowledged", ROWS[0].place, "<b>known")
    before = noted._replace(at_us=BEGIN + 54 * MINUTE, text="of the time before")
    notes = [before._asdict(), noted._asdict()]
    window.open(page(SMALL, ROWS, tmp_path / "page.html", notes=notes), width=1300)
    assert window.text("#places li").endswith(": <b>known")
    assert "of the time before" not in window.text("#places li")
    window.click("#places li button")
    assert "of the time before" in window.text("#events")


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


@pytest.mark.parametrize("width", WIDTHS)
def test_sixteen_thousand_links_are_there_in_two_seconds(
    window: Browser, tmp_path: Path, width: int
) -> None:
    """It takes a tenth of that; a busy machine may stop for longer, so one load of three counts."""
    file = page(HALL, ROWS, tmp_path / "page.html")

    def loaded_ms() -> float:
        window.open(file, width=width)
        navigation = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
        return float(window.js(navigation))

    assert any(loaded_ms() < LOADED_MS_MAX for _ in range(3))


def test_a_history_is_told_with_what_still_loses_first_and_what_flaps(tmp_path: Path) -> None:
    answer = told(ROWS)
    first, second = answer.sentences
    assert first.startswith("Plane 1 t0 0 > t1 1 let nothing through since ")
    assert first.endswith("It lost probes 3 times: it flaps.")
    assert second.startswith("Nic 3 plane 2 < t0 lost 10 % of probes from ")
    assert answer.lines[0] == "Still broken: plane 1 t0 0 > t1 1."
    note = NoteRow(BEGIN, "operator", "acknowledged", ROWS[-1].place, "cable ordered")
    noted = told(ROWS, notes=[note]).lines
    assert [line.endswith(": acknowledged, cable ordered.") for line in noted].count(True) == 1
    assert len(told(ROWS, ago_us=4 * MINUTE).rows) == 1
    assert told([]).as_json()["nothing_broke"]
    with History(tmp_path / "a.sqlite") as history:
        for one in ROWS:
            history.place(None, one)
        assert history.places() == ROWS
