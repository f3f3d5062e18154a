"""What this package uses of Numba that Numba does not promise to keep, name by name.

It is bound to the versions of Numba below which all of these exist (`pyproject.toml`). When a later
one is allowed, this says which of them broke.
"""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path

import pytest

import openmrc

PUBLIC = {"numba", "numba.extending"}
DOCUMENTED = {"numba.core.config"}
# By module: a class, its attributes, methods and their parameters.
NAMES = {
    "numba._dynfunc": ["make_function"],
    "numba.core.caching": [
        "_CacheLocator.get_cache_path",
        "_CacheLocator.ensure_cache_path",
        "_CacheLocator.get_source_stamp",
        "_CacheLocator.get_disambiguator",
        "CompileResultCacheImpl.get_filename_base(fullname, abiflags)",
        "FunctionCache._impl_class",
        "FunctionCache._load_overload(sig, target_context)",
        "FunctionCache._save_overload(sig, data)",
        "FunctionCache._guard_against_spurious_io_errors",
        "FunctionCache.flush",
    ],
    "numba.core.cgutils": ["alloca_once_value", "get_item_pointer(wraparound)", "voidptr_t"],
    "numba.core.codegen": [
        "JITCodeLibrary.finalize",
        "JITCodeLibrary.add_llvm_module(ll_module)",
        "JITCodeLibrary._get_module_for_linking",
        "JITCodeLibrary._optimize_final_module",
        "JITCodeLibrary.enable_object_caching",
        "JITCodeLibrary._finalize_dynamic_globals",
        "JITCodeLibrary.get_pointer_to_function",
    ],
    "numba.core.compiler": ["Compiler.define_pipelines", "Compiler.compile_extra(func)"],
    "numba.core.compiler_machinery": ["PassManager._ENFORCING"],
    "numba.core.dispatcher": [
        "Dispatcher.compile(sig)",
        "Dispatcher.fold_argument_types(args, kws)",
        "Dispatcher.get_call_template(args, kws)",
        "Dispatcher.get_overload(sig)",
    ],
    "numba.core.event": [
        "Listener.on_start(event)",
        "Listener.on_end(event)",
        "install_listener",
        "broadcast(event)",
        "_registered",
    ],
    "numba.core.funcdesc": ["FunctionDescriptor.llvm_func_name"],
    "numba.core.ir": ["Inst._rec_list_vars(val)"],
    "numba.core.options": ["DefaultOptions.forceinline", "DefaultOptions._nrt"],
    "numba.core.typed_passes": ["InlineOverloads", "NopythonRewrites"],
    "numba.core.types.functions": ["BaseFunction.get_call_type(context, args, kws)"],
    "numba.core.typing.templates": ["AttributeTemplate.generic_resolve"],
    "numba.core.untyped_passes": ["WithLifting"],
    "numba.np.arrayobj": [
        "getitem_arraynd_intp",
        "getitem_array_tuple",
        "setitem_array",
        "make_array",
        "populate_array",
    ],
}


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in NAMES.items() for name in names]
)
def test_what_numba_does_not_promise_is_as_it_was(module: str, name: str) -> None:
    path, _, parameters = name.rstrip(")").partition("(")
    found = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    wanted = parameters.split(", ") if parameters else []
    assert set(wanted) <= set(inspect.signature(found).parameters if wanted else [])  # type: ignore[arg-type]  # a function


def test_the_table_has_every_import_that_numba_does_not_promise() -> None:
    found = set()
    for file in Path(openmrc.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("numba"):
                found |= {(str(node.module), each.name) for each in node.names}
    listed = {(module, name.partition(".")[0]) for module, names in NAMES.items() for name in names}
    listed = {(module, name.partition("(")[0]) for module, name in listed}
    modules = NAMES.keys() | DOCUMENTED
    unlisted = {
        f"{module}.{name}"
        for module, name in found
        if module not in PUBLIC and (module, name) not in listed
    }
    assert unlisted <= modules
