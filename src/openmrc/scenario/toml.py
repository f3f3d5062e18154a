"""Strict tables: TOML to frozen Structs, and back, with errors that name the place.

msgspec checks types and ranges; this module adds what people need: quantities with units, `"auto"`,
the path and the value in every error, and the nearest word to a misspelt key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from glob import glob
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, get_args

import msgspec

from openmrc import units
from openmrc.errors import InputError
from openmrc.say import written
from openmrc.sim.mrc.policies import find

Table = dict[str, Any]
S = TypeVar("S", bound=msgspec.Struct)

AUTO = "auto"  # a file's word for "derive it"; None in a Struct


def meant(word: Any, known: Iterable[str]) -> str:
    """Return "did you mean 'nics'? " for a word that is nearly a known one, else ""."""
    known = {each.lower(): each for each in known}
    near = get_close_matches(str(word).lower(), known, n=1)
    return f"did you mean {known[near[0]]!r}? " if near else ""


class Quantity(int):
    """An integer in openmrc's unit that a file writes as text with a unit."""

    UNIT: ClassVar[str] = ""  # the suffix of such names: "_ps"
    UNITS: ClassVar[Iterable[str]] = ()  # of texts
    READ: ClassVar[Callable[[str], int]]
    WRITE: ClassVar[Callable[[int], str]]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the quantity that `text` states; raise `InputError` otherwise."""
        try:
            return cls(cls.READ(text))
        except InputError as error:
            unit = re.sub(r"^[\s\d.+-]*", "", str(text)).strip()
            # The same unit in other case: "100gbps". "5m" is too short to be near to anything.
            near = [] if unit in cls.UNITS else [u for u in cls.UNITS if u.lower() == unit.lower()]
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(f"{error}{hint}") from None

    def text(self) -> str:
        """Return the text that `parse` reads back as the same integer."""
        return type(self).WRITE(self)


class Time(Quantity):
    """Picoseconds."""

    UNIT, READ, WRITE = "_ps", units.parse_time, units.fmt_time
    UNITS = units.TIME_PS


class Rate(Quantity):
    """Bit/s."""

    UNIT, READ, WRITE = "_bps", units.parse_rate, units.fmt_rate
    UNITS = units.RATE_BPS


class Size(Quantity):
    """Bytes."""

    UNIT, READ, WRITE = "_bytes", units.parse_size, units.fmt_size
    UNITS = units.SIZE_BYTES


class OpsRate(Quantity):
    """Operations a second."""

    UNIT, READ, WRITE = "_ops", units.parse_ops_rate, units.fmt_ops_rate
    UNITS = units.RATE_OPS


class ByteCount(Size):
    """Bytes of one packet or counter: a size with its unit, or a plain number."""

    UNIT = ""

    @classmethod
    def parse(cls, text: str | int) -> Self:
        if isinstance(text, int) and not isinstance(text, bool):
            return cls(text)
        return super().parse(text)  # type: ignore[arg-type]  # refuses what is no text


class Depth(Quantity):
    """How much a queue holds: bytes at every rate, or a time of the port's own rate."""

    @classmethod
    def parse(cls, text: str) -> Any:
        """Return one of the two below."""
        unit = str(text).strip().lstrip("+-.0123456789").strip()
        if unit in units.TIME_PS:
            return DepthTime(units.parse_time(text))
        if unit in units.SIZE_BYTES:
            return DepthBytes(units.parse_size(text))
        raise InputError(
            f'{written(text)}: a size or a time is accepted, such as "64KiB" or "20us"'
        )


class DepthBytes(Depth):
    """The capacity of a queue: bytes at every rate, or a time at the port's own rate."""

    UNIT, READ, WRITE = Size.UNIT, Size.READ, Size.WRITE


class DepthTime(Depth):
    """Picoseconds."""

    UNIT, READ, WRITE = Time.UNIT, Time.READ, Time.WRITE


