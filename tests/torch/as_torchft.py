"""A plug-in of pytest: torchft's own tests of its process group for Gloo run over MRC.

    python -m pytest -p tests.torch.as_torchft --pyargs torchft.process_group_test -k CHOSEN

`make torch-others` does so, in an environment of its own that has torchft.
"""

from __future__ import annotations

from typing import Any

from torchft import process_group

from openmrc.torch.group import MrcProcessGroup


def _create_pg(self: Any, store: Any, rank: int, world_size: int) -> MrcProcessGroup:
    return MrcProcessGroup(store, rank, world_size, self._timeout)


process_group.ProcessGroupGloo._create_pg = _create_pg
