"""Parts of hand-written files that are generated from `layout`: the text between two markers.

A part begins with a line that holds `made from layout: NAME` and ends with one that holds `end of
NAME`, inside a comment of that file. The part in the dissector is filled whenever its path is
requested. After a change of `layout`, in a checkout,

    python -m openmrc.wire.generated

rewrites the parts of the page `docs/wire.md`; a test compares them.
"""

from __future__ import annotations

import re
from pathlib import Path

from openmrc.wire import diagrams

PAGE = Path(__file__).resolve().parents[3] / "docs" / "wire.md"


def replace_parts(text: str, parts: dict[str, str]) -> str:
    """Return `text` with every marked part replaced; each of `parts` consists of whole lines.

    Raises `KeyError` for a marker whose name is not in `parts`.
    """

    def replace(found: re.Match[str]) -> str:
        return found["begin"] + parts[found["name"]] + found["end"]

    pattern = (
        r"(?P<begin>^.*made from layout: (?P<name>[\w ]+?)[^\w\n]*\n)"
        r"(?:.*\n)*?"
        r"(?P<end>.*end of (?P=name)\b)"
    )
    return re.sub(pattern, replace, text, flags=re.MULTILINE)


def main() -> None:
    """Rewrite the parts of the page."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(replace_parts(text, diagrams.parts()), encoding="utf-8")


if __name__ == "__main__":
    main()
