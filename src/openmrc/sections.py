"""The tables of a scenario file: every key with its type, limits and default.

A key that would have no effect (`planes` of a fat tree) is not part of that kind, and so unknown
there. None means `"auto"`: derived at start. A Struct's own checks raise ValueError with the key in
front (".rate: ..."), which `_toml` completes with the place. docs/scenario.md says the same in
prose. `[transport]` and the kinds of `[workload]` have files of their own: `transport_sections`,
`workload_sections` and `training_section`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from openmrc._toml import ByteCount, File, Rate, Size, Time, write_table
from openmrc.errors import InputError

if TYPE_CHECKING:
    from openmrc.fabric.kinds import Fault
    from openmrc.fabric.model import Fabric
    from openmrc.live.lab.topology import Settings
    from openmrc.sim.transport import Queues
    from openmrc.traffic import Traffic

# 16 times the largest installation published (131,072 NICs); arrays of more do not fit a machine.
NICS_MAX = 2_097_152

Count = Annotated[int, Meta(ge=1, le=NICS_MAX)]
Nics = Annotated[int, Meta(ge=2, le=NICS_MAX)]
NicId = Annotated[int, Meta(ge=0, lt=NICS_MAX)]
Share = Annotated[float, Meta(ge=0, le=1)]
Label = Annotated[str, Meta(min_length=1, max_length=100)]
Places = Annotated[str, Meta(min_length=1, max_length=10_000)]
LAB_MTU_MIN, LAB_MTU_MAX = 1280, 9216  # of IPv6; of what Ethernet switches carry
PLACES_MAX = 10_000  # of one fault; many more are named by "*"


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the tables."""


class FabricSection(Section, frozen=True, kw_only=True):
    """`[fabric]`: the keys of every kind, and what `kind` chooses among."""

    kind: ClassVar[str]
    trim: bool = True
    queue: Size | None = None
    queue_last_hop: Size | None = None
    control_queue: Size | None = None
    ecn_low: Share = 0.2
    ecn_high: Share = 0.8
    ecn_last_hop: bool = False
    forwarding: Literal["arithmetic", "usid"] = "arithmetic"

    def __post_init__(self) -> None:
        if self.ecn_low > self.ecn_high:
            raise ValueError(
                f".ecn_low: {self.ecn_low} is above ecn_high = {self.ecn_high}; at most that"
            )

    def build(self) -> Fabric:
        """Return the fabric; raise `InputError` for sizes that cannot be built."""
        raise NotImplementedError

    def queues(self) -> Queues:
        """Return what the switches of this fabric do with queues and carriers."""
        from openmrc.sim.transport import Queues

        return Queues(
            trim=self.trim,
            queue_bytes=self.queue,
            queue_last_hop_bytes=self.queue_last_hop,
            control_bytes=self.control_queue,
            ecn_low=self.ecn_low,
            ecn_high=self.ecn_high,
            ecn_last_hop=self.ecn_last_hop,
            by_usid=self.forwarding == "usid",
        )


class Multiplane(FabricSection, frozen=True, kw_only=True):
    """Planes of two tiers, each NIC with one port in every plane; full bisection by default."""

    kind: ClassVar[str] = "multiplane"
    nics: Nics = 64
    planes: Annotated[int, Meta(ge=1, le=16)] = 4
    port_rate: Rate = Rate.parse("200Gbps")
    t0_down: Count = 16
    t0_up: Count | None = None
    link_delay: Time = Time.parse("500ns")
    switch_delay: Time = Time.parse("250ns")

    def build(self) -> Fabric:
        from openmrc.fabric.clos import multiplane

        return multiplane(
            nics=self.nics,
            planes=self.planes,
            port_rate_bps=self.port_rate,
            t0_down=self.t0_down,
            t0_up=self.t0_down if self.t0_up is None else self.t0_up,
            link_delay_ps=self.link_delay,
            switch_delay_ps=self.switch_delay,
        )


class FatTree(FabricSection, frozen=True, kw_only=True):
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

    def build(self) -> Fabric:
        from openmrc.fabric.clos import fat_tree

        return fat_tree(
            nics=self.nics,
            tiers=self.tiers,
            port_rate_bps=self.port_rate,
            t0_down=self.t0_down,
            t0_up=self.t0_down if self.t0_up is None else self.t0_up,
            t1_down=self.t1_down,
            t1_up=self.t1_up,
            link_delay_ps=self.link_delay,
            switch_delay_ps=self.switch_delay,
        )


