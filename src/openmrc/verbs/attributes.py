"""What a peer sends about itself: the attributes of its queue pair, its regions. Each is
checked.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, get_type_hints

from openmrc.engine import packet as pk
from openmrc.engine.parameters import MPR_MAX, PLANES_MAX, PMTUS
from openmrc.errors import InputError
from openmrc.live.endpoint.host import SEND_DEPTH_MAX
from openmrc.live.endpoint.peers import Reach


@dataclass(frozen=True)
class RemoteRegion:
    """Memory of a peer: address, length in bytes and key, each annotated with its range."""

    addr: Annotated[int, 0, (1 << 64) - 1]
    length: Annotated[int, 0, 1 << 62]
    rkey: Annotated[int, 0, (1 << 32) - 1]

    def check(self) -> None:
        """Raise `InputError`, which names the field, unless it can be a peer's region."""
        _check_ranges(self, "region's ")
        if self.addr + self.length > 1 << 64:
            raise InputError(f"peer's region's length {self.length}: it ends behind all memory")


@dataclass(frozen=True)
class QpAttributes:
    """What a peer must know to connect (MRC 1.7 to 1.9): sent by the application's own means, or by
    `openmrc.verbs.exchange`. Each field is annotated with its range.
    """

    nic: Annotated[int, 0, (1 << 31) - 1]  # limited to the number of NICs elsewhere
    qp_num: Annotated[int, pk.ENDPOINT_QPN + 1, (1 << 24) - 1]
    psn: Annotated[int, 0, (1 << 24) - 1]
    pmtu: Annotated[int, PMTUS[0], PMTUS[-1]]
    mpr: Annotated[int, 1, MPR_MAX]  # packets that this end can track: MPR_DEST of the other
    max_wimm: Annotated[int, 1, MPR_MAX]  # MAX_WIMM_DEST of the other
    send_depth: Annotated[int, 1, SEND_DEPTH_MAX]
    # Capabilities (MRC 1.9): this end answers trimmed headers with NACKs; it enables a dynamic MPR,
    # which counts if both do; its SACKs report service time, which is 0 here (row 35).
    trim_nack: bool = True
    dynamic_mpr: bool = False
    svc_time: bool = False
    planes: tuple[Reach, ...] = ()  # of plain UDP: the address of each plane
    # There packets fill the MTU if both ends offer that; 0 if this one does not (row 20).
    pmtu_offered: Annotated[int, 0, PMTUS[-1]] = 0

    def __post_init__(self) -> None:
        told = self.planes
        if not isinstance(told, list | tuple) or len(told) > PLANES_MAX:
            raise InputError(f"peer's planes {told!r:.80}: up to {PLANES_MAX} are accepted")
        object.__setattr__(self, "planes", tuple(map(Reach.of, told)))

    def as_dict(self) -> dict[str, Any]:
        """Return the attributes for JSON."""
        return asdict(self)

    def check(self) -> None:
        """Raise `InputError`, which names the field, unless a peer could have these attributes.

        A peer's values are never trusted: with an `mpr` of 0, nothing would ever be sent.
        """
        _check_ranges(self)
        if self.pmtu not in PMTUS:
            accepted = ", ".join(map(str, PMTUS))
            raise InputError(f"peer's pmtu {self.pmtu}: {accepted} are accepted (row 20)")
        if self.pmtu_offered and self.pmtu_offered < self.pmtu:
            raise InputError(
                f"peer's pmtu_offered {self.pmtu_offered}: 0, or {self.pmtu} and more, is accepted"
            )
        for name in ("trim_nack", "dynamic_mpr", "svc_time"):
            if type(value := getattr(self, name)) is not bool:
                raise InputError(f"peer's {name} {value!r:.80}: true or false is accepted")


def _check_ranges(told: RemoteRegion | QpAttributes, of: str = "") -> None:
    for name, kind in get_type_hints(type(told), include_extras=True).items():
        if not (bounds := getattr(kind, "__metadata__", ())):
            continue
        value, (least, most) = getattr(told, name), bounds
        if type(value) is not int or not least <= value <= most:
            raise InputError(f"peer's {of}{name} {value!r}: {least} to {most} is accepted")
