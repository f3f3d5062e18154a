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

from openmrc.day.life import DID, Life
from openmrc.day.told import WORDS, answer


def timeline(life: Life) -> dict[str, Any]:
    """Return the failures of a life as packed columns, and when the job did not run."""
    failures, done = life.failures, life.done
    n = len(done.did)
    columns: dict[str, tuple[Any, str]] = {
        "at_s": (failures.at_s, "<f8"),
        "lasts_s": (failures.lasts_s, "<f4"),
        "stall_s": (done.stall_s, "<f4"),
        "step_s": (done.step_s, "<f4"),
        "kind": (failures.kind, "<u1"),
        "did": (done.did, "<u1"),
        "nic": (failures.nic, "<i4"),
        "plane": (failures.plane, "<u1"),
    }
    return {
        "kinds": [kind.kind for kind in failures.kinds],
        "outages": life.outages,
        **{name: _packed(column[:n], dtype) for name, (column, dtype) in columns.items()},
    }


def _packed(column: npt.ArrayLike, dtype: str) -> str:
    return b64encode(np.asarray(column).astype(dtype).tobytes()).decode()


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
