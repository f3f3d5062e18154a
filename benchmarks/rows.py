"""What benchmarks of many trials have in common: rows are printed as they come, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any


def tell(rows: Iterable[dict[str, Any]], as_json: bool) -> None:
    """Print each row as soon as it is there; or all at the end, as one JSON list."""
    if as_json:
        print(json.dumps(list(rows), indent=1))
        return
    for row in rows:
        print(row, flush=True)
