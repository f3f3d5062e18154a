"""What a picture shows, whichever matplotlib drew it: its words, and the places of its lines."""

from __future__ import annotations

import re
from itertools import combinations

from matplotlib.axis import Tick
from matplotlib.figure import Figure
from matplotlib.text import Text

from openmrc.report.picture import svg

SVG_DPI = 72  # matplotlib lays an SVG out so


def drawn(image: bytes) -> tuple[list[str], list[list[int]]]:
    """Return the words of an SVG, and the rounded places of what is drawn within its axes."""
    text = image.decode()
    words = re.findall(r"<!-- (.*?) -->", text, re.DOTALL)
    lines = re.findall(r'<path d="([^"]*)"[^>]*clip-path', text)
    return words, [[round(float(n)) for n in re.findall(r"-?\d+\.?\d*", line)] for line in lines]


def unseen(figure: Figure) -> set[Text]:
    """Labels of ticks that lie beyond their axis: matplotlib keeps them, and draws them not."""
    found = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks: list[Tick] = [*axis.majorTicks, *axis.minorTicks]  # those not drawn too
            found |= {tick.label1 for tick in ticks if not low <= tick.get_loc() <= high}
    return found


def looked_at(figure: Figure) -> tuple[tuple[list[str], list[list[int]]], list[tuple[str, str]]]:
    """Draw a figure; return what `drawn` says of it, and the pairs of words that lie on each
    other.
    """
    shown = drawn(svg(figure))
    figure.set_dpi(SVG_DPI)
    found = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    beyond = unseen(figure)
    seen = [t for t in found if t.get_visible() and t.get_text().strip() and t not in beyond]
    boxes = [(text.get_text(), text.get_window_extent()) for text in seen]
    return shown, [(a, b) for (a, box), (b, other) in combinations(boxes, 2) if box.overlaps(other)]
