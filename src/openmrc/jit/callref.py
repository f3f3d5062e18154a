"""Calls of compiled functions by their address.

If a function is passed to another as an argument, Numba compiles the other again, and never finds
it in the cache. An address is a number: code that calls through it stays the same, and the call
costs as much as any other. In plain Python an index stands for the function (`functions`).

The function must be compiled for exactly the types of the arguments, integers as int64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openmrc.jit.decorators import interpreted

if interpreted():
    functions: dict[int, Callable[..., Any]] = {}  # by the number that stands for an address

    def address_of(function: Any, arguments: tuple[Any, ...]) -> int:
        """Return a number that stands for the address of a function."""
        functions[id(function)] = function
        return id(function)

    def call(address: int, arguments: tuple[Any, ...]) -> None:
        """Call a function that returns nothing."""
        functions[int(address)](*arguments)

    def call_int(address: int, arguments: tuple[Any, ...]) -> int:
        """Call a function that returns an int64."""
        return int(functions[int(address)](*arguments))

else:
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    from openmrc.jit.byref import kind_of

    def address_of(function: Any, arguments: tuple[Any, ...]) -> int:
        """Compile a function for the types of these arguments; return its address, which is valid
        as long as the function exists.

        A call from Python finds the same result: the cache too is keyed by argument types only.
        """
        kinds = tuple(
            types.int64 if isinstance(value, int) else kind_of(value) for value in arguments
        )
        function.compile(kinds)
        found = function.overloads[kinds]
        address: int = found.library.get_pointer_to_function(found.fndesc.llvm_func_name)
        return address

    def _call(result: Any, arguments: Any) -> tuple[Any, Any]:
        """The common part of both intrinsics: the type and the code of the call."""
        numbers = (types.Integer, types.Boolean)
        wanted = [types.int64 if isinstance(t, numbers) else t for t in arguments.types]

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            given = zip(cgutils.unpack_tuple(builder, values[1]), arguments.types, strict=True)
            passed = [
                context.cast(builder, value, from_type, to_type)
                for (value, from_type), to_type in zip(given, wanted, strict=True)
            ]
            convention = context.call_conv
            kind = convention.get_function_type(result, wanted)
            function = builder.inttoptr(values[0], kind.as_pointer())
            _, returned = convention.call_function(builder, function, result, wanted, passed)
            return context.get_dummy_value() if result == types.none else returned

        return result(types.int64, arguments), generate

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]  # Numba has no types
    def call(typing_context: Any, address: Any, arguments: Any) -> Any:
        """Call a function that returns nothing."""
        return _call(types.none, arguments)

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]  # Numba has no types
    def call_int(typing_context: Any, address: Any, arguments: Any) -> Any:
        """Call a function that returns an int64."""
        return _call(types.int64, arguments)
