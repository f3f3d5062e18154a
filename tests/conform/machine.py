"""Mutants of the engine made by machine: one small change each, anywhere in its functions.

A mutant is an edit of the syntax tree of one function: an operator, a constant, a condition, a
field or a statement. `apply` swaps the function's code for the changed one in this process, so that
every caller runs it; only plain Python can be changed (NUMBA_DISABLE_JIT=1).
"""

from __future__ import annotations

import ast
import copy
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

# What no peer sees: records for readers, what is decided before a QP opens, others' ways.
UNSEEN = (
    "__init__",
    "account",
    "ahead",
    "observe",
    "parameters",
    "policy",
    "reps",
    "setup",
    "state",
)
# Of the live endpoint: how packets come in and go out by plain UDP.
PATHS = ("complete", "ip", "loop", "receive", "transmit")
COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
COMPUTED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip


@dataclass(frozen=True)
class Edit:
    """One change: where it is, and in words what it is."""

    module: str
    function: str
    line: int
    what: str
    number: int  # of the edit in its function, in the order of `_edits`

    def __str__(self) -> str:
        return f"{self.module}.{self.function}:{self.line}: {self.what}"


def modules(live: bool = False) -> list[ModuleType]:
    """The modules whose functions are changed: the engine's, and the paths of a live endpoint."""
    import_module("openmrc.engine.endpoint")  # loads them all
    there = sorted(Path(sys.modules["openmrc.engine"].__path__[0]).glob("*.py"))
    names = [f"engine.{path.stem}" for path in there if path.stem not in UNSEEN]
    if live:
        import_module("openmrc.live.endpoint.loop")
        names += [f"live.endpoint.{name}" for name in PATHS]
    return [sys.modules[f"openmrc.{n}"] for n in names if f"openmrc.{n}" in sys.modules]


def every(live: bool = False) -> list[Edit]:
    """Every edit there is, in the order of files and lines."""
    found = []
    for module in modules(live):
        for node in _tree(module).body:
            if isinstance(node, ast.FunctionDef):
                name = module.__name__.removeprefix("openmrc.").removeprefix("engine.")
                for number, (line, what, _) in enumerate(_edits(node)):
                    found.append(Edit(name, node.name, line, what, number))
    return found


def drawn(n: int, seed: int, live: bool = False) -> list[Edit]:
    """`n` edits, spread over all functions: each function in turn gives one at random."""
    dice = random.Random(seed)
    by_function: dict[tuple[str, str], list[Edit]] = {}
    for edit in every(live):
        by_function.setdefault((edit.module, edit.function), []).append(edit)
    rows = list(by_function.values())
    dice.shuffle(rows)
    for row in rows:
        dice.shuffle(row)
    turns = [row[k] for k in range(max(map(len, rows))) for row in rows if k < len(row)]
    return turns[:n]


def lines(edit: Edit) -> set[tuple[str, int]]:
    """The lines that the statement of an edit stands on, with their file."""
    module, node = _function(edit)
    spans = [_span(n) for n in ast.walk(node) if isinstance(n, ast.stmt) and n is not node]
    around = [span for span in spans if edit.line in span]
    there = min(around, key=len, default=range(node.lineno, (node.end_lineno or 0) + 1))
    return {(str(module.__file__), line) for line in there}


def line(edit: Edit) -> str:
    """The line that an edit changes, as it is."""
    module, _ = _function(edit)
    return Path(str(module.__file__)).read_text(encoding="utf-8").splitlines()[edit.line - 1]


def _span(node: ast.stmt) -> range:
    """The lines of a statement, without those of the statements inside."""
    inside = getattr(node, "body", None)
    last = inside[0].lineno - 1 if inside else node.end_lineno
    return range(node.lineno, max(last or 0, node.lineno) + 1)


