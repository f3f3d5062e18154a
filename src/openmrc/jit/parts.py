"""Functions that only compiled code calls are compiled as part of their callers.

By default Numba optimises each function together with everything it calls and generates machine
code; then again within its caller, and within the caller's caller. If Python never calls a
function, only the outermost copy runs. Skipping the others halves the time that a world takes to
compile. A part also skips what Numba does for code that this package does not write, and is
compiled once for integers of all widths.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba._dynfunc import make_function
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.typed_passes import InlineOverloads, NopythonRewrites
from numba.core.untyped_passes import WithLifting

# `with` blocks, functions that NumPy's are made of, and expressions of whole arrays
NOT_NEEDED = (WithLifting, InlineOverloads, NopythonRewrites)


class Part(JITCodeLibrary):  # type: ignore[misc]
    """A library that callers link in: it is neither optimised nor turned into machine code."""

    def _optimize_final_module(self) -> None:
        """Do nothing: the caller is optimised as a whole."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class PartCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler, for a function that is part of others (`pipeline_class` of `njit`)."""

    def define_pipelines(self) -> Any:
        """Numba's steps, without those that find nothing to do."""
        (usual,) = super().define_pipelines()
        usual.passes = [step for step in usual.passes if step[0] not in NOT_NEEDED]
        usual.finalize()
        return [usual]

    def compile_extra(self, func: Any) -> Any:
        """Compile the function, without an entry for Python."""
        target = self.state.targetctx  # a copy that belongs to this function
        target.get_executable = _entry
        self.state.library = Part(target.codegen(), func.__qualname__)
        return super().compile_extra(func)


def _entry(library: Any, function: Any, environment: Any) -> Any:
    """The symbol by which Numba knows the function, one for each signature, as for every function
    that has no entry point for Python; no code is generated for it.
    """
    name = function.qualname.rpartition(".")[2]
    return make_function(function.lookup_module(), name, "", 0, environment, (library,))


def widened(dispatcher: Any) -> Any:
    """Return it, compiled once for integers of all widths that a caller may pass, as int64: within
    compiled code every one is computed with as such anyway. Unsigned ones are not: differences
    would come out negative.
    """
    fold, template_of = dispatcher.fold_argument_types, dispatcher.get_call_template

    def fold_argument_types(args: Any, kws: Any) -> Any:
        signature, args = fold(args, kws)
        return signature, tuple(map(_wide, args))

    def get_call_template(args: Any, kws: Any) -> Any:
        signature, args = fold(args, kws)
        template, *_ = template_of(tuple(map(_wide, args)), {})
        return template, signature, args, {}  # the caller casts its arguments

    dispatcher.fold_argument_types = fold_argument_types  # how it recognises that it calls itself
    dispatcher.get_call_template = get_call_template
    return dispatcher


def _wide(kind: Any) -> Any:
    """The type for which a function is compiled that is called with one."""
    if isinstance(kind, types.Integer) and kind.signed:
        return types.int64
    return kind
