"""Runs a policy uncompiled in a small fabric, and checks every call.

Compiled code checks no index and raises nothing: a write beyond an array changes other memory, and
an endless loop cannot be ended. So the same engine runs here as plain Python, in a process of its
own (`python -m openmrc.policies.rehearse`, with NUMBA_DISABLE_JIT), with arrays that refuse indices
out of range. Four NICs on two planes: three send to one, so that packets are marked and trimmed,
and a link loses some.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

SCENARIO = """
[fabric]
nics = 8
planes = 2
port_rate = "100Gbps"
t0_down = 4
t0_up = 2
[transport]
name = "rehearsed"  # else it is the path of the policy, however long
evs_active = 8
evs_backup = 4
[workload]
kind = "incast"
n = 5
size = "160kB"
[[fault]]
at = "0us"
kind = "link-loss"
where = "plane 0 t0 * - t1 0"
rate = 0.05
"""


class CheckedNumbers(np.ndarray[Any, Any]):
    """An array in which an index below 0 is an error, like one beyond the end."""

    def __getitem__(self, index: Any) -> Any:
        """Return the element, or the row."""
        _refuse_below_0(index)
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Set the element."""
        _refuse_below_0(index)
        super().__setitem__(index, value)


class CheckedRecords(CheckedNumbers, np.recarray[Any, Any]):
    """The same for records."""


def checked(array: Any) -> Any:
    """Return a view of an array that refuses indices out of range."""
    return array.view(CheckedNumbers if array.dtype.names is None else CheckedRecords)


def _refuse_below_0(index: Any) -> None:
    for one in index if isinstance(index, tuple) else (index,):
        if isinstance(one, int | np.integer) and one < 0:
            raise IndexError(f"index {one} is out of bounds")


class Watch:
    """Wraps the functions of a policy between the engine and them."""

    def __init__(self, file: Path, state: Any) -> None:
        self.file = file
        self.calls: Counter[str] = Counter()
        self.windows = [float("inf"), 0.0]
        self.notes: Counter[str] = Counter()
        self.state = state
        # A plain attribute for each array: an unknown field is an AttributeError.
        self.shown = SimpleNamespace(
            **{name: checked(array) for name, array in state._asdict().items()}
        )

    def around(self, role: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function that the engine calls in place of `function`."""
        return getattr(self, f"_{role}")(function)  # type: ignore[no-any-return]

    def _step(self, function: Callable[..., Any]) -> Callable[..., Any]:
        from openmrc.engine import policy

        names = {policy.ON_SACK: "SACKs", policy.ON_TRIM: "trims", policy.ON_LOSS: "losses"}

        def step(_: Any, q: Any, event: int, *rest: Any) -> None:
            self.calls["step"] += 1
            self.calls[f"step {names[int(event)]}"] += 1
            self._called(q, function, event, *rest)
            if not np.isfinite(q.cwnd):
                self.notes[f"step leaves q.cwnd = {q.cwnd}; taken for q.max_wnd"] += 1
            elif q.cwnd < q.pkt:
                self.notes["step leaves q.cwnd below q.pkt; taken for q.pkt"] += 1
            else:
                window = float(min(q.cwnd, q.max_wnd))
                self.windows = [min(self.windows[0], window), max(self.windows[1], window)]

        return step

    def _choose(self, function: Callable[..., Any]) -> Callable[..., Any]:
        from openmrc.engine import place

        def choose(_: Any, q: Any, plane: int, avoid: int) -> int:
            self.calls["choose"] += 1
            ev = self._called(q, function, plane, avoid)
            p = self.state.plane[place.planes(q)][plane]
            if not isinstance(ev, int | np.integer):
                raise TypeError(f"choose returns {ev!r}, not the index of an EV")
            if not p.ev0 <= ev < p.ev0 + p.n_evs:
                self.notes["choose returns an EV of another plane; taken for the first"] += 1
            return int(ev)

        return choose

    def _learn(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def learn(_: Any, q: Any, *rest: Any) -> None:
            self.calls["learn"] += 1
            self._called(q, function, *rest)

        return learn

    def _called(self, q: Any, function: Callable[..., Any], *rest: Any) -> Any:
        """Call it with checked arrays, and check whose numbers it has written."""
        others = np.delete(self.state.own, int(q.index), axis=0)
        # a run defers Ctrl-C to its next step, which an endless loop never reaches
        usual = signal.signal(signal.SIGINT, signal.default_int_handler)
        returned = function(self.shown, q, *(int(each) for each in rest))
        signal.signal(signal.SIGINT, usual)
        if not np.array_equal(others, np.delete(self.state.own, int(q.index), 0), equal_nan=True):
            raise IndexError(
                f"a row of st.own other than {int(q.index)}, that of this q.index, is written"
            )
        return returned


def rehearse(file: Path, roles: dict[str, str]) -> dict[str, Any]:
    """Run the functions of `file` (by their role: "step", "choose"); return the outcome."""
    from openmrc.jit import callref
    from openmrc.scenario.scenario import parse_scenario
    from openmrc.sim.world import World

    keys = {"step": "cc", "choose": "paths"}
    chosen = {f"transport.{keys[role]}": f"{file}:{name}" for role, name in roles.items()}
    scenario = parse_scenario(SCENARIO, base=Path("/")).replace(chosen)
    fabric, traffic, schedule = scenario.build()
    world = World(fabric, traffic, scenario.transport(0), schedule, queues=scenario.fabric.queues())
    watch = Watch(file, world.engine)
    config = world.engine.config[0]
    addresses = {"step": config.cc_step, "choose": config.path_choose, "learn": config.path_learn}
    for role, address in addresses.items():
        at = int(address)
        if at in callref.functions:
            callref.functions[at] = watch.around(role, callref.functions[at])
    told: dict[str, Any] = {}
    try:
        world.run()
    except KeyboardInterrupt as error:
        told = {"interrupted": _where(error, file)}
    except Exception as error:
        told = {"error": _where(error, file)}
    return told | {
        "calls": dict(watch.calls),
        "window_bytes": watch.windows if watch.windows[1] else None,
        "notes": dict(watch.notes),
    }


def _where(error: BaseException, file: Path) -> dict[str, Any]:
    """The last executed line of the policy's file, and the error."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).name == file.name
        and "openmrc/policies/rehearse" not in frame.filename
    ]
    return {"line": lines[-1] if lines else None, "words": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Rehearse what the arguments name (FILE ROLE=NAME ...); print the outcome as JSON."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a policy's own output is for its author
    file, *roles = sys.argv[1:]
    told = rehearse(Path(file), dict(role.split("=") for role in roles))
    out.write(json.dumps(told))
    out.close()


if __name__ == "__main__":
    main()