class HtsimFabric(FabricSection, frozen=True, kw_only=True):
    """A fabric described by an htsim `.topo` file."""

    kind: ClassVar[str] = "htsim"
    topo: File

    def build(self) -> Fabric:
        from openmrc.fabric.topo import load_topo

        return load_topo(self.topo)


class FaultSection(Section, frozen=True, kw_only=True):
    """One `[[fault]]`: where and when what breaks; `fabric.kinds` says which keys go together."""

    at: Time
    kind: Literal[
        "link-down",
        "link-loss",
        "link-corrupt",
        "link-slow",
        "link-construction",
        "transceiver-down",
        "port-down",
        "switch-down",
        "switch-silent",
        "deny",
        "link-up",
        "transceiver-up",
        "port-up",
        "switch-up",
        "allow",
    ]
    where: Places | Annotated[tuple[Places, ...], Meta(min_length=1, max_length=PLACES_MAX)]
    for_: Time | UnsetType = msgspec.field(name="for", default=UNSET)
    rate: Share | UnsetType = UNSET
    burst: float | UnsetType = UNSET
    factor: float | UnsetType = UNSET
    period: Time | UnsetType = UNSET
    duty: float | UnsetType = UNSET
    mtbf: Time | UnsetType = UNSET
    mttr: Time | UnsetType = UNSET
    until: Time | UnsetType = UNSET
    share: float | UnsetType = UNSET
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | UnsetType = UNSET
    links: Count | UnsetType = UNSET
    nics: Label | UnsetType = UNSET

    def __post_init__(self) -> None:
        from openmrc.fabric.kinds import check

        try:
            check(self.build())
        except InputError as error:
            raise ValueError(f".{error}") from None

    def build(self) -> Fault:
        """Return the fault as the fabric takes it."""
        from openmrc.fabric.kinds import Fault

        times = ("at", "for", "period", "mtbf", "mttr", "until")
        given = {
            f"{key}_ps" if key in times else key: value
            for field in msgspec.structs.fields(self)
            if (value := getattr(self, field.name)) is not UNSET
            for key in [field.encode_name]
        }
        return Fault(**given)


class WorkloadSection(Section, frozen=True, kw_only=True):
    """`[workload]`: what is sent."""

    kind: ClassVar[str]

    def build(self, n_nics: int, seed: int) -> Traffic:
        """Return the messages; raise `InputError` for a NIC that is not there."""
        raise NotImplementedError

    def tables(self) -> list[str]:
        """Return the tables of a scenario file that say the same."""
        return [write_table("[workload]", self, kind=self.kind)]


class StopSection(Section, frozen=True, kw_only=True):
    """`[stop]`: the simulated time at which the run ends as planned; `"auto"` when all is done."""

    time: Time | None = None


class ReportSection(Section, frozen=True, kw_only=True):
    """`[report]`: what `report.html` shows, where results are written."""

    qp: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    samples: Annotated[int, Meta(ge=20, le=1000)] = 500


class LabSection(Section, frozen=True, kw_only=True):
    """`[lab]`: how `mrc lab` builds the fabric of `[fabric]` on this machine."""

    switch: Literal["openmrc", "linux", "overlay"] = "openmrc"
    mode: Literal["native", "udp"] = "native"
    mtu: ByteCount = ByteCount(9000)
    bpf: bool = False

    def __post_init__(self) -> None:
        if self.bpf and self.switch != "linux":
            raise ValueError(f'.bpf: true with switch = "{self.switch}"; it is for "linux"')
        if not LAB_MTU_MIN <= self.mtu <= LAB_MTU_MAX:
            raise ValueError(f".mtu: {self.mtu}; accepted: {LAB_MTU_MIN} to {LAB_MTU_MAX}")

    def build(self) -> Settings:
        """Return what a lab can choose, as `live.lab` takes it."""
        from openmrc.live.lab.topology import Settings

        return Settings(switch=self.switch, mode=self.mode, mtu=int(self.mtu), bpf=self.bpf)


class Header(Section, frozen=True, kw_only=True):
    """The keys above all tables."""

    name: Label
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 1


FABRICS = {section.kind: section for section in (Multiplane, FatTree, HtsimFabric)}
