"""The pages a reader sees, and their blocks: what each is, and what a marker before it says.

A block is what stands between fences, and its language says what becomes of it: `sh` and `python`
are run, `console` is run and must print what follows, `toml` is a scenario that can be built,
`text` is only looked at. A comment on the line before it, `<!-- MARKER: reason -->`, says why one
of them is not run as any other.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[1]
LANGUAGES = ("sh", "console", "python", "toml", "text")
MARKERS = {
    "long": "run by `make docs-long`",
    "install": "run by `make docs-long`, against the built wheel, in an environment of its own",
    "lab": "run where `mrc doctor` finds nothing missing",
    "part": "no whole: a file that is named must contain it",
    "terminal": "waits for somebody, or for another terminal",
    "two-hosts": "takes two machines",
    "root": "changes the machine",
    "clone": "changes or tests the clone itself",
}


class Block(NamedTuple):
    """Text between fences; `line` is that of its first fence, `marker` "" where there is none."""

    page: str
    line: int
    language: str
    text: str
    marker: str
    reason: str


def pages() -> list[str]:
    """Every page for readers, by its path from the root."""
    found = [
        ROOT / name
        for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "conformance/README.md")
    ]
    found += sorted((ROOT / "docs").rglob("*.md"))
    return [path.relative_to(ROOT).as_posix() for path in found]


def blocks(page: str) -> list[Block]:
    """All blocks of a page, one that is only indented as of the language "indented"."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = text.splitlines()
    found = []
    for token in MarkdownIt().parse(text):
        if token.type not in {"fence", "code_block"} or token.map is None:
            continue
        if token.info.startswith("{"):  # a directive, to the site alone
            continue
        first = token.map[0]
        above = lines[first - 1] if first else ""
        said = re.fullmatch(r"\s*<!-- (?!made from)([\w-]+)(?:: (.+))? -->", above)
        marker, reason = (said[1], said[2] or "") if said else ("", "")
        language = token.info if token.type == "fence" else "indented"
        found.append(Block(page, first + 1, language, token.content, marker, reason))
    return found
