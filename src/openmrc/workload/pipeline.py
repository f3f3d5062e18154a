"""The order in which a stage of a pipeline processes its microbatches: one forward, one backward
(1F1B).

Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM"
(SC 2021), section 2.2.1: a stage first runs as many forward passes as there are stages after it,
then forward and backward passes alternately, then the remaining backward passes. At the end of a
step the pipeline is flushed, so that weights are of one version.
"""

from __future__ import annotations

FORWARD, BACKWARD = "forward", "backward"


def one_forward_one_backward(stages: int, stage: int, microbatches: int) -> list[tuple[str, int]]:
    """Return what `stage` of `stages` does in a step, in order: pairs (pass, microbatch)."""
    ahead = min(stages - stage - 1, microbatches)
    work = [(FORWARD, i) for i in range(ahead)]
    for i in range(microbatches - ahead):
        work += [(FORWARD, ahead + i), (BACKWARD, i)]
    return work + [(BACKWARD, i) for i in range(microbatches - ahead, microbatches)]
