"""The denylist: places that endpoints are advised to avoid, for as long as the advice is fresh.

A document of JSON, distributed by HTTP or as a file:

    {"version": 7, "made_us": 1790000000000000, "fresh_s": 30,
     "entries": [{"where": "plane 2 t0 3 > t1 7", "since_us": ..., "until_us": null,
                  "reason": "lost 12 % of 400 probes", "source": "mapper"}]}

Times are microseconds of Unix time. `version` grows with every change of the entries; `made_us` is
when the document was written, and grows with every copy. An entry is valid from `since_us` until
`until_us`; none is when the document is older than `fresh_s`. So the advice of a controller that is
gone expires by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from openmrc.errors import InputError
from openmrc.fabric.denylist import entrances
from openmrc.fabric.model import Fabric, LongArray

US_PER_S = 10**6
FRESH_S = 30.0
ENTRIES_MAX = 4096
WORDS_MAX = 400
DENIED_MAX = 0.1  # of all directed links: a longer list is a fault, not advice


@dataclass(frozen=True)
class Entry:
    """A place to avoid, from `since_us` until `until_us` (None: until it is withdrawn)."""

    where: str
    since_us: int
    until_us: int | None
    reason: str
    source: str


@dataclass(frozen=True)
class Denylist:
    """The entries of one version."""

    version: int = 0
    made_us: int = 0
    fresh_s: float = FRESH_S
    entries: tuple[Entry, ...] = ()

    def changed(self, entries: Iterable[Entry], now_us: int) -> Denylist:
        """Return the list with these entries, of the next version if they differ."""
        found = tuple(sorted(entries, key=lambda entry: (entry.where, entry.source)))
        version = self.version + (found != self.entries)
        return replace(self, version=version, made_us=now_us, entries=found)

    def valid(self, now_us: int) -> tuple[Entry, ...]:
        """Return the entries that are valid now; none if the list is stale or not yet made."""
        age_us = now_us - self.made_us
        if not 0 <= age_us <= self.fresh_s * US_PER_S:
            return ()
        return tuple(
            entry
            for entry in self.entries
            if entry.since_us <= now_us and (entry.until_us is None or now_us < entry.until_us)
        )

    def as_json(self) -> dict[str, Any]:
        """Return the document."""
        return asdict(self)


def read(fabric: Fabric, document: Any) -> Denylist:
    """Return the list of a document; `InputError` if it is invalid, or names a place that does not
    exist.
    """
    if isinstance(document, (str, bytes)):
        try:
            document = json.loads(document)
        except (ValueError, RecursionError) as error:
            raise InputError(f"denylist: no JSON ({error})") from None
    if not isinstance(document, dict):
        raise InputError("denylist: an object of JSON is accepted")
    rows = document.get("entries")
    if not isinstance(rows, list) or len(rows) > ENTRIES_MAX:
        raise InputError(f"denylist: entries: a list of up to {ENTRIES_MAX} is accepted")
    fresh_s = document.get("fresh_s", FRESH_S)
    if isinstance(fresh_s, bool) or not isinstance(fresh_s, (int, float)) or not 0 < fresh_s < 1e6:
        raise InputError("denylist: fresh_s: seconds above 0 are accepted")
    return Denylist(
        _time(document, "version"), _time(document, "made_us"), float(fresh_s),
        tuple(entry(fabric, row) for row in rows),
    )  # fmt: skip


def entry(fabric: Fabric, row: Any) -> Entry:
    """Return one entry; `InputError` if it is invalid, or its place does not exist."""
    if not isinstance(row, dict):
        raise InputError("denylist: entries: objects of JSON are accepted")
    words = {}
    for key in ("where", "reason", "source"):
        value = row.get(key)
        if not isinstance(value, str) or not 0 < len(value) <= WORDS_MAX:
            raise InputError(f"denylist: {key}: 1 to {WORDS_MAX} characters are accepted")
        words[key] = value
    try:
        entrances(fabric, words["where"])
    except InputError as error:
        raise error.at(f"denylist: where = {words['where']!r}") from None
    until_us = None if row.get("until_us") is None else _time(row, "until_us")
    return Entry(since_us=_time(row, "since_us"), until_us=until_us, **words)


def ports(fabric: Fabric, entries: Sequence[Entry]) -> LongArray:
    """Return the directed ports that these entries name, or none if they are too many."""
    found = [entrances(fabric, one.where).targets for one in entries]
    every = np.unique(np.concatenate([np.zeros(0, np.int64), *found]))
    return every if len(every) <= DENIED_MAX * fabric.n_ports else np.zeros(0, np.int64)


def _time(row: Mapping[str, Any], key: str) -> int:
    value = row.get(key)
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise InputError(f"denylist: {key}: a whole number is accepted")
    return value
