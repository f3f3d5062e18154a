"""Named tuples of arrays that compiled code receives as one pointer.

Numba passes a named tuple by value: for each array its data, shape, strides and owner, seven words.
The state of the engine and the network is 38 arrays, so a call that passes it by value copies 2 KB
and takes as long as forwarding a packet. A class decorated with `by_reference` is passed as the
address of a table that holds the address and length of each array; `st.qp` reads it. In plain
Python nothing changes.

An index into such an array must not be negative. Numba lets a negative one count from the end, as
Python does, so it would test the sign at every access, which took six to ten percent of the time of
a simulated world. Here it does not: compiled, a negative index means memory in front of the array.

The arrays must be C-contiguous with one or two dimensions, and have the same types in all instances
of the class; anything else is a `TypeError`. The check costs nothing per call: Numba looks up the
types of its arguments before each call, and the check runs only for types that are new.
"""

from __future__ import annotations

import hashlib
import operator
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from openmrc.jit.decorators import interpreted

WORDS = 3  # of the table per array: address, length, length of a row
T = TypeVar("T", bound=type[tuple[Any, ...]])


def table_of(value: Any) -> Any:
    """Return the table of the arrays of `value`, int64 [fields, WORDS]; it does not keep them
    alive.
    """
    table = np.empty((len(value), WORDS), np.int64)
    for row, name, array in zip(table, value._fields, value, strict=True):
        if array.dtype.byteorder not in "=|":  # Numba takes it for this machine's byte order
            raise refusal(type(value), name, "in this machine's byte order", array.dtype)
        row[0] = array.ctypes.data
        row[1] = array.shape[0]
        row[2] = array.shape[1] if array.ndim == 2 else 1
    return table


def refusal(cls: type, name: str, expected: object, came: object) -> TypeError:
    """Return the error that names a field of the wrong type."""
    return TypeError(f"{cls.__name__}.{name} must be {expected}, not {came}")


class Kept:
    """Keeps a named tuple alive, so that `at` can find it by `address`."""

    def __init__(self, value: Any) -> None:
        self.value, self.table = value, table_of(value)
        self.address = int(self.table.ctypes.data)
        _kept[self.address] = self


_kept: WeakValueDictionary[int, Kept] = WeakValueDictionary()

if interpreted():

    def kind_of(value: Any) -> Any:
        """Never called: plain Python has no such types."""
        raise NotImplementedError

    def at(like: Any, address: int) -> Any:
        """The named tuple that a `Kept` keeps; it must be of the class of `like`."""
        return _kept[int(address)].value

    def whatever_is_at(address: int) -> Any:
        """What a `Kept` keeps, of any class: usable only as an argument of `callref.call_int`."""
        return _kept[int(address)].value

    def by_reference(cls: T) -> T:
        """Return the class: plain Python passes references anyway."""
        return cls

else:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.core.typing.templates import AttributeTemplate
    from numba.extending import (
        NativeValue,
        infer_getattr,
        intrinsic,
        lower_builtin,
        lower_getattr_generic,
        models,
        register_model,
        typeof_impl,
        unbox,
    )
    from numba.np import arrayobj

    _TABLE = types.int64[:, ::1]

    class Field(types.Array):  # type: ignore[misc,unused-ignore]  # Numba has no types
        """Type of an array of such a tuple: as the array's own, but no index is negative.

        What is derived from it, such as a row or a slice, is an ordinary array.
        """

        def __init__(self, array: Any) -> None:
            layout, readonly = array.layout, not array.mutable
            name = f"field({array})"
            super().__init__(array.dtype, array.ndim, layout, readonly, name, array.aligned)

    register_model(Field)(models.ArrayModel)

    def _not_negative(context: Any, builder: Any, index: Any, typ: Any) -> tuple[Any, Any]:
        """An index, or a tuple of them, and its type: unsigned, so that Numba tests nothing."""
        if isinstance(typ, types.Integer):
            return context.cast(builder, index, typ, types.intp), types.uintp
        if not isinstance(typ, types.BaseTuple):
            return index, typ
        parts = zip(cgutils.unpack_tuple(builder, index), typ.types, strict=True)
        found = [_not_negative(context, builder, part, of) for part, of in parts]
        unsigned = types.Tuple([of for _, of in found])
        return context.make_tuple(builder, unsigned, [part for part, _ in found]), unsigned

    def _unsigned(access: Any) -> Any:
        """Numba's own way to read or write an array, with indices that are not negative."""

        def lowered(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            field, typ, *item = signature.args
            index, typ = _not_negative(context, builder, values[1], typ)
            called = signature.return_type(field, typ, *item)
            return access(context, builder, called, (values[0], index, *values[2:]))

        return lowered

    for _index, _access in (
        (types.Integer, arrayobj.getitem_arraynd_intp),
        (types.BaseTuple, arrayobj.getitem_array_tuple),
    ):
        lower_builtin(operator.getitem, Field, _index)(_unsigned(_access))
    lower_builtin(operator.setitem, Field, types.Any, types.Any)(_unsigned(arrayobj.setitem_array))

    class Reference(types.Opaque):  # type: ignore[misc,unused-ignore]  # Numba has no types
        """Type of a reference to one class of named tuples.

        Types of the same name are the same type, in the on-disk cache too, so the name lists the
        fields.
        """

        def __init__(self, cls: type, fields: dict[str, Any]) -> None:
            self.fields = fields
            self.places = {name: index for index, name in enumerate(fields)}
            digest = hashlib.sha256(repr(fields).encode()).hexdigest()[:16]
            super().__init__(f"{cls.__module__}.{cls.__qualname__}.{digest}")

    register_model(Reference)(models.OpaqueModel)

    def by_reference(cls: T) -> T:
        """Decorate a named tuple class whose fields are all arrays."""
        known: list[Reference] = []

        @typeof_impl.register(cls)
        def _typeof(value: Any, context: Any) -> Reference:
            fields = zip(cls._fields, value, strict=True)  # type: ignore[attr-defined]  # a tuple
            typed = {name: _array_type(cls, name, array, context) for name, array in fields}
            if not known:
                known.append(Reference(cls, typed))
            for name, expected in known[0].fields.items():
                if typed[name] != expected:
                    raise refusal(cls, name, expected, typed[name])
            return known[0]

        return cls

    _kinds: dict[Any, Any] = {}

    def kind_of(value: Any) -> Any:
        """Numba's type of a named tuple of arrays, which it takes milliseconds to determine if they
        are forty arrays of records: it is kept.
        """
        arrays = [np.asarray(array) for array in value]
        key = (type(value), *((array.dtype, array.ndim, array.flags.num) for array in arrays))
        if key not in _kinds:
            _kinds[key] = typeof_impl(value, None)
        return _kinds[key]

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]  # Numba has no types
    def at(typing_context: Any, like: Any, address: Any) -> Any:
        """The named tuple that a `Kept` keeps; it must be of the class of `like`."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.inttoptr(values[1], cgutils.voidptr_t)

        return like(like, types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]  # Numba has no types
    def whatever_is_at(typing_context: Any, address: Any) -> Any:
        """What a `Kept` keeps, of any class: usable only as an argument of `callref.call_int`."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.inttoptr(values[0], cgutils.voidptr_t)

        return types.voidptr(types.int64), generate

    def _array_type(cls: type, name: str, array: Any, context: Any) -> Any:
        """Numba's type of one field."""
        if not isinstance(array, np.ndarray):
            raise refusal(cls, name, "an array", type(array).__name__)
        typed = typeof_impl(array, context)
        if typed.layout != "C" or typed.ndim not in (1, 2):
            raise refusal(cls, name, "C-contiguous, of one or two dimensions", typed)
        return typed

    @unbox(Reference)
    def _unbox(typ: Reference, value: Any, c: Any) -> Any:
        function = c.pyapi.unserialize(c.pyapi.serialize_object(table_of))
        table = c.pyapi.call_function_objargs(function, [value])
        c.pyapi.decref(function)
        # `table_of` is Python: it may raise, and Ctrl-C may interrupt it
        raised = cgutils.is_null(c.builder, table)
        place = cgutils.alloca_once_value(c.builder, ir.Constant(cgutils.voidptr_t, None))
        failed = cgutils.alloca_once_value(c.builder, raised)
        with c.builder.if_then(c.builder.not_(raised), likely=True):
            native = c.unbox(_TABLE, table)
            array = c.context.make_array(_TABLE)(c.context, c.builder, value=native.value)
            c.builder.store(c.builder.bitcast(array.data, cgutils.voidptr_t), place)
            c.builder.store(native.is_error, failed)

        def cleanup() -> None:
            c.pyapi.decref(table)

        is_error = c.builder.load(failed)
        return NativeValue(c.builder.load(place), is_error=is_error, cleanup=cleanup)

    @infer_getattr
    class _Fields(AttributeTemplate):  # type: ignore[misc,unused-ignore]  # Numba has no types
        key = Reference

        def generic_resolve(self, typ: Reference, name: str) -> Any:
            array_type = typ.fields.get(name)
            return None if array_type is None else Field(array_type)

    @lower_getattr_generic(Reference)
    def _field(context: Any, builder: Any, typ: Reference, value: Any, name: str) -> Any:
        array_type = Field(typ.fields[name])
        array = context.make_array(array_type)(context, builder)
        word = ir.IntType(64)
        table = builder.bitcast(value, word.as_pointer())

        def load(index: int) -> Any:
            place = builder.gep(table, [word(WORDS * typ.places[name] + index)])
            loaded = builder.load(place)
            # the arrays do not move during a call, so the compiler may keep what it loaded
            loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
            return loaded

        item = context.get_abi_sizeof(context.get_data_type(array_type.dtype))
        shape = [load(1)] if array_type.ndim == 1 else [load(1), load(2)]
        strides = [word(item)]
        if array_type.ndim == 2:
            strides.insert(0, builder.mul(shape[1], word(item)))
        arrayobj.populate_array(
            array,
            data=builder.inttoptr(load(0), array.data.type),
            shape=shape,
            strides=strides,
            itemsize=word(item),
            meminfo=None,
        )
        return array._getvalue()
