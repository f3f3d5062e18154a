"""The stub's entry into Python: the addresses of what C calls, and of the state of compiled code.

Any error in Python becomes an errno here; if `OPENMRC_LOG` is set, a line on standard error says
why.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from openmrc.capi import hot, stub
from openmrc.capi.calls import CONTROL
from openmrc.capi.control import states
from openmrc.capi.control.controller import Controller
from openmrc.capi.devices import Verbs
from openmrc.capi.objects import Library
from openmrc.capi.places import Refused
from openmrc.errors import InputError, OpenMrcError
from openmrc.jit.byref import table_of
from openmrc.jit.decorators import interpreted
from openmrc.say import say

PASSED = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * stub.ARGUMENTS)
# These block, so they take no lock for which other calls would wait.
UNLOCKED = {"mrc_get_async_event", "mrc_get_cq_event", "mrc_ctl_ep_batch_send_wait"}
_lock = threading.RLock()
verbs = Verbs(_lock)
library = Library(verbs, _lock)
controller = Controller(library, _lock)
OWNERS = {"mrc_ctl_": controller, "mrc_": library, "ibv_": verbs, "_ibv_": verbs}
STATE = (stub.ENDPOINT, stub.STATE, stub.WAYS, stub.CALLS)
# Compiled functions by their place in the table: the parts of the state that each is given, and how
# many numbers.
COMPILED: dict[int, tuple[Any, tuple[int, ...], int]] = {
    stub.POST_SEND: (hot.post_send, stub.POSTS, 3),
    stub.POST_RECV: (hot.post_recv, stub.POSTS, 3),
    stub.POLL_CQ: (hot.poll_cq, stub.POLLS, 3),
    stub.MODIFY: (states.modify, stub.MODIFIES, 5),
}
_kept: list[Any] = []  # objects whose addresses C holds
_table = np.zeros(0, np.int64)


def fill(address: int, words: int) -> bool:
    """Write the table of addresses that the stub calls; return true if it is complete."""
    global _table  # noqa: PLW0603  # the stub has one
    room = (ctypes.c_int64 * words).from_address(address)
    _table = np.frombuffer(memoryview(room), np.int64)
    for i, name in enumerate(CONTROL):
        owner = next(one for prefix, one in OWNERS.items() if name.startswith(prefix))
        passed = PASSED(_answering(name, getattr(owner, name)))
        _kept.append(passed)
        _table[stub.FIRST + i] = ctypes.cast(passed, ctypes.c_void_p).value or 0
    return True


def _answering(name: str, function: Callable[..., int]) -> Callable[..., int]:
    """The function as C calls it: with extra arguments, and -errno for errors."""
    n = function.__code__.co_argcount - 1  # a method, without self
    locked = name not in UNLOCKED

    def answer(*given: int) -> int:
        try:
            if not locked:
                return function(*given[:n])
            with _lock:
                returned = function(*given[:n])
                _show()
                return returned
        except BaseException as error:
            return -_errno_of(name, error)

    return answer


def _errno_of(name: str, error: BaseException) -> int:
    code = errno.EIO
    if isinstance(error, Refused):
        code = error.code
    elif isinstance(error, OSError) and error.errno:
        code = error.errno
    elif isinstance(error, InputError | KeyError | ValueError):  # destroyed during the call
        code = errno.EINVAL
    elif isinstance(error, OpenMrcError):
        code = errno.EOPNOTSUPP
    if os.environ.get("OPENMRC_LOG"):
        say(f"libmrc: {name}: {os.strerror(code)}: {error}")
        if not isinstance(error, Refused | OpenMrcError):
            traceback.print_exc()
    return code


def _show() -> None:
    """Pass the state of compiled code to the stub, once a device is open; and clear it on close."""
    there = verbs.nic is not None
    if there == bool(_table[stub.ENDPOINT]):
        return
    if verbs.nic is None:
        _table[stub.ENDPOINT] = 0  # the rest stays for calls that have begun
        return
    host = verbs.nic.host
    parts = dict(zip(STATE, (host.ep, host.st, host.ways, verbs.nic.calls), strict=True))
    tables = {place: table_of(part) for place, part in parts.items()}
    _kept.append((parts, tables))
    for place, (function, asked, numbers) in COMPILED.items():
        _table[place] = _address_of(function, [parts[one] for one in asked], numbers)
    for place in reversed(STATE):
        _table[place] = tables[place].ctypes.data


def _address_of(function: Any, given: list[Any], numbers: int) -> int:
    """The address of a compiled function for C; in plain Python, of a function that stands
    for it.
    """
    if interpreted():
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * (len(given) + numbers))
        passed = kind(lambda *words: int(function(*given, *words[len(given) :])))
        _kept.append(passed)
        return ctypes.cast(passed, ctypes.c_void_p).value or 0
    function(*given, *[0] * numbers)  # compiled now, or loaded from disk
    [made] = function.overloads.values()
    return int(made.library.get_pointer_to_function(made.fndesc.llvm_cfunc_wrapper_name))
