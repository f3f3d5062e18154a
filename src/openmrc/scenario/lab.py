"""`[lab]` of a scenario file: how the fabric is built on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from openmrc.scenario.sections import Section
from openmrc.scenario.toml import ByteCount

if TYPE_CHECKING:
    from openmrc.live.lab.topology import Settings

LAB_MTU_MIN, LAB_MTU_MAX = 1280, 9216  # IPv6's minimum; the maximum of common Ethernet switches


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
        """Return the options of a lab as `live.lab` takes them."""
        from openmrc.live.lab.topology import Settings

        return Settings(switch=self.switch, mode=self.mode, mtu=int(self.mtu), bpf=self.bpf)
