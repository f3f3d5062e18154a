"""What an error in Python is for a program of C: an errno, and if it is asked for, a reason."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable

import pytest

from openmrc.capi import entry, stub
from openmrc.capi.calls import CONTROL
from openmrc.capi.linked import Api
from openmrc.capi.places import Refused
from openmrc.errors import InputError, OpenMrcError
from tests.capi.handles import Open, Peer

ERRORS: list[tuple[BaseException, int]] = [
    (Refused(errno.E2BIG, "too many"), errno.E2BIG),
    (PermissionError(errno.EACCES, "no"), errno.EACCES),
    (OSError("without a number"), errno.EIO),
    (InputError("a wrong value"), errno.EINVAL),
    (KeyError("destroyed meanwhile"), errno.EINVAL),
    (ValueError("no such state"), errno.EINVAL),
    (OpenMrcError("the device is closed"), errno.EOPNOTSUPP),
    (ZeroDivisionError("what nobody thought of"), errno.EIO),
    (KeyboardInterrupt(), errno.EIO),  # no exception ever reaches C
]


def raising(error: BaseException) -> Callable[..., int]:
    class Owner:
        def function(self, first: int) -> int:
            raise error

    return Owner().function


@pytest.mark.parametrize(("error", "code"), ERRORS, ids=lambda one: type(one).__name__)
def test_every_error_has_an_errno(error: BaseException, code: int) -> None:
    answer = entry._answering("mrc_create_cq", raising(error))
    assert answer(1, 2, 3) == -code


def test_a_reason_is_printed_if_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = entry._answering("mrc_create_cq", raising(Refused(errno.EBUSY, "two use it")))
    monkeypatch.delenv("OPENMRC_LOG", raising=False)
    answer(1)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("OPENMRC_LOG", "text")
    answer(1)
    assert "libmrc: mrc_create_cq: Device or resource busy: two use it" in capsys.readouterr().err
    entry._answering("mrc_create_cq", raising(RuntimeError("a fault of ours")))(1)
    assert "Traceback" in capsys.readouterr().err


def test_a_function_gets_as_many_words_as_it_takes(there: Open) -> None:
    got: list[tuple[int, ...]] = []

    class Owner:
        def two(self, first: int, second: int) -> int:
            got.append((first, second))
            return 7

    assert entry._answering("mrc_create_cq", Owner().two)(*range(stub.ARGUMENTS)) == 7
    assert got == [(0, 1)]


@pytest.mark.parametrize(("name", "waits"), [("mrc_create_cq", False), ("mrc_get_cq_event", True)])
def test_one_call_at_a_time_but_for_those_that_wait(there: Open, name: str, waits: bool) -> None:
    began, go = threading.Event(), threading.Event()

    class Owner:
        def slow(self, wait: int) -> int:
            if wait:
                began.set()
                go.wait(20)
            return 0

    answer = entry._answering(name, Owner().slow)
    first = threading.Thread(target=answer, args=(1,))
    second = threading.Thread(target=answer, args=(0,))
    first.start()
    assert began.wait(20)
    second.start()
    second.join(10 if waits else 0.05)
    assert second.is_alive() != waits
    go.set()
    first.join()
    second.join()


def test_compiled_calls_are_found_while_a_device_is_open(api: Api, there: Open, peer: Peer) -> None:
    """And each function of Python always."""
    table = entry._table
    assert all(table[stub.FIRST + i] for i in range(len(CONTROL)))
    assert all(table[place] for place in (*entry.COMPILED, *entry.STATE))
    functions = [int(table[place]) for place in entry.COMPILED]
    assert len(set(functions)) == len(functions)
    api.must("ibv_close_device", there.context)
    assert not table[stub.ENDPOINT]
    there.context = api.must("ibv_open_device", there.device)
    assert [int(table[place]) for place in entry.COMPILED] == functions
