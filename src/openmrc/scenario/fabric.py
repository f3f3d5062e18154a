"""`[fabric]` of a scenario file: every kind of fabric."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta

from openmrc.engine.parameters import PLANES_MAX
from openmrc.errors import InputError
from openmrc.fabric.dscp import DEFAULT, Dscps
from openmrc.scenario.sections import Count, Nics, Section, Share
from openmrc.scenario.toml import Depth, File, Rate, Size, Time, arguments
from openmrc.units import MS, fmt_time

if TYPE_CHECKING:
    from openmrc.fabric.model import Fabric
    from openmrc.fabric.queues import Queues


DEPTHS = ("queue", "queue_last_hop")
NOT_OF_QUEUES = ("forwarding", "switching", "jitter", "dscp", "trim_lengths", "sids")
JITTER_MAX_PS = 10 * MS  # the simulator's wheel of events spans it


class FabricSection(Section, frozen=True, kw_only=True):
    """`[fabric]`: the keys of every kind, and the choices of `kind`."""

    kind: ClassVar[str]
    trim: bool = True
    queue: Depth | None = None
    queue_last_hop: Depth | None = None
    control_queue: Size | None = None
    ecn_low: Share = 0.2
    ecn_high: Share = 0.8
    ecn_last_hop: bool = False
    forwarding: Literal["arithmetic", "usid"] = "arithmetic"
    switching: Literal["store-and-forward", "cut-through"] = "store-and-forward"
    jitter: Time = Time.parse("0s")
    dscp: str = DEFAULT.text
    trim_lengths: Literal["all", "outer", "none"] = "all"
    sids: Literal["uN", "uA"] = "uN"

    def __post_init__(self) -> None:
        if self.ecn_low > self.ecn_high:
            raise ValueError(
                f".ecn_low: {self.ecn_low} is above ecn_high = {self.ecn_high}; at most that"
            )
        if self.jitter and self.switching == "cut-through":
            raise ValueError(
                f".jitter: {self.jitter.text()} does not go with switching = 'cut-through';"
                " remove one"
            )
        if self.jitter > JITTER_MAX_PS:
            raise ValueError(
                f".jitter: {self.jitter.text()} is above {fmt_time(JITTER_MAX_PS)}; at most that"
            )
        try:
            Dscps.parse(self.dscp)
        except InputError as error:
            raise ValueError(f".dscp: {error}") from None

    def build(self) -> Fabric:
        """Return the fabric; raise `InputError` for sizes that cannot be built."""
        cut_through = self.switching == "cut-through"
        return replace(
            self._wired(),
            cut_through=cut_through,
            jitter_ps=int(self.jitter),
            dscps=Dscps.parse(self.dscp),
            trim_lengths=self.trim_lengths,
            sids=self.sids,
        )

    def _wired(self) -> Fabric:
        raise NotImplementedError

    def queues(self) -> Queues:
        """Return what the switches of this fabric do with queues and carriers."""
        from openmrc.fabric.queues import Queues

        own = set(FabricSection.__struct_fields__) - {*NOT_OF_QUEUES, *DEPTHS}
        stated = arguments(self, *own)
        for key in DEPTHS:
            if (depth := getattr(self, key)) is not None:
                stated[f"{key}{depth.UNIT}"] = int(depth)
        return Queues(**stated, by_usid=self.forwarding == "usid")


class Clos(FabricSection, frozen=True, kw_only=True):
    """Switches in tiers, built by the function of `fabric.clos` that is named as the kind."""

    def _wired(self) -> Fabric:
        from openmrc.fabric import clos

        common = FabricSection.__struct_fields__
        own = [key for key in self.__struct_fields__ if key not in common]
        stated = arguments(self, *own)
        if stated["t0_up"] is None:
            stated["t0_up"] = stated["t0_down"]
        fabric: Fabric = getattr(clos, self.kind.replace("-", "_"))(**stated)
        return fabric


class Multiplane(Clos, frozen=True, kw_only=True):
    """Planes of two tiers, each NIC with one port in every plane; full bisection by default."""

    kind: ClassVar[str] = "multiplane"
    nics: Nics = 64
    planes: Annotated[int, Meta(ge=1, le=PLANES_MAX)] = 4
    port_rate: Rate = Rate.parse("200Gbps")
    t0_down: Count = 16
    t0_up: Count | None = None
    link_delay: Time = Time.parse("500ns")
    switch_delay: Time = Time.parse("250ns")


class FatTree(Clos, frozen=True, kw_only=True):
    """One plane of two or three tiers; full bisection by default."""

    kind: ClassVar[str] = "fat-tree"
    nics: Nics = 64
    tiers: Annotated[int, Meta(ge=2, le=3)] = 2
    port_rate: Rate = Rate.parse("800Gbps")
    t0_down: Count = 16
    t0_up: Count | None = None
    t1_down: Count | None = None
    t1_up: Count | None = None
    link_delay: Time = Time.parse("500ns")
    switch_delay: Time = Time.parse("250ns")


class HtsimFabric(FabricSection, frozen=True, kw_only=True):
    """A fabric described by an htsim `.topo` file."""

    kind: ClassVar[str] = "htsim"
    topo: File

    def _wired(self) -> Fabric:
        from openmrc.fabric.topo import load_topo

        return load_topo(self.topo)


class LinksFabric(FabricSection, frozen=True, kw_only=True):
    """A fabric described by a list of its links."""

    kind: ClassVar[str] = "links"
    file: File
    switch_delay: Time = Time.parse("250ns")

    def _wired(self) -> Fabric:
        from openmrc.fabric.links import load_links

        return load_links(self.file, int(self.switch_delay))


FABRICS = {section.kind: section for section in (Multiplane, FatTree, HtsimFabric, LinksFabric)}
