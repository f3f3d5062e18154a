"""The columns of a results directory's tables as data, and the check of a file against them.

A file may come from anywhere: what reads it gets values that a run can have written, or an
`InputError` with the file, the row and the column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc.errors import InputError
from openmrc.run.parquet import check_room
from openmrc.run.ports import TICK
from openmrc.run.witness import BECAME, EVENTS
from openmrc.units import QUANTITY_MAX, US

if TYPE_CHECKING:
    import polars as pl

WHOLE, NUMBER, FLAG, TEXT = "whole numbers", "numbers", "true or false", "text"
COUNT_MAX = 2**38  # of packets or flows; a column of so many rows as are read has a sum
BIN_US_MIN = 0.5 / US  # half a picosecond: a bin of time has a width


@dataclass(frozen=True)
class Column:
    """What a column holds: numbers from `least` to `most`, which are numbers or the names of a
    limit (`nics`: below it) or of another column; or words that `most` names, all if it is None.
    """

    kind: str
    least: float | str = 0
    most: float | str | tuple[str, ...] | None = None
    null: bool = False
    wider: float = 0.0  # than `least` by so much


_NAME, _FLAG = Column(TEXT, most="transports"), Column(FLAG)
_COUNT, _NIC = Column(WHOLE, most=COUNT_MAX), Column(WHOLE, most="nics")
_TIME_US = Column(NUMBER, most="end_us")
_SPAN_US = Column(NUMBER, most=QUANTITY_MAX / US)
_EV = Column(WHOLE, most=2**32 - 1)
_OF_BINS = {
    "transport": _NAME,
    "from_us": _TIME_US,
    "until_us": replace(_TIME_US, least="from_us", wider=BIN_US_MIN),
}


def _or_null(column: Column) -> Column:
    return replace(column, null=True)


TABLES: dict[str, dict[str, Column]] = {
    "flows": {
        "transport": _NAME,
        "flow": _COUNT,
        "qp": _COUNT,
        "src": _NIC,
        "dst": _NIC,
        "bytes": Column(WHOLE, most=QUANTITY_MAX),
        "start_us": _or_null(_TIME_US),
        "done_us": replace(_TIME_US, least="start_us", null=True),
        "fct_us": _or_null(_TIME_US),
        "delivered_us": _or_null(_TIME_US),
        "retransmitted": _COUNT,
        "failed": _FLAG,
        "error": Column(TEXT),
        "messages": _COUNT,
        "job": Column(TEXT, null=True),
    },
    "steps": {
        "transport": _NAME,
        "step": Column(WHOLE, 1, COUNT_MAX),
        "end_us": _or_null(_TIME_US),
        "step_us": _or_null(_TIME_US),
        "first_end_us": _or_null(_TIME_US),
        "last_rank": _or_null(_COUNT),
        "compute_us": _SPAN_US,
        "network_us": _SPAN_US,
    },
    "events": {
        "transport": _NAME,
        "t_us": _TIME_US,
        "qp": Column(WHOLE, -1, COUNT_MAX),
        "src": _NIC,
        "dst": _NIC,
        "ev": _EV,
        "event": Column(TEXT, most=EVENTS),
    },
    "paths": {
        **_OF_BINS,
        "qp": _COUNT,
        "src": _NIC,
        "dst": _NIC,
        "ev": _EV,
        "sent": _COUNT,
        "lost": _COUNT,
        "first_us": _TIME_US,
        "last_us": _TIME_US,  # may be before first_us: a loss and a missed probe are timed apart
        "narrow_bytes": _COUNT,
    },
    "account": {
        "transport": _NAME,
        "sent_us": _TIME_US,
        "known_us": _TIME_US,
        "qp": _COUNT,
        "src": _NIC,
        "dst": _NIC,
        "ev": _EV,
        "became": Column(TEXT, most=BECAME),
    },
    "counts": {
        **_OF_BINS,
        "port": Column(WHOLE, most="ports"),
        **dict.fromkeys(TICK, _COUNT),
    },
}

Limits = Mapping[str, Any]


def read_table(file: Path, columns: Mapping[str, Column], limits: Limits) -> pl.DataFrame:
    """Return these columns of a Parquet file.

    `limits` has what columns name. Raises `InputError` for any other file, with the row, counted
    from 1, and the column.
    """
    import polars as pl

    try:
        has = pl.scan_parquet(file, glob=False).collect_schema()
        for name, column in columns.items():
            if name not in has:
                raise InputError(f"{file}: has no column {name}; run it again")
            if not _holds(has[name], column):
                words = f"holds {has[name]}; {column.kind} are accepted"
                raise InputError(f"{file}: column {name} {words}")
        check_room(file)
        table = pl.read_parquet(file, columns=[*columns], glob=False)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise InputError(
            f"{file}: was not written by mrc run --out ({first}); run it again"
        ) from None
    types = {WHOLE: pl.Int64, NUMBER: pl.Float64, FLAG: pl.Boolean, TEXT: pl.String}
    for name, column in columns.items():
        wrong = _wrong(table, name, column, limits)
        if len(at := wrong.arg_true()):
            refuse(file, table, int(at[0]), name, _accepted(table, int(at[0]), column, limits))
    return table.cast({name: types[column.kind] for name, column in columns.items()})


def refuse(file: Path, table: pl.DataFrame, row: int, name: str, accepted: str) -> None:
    """Raise `InputError` for the value of a column in a row, counted from 0."""
    value = table[name][row]
    said = "nothing" if value is None else repr(value)
    raise InputError(f"{file}: row {row + 1}, column {name}: {said}; accepted: {accepted}")


def _holds(dtype: pl.DataType, column: Column) -> bool:
    import polars as pl

    if column.kind == FLAG:
        return dtype == pl.Boolean
    if column.kind == TEXT:
        return dtype == pl.String or (column.null and dtype == pl.Null)
    return dtype.is_integer() if column.kind == WHOLE else dtype.is_float()


def _wrong(table: pl.DataFrame, name: str, column: Column, limits: Limits) -> pl.Series:
    """Per row, whether the value is one that no run writes."""
    import polars as pl

    values = table[name]
    missing = values.is_null() & (not column.null)
    if column.kind == FLAG:
        return missing
    most = _most(column, limits)
    if column.kind == TEXT:
        if most is None:
            return missing
        return missing | (~values.is_in([*most])).fill_null(False)
    there = values.is_not_null()
    if column.kind == WHOLE:
        values = values.cast(pl.Int64, strict=False)  # null: one beyond all limits
    least: Any = column.least
    if isinstance(least, str):
        least = table[least] + column.wider
    within: pl.Series = (values >= least) & (values <= most)
    if column.kind == NUMBER:
        within = within & values.is_finite()
    return missing | (there & ~within.fill_null(False))


def _most(column: Column, limits: Limits) -> Any:
    if not isinstance(column.most, str):
        return column.most
    limit = limits[column.most]
    return limit - 1 if column.kind == WHOLE else limit


def _accepted(table: pl.DataFrame, row: int, column: Column, limits: Limits) -> str:
    most = _most(column, limits)
    if column.kind in (FLAG, TEXT):
        return column.kind if most is None else ", ".join(map(str, most))
    least = column.least
    if isinstance(least, str):
        least = f"more than {least}" if column.wider else f"from {least} ({table[least][row]})"
    return f"{least} to {most:.15g}" if isinstance(most, float) else f"{least} to {most}"
