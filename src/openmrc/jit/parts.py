"""Functions that only compiled code calls are compiled as part of their callers.

By default Numba optimises each function together with everything it calls and generates machine
code; then again within its caller, and within the caller's caller. If Python never calls a
function, only the outermost copy runs. Skipping the others halves the time that a world takes to
compile. A part also skips what Numba does for code that this package does not write, and is
compiled once for integers of all widths.
"""

from __future__ import annotations

from typing import Any

from llvmlite.binding import Linkage
from numba import types
from numba._dynfunc import make_function
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.typed_passes import InlineOverloads, NopythonRewrites
from numba.core.untyped_passes import WithLifting

# `with` blocks, functions that NumPy's are made of, and expressions of whole arrays
NOT_NEEDED = (WithLifting, InlineOverloads, NopythonRewrites)
PYTHON = "_ZN"  # how names of functions begin that were written in Python


class Part(JITCodeLibrary):  # type: ignore[misc]
    """A library that a `Whole` links in, with all that it calls: it holds its own code alone, which
    is neither optimised nor turned into machine code.
    """

    def add_llvm_module(self, ll_module: Any) -> None:
        """Take its code, the only one that a part gets, as it is."""
        ll_module.data_layout = self._codegen._data_layout
        self._final_module = ll_module

    def _get_module_for_linking(self) -> Any:
        """Its code, which nobody compiles as it is: so it is changed in place."""
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.external:
                function.linkage = Linkage.linkonce_odr
        return self._final_module

    def finalize(self) -> None:
        """Nothing is linked in."""
        self._finalize_dynamic_globals()
        self._finalized = True


class Whole(JITCodeLibrary):  # type: ignore[misc]
    """A library that Python calls: it links each part that it reaches once. If parts linked what
    they call, each would be copied into all that lead to it, again at each step.
    """

    _linking_libraries: list[Any]

    def finalize(self) -> None:
        """Link, optimise, and make machine code."""
        self._linking_libraries = _reached(self._linking_libraries)
        super().finalize()

    def _optimize_final_module(self) -> None:
        """Optimise once. Numba does so twice, to prune counts of references, which are off here."""
        for function in self._final_module.functions:
            if function.linkage == Linkage.linkonce_odr:
                function.linkage = Linkage.internal  # nobody else calls it: it may vanish
            if function.is_declaration and function.name.startswith(PYTHON):
                raise AssertionError(f"{self.name} lacks {function.name}")
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)


def _reached(called: list[Any]) -> list[Any]:
    """Libraries, and those that parts among them call, each once, and behind all that call it: a
    linker leaves out what nothing refers to yet.
    """
    found: dict[Any, None] = {}
    waiting = [(library, False) for library in called]
    while waiting:
        library, is_done = waiting.pop()
        if is_done:
            found.setdefault(library)
        elif library not in found:
            waiting.append((library, True))
            inner = library._linking_libraries if isinstance(library, Part) else ()
            waiting += [(each, False) for each in inner if each not in found]
    return list(found)[::-1]


class WholeCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler, for a function that Python calls (`pipeline_class` of `njit`)."""

    def compile_extra(self, func: Any) -> Any:
        """Compile the function, with all that it calls."""
        library = Whole(self.state.targetctx.codegen(), func.__qualname__)
        library.enable_object_caching()
        self.state.library = library
        return super().compile_extra(func)


class PartCompiler(Compiler):  # type: ignore[misc]
    """The same for a function that is part of others."""

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