def _function(edit: Edit) -> tuple[ModuleType, ast.FunctionDef]:
    name = edit.module if edit.module.startswith("live.") else f"engine.{edit.module}"
    module = sys.modules[f"openmrc.{name}"]
    body = _tree(module).body
    return module, next(
        n for n in body if isinstance(n, ast.FunctionDef) and n.name == edit.function
    )


def apply(edit: Edit) -> None:
    """Change the function for the rest of this process."""
    module, node = _function(edit)
    changed = list(_edits(node))[edit.number][2]()
    changed.decorator_list = []
    ast.fix_missing_locations(changed)
    space: dict[str, Any] = {}
    body = ast.Module([changed], [])
    exec(compile(body, str(module.__file__), "exec"), vars(module) | {}, space)
    own, new = getattr(module, edit.function), space[edit.function]
    assert isinstance(own, FunctionType), f"{edit}: set NUMBA_DISABLE_JIT=1"
    own.__code__ = new.__code__


@cache
def _tree(module: ModuleType) -> ast.Module:
    path = Path(str(module.__file__))
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _edits(function: ast.FunctionDef) -> Iterator[tuple[int, str, Any]]:
    """(line, words, maker) of every edit of a function."""
    body = list(ast.walk(function))
    fields = _fields(body)
    index = {id(node): k for k, node in enumerate(body)}

    def made(node: ast.AST, change: Any) -> Any:
        def make() -> ast.FunctionDef:
            twin = copy.deepcopy(function)
            change(list(ast.walk(twin))[index[id(node)]])
            return twin

        return make

    for node in body:
        line = getattr(node, "lineno", 0)
        for words, change in _of(node, fields):
            yield line, words, made(node, change)


def _fields(body: Sequence[ast.AST]) -> dict[str, list[str]]:
    """The fields that a function uses, by the name of their record."""
    found: dict[str, set[str]] = {}
    for node in body:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.setdefault(node.value.id, set()).add(node.attr)
    return {name: sorted(fields) for name, fields in found.items()}


def _of(node: ast.AST, fields: dict[str, list[str]]) -> Iterator[tuple[str, Any]]:
    """The changes of one node: words, and a function that makes it in a copy."""
    shown = ast.unparse(node) if isinstance(node, (ast.expr, ast.stmt)) else ""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARED:
        other = COMPARED[type(node.ops[0])]
        yield f"{shown}: {other.__name__}", lambda n: n.ops.__setitem__(0, other())
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in COMPUTED:
        swap = COMPUTED[type(node.op)]
        yield f"{shown}: {swap.__name__}", lambda n: setattr(n, "op", swap())
    elif isinstance(node, ast.BoolOp):
        flip = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield f"{shown}: {flip.__name__}", lambda n: setattr(n, "op", flip())
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        for by in (1, -1):
            if node.value + by >= 0 or by > 0:
                yield f"{shown} {by:+}", lambda n, by=by: setattr(n, "value", n.value + by)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        rest = fields[node.value.id]
        if len(rest) > 1 and isinstance(node.ctx, ast.Load):
            after = rest[(rest.index(node.attr) + 1) % len(rest)]
            yield f"{shown} -> {after}", lambda n: setattr(n, "attr", after)
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        for value in (True, False):
            if isinstance(node, ast.While) and value:
                continue
            yield (
                f"if {ast.unparse(node.test)}: {value}",
                lambda n, value=value: setattr(n, "test", ast.Constant(value)),
            )
    if isinstance(node, (ast.Assign, ast.AugAssign)) and _is_field(node):
        yield f"without {shown}", _dropped
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield f"without {shown}", _dropped


def _is_field(node: ast.Assign | ast.AugAssign) -> bool:
    """Whether a record's field is written; a variable left out would only be missing."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return isinstance(node, ast.AugAssign) or not isinstance(target, ast.Name)


def _dropped(node: Any) -> None:
    """Turn a statement into one that does nothing."""
    node.__class__ = ast.Expr
    for name in ("targets", "target", "op", "type_comment"):
        node.__dict__.pop(name, None)
    node.value = ast.Constant(None)