class File(str):
    """Path of a file that exists; relative to the scenario that names it, absolute once loaded."""

    __slots__ = ()

    @classmethod
    def read(cls, text: Any, base: Path) -> Self:
        """Return the file's name, made absolute; raise `InputError` if there is none."""
        if not isinstance(text, str):
            raise InputError(f"{written(text)} is not the name of a file")
        path = base / text
        if not path.is_file():
            why = "is no regular file" if path.exists() else f"there is no such file in {base}"
            raise InputError(f"{text!r}: {why}")
        return cls(path.resolve())


class Files(str):
    """A directory, or a pattern of file names such as "run/*.et"; as `File`, absolute once loaded.

    A directory means those of its files whose names end in SUFFIX.
    """

    __slots__ = ()
    SUFFIX: ClassVar[str]

    @classmethod
    def read(cls, text: Any, base: Path) -> Self:
        """Return the files' name, made absolute; raise `InputError` if there is none of them."""
        if not isinstance(text, str):
            raise InputError(f"{written(text)} is not the name of files")
        found = cls((base / text).absolute())
        if not found.paths():
            raise InputError(
                f"{text!r}: there is no such file in {base}; accepted: a directory of"
                f" {cls.SUFFIX} files, or a pattern as *{cls.SUFFIX}"
            )
        return found

    def paths(self) -> list[Path]:
        """Return the existing files, sorted by name."""
        pattern = str(Path(self) / f"*{self.SUFFIX}") if Path(self).is_dir() else str(self)
        return sorted(path for name in glob(pattern) if (path := Path(name)).is_file())


class Choice(str):
    """One of the built-in WORDS, or "FILE.py:NAME", a user's own policy for ROLE."""

    __slots__ = ()
    WORDS: ClassVar[tuple[str, ...]]
    ROLE: ClassVar[str]

    @classmethod
    def read(cls, text: Any, base: Path) -> Self:
        """Return the choice, a file's path made absolute; raise `InputError` otherwise."""
        if isinstance(text, str) and text in cls.WORDS:
            return cls(text)
        if isinstance(text, str) and ":" in text:
            return cls(find(text, cls.ROLE, base))
        raise InputError(
            f"{written(text)} is refused; {meant(text, cls.WORDS)}accepted: {', '.join(cls.WORDS)}"
            " or FILE.py:NAME"
        )

    @property
    def file(self) -> Path | None:
        """The file of a policy."""
        return None if self in self.WORDS else Path(self.rpartition(":")[0])


def read_table(table: Any, struct: type[S], place: str, base: Path, **fixed: Any) -> S:
    """Convert `table` to `struct`, or raise `InputError` that begins with `place` ("fabric").

    Keys of `fixed` are part of the table but not of the Struct (`kind`, which chose the Struct).
    Relative files are resolved in `base`.
    """
    refuse_no_table(table, place)
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    refuse_unknown(table, [*fixed, *fields], place)
    given = {
        key: None if value == AUTO and _optional(fields[key].type) else value
        for key, value in table.items()
        if key not in fixed
    }

    def special(kind: type[Any], value: Any) -> Any:
        if issubclass(kind, Quantity):
            return _as_value_error(kind.parse, value)
        if issubclass(kind, File | Files | Choice):
            return _as_value_error(kind.read, value, base)
        raise NotImplementedError(kind)

    try:
        return msgspec.convert(given, struct, dec_hook=special)
    except msgspec.ValidationError as error:
        raise InputError(_explain(str(error), table, fields, place)) from None


def plain(value: Any) -> Any:
    """Return `value` in TOML's own types, in place of NumPy's numbers, paths and tuples."""
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise InputError(f"{next(k for k in value if not isinstance(k, str))!r} is not a key")
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Quantity):
        return value.text()
    return value.item() if hasattr(value, "item") else value


def refuse_no_table(table: Any, place: str) -> None:
    """Raise `InputError` unless `table` is one."""
    if not isinstance(table, dict):
        raise InputError(
            f"{place}: {written(table)} is not a table; write [{place}] and its keys below it"
        )


