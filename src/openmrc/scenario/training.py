"""`[workload]` with `kind = "training"`: a job's ranks, what they compute and send, and restarts.

The conventions are those of `sections`. docs/training.md describes the keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta

from openmrc.scenario.sections import Count, Nics, Share
from openmrc.scenario.toml import Size, Time, arguments
from openmrc.scenario.workload import WorkloadSection, placed, ranks_on

if TYPE_CHECKING:
    from openmrc.traffic.traffic import Traffic
    from openmrc.workload.layout import Layout
    from openmrc.workload.model import Sizes
    from openmrc.workload.phases import Work

SECONDS_OF_A_DAY = 86_400
FAULTS_A_DAY_MAX = 1_000_000

Collected = Literal["all-reduce", "reduce-scatter"]
Bytes = Annotated[int, Meta(ge=1, le=64)]
WORK = (  # keys of computation and communication that are used unchanged
    *("steps", "microbatches", "layers", "forward", "optimizer", "jitter"),
    *("bucket", "tp_collective", "dp_collective"),
)
SIZES = ("tp", "pp", "ep", "dp", "expert")  # keys in _size
MODEL = {  # the model from which sizes are derived, by default
    "hidden": 1024,
    "sequence": 1024,
    "microbatch": 1,
    "element": 2,
    "gradient": 4,
    "experts": 8,
    "top_k": 2,
}


class Training(WorkloadSection, frozen=True, kw_only=True):
    """A training job: `steps` steps of forward and backward passes and gradient sums."""

    kind: ClassVar[str] = "training"
    whole: ClassVar[str] = "a step took on average"
    # ranks
    ranks: Nics | None = None
    placement: Literal["nic", "random"] = "nic"
    tp: Count = 1
    pp: Count = 1
    ep: Count = 1
    dp: Count | None = None
    layout: str = "tp-ep-dp-pp"
    # computation
    steps: Count = 4
    microbatches: Count = 4
    layers: Count = 4
    forward: Time = Time.parse("100us")
    backward: Time | None = None
    optimizer: Time = Time(0)
    jitter: Share = 0.0
    # communication
    tp_size: Size | None = None
    pp_size: Size | None = None
    ep_size: Size | None = None
    dp_size: Size | None = None
    expert_size: Size | None = None
    tp_collective: Collected = "all-reduce"
    dp_collective: Collected = "all-reduce"
    bucket: Size = Size.parse("25MB")
    # the model from which sizes are derived where they are not stated
    hidden: Count = MODEL["hidden"]
    sequence: Count = MODEL["sequence"]
    microbatch: Count = MODEL["microbatch"]
    element: Bytes = MODEL["element"]
    gradient: Bytes = MODEL["gradient"]
    experts: Count = MODEL["experts"]
    top_k: Count = MODEL["top_k"]
    # the cost of an error
    checkpoint: Time = Time.parse("1800s")
    checkpoint_time: Time = Time(0)
    restart: Time = Time.parse("600s")
    faults_per_day: Annotated[float, Meta(ge=0, le=FAULTS_A_DAY_MAX)] | None = None

    def __post_init__(self) -> None:
        if not self.checkpoint:
            raise ValueError(".checkpoint: 0 between two checkpoints; write the time that is")
        if self.checkpoint_time and self.faults_per_day is None:
            raise ValueError(
                f".checkpoint_time: {self.checkpoint_time.text()} does nothing without"
                " faults_per_day; set that too, or leave it out"
            )
        if all(getattr(self, f"{key}_size") is not None for key in SIZES):
            for key, default in MODEL.items():
                if (value := getattr(self, key)) != default:
                    raise ValueError(
                        f".{key}: {value} does nothing where all of"
                        f" {', '.join(f'{size}_size' for size in SIZES)} are stated; leave it out"
                    )

    def build(self, n_nics: int, seed: int) -> Traffic:
        """Return the steps; raise `InputError` for what does not fit."""
        from openmrc.workload.training import training

        layout = self.groups(n_nics)
        nics = placed(layout.n_ranks, self.placement, seed)
        return training(n_nics, layout, self.work(layout), seed, nics)

    def work(self, layout: Layout) -> Work:
        """Return what the ranks compute and send."""
        from openmrc.workload.phases import Work

        backward = 2 * self.forward if self.backward is None else self.backward
        return Work(**arguments(self, *WORK), backward_ps=backward, sizes=self.sizes(layout))

    def groups(self, n_nics: int) -> Layout:
        """Return the groups of each rank; raise `InputError` if sizes do not fit."""
        from openmrc.workload.layout import make_layout

        ranks = ranks_on(self.ranks, n_nics)
        return make_layout(ranks, self.tp, self.pp, self.ep, self.dp, self.layout)

    def sizes(self, layout: Layout) -> Sizes:
        """Return what each rank sends: as stated, else as derived from the model."""
        from openmrc.workload.model import Model, Sizes

        stated = {key: getattr(self, f"{key}_size") for key in SIZES}
        if None not in stated.values():
            return Sizes(**stated)
        derived = Model(**arguments(self, *MODEL)).sizes(layout)
        return Sizes(
            **{k: getattr(derived, k) if size is None else size for k, size in stated.items()}
        )
