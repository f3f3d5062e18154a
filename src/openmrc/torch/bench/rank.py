"""A rank of `mrc bench torch`; its arguments are its number and the request as JSON.

Rank 0 prints lines of JSON: rows, or steps. `do` requests that a plane be cut; a line comes back
when it is repaired.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from openmrc.torch.bench.measure import groups, measure
from openmrc.torch.bench.training import step_times
from openmrc.torch.register import register


def main() -> None:
    """Run the rank."""
    rank, asked = int(sys.argv[1]), json.loads(sys.argv[2])
    torch.set_num_threads(1)
    register()
    store = f"file://{asked['place']}/store"
    backend = asked.get("backend", "mrc")
    dist.init_process_group(backend, init_method=store, rank=rank, world_size=asked["n"])

    def tell(said: dict[str, Any]) -> None:
        if rank == 0:
            print(json.dumps(said), flush=True)

    def cut() -> Callable[[], None]:
        tell({"do": "cut"})
        return lambda: None if rank else _hear()

    if "seconds" in asked:
        tell({"steps": step_times(asked["seconds"], lambda: tell({"started": True}))})
    else:
        measure(asked["collectives"], asked["sizes"], groups(), tell, cut if asked["cut"] else None)
    dist.destroy_process_group()


def _hear() -> None:
    sys.stdin.readline()


if __name__ == "__main__":
    main()
