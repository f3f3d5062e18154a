"""What torch's profiler shows of a collective, and that scripts which name Gloo get MRC."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

import torch
import torch.distributed as dist

from tests.torch.ranks import run

WIDTHS = (4, 3, 5)


def _events(prefix: str, profiled: Any) -> list[tuple[str, bool, list[list[int]]]]:
    found = [e for e in profiled.function_events if e.name.startswith(prefix)]
    ends = [e.time_range.end for e in found]
    assert ends == sorted(ends)  # each ended with its operation, not with the profile
    assert len(set(ends)) == len(ends)
    return [(e.name, e.is_async, e.input_shapes) for e in found]


def profiled(rank: int, n: int) -> None:
    from openmrc.torch import register

    register._take_gloos_place()
    in_place: Any = dist.new_group(backend="gloo")
    assert in_place.getBackendName() == "mrc"
    with torch.autograd.profiler.profile(record_shapes=True) as record:
        for width in WIDTHS:
            x = torch.ones(2, width)
            dist.all_reduce(x, group=in_place)
            assert (x == n).all()
        dist.broadcast(torch.ones(7), 0)
    shapes = [[[2, width]] for width in WIDTHS]
    assert _events("gloo:", record) == [("gloo:all_reduce", True, shape) for shape in shapes]
    assert _events("mrc:", record) == [("mrc:broadcast", True, [[7]])]
    with torch.autograd.profiler.profile() as record:
        dist.all_reduce(torch.ones(1, dtype=torch.complex64))
    assert _events("mrc:", record) == [("mrc:all_reduce", True, [])]
    # nothing of TorchScript's: it would end its records after the profiler is closed, and crash
    others = {e.name for e in record.function_events if not e.name.startswith("aten::")}
    assert others == {"mrc:all_reduce"}


def test_the_profiler_shows_collectives_by_the_name_that_the_script_uses() -> None:
    run(2, profiled)
