"""Functions that only compiled code calls are compiled as part of their callers.

By default Numba optimises each function together with everything it calls and generates machine
code; then again within its caller, and within the caller's caller. If Python never calls a
function, only the outermost copy runs. Skipping the others halves the time that a world takes to
compile.
"""

from __future__ import annotations

from typing import Any

from numba._dynfunc import make_function
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class Part(JITCodeLibrary):  # type: ignore[misc]
    """A library that callers link in: it is neither optimised nor turned into machine code."""

    def _optimize_final_module(self) -> None:
        """Do nothing: the caller is optimised as a whole."""

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
    """The symbol by which Numba knows the function, one for each signature, as for every function
    that has no entry point for Python; no code is generated for it.
    """
    name = function.qualname.rpartition(".")[2]
    return make_function(function.lookup_module(), name, "", 0, environment, (library,))
