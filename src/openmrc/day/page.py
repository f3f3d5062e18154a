"""The page of a day: what each fabric lost, and its time line, down to one failure.

The page holds all failures as packed columns and draws what is in view, one pixel column at a time,
so that a hundred thousand of them cost no more than a few.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.day.life import Life
from openmrc.day.told import WORDS, answer

DID = ("nothing", "stalled", "slower", "interrupted")  # in the order of what they cost


def timeline(life: Life) -> dict[str, Any]:
    """Return the failures of a life as packed columns, and when the job did not run."""
    kinds = [kind.kind for kind in life.failures.kinds]
    rows = [
        (
            e.at_s,
            e.lasts_s,
            e.stall_s,
            e.step_s,
            kinds.index(e.kind),
            DID.index(e.did),
            e.nic,
            e.plane,
        )
        for e in life.events
    ]
    table = np.array(rows, np.float64).reshape(-1, 8).T
    columns = ("at_s", "lasts_s", "stall_s", "step_s", "kind", "did", "nic", "plane")
    types = ("<f8", "<f4", "<f4", "<f4", "<u1", "<u1", "<i4", "<u1")
    return {
        "kinds": kinds,
        "outages": life.outages,
        **{
            name: _packed(column, dtype)
            for name, column, dtype in zip(columns, table, types, strict=True)
        },
    }


def _packed(column: npt.NDArray[np.float64], dtype: str) -> str:
    return b64encode(column.astype(dtype).tobytes()).decode()


def page(results: Mapping[str, Any]) -> str:
    """Return the page as HTML."""
    fabrics = results["fabrics"]
    assets = files("openmrc.day") / "assets"
    data = json.dumps({"fabrics": fabrics, "causes": WORDS, "did": DID}).replace("</", "<\\/")
    lines = "".join(f"<p>{escape(line)}</p>" for line in answer(fabrics))
    title = next(
        (line[8:-1] for line in results["scenario"].splitlines() if line.startswith("name = ")), ""
    )
    return (
        (assets / "day.html")
        .read_text(encoding="utf-8")
        .replace("{{title}}", escape(title))
        .replace("{{answer}}", lines)
        .replace("{{data}}", data)
        .replace("{{script}}", (assets / "day.js").read_text(encoding="utf-8"))
    )
