"""Reads a policy's file without running it: finds fields that do not exist, and writes to state
that is not the policy's own, each with its line.
"""

from __future__ import annotations

import ast
from difflib import get_close_matches
from typing import NamedTuple

from openmrc.engine import policy
from openmrc.engine import state as es
from openmrc.policies.fields import RECORDS

STATE, OWN_ROW = "st", "own"


class Finding(NamedTuple):
    """What is wrong in a line; a policy with a warning runs, but may not do what was intended."""

    line: int
    words: str
    warning: bool = False


def look(tree: ast.Module) -> list[Finding]:
    """Return what is wrong in the functions of a policy and their helpers, by line."""
    found: list[Finding] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found += _Reader(node).found
    return sorted(set(found))


class _Reader(ast.NodeVisitor):
    """Follows the state through one function: `known` says what a name stands for, "st" for the
    state, "plane" for a record of `st.plane`, "plane[]" for the array.
    """

    def __init__(self, function: ast.FunctionDef) -> None:
        names = {argument.arg for argument in function.args.args}
        self.role = function.name if function.name in policy.SIGNATURES else ""
        self.known = {name: kind for name, kind in (("st", STATE), ("q", "qp")) if name in names}
        self.found: list[Finding] = []
        for statement in function.body:
            self.visit(statement)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        kind = self._kind(node.value)
        for target in node.targets:
            self._written(target)
            if isinstance(target, ast.Name):
                self.known.pop(target.id, None)
                if kind:
                    self.known[target.id] = kind

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        self._written(node.target)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.visit(node.value)
        of = self._kind(node.value)
        if of == STATE:
            self._must_be(node, es.State._fields, ast.unparse(node.value))
        elif of in RECORDS:
            self._must_be(node, RECORDS[of].names, ast.unparse(node.value))

    def _must_be(self, node: ast.Attribute, names: tuple[str, ...], of: str) -> None:
        if node.attr not in names:
            near = get_close_matches(node.attr, names, n=1, cutoff=0.5)
            meant = f"; did you mean {near[0]!r}?" if near else "; see mrc policy fields"
            self.found.append(Finding(node.lineno, f"{of} has no field {node.attr!r}{meant}"))

    def _written(self, target: ast.expr) -> None:
        """Check the field that is written, and whether a policy may."""
        self.visit(target)
        if not isinstance(target, ast.Attribute):
            return
        of = self._kind(target.value)
        allowed = of == "qp" and target.attr == "cwnd" and self.role != "choose"
        if of in RECORDS and target.attr in RECORDS[of].names and not allowed:
            words = (
                f"{ast.unparse(target)} is the engine's; a policy sets q.cwnd (in step) and"
                " its row of st.own"
            )
            self.found.append(Finding(target.lineno, words, warning=True))

    def _kind(self, node: ast.expr) -> str:
        """What an expression stands for, "" if it is not followed."""
        if isinstance(node, ast.Name):
            return self.known.get(node.id, "")
        if isinstance(node, ast.Attribute) and self._kind(node.value) == STATE:
            return f"{node.attr}[]"
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            array = self._kind(node.value).removesuffix("[]")
            return array if array in RECORDS and f"{array}[]" == self._kind(node.value) else ""
        return ""
