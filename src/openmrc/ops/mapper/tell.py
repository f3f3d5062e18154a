"""A controller's history as text: what lost probes, where, since when, how often."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openmrc.ops.headline import Bad, Headline, headline
from openmrc.ops.mapper.history import NoteRow, Row
from openmrc.ops.spoken import Spoken

TOLD_MAX = 6
DEAD = 0.99
PLAIN = Spoken(None, {})


@dataclass(frozen=True)
class Answer:
    """The answer about a history."""

    headline: Headline
    rows: tuple[Row, ...]
    sentences: tuple[str, ...]
    spoken: Spoken

    @property
    def lines(self) -> list[str]:
        """What people read: the headline, and a sentence for each place."""
        return [*self.headline.lines(self.spoken), *self.sentences]

    def as_json(self) -> dict[str, Any]:
        """Return the object that `mrc why --json` prints."""
        places = [row._asdict() for row in self.rows]
        told = {"places": places, "text": "\n".join(self.sentences)}
        return {"nothing_broke": not places, **self.headline.as_json(), **told}


def of_history(
    rows: Sequence[Row],
    ago_us: int | None = None,
    spoken: Spoken = PLAIN,
    notes: Sequence[NoteRow] = (),
) -> Answer:
    """Return the answer about these places, with what operators noted of them; only those that lost
    something in the last `ago_us` of the history.
    """
    last_us = max((row.last_us for row in rows), default=0)
    told = [
        row
        for row in rows
        if not row.withdrawn and (ago_us is None or row.last_us >= last_us - ago_us)
    ]
    if not told:
        nothing = "No place lost so many probes that it could be named."
        return Answer(headline((), spoken), (), (nothing,), spoken)
    by_place: dict[str, list[Row]] = {}
    for row in told:
        by_place.setdefault(row.place, []).append(row)
    ranked = sorted(by_place.values(), key=_harm)
    last = {it.place: it for it in notes}
    lines = [
        _sentence(mine, spoken) + _noted(last.get(mine[-1].place)) for mine in ranked[:TOLD_MAX]
    ]
    if len(ranked) > TOLD_MAX:
        lines.append(f"{len(ranked) - TOLD_MAX} more places lost probes (--json).")
    head = headline([bad(mine) for mine in ranked], spoken)
    return Answer(head, tuple(told), tuple(lines), spoken)


def bad(rows: Sequence[Row]) -> Bad:
    """Return what a headline has to know of the times at which a place lost probes."""
    last = rows[-1]
    return Bad(last.place, last.kind, last.rate >= DEAD, last.until_us is not None, len(rows))


def _harm(rows: Sequence[Row]) -> tuple[bool, float]:
    """The sort key: places that still lose first, then those that lost most for longest."""
    return all(row.until_us is not None for row in rows), -sum(
        row.rate * (row.last_us - row.since_us + 1) for row in rows
    )


def _sentence(rows: Sequence[Row], spoken: Spoken) -> str:
    last = rows[-1]
    rate = f"{100 * last.rate:.2g} %"
    how = "let nothing through" if last.rate >= DEAD else f"lost {rate} of probes"
    when = f"since {_clock(last.since_us)}"
    if last.until_us is not None:
        when = f"from {_clock(last.since_us)} to {_clock(last.until_us)}"
    found = f"named {(last.named_us - last.since_us) / 1000:.0f} ms after the first loss"
    often = f" It lost probes {len(rows)} times: it flaps." if bad(rows).flaps else ""
    place = spoken(last.place)
    place = place[0].upper() + place[1:]
    return f"{place} {how} {when}, {found}.{often}"


def _noted(it: NoteRow | None) -> str:
    """What an operator did last about a place."""
    if it is None:
        return ""
    return f" {it.who.capitalize()}, {_clock(it.at_us)}: {it.what}{f', {it.text}' * bool(it.text)}."


def _clock(us: int) -> str:
    """Local time, to the millisecond."""
    at = time.localtime(us // 10**6)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', at)}.{us % 10**6 // 1000:03d}"
