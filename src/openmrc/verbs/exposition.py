"""Metrics as text: Prometheus' format (0.0.4) or OpenMetrics 1.0, by what a reader accepts.

They differ in little: OpenMetrics names a counter's family without `_total`, knows the type info,
and ends with `# EOF`, so that a truncated answer is recognised.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
COUNTER, GAUGE, HISTOGRAM, INFO = "counter", "gauge", "histogram", "info"
ENDINGS = {
    COUNTER: "_total",
    INFO: "_info",
}  # suffixes of samples; in OpenMetrics the family's name lacks them
OPEN_VERSIONS = ("", "0.0.1", "1.0.0")

Labels = Mapping[str, object]


class Histogram:
    """How many observations were at most each of `bounds`, which grow; their number and sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = (*bounds, inf)
        self._counts = [0] * len(self.bounds)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Add an observation."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(self._counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each bound, and how many observations were at most that."""
        below = 0
        for bound, n in zip(self.bounds, list(self._counts), strict=True):
            below += n
            yield bound, below


@dataclass
class Family:
    """All samples of one name, with its description; `name` is that of a sample, "x_total"."""

    name: str
    kind: str
    help: str
    samples: list[tuple[dict[str, object], float | Histogram]] = field(default_factory=list)

    def add(self, labels: Labels, value: float | Histogram) -> None:
        """Add a sample."""
        self.samples.append((dict(labels), value))

    def lines(self, content_type: str = TEXT) -> Iterator[str]:
        """Yield the lines in the format of this content type."""
        is_open = content_type == OPEN_METRICS
        name, kind = self.name, self.kind
        if is_open:
            name = name.removesuffix(ENDINGS.get(kind, ""))
        elif kind == INFO:
            kind = GAUGE
        words = self.help.replace("\\", r"\\").replace("\n", r"\n")
        yield f"# HELP {name} {_escape(self.help) if is_open else words}"
        yield f"# TYPE {name} {kind}"
        for labels, value in self.samples:
            if isinstance(value, Histogram):
                yield from _of_histogram(self.name, labels, value)
            else:
                yield f"{self.name}{_pairs(labels)} {_number(value)}"


def render(families: Iterable[Family], content_type: str = TEXT) -> str:
    """Return the body of a response of this type."""
    lines = [line for family in families for line in family.lines(content_type)]
    if content_type == OPEN_METRICS:
        lines.append("# EOF")
    return "".join(f"{line}\n" for line in lines)


def negotiated(accept: str) -> str:
    """Return the type that a reader with this Accept header prefers; text if it states none.

    RFC 9110 12.5.1, as far as the two types are concerned.
    """
    liked = {TEXT: 0.0, OPEN_METRICS: 0.0}
    exact: set[str] = set()
    for part in accept.split(","):
        kind, *parameters = (word.strip() for word in part.lower().split(";"))
        given = dict(word.partition("=")[::2] for word in parameters)
        weight = _weight(given.get("q", "1"))
        if kind == "application/openmetrics-text" and given.get("version", "") in OPEN_VERSIONS:
            liked[OPEN_METRICS] = max(liked[OPEN_METRICS], weight)
        elif kind == "text/plain":
            exact.add(TEXT)
            liked[TEXT] = weight
        elif kind in ("*/*", "text/*") and TEXT not in exact:
            liked[TEXT] = weight
    return OPEN_METRICS if liked[OPEN_METRICS] > liked[TEXT] else TEXT


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _of_histogram(name: str, labels: Labels, value: Histogram) -> Iterator[str]:
    n = 0
    for bound, n in value.cumulative():
        le = "+Inf" if bound == inf else repr(float(bound))
        yield f"{name}_bucket{_pairs({**labels, 'le': le})} {n}"
    yield f"{name}_sum{_pairs(labels)} {_number(value.sum)}"
    yield f"{name}_count{_pairs(labels)} {n}"


def _pairs(labels: Labels) -> str:
    pairs = ",".join(f'{key}="{_escape(str(text))}"' for key, text in labels.items())
    return f"{{{pairs}}}"


def _escape(label: str) -> str:
    return label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return repr(value) if isinstance(value, float) else str(int(value))
