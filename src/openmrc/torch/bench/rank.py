"""A rank of `mrc bench torch`, by its number and JSON of what is asked; rank 0 prints rows."""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist

from openmrc.torch.bench.measure import Row, groups, measure
from openmrc.torch.register import register


def main() -> None:
    """Take part."""
    rank, asked = int(sys.argv[1]), json.loads(sys.argv[2])
    torch.set_num_threads(1)
    register()
    store = f"file://{asked['place']}/store"
    dist.init_process_group("mrc", init_method=store, rank=rank, world_size=asked["n"])

    def tell(row: Row) -> None:
        if rank == 0:
            print(json.dumps(row), flush=True)

    measure(asked["collectives"], asked["sizes"], groups(), tell)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
