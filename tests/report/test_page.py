"""The page in a real browser: everything is there, nothing fails, the slider moves the picture."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from openmrc.report.page import html
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import parse_scenario
from tests.report import browser
from tests.report.browser import END, LEFT, RIGHT, Browser
from tests.report.synthetic import heavy

if TYPE_CHECKING:
    from tests.conftest import FakeWorld

# Two planes of two T0s and four T1s. Plane 0 loses a link, plane 1 a switch, which keeps silent.
TEXT = """
name = "two </script> planes"
[fabric]
nics = 8
planes = 2
port_rate = "100Gbps"
t0_down = 4
[workload]
kind = "permutation"
size = "1.2MB"
[[transport]]
[[transport]]
name = "one <b>path</b>"
paths = "single"
convergence = "20us"
[[fault]]
at = "30us"
kind = "link-down"
where = "plane 0 t0 0 - t1 2"
for = "20us"
[[fault]]
at = "40us"
kind = "switch-silent"
where = "plane 1 t1 1"
for = "20us"
"""
SECTIONS = ("table", "goodput", "fct", "fabric", "planes", "links", "paths", "qp", "faults")


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    if absent := browser.missing():
        pytest.skip(f"{' and '.join(absent)} not installed: the page was not opened in a browser")
    with Browser() as window:
        yield window


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html(simulate(parse_scenario(TEXT), sampled=True)), encoding="utf-8")
    return path


def errors(chrome: Browser) -> str:
    return str(chrome.js("document.documentElement.dataset.errors"))


def lines(chrome: Browser, health: str) -> int:
    return int(chrome.js(f"document.querySelectorAll('#panels line.{health}').length"))


def cursors(chrome: Browser) -> list[str]:
    found: list[str] = chrome.js("[...document.querySelectorAll('.cursor')].map(c => c.style.left)")
    return found


# --- it is all there --------------------------------------------------------------------------


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [380, 1600])
def test_it_opens_without_an_error_and_fits_the_screen(
    chrome: Browser, page: Path, width: int, dark: bool
) -> None:
    chrome.open(page, width=width, dark=dark)
    assert chrome.js("document.documentElement.dataset.ready") == "yes"
    assert errors(chrome) == ""
    assert chrome.js("[innerWidth, document.documentElement.scrollWidth]") == [width, width]
    for name in SECTIONS:
        box = chrome.js(
            f"(() => {{ const b = document.getElementById('{name}').getBoundingClientRect();"
            " return [b.left, b.right, b.height]; })()"
        )
        assert box[0] >= 0, name
        assert box[1] <= width, name
        assert box[2] > 40, name
    beside = chrome.js(
        "document.getElementById('goodput').offsetTop === document.getElementById('fct').offsetTop"
    )
    assert beside == (width == 1600)


def test_it_asks_for_nothing_from_anywhere(chrome: Browser, page: Path) -> None:
    chrome.open(page)
    assert chrome.js("performance.getEntriesByType('resource').length") == 0
    assert chrome.js("document.querySelectorAll('script[src], link, img, iframe').length") == 0


def test_every_picture_is_drawn(chrome: Browser, page: Path) -> None:
    chrome.open(page)
    assert chrome.js("document.querySelectorAll('#goodput path.curve').length") == 2
    assert chrome.js("document.querySelectorAll('#fct path.curve').length") == 2
    assert chrome.js("document.querySelectorAll('#goodput .flag').length") == 4
    assert chrome.js("document.querySelectorAll('#qp path.curve').length") == 4
    assert chrome.js("document.querySelectorAll('#faults li').length") == 4
    # Of each plane 8 NICs' links, and 2 T0s with 4 uplinks.
    assert chrome.js("document.querySelectorAll('#panels svg').length") == 2
    assert chrome.js("document.querySelectorAll('#panels line').length") == 2 * (8 + 8)
    assert chrome.js("document.querySelectorAll('#panels circle').length") == 2 * (2 + 4)
    assert chrome.js("document.querySelectorAll('#panels rect').length") == 2 * 8
    rows = "document.querySelector('#{} canvas').dataset.rows"
    assert chrome.js(rows.format("planes")) == "8"  # two planes, four hops
    assert chrome.js(rows.format("links")) == "64"
    assert chrome.js(rows.format("paths")) == "8"
    shades = (
        "(c => new Set(new Uint32Array(c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data.buffer)).size)"
        "(document.querySelector('#{} canvas'))"
    )
    for name in ("planes", "links"):
        assert chrome.js(shades.format(name)) > 20, name


def test_names_of_the_scenario_are_text_and_nothing_else(chrome: Browser, page: Path) -> None:
    chrome.open(page)
    assert chrome.text("h1") == "two </script> planes, seed 1"
    assert chrome.text("#runs label:last-child") == "one <b>path</b>"
    assert chrome.js("document.querySelectorAll('main b b').length") == 0


# --- time -------------------------------------------------------------------------------------


def test_the_slider_moves_the_picture(chrome: Browser, page: Path) -> None:
    def state() -> list[object]:
        drawn = chrome.js("document.getElementById('panels').innerHTML")
        return [drawn, cursors(chrome), chrome.text("#now")]

    chrome.open(page, "#t=10us")
    before, pixels = state(), chrome.picture("#panels")
    assert (lines(chrome, "down"), lines(chrome, "silent")) == (0, 0)
    assert chrome.text("#fabric-said") == "At 10 µs: all links healthy."
    assert chrome.js("samples().edges.step") == 1
    chrome.press("#time", RIGHT * 25)
    after = state()
    assert (lines(chrome, "down"), lines(chrome, "silent")) == (1, 0)
    assert all(old != new for old, new in zip(before, after, strict=True))
    assert chrome.picture("#panels") != pixels
    assert chrome.text("#now") == "35 to 36 µs"
    assert chrome.text("#fabric-said") == "At 35 µs: 1 of 32 links not healthy."
    chrome.press("#time", LEFT * 25)
    assert state() == before
    assert errors(chrome) == ""


@pytest.mark.parametrize(
    ("us", "down", "silent", "mute"),
    [(29, 0, 0, 0), (30, 1, 0, 0), (40, 1, 2, 1), (50, 0, 2, 1), (59, 0, 2, 1), (60, 0, 0, 0)],
)
def test_the_fabric_shows_its_health_at_that_time(
    chrome: Browser, page: Path, us: int, down: int, silent: int, mute: int
) -> None:
    chrome.open(page, f"#t={us}us")
    assert (lines(chrome, "down"), lines(chrome, "silent")) == (down, silent)
    assert chrome.js("document.querySelectorAll('#panels .node.silent').length") == mute


def test_the_first_fault_is_where_one_begins(chrome: Browser, page: Path) -> None:
    chrome.open(page)
    assert chrome.text("#now") == "30 to 31 µs"
    chrome.press("#time", END)
    last = chrome.js("Number(document.getElementById('time').max)")
    assert chrome.js("view.column") == last > 60


def test_a_fault_in_the_list_and_a_click_on_a_map_lead_to_their_time(
    chrome: Browser, page: Path
) -> None:
    chrome.open(page, "#t=0us")
    chrome.click("#faults li:nth-child(2) button")
    assert chrome.text("#now") == "40 to 41 µs"
    chrome.click("#planes canvas")  # its middle, labels included
    assert chrome.js("now() / samples().groups.end") == pytest.approx(0.44, abs=0.03)
    assert chrome.text("#now") != "40 to 41 µs"


# --- values, choices, themes ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "x", "y", "words"),
    [
        ("#goodput .plot", 0.3, 0.5, ("mrc: ", "one <b>path</b>: ", "b/s", "µs")),
        ("#fct .plot", 0.8, 0.5, ("% of 8 flows",)),
        ("#planes canvas", 0.5, 0.2, ("plane ", "NIC → T0", "load: ", " %", "queue: ", "lost ")),
        ("#links canvas", 0.5, 0.05, ("plane ", "load: ", "trimmed packets: ", "health: ")),
        ("#paths canvas", 0.5, 0.2, ("over plane 0 t1 ", "good, in use", "sent")),
        ("#qp .plot", 0.5, 0.5, ("window: ", "bytes in flight: ", "B")),
        ("#panels svg", 0.3, 0.75, ("nic ", " - plane 0 t0 0", "load: ", "up, ", "down")),
        ("#panels circle", 0.5, 0.5, ("plane 0 t0 0",)),
    ],
)
def test_values_are_shown_where_the_mouse_is(
    chrome: Browser, page: Path, place: str, x: float, y: float, words: tuple[str, ...]
) -> None:
    chrome.open(page)
    assert chrome.js("document.getElementById('tip').hidden")
    chrome.point(place, x, y)
    assert not chrome.js("document.getElementById('tip').hidden")
    said = chrome.text("#tip")
    assert [word for word in words if word not in said] == []
    box = chrome.js(
        "(b => [b.left >= 0, b.right <= innerWidth])"
        "(document.getElementById('tip').getBoundingClientRect())"
    )
    assert box == [True, True]


def test_another_transport_is_shown_at_the_same_time(chrome: Browser, page: Path) -> None:
    chrome.open(page, "#t=35us")
    before = chrome.picture("#planes")
    assert "in mrc: 8 EVs" in chrome.text("#paths p")
    chrome.click("#runs label:last-child")
    assert "in one <b>path</b>: 1 EV." in chrome.text("#paths p")
    assert chrome.text("#now").startswith("35 to ") or chrome.text("#now").startswith("34 to ")
    assert chrome.picture("#planes") != before
    assert lines(chrome, "down") == 1
    assert errors(chrome) == ""


def test_a_qp_of_rocev2_is_shown_as_the_qps_it_is_striped_over(
    chrome: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "both.html"
    roce = '[[transport]]\nkind = "roce"\nqps = 3\n'
    scenario = parse_scenario(TEXT.replace("[[transport]]\nname", roce + "[[transport]]\nname"))
    path.write_text(html(simulate(scenario, sampled=True)), encoding="utf-8")
    charts = "[...document.querySelectorAll('#qp .curves > div')].map(d => d.offsetHeight > 0)"
    chrome.open(path, "#t=35us")
    assert "assumed bad" in chrome.text("#paths .legend")
    assert chrome.js(charts) == [True, True, True]
    chrome.click("#runs label:nth-child(2)")
    assert "in roce: 3 QPs, each on one hashed path." in chrome.text("#paths p")
    assert "UDP source port" in chrome.text("#paths .note")
    assert "EV" not in chrome.text("#paths")
    assert "assumed bad" not in chrome.text("#paths .legend")
    assert chrome.text("#qp h2") == "Rate and queue of those QPs"
    assert "allowed in a round trip" in chrome.text("#qp")
    assert chrome.js(charts) == [True, False, True]  # no delay is measured
    chrome.click("#runs label:last-child")
    assert chrome.js(charts) == [True, True, True]
    assert chrome.text("#qp h2") == "Window and queue of that QP"
    assert "1 EV." in chrome.text("#paths p")
    assert errors(chrome) == ""


def test_the_address_says_what_is_looked_at(chrome: Browser, page: Path) -> None:
    chrome.open(page, "#t=45us&run=1")
    assert chrome.js("view.run") == 1
    assert chrome.js("document.querySelector('#runs input:checked').value") == "1"
    assert chrome.js("nowFrom()") <= 45 < chrome.js("nowTo()")
    chrome.js("(location.hash = '#t=10us&run=0', null)")
    chrome.settle()
    assert chrome.js("[view.run, nowFrom()]") == [0, 10]
    for text in ("0.02ms", "0.00002 s", "20000ns", "20", "20µs"):
        chrome.js(f"(location.hash = '#t={text}', null)")
        chrome.settle()
        assert chrome.js("nowFrom()") <= 20 < chrome.js("nowTo()"), text
        chrome.js("(location.hash = '#t=10us', null)")
        chrome.settle()
    styles = chrome.js("Array.from({length: 25}, (_, i) => lineStyle(i))")
    assert len(set(styles)) == 25
    assert len({style.partition("stroke-dasharray")[2] for style in styles[:10]}) == 10
    for wrong in ("#t=soon", "#run=9", "#run=-1&t=-5us", "#t=1e9us"):
        chrome.open(page, wrong)
        assert errors(chrome) == ""


@pytest.mark.parametrize("choice", ["queue", "lost", "health"])
def test_the_map_of_links_shows_what_is_chosen(chrome: Browser, page: Path, choice: str) -> None:
    chrome.open(page)
    image = "document.querySelector('#links canvas').toDataURL()"
    before = chrome.js(image)
    option = f"#links-quantity option[value={choice}]"
    chrome.click(option)
    assert chrome.js(image) != before
    chrome.click("#links-order option[value=loss]")
    first = chrome.js("DATA.runs[0].samples.links")
    most = max(zip(first["total_lost"], first["name"], strict=True))
    chrome.point(
        "#links canvas", 0.5, 25 / chrome.js("document.querySelector('#links canvas').clientHeight")
    )
    assert chrome.text("#tip").split("\n")[0] == most[1]


def test_the_fabric_can_be_coloured_by_load(chrome: Browser, page: Path) -> None:
    chrome.open(page, "#t=35us")
    chrome.click("#fabric-colour option[value=load]")
    assert lines(chrome, "down") == 0
    strokes = chrome.js(
        "new Set([...document.querySelectorAll('#panels line')].map(l => l.style.stroke)).size"
    )
    assert strokes > 3


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_theme_follows_the_system_until_the_reader_chooses(
    chrome: Browser, page: Path, dark: bool
) -> None:
    def brightness() -> int:
        return int(chrome.js("getComputedStyle(document.body).backgroundColor.match(/\\d+/g)[0]"))

    chrome.open(page, dark=dark)
    image = "document.querySelector('#planes canvas').toDataURL()"
    before = chrome.js(image)
    assert (brightness() < 64) == dark
    chrome.click("#theme")
    assert (brightness() < 64) != dark
    assert chrome.js(image) != before
    chrome.click("#theme")
    assert chrome.js(image) == before


# --- other pages ------------------------------------------------------------------------------


def test_a_run_without_samples_says_so(
    chrome: Browser, tmp_path: Path, fake_world: type[FakeWorld]
) -> None:
    fake_world.unfinished = 1
    plain = '[fabric]\nnics = 4\n[workload]\nkind = "permutation"\n'
    path = tmp_path / "report.html"
    path.write_text(html(simulate(parse_scenario(plain))), encoding="utf-8")
    chrome.open(path)
    assert errors(chrome) == ""
    assert "This run was not sampled" in chrome.text("#unsampled")
    shown = "[...document.querySelectorAll('section')].filter(s => s.offsetHeight).map(s => s.id)"
    assert chrome.js(shown) == ["table", "goodput", "fct", "unsampled", "faults", ""]
    assert "Flows that never completed: mrc (1)." in chrome.text("#fct")


def test_a_run_in_which_nothing_happened_is_a_page_too(chrome: Browser, tmp_path: Path) -> None:
    text = TEXT.replace('at = "30us"', 'at = "0us"') + '[stop]\ntime = "1ns"\n'
    path = tmp_path / "report.html"
    path.write_text(html(simulate(parse_scenario(text), sampled=True)), encoding="utf-8")
    chrome.open(path)
    assert errors(chrome) == ""
    assert "No flow completed." in chrome.text("#fct")
    assert lines(chrome, "down") == 1


def test_the_heaviest_page_opens_and_slides(chrome: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(html(heavy(transports=2, flows=100_000)), encoding="utf-8")
    chrome.open(path, "#t=5000000us")
    assert errors(chrome) == ""
    assert chrome.js("document.documentElement.dataset.ready") == "yes"
    before = hashlib.sha256(chrome.picture("#panels")).digest()
    chrome.press("#time", RIGHT * 3)
    assert hashlib.sha256(chrome.picture("#panels")).digest() != before
