"""What ranks of tests are forked from: a process with torch and the compiled endpoint."""

from __future__ import annotations

import torch
import torch.distributed.fsdp
import torch.distributed.optim

from openmrc.live.endpoint.warmup import warm_up
from openmrc.torch import group, register  # noqa: F401

torch.set_num_threads(1)
register.register()
warm_up()
warm_up.__wrapped__()  # type: ignore[attr-defined]  # load what the disk has; its thread ends with it
