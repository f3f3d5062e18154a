"""PyTorch's own tests of `torch.distributed`, which are part of its wheel, over MRC.

    BACKEND=mrc WORLD_SIZE=3 OMP_NUM_THREADS=1 python -m pytest tests/torch/dist_suite.py

With `BACKEND=gloo OPENMRC_AS=gloo` those that ask for Gloo run, too. `make torch-suite` runs all.
The file's name keeps it out of `make test`, which runs a few of them (`test_suite.py`). Ranks are
forked from one process that has imported everything already.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

for name, value in (
    ("BACKEND", "mrc"),
    ("WORLD_SIZE", "3"),
    ("OMP_NUM_THREADS", "1"),
    ("MASTER_ADDR", "127.0.0.1"),
    ("OPENMRC_SHARED_MEMORY", "0"),  # over MRC, though all ranks are on this host
):
    os.environ.setdefault(name, value)
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
(Path(os.environ["TEMP_DIR"]) / "barrier").mkdir(parents=True, exist_ok=True)

import torch  # noqa: E402
from torch.testing._internal.common_distributed import DistTestCases  # noqa: E402

for feature in ("ddp", "subgroup", "plugin"):  # what is claimed decides which tests are skipped
    DistTestCases.backend_feature[feature].add(os.environ["BACKEND"])

from torch.testing._internal.distributed.distributed_test import (  # noqa: E402
    DistributedTest,
    TestDistBackend,
)

from tests.torch import cut_suite, preloaded  # noqa: E402, F401

KEPT = ("TEMP_DIR", "INIT_METHOD", "MASTER_ADDR", "MASTER_PORT")


class Suite(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self) -> None:
        super().setUp()
        kept = {key: os.environ[key] for key in KEPT if key in os.environ}
        Path(self.file_name + ".env").write_text(json.dumps(kept), encoding="utf-8")
        context = torch.multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.torch.dist_suite"])
        self._start_processes(context.Process)

    @classmethod
    def _run(cls, rank: int, test_name: str, file_name: str, pipe: Any, **kwargs: Any) -> None:
        # the fork server's environment is that of its start
        kept = Path(file_name + ".env")
        if kept.exists():
            os.environ.update(json.loads(kept.read_text(encoding="utf-8")))
        if told := os.environ.get(cut_suite.HOSTS):
            cut_suite.enter(rank, told)
        super()._run(rank, test_name, file_name, pipe, **kwargs)