def refuse_unknown(table: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    """Raise `InputError` for the first key of `table` that is not in `known`."""
    known = list(known)
    for key, value in table.items():
        if key in known:
            continue
        path = f"{place}.{key}" if place else key
        tables = value if isinstance(value, list) else [value]
        what = "table" if tables and all(isinstance(it, dict) for it in tables) else "key"
        raise InputError(
            f"{path}: unknown {what}; {meant(key, known)}accepted here: {', '.join(known)}"
        )


def write_table(header: str, struct: msgspec.Struct, **first: Any) -> str:
    """Return `struct` as TOML text under `header` ("[fabric]"), every default written out."""
    lines = [header] if header else []
    lines += [f"{key} = {_value(value)}" for key, value in first.items()]
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if value is not msgspec.UNSET:
            lines.append(f"{field.encode_name} = {_value(AUTO if value is None else value)}")
    return "\n".join(lines) + "\n"


def as_table(struct: msgspec.Struct, **first: Any) -> Table:
    """Return `struct` as the table that `read_table` reads back as equal."""
    fields = msgspec.structs.fields(struct)
    values = {field.encode_name: getattr(struct, field.name) for field in fields}
    given = {key: AUTO if value is None else plain(value) for key, value in values.items()}
    return first | {key: value for key, value in given.items() if value is not msgspec.UNSET}


def arguments(struct: msgspec.Struct, *keys: str) -> Table:
    """Return the values of `keys` as arguments of what they build: names with units."""
    kinds = {field.name: field.type for field in msgspec.structs.fields(struct)}
    return {f"{key}{_unit(kinds[key])}": unitless(getattr(struct, key)) for key in keys}


def _unit(annotation: Any) -> str:
    """The suffix for the unit of such values, which may also be "auto"."""
    kinds = (annotation, *get_args(annotation))
    return next((kind.UNIT for kind in kinds if hasattr(kind, "UNIT")), "")


def unitless(value: Any) -> Any:
    """Return the value of a key, without the type that only files need."""
    if isinstance(value, Quantity):
        return int(value)
    return str(value) if isinstance(value, Choice) else value


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Quantity):
        return f'"{value.text()}"'
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    escaped = "".join(
        f"\\u{ord(c):04x}" if ord(c) < 0x20 or ord(c) == 0x7F else f"\\{c}" if c in '"\\' else c
        for c in str(value)
    )
    return f'"{escaped}"'


def _optional(annotation: Any) -> bool:
    return type(None) in getattr(annotation, "__args__", ())


def _as_value_error(read: Any, *arguments: Any) -> Any:
    """msgspec adds the place to a ValueError, and to nothing else."""
    try:
        return read(*arguments)
    except InputError as error:
        raise ValueError(str(error)) from None


def _explain(message: str, table: Table, fields: Mapping[str, Any], place: str) -> str:
    """Turn msgspec's message into place, value and remedy."""
    hint = ""
    message, _, path = message.partition(" - at `$")
    key = path.rstrip("`").lstrip(".").partition("[")[0]  # for a list: the list
    if missing := re.fullmatch(r"Object missing required field `(.*)`", message):
        return f"{place}.{missing[1]}: is missing and has no default"
    if not key:  # a Struct's own check, which names its key as ".key: what is wrong"
        return f"{place}{message}" if message.startswith(".") else f"{place}: {message}"
    if message.startswith("Invalid enum value"):
        kinds = get_args(fields[key].type)  # the words, or the union of them with None
        words = [word for kind in kinds for word in get_args(kind) or (kind,)]
        words = [_NAMES.get(word, word) for word in words if not isinstance(word, msgspec.Meta)]
        accepted, hint = ", ".join(words), meant(table.get(key), words)
    elif message.startswith("Expected"):
        accepted = message.removeprefix("Expected ").partition(", got ")[0].replace("`", "")
        for word, meaning in _WORDS.items():
            accepted = re.sub(rf"\b{word}\b", meaning, accepted)
        accepted = accepted.replace(" | null", f' or "{AUTO}"').replace(" | ", " or ")
    else:
        return f"{place}.{key}: {message}"
    return f"{place}.{key}: {written(table.get(key))} is refused; {hint}accepted: {accepted}"


_NAMES: dict[Any, str] = {type(None): AUTO, int: "a whole number"}
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
}
