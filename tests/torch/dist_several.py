"""Some of PyTorch's own tests, of each kind one, in one world whose ranks start once.

As `dist_suite.py`; the test to name is `Several::test_several`, for it has the others, too.
"""

from __future__ import annotations

from torch.testing._internal.common_utils import set_rng_seed

from tests.torch import dist_suite

CHOSEN = (
    "test_DistributedDataParallelCPU",
    "test_DistributedDataParallel_requires_grad",
    "test_all_gather_coalesced_with_empty",
    "test_all_gather_complex",
    "test_all_reduce_full_group_product",
    "test_all_reduce_sum_async",
    "test_all_reduce_sum_complex",
    "test_broadcast",
    "test_gather",
    "test_irecv",
    "test_isend",
    "test_reduce_sum",
    "test_scatter_complex",
    "test_send_recv_any_source",
    "test_send_recv_with_tag",
)


class Several(dist_suite.Suite):
    def test_several(self) -> None:
        for name in CHOSEN:
            set_rng_seed()
            try:
                getattr(self, name)()
            except BaseException as error:  # a test that is skipped here ends by SystemExit
                raise AssertionError(f"{name}: {error!r}") from error
            self._barrier()
