"""What the ranks of a training job send, worked out from the model that it trains.

A transformer layer with hidden size h works on b sequences of s tokens at a time (a microbatch).
Every activation between its parts has s b h elements:

* tensor parallel: each all-reduce carries s b h elements, two in the forward and two in the
  backward pass of a layer (Shoeybi et al., "Megatron-LM", 2019, section 3);
* pipeline parallel: each rank sends s b h elements per microbatch to its like in the next stage
  (Narayanan et al., SC 2021, section 3.2; without its scatter/gather optimisation);
* expert parallel: each token goes to k experts, and the tensor-parallel ranks of a group send a
  part of the tokens each: s b h k / tp elements in an all-to-all, two in each pass (dispatch,
  combine; Lepikhin et al., "GShard", 2020, section 3);
* gradients: a layer has 4 h^2 parameters in its attention and 8 h^2 in its feed-forward part
  (Narayanan et al., section 5.1; the small terms are left out, and so are embeddings). Tensor
  parallelism divides both by tp. With E experts the second part is there E times, E / ep of them on
  a rank, and not among what all replicas share.
"""

from __future__ import annotations

from dataclasses import dataclass

from openmrc.errors import InputError
from openmrc.workload.layout import Layout


@dataclass(frozen=True)
class Sizes:
    """Bytes that one rank sends or sums: per collective, per message, or per layer."""

    tp: int  # of a tensor-parallel all-reduce
    pp: int  # from stage to stage, of a microbatch
    ep: int  # of an all-to-all, the block that stays with the rank included
    dp: int  # gradients of a layer that all replicas share
    expert: int  # gradients of a layer's experts on one rank


@dataclass(frozen=True)
class Model:
    """A transformer: elements, and bytes of one."""

    hidden: int
    sequence: int
    microbatch: int  # sequences
    element: int  # bytes of an activation
    gradient: int  # bytes of a gradient
    experts: int  # of a layer; none without expert parallelism
    top_k: int  # experts that a token goes to

    def sizes(self, layout: Layout) -> Sizes:
        """Return what each rank sends; `InputError` if the experts cannot be divided."""
        tp, ep = layout.size("tp"), layout.size("ep")
        if ep > 1 and self.experts % ep:
            raise InputError(
                f"workload.experts: {self.experts} cannot be divided among ep = {ep} ranks"
            )
        activation = self.sequence * self.microbatch * self.hidden * self.element
        square = self.hidden**2 * self.gradient
        return Sizes(
            tp=activation,
            pp=activation,
            ep=activation * self.top_k // tp,
            dp=(12 if ep == 1 else 4) * square // tp,
            expert=8 * square * self.experts // (ep * tp) if ep > 1 else 0,
        )
