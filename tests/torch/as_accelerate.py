"""accelerate's own script of data loaders, without what needs GPUs, or torchdata.

    OPENMRC_AS=gloo torchrun --standalone --nproc-per-node 2 -m tests.torch.as_accelerate

Where there are no GPUs, `join_uneven_inputs` does nothing: the ranks of the script's first test of
it then wait for each other for ever, over Gloo too. `make torch-others` runs this, and the scripts
of accelerate that need no such care, in an environment of its own that has accelerate.
"""

from __future__ import annotations

from typing import Any

from accelerate.test_utils.scripts import test_distributed_data_loop as script

ON_GPUS = (
    "test_can_join_uneven_inputs",
    "test_join_can_override_even_batches",
    "test_join_can_override_for_mixed_type_dataloaders",
    "test_join_raises_warning_for_iterable_when_overriding_even_batches",
)
WITH_TORCHDATA = ("test_stateful_dataloader", "test_stateful_dataloader_save_state")


def _left_out(*_: Any) -> None:
    """Do nothing."""


def main() -> None:
    for name in ON_GPUS + WITH_TORCHDATA:
        assert hasattr(script, name), f"{name}: accelerate has renamed it"
        setattr(script, name, _left_out)
    script.main()


if __name__ == "__main__":
    main()
