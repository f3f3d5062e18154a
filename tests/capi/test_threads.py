"""Threads of a program of C, that Python has not made."""

from __future__ import annotations

import ctypes
from pathlib import Path

LIBC = ctypes.CDLL(None)


def states() -> int:
    """How many threads Python knows."""
    api = ctypes.pythonapi
    for name in ("PyInterpreterState_Get", "PyInterpreterState_ThreadHead", "PyThreadState_Next"):
        getattr(api, name).restype = ctypes.c_void_p
    found, n = api.PyInterpreterState_ThreadHead(ctypes.c_void_p(api.PyInterpreterState_Get())), 0
    while found:
        found, n = api.PyThreadState_Next(ctypes.c_void_p(found)), n + 1
    return n


def test_python_forgets_a_thread_when_it_ends(library: Path) -> None:
    """It is known from its first call on, since to know it anew for each call is slow."""
    mrc = ctypes.CDLL(str(library / "libmrc.so"))
    verbs = ctypes.CDLL(str(library / "libibverbs.so.1"))
    assert mrc.openmrc_absent() == 0
    before = states()
    for _ in range(3):
        thread = ctypes.c_ulong()
        assert LIBC.pthread_create(ctypes.byref(thread), None, verbs.ibv_fork_init, None) == 0
        assert LIBC.pthread_join(thread, None) == 0
    assert states() == before
