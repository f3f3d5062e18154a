"""Both libraries as a program of C sees them: functions that take and return words."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from openmrc.capi.build import LIBIBVERBS, LIBMRC
from openmrc.capi.calls import CODE, CTL_CALLS, MINUS, MRC_CALLS, NEGATIVE, NULL, VERBS_CALLS
from openmrc.capi.places import Block
from openmrc.errors import OpenMrcError

WORD = ctypes.c_int64


class Api:
    """Every function of both libraries, as C calls it: `(what it returns, errno)`."""

    def __init__(self, directory: Path) -> None:
        mrc, verbs = (
            ctypes.CDLL(str(directory / name), use_errno=True) for name in (LIBMRC, LIBIBVERBS)
        )
        self.functions: dict[str, Any] = {}
        self.answers: dict[str, str] = {}
        for calls, where in (((*MRC_CALLS, *CTL_CALLS), mrc), (VERBS_CALLS, verbs)):
            for call in calls:
                function = getattr(where, call.name)
                function.argtypes = [WORD] * len(call.parameters)
                function.restype = WORD if call.result.endswith("*") else ctypes.c_int
                self.functions[call.name] = function
                self.answers[call.name] = call.answers

    def __call__(self, name: str, *given: Any) -> tuple[int, int]:
        """Call a function with numbers, and structures by their address."""
        ctypes.set_errno(0)
        words = [one.address if isinstance(one, Block) else int(one) for one in given]
        returned = int(self.functions[name](*words))
        failed = {CODE: returned != 0, MINUS: returned == -1, NULL: returned == 0}
        failed[NEGATIVE] = returned < 0
        # where a call did what it should, errno says nothing
        return returned, ctypes.get_errno() if failed.get(self.answers[name]) else 0

    def must(self, name: str, *given: Any) -> int:
        """What a call returns that does not fail; `OpenMrcError` if it does."""
        returned, code = self(name, *given)
        if code:
            raise OpenMrcError(f"{name}: {os.strerror(code)}")
        return returned
