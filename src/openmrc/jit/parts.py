"""Functions that only compiled code calls become machine code in their callers alone.

Numba optimises each function together with all it calls and makes machine code of it; then again
within its caller, and within the caller's caller. Of a function that Python never calls, only the
outermost runs. Leaving the others out halves the time that a world takes to compile.
"""

from __future__ import annotations

from typing import Any

from numba._dynfunc import make_function
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class Part(JITCodeLibrary):  # type: ignore[misc]
    """What a caller links in: neither optimised nor made machine code of."""

    def _optimize_final_module(self) -> None:
        """The caller does, with the rest."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class PartCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler, for a function that is part of others (`pipeline_class` of `njit`)."""

    def compile_extra(self, func: Any) -> Any:
        """Compile the function, without an entry for Python."""
        target = self.state.targetctx  # a copy that belongs to this function
        target.get_executable = _entry
        self.state.library = Part(target.codegen(), func.__qualname__)
        return super().compile_extra(func)


def _entry(library: Any, function: Any, environment: Any) -> Any:
    """What Numba knows the function by, one for each signature; without code, as every function
    that has no entry for Python.
    """
    name = function.qualname.rpartition(".")[2]
    return make_function(function.lookup_module(), name, "", 0, environment, (library,))
