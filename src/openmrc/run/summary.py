"""The form of `summary.json` as data: what its readers rely on. Further keys are allowed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from openmrc.run.figures import PACKETS, PERCENTILES
from openmrc.units import QUANTITY_MAX, US

Count = Annotated[int, Meta(ge=0, le=QUANTITY_MAX)]
Time = Annotated[float, Meta(ge=0, le=QUANTITY_MAX / US)]  # us
Figure = Annotated[float, Meta(ge=0, le=1e18)]


def _form(name: str, keys: dict[str, Any]) -> Any:
    """A type of objects that have these keys; one that ends in "?" may be missing."""
    fields = []
    for number, (key, kind) in enumerate(keys.items()):
        there = {} if key[-1] != "?" else {"default": None}
        fields.append((f"key_{number}", kind, field(name=key.rstrip("?"), **there)))
    return msgspec.defstruct(name, fields, kw_only=True, module=__name__)


def _all(kind: Any, keys: Iterable[str]) -> dict[str, Any]:
    return dict.fromkeys(keys, kind)


_TIMES = _form("Times", _all(Time | None, ("min", *PERCENTILES, "mean")))
_COUNTS = _all(Count, ("total", "completed", "failed", "unfinished"))
_FLOWS = _form("Flows", _COUNTS | {"fct_us": _TIMES})
_TRAINING = {
    "steps": _form("Steps", _all(Count, ("total", "completed"))),
    "step_us": _TIMES,
    "died": bool,
}
_TRANSPORT = {
    "whole_us": Time | None,
    "sim_time_us": Time,
    "flows": _FLOWS,
    "goodput_gbps": _form("Goodput", {"total": Figure | None}),
    "slowdown_p100": Figure | None,
    "packets": _form("Packets", _all(Count | None, PACKETS)),  # None: not counted
    "qp_errors": list[str],
    "narrow_paths?": list[str] | None,
    "jobs?": dict[str, _form("Job", {"flows": _FLOWS, "time_us": Time | None})] | None,  # type: ignore[misc]  # made by a call
    "training?": _form("Training", _TRAINING) | None,
}
SUMMARY = _form(
    "Summary",
    {
        "partial": bool,
        "run?": str | None,  # older results have none
        "level?": str | None,
        "transports": Annotated[
            dict[str, _form("Transport", _TRANSPORT)],  # type: ignore[misc]  # made by a call
            Meta(min_length=1),
        ],
    },
)
