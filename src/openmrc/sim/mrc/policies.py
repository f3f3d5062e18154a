"""Policies that a user brings: one Python file of compiled functions, named in the scenario.

    transport.cc = "my_cc.py:step"           in place of NSCC
    transport.paths = "my_paths.py:choose"   in place of MRC's choice of a path

`engine.policy` says what the functions get. They are decorated with `compiled` of `openmrc.jit`, or
left plain and compiled here; helpers that they call need `inlined` or `inner`. `find` reads a file
without running it and refuses functions that cannot be called. `load` runs and compiles a copy in
the cache, in a directory named after its content, so that an edit is never missed and the second
start is quick.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc.errors import InputError
from openmrc.reading import read_text

if TYPE_CHECKING:
    from openmrc.engine import state as es

RETURNS = {"step": "none", "choose": "int64", "learn": "none"}


@dataclass(frozen=True)
class Policy:
    """A function of a file that takes the place of a built-in one; `role` as in `SIGNATURES`."""

    file: Path
    name: str
    role: str

    def __str__(self) -> str:
        return f"{self.file}:{self.name}"


def find(text: str, role: str, base: Path) -> Policy:
    """Return the policy "FILE.py:NAME"; relative files are looked for in `base`.

    Raises `InputError` if there is no such file or function, or if it takes other arguments.
    """
    file, _, name = text.rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        raise InputError(f"{text!r} is not a policy; write FILE.py:NAME")
    path = base / file
    try:
        tree = ast.parse(read_text(path, "a policy, FILE.py:NAME"))
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{text!r}: {path} is not Python: {error}") from None
    _check(tree, name, role, path)
    if role == "choose" and _function(tree, "learn") is not None:
        _check(tree, "learn", "learn", path)
    return Policy(path.resolve(), name, role)


def load(policy: Policy, st: es.State) -> tuple[int, int]:
    """Compile a policy for the engine's state; return the address of its function, and that of
    `learn`, or 0.

    Raises `InputError` with the compiler's reason if it does not compile.
    """
    module = module_of(policy.file)
    address = _address(module, policy.name, policy.role, policy.file, st)
    if policy.role != "choose" or not hasattr(module, "learn"):
        return address, 0
    return address, _address(module, "learn", "learn", policy.file, st)


def imported(tree: ast.Module) -> set[str]:
    """Return the names that a file imports rather than defines."""
    found = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    return {name.asname or name.name for one in found for name in one.names}


def _function(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    return None


def _check(tree: ast.Module, name: str, role: str, path: Path) -> None:
    from openmrc.engine.policy import SIGNATURES

    right = f"def {name}({', '.join(SIGNATURES[role])}):"
    function = _function(tree, name)
    if function is None:
        if name in imported(tree):
            raise InputError(f"{path} imports {name}; write it there: {right}")
        there = ", ".join(n.name for n in tree.body if isinstance(n, ast.FunctionDef)) or "none"
        raise InputError(f"{path} has no function {name} (it has: {there}); write {right}")
    a = function.args
    plain = not (a.vararg or a.kwarg or a.kwonlyargs or a.defaults)
    given = [argument.arg for argument in (*a.posonlyargs, *a.args)]
    if not plain or len(given) != len(SIGNATURES[role]):
        raise InputError(
            f"{path}:{function.lineno}: {name}({ast.unparse(a)}) cannot be called; write {right}"
        )


def module_of(file: Path) -> Any:
    """Import a copy of the file that is named after its content.

    Raises `InputError`, with what it raised, if it cannot be imported.
    """
    from openmrc.jit import cache

    content = file.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:20]
    module_name = f"openmrc_policy_{digest}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    copy = cache.kept(content, "policies", digest, file.name)
    spec = importlib.util.spec_from_file_location(module_name, copy)
    if spec is None or spec.loader is None:
        raise InputError(f"{file}: is no policy by its name; it ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        raise InputError(f"{file}: cannot be imported: {type(error).__name__}: {error}") from None
    return module


def _address(module: Any, name: str, role: str, file: Path, st: es.State) -> int:
    """The address of a function, compiled for the types with which the engine calls it."""
    from openmrc.engine import policy as engine
    from openmrc.jit import callref, compiled, interpreted

    function = getattr(module, name)
    if interpreted():
        callref.functions[id(function)] = function
        return id(function)
    from numba import types
    from numba.extending import typeof_impl

    if not hasattr(function, "compile"):
        function = compiled(function)
        setattr(module, name, function)  # keeps the function alive, and with it its code
    state = typeof_impl(st, None)
    known = {"st": state, "q": state.fields["qp"].dtype}
    arguments = [known.get(argument, types.int64) for argument in engine.SIGNATURES[role]]
    signature = getattr(types, RETURNS[role])(*arguments)
    try:
        function.compile(signature)
    except KeyError as error:  # Numba's, for a field that does not exist
        raise InputError(
            f"{file}:{name} does not compile: there is no field {error};"
            f" mrc policy check {file} names its line"
        ) from None
    except Exception as error:  # Numba has its own
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"{file}:{name} does not compile: {reason}") from None
    result = function.overloads[tuple(arguments)]
    address: int = result.library.get_pointer_to_function(result.fndesc.llvm_func_name)
    return address
