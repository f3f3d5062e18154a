"""The page as one self-contained file: `assets` around one JSON object."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from typing import Any

from openmrc import version

SCRIPTS = (  # in this order
    "words.js", "names.js", "layout.js", "picture.js", "lists.js", "chosen.js", "operator.js",
    "page.js",
)  # fmt: skip


def html(content: dict[str, Any]) -> str:
    """Return the page that shows this (`data`)."""
    assets = files("openmrc.ops.mapper.page").joinpath("assets")
    parts = {
        "TITLE": escape(content["title"]),
        "VERSION": escape(version.__version__),
        "STYLE": assets.joinpath("page.css").read_text(encoding="utf-8"),
        # JSON that cannot end the script element that contains it.
        "DATA": json.dumps(content, separators=(",", ":")).replace("<", "\\u003c"),
        "SCRIPT": "".join(assets.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS),
    }
    # In one pass: inserted text is not searched again.
    first, *pieces = assets.joinpath("page.html").read_text(encoding="utf-8").split("{{")
    page = first
    for piece in pieces:
        name, _, rest = piece.partition("}}")
        page += parts[name] + rest
    return page


def login(why: str = "") -> str:
    """Return the page that asks for the token."""
    page = files("openmrc.ops.mapper.page").joinpath("assets", "login.html")
    return page.read_text(encoding="utf-8").replace("{{WHY}}", escape(why))
