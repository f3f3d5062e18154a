"""Sums of short floats have the bits of torch's own, for all values there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

from openmrc.torch import kernels  # noqa: E402

KINDS = {
    "bfloat16": (kernels.add_bf16, kernels.multiply_bf16, kernels.least_bf16, kernels.most_bf16),
    "float16": (kernels.add_f16, kernels.multiply_f16, kernels.least_f16, kernels.most_f16),
}


@pytest.mark.parametrize("name", KINDS)
def test_short_floats_as_torch_has_them(name: str) -> None:
    dtype = getattr(torch, name)
    every = torch.arange(-32768, 32768, dtype=torch.int16).repeat(8).view(dtype)
    others = torch.randint(
        -32768, 32768, every.shape, generator=torch.Generator().manual_seed(1), dtype=torch.int16
    ).view(dtype)
    for kernel, own in zip(
        KINDS[name], (torch.add, torch.mul, torch.minimum, torch.maximum), strict=True
    ):
        into, want = every.clone(), own(every, others)
        kernel(
            into.view(torch.int16).numpy().view(np.uint16),
            others.view(torch.int16).numpy().view(np.uint16),
        )
        numbers = ~torch.isnan(want)
        assert torch.equal(torch.isnan(into), ~numbers)
        assert torch.equal(into[numbers], want[numbers])
        if own in (torch.add, torch.mul):  # of two zeros, torch.minimum may take either
            assert torch.equal(into[numbers].view(torch.int16), want[numbers].view(torch.int16))
