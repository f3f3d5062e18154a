"""The tables `[transport]` of a scenario file: every key of MRC and of RoCEv2.

As in `sections`, a key that would have no effect is unknown there, and None means `"auto"`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from msgspec import Meta

from openmrc._toml import ByteCount, Choice, Quantity, Size, Time
from openmrc.errors import InputError
from openmrc.sections import FabricSection, Label, Section
from openmrc.sim.roce.transport import BGP_PS, QPS_MAX, RETRY_CNT, RTO_PS
from openmrc.units import fmt_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from openmrc.fabric.model import Fabric
    from openmrc.sim.roce.transport import RoceTransport
    from openmrc.sim.transport import Transport

PMTUS = (1024, 2048, 4096, 8192)  # MRC runs; peer runs: any between the next two
PEER_PMTU_MIN, PEER_PMTU_MAX = 64, 16_384
SACK_BYTES_MAX = 2**31 - 1


class Paths(Choice):
    """Who chooses the path of a packet."""

    __slots__ = ()
    WORDS = ("mrc", "oblivious", "reps", "single")
    ROLE = "choose"


class CongestionControl(Choice):
    """Who sets the window."""

    __slots__ = ()
    WORDS = ("nscc", "none")
    ROLE = "step"


class TransportSection(Section, frozen=True, kw_only=True):
    """`[transport]`, or one of several `[[transport]]`: MRC, and what it leaves out."""

    kind: ClassVar[str] = "mrc"
    name: Label = "mrc"
    paths: Paths = Paths("mrc")
    cc: CongestionControl = CongestionControl("nscc")
    rules: Literal["mrc", "peer"] = "mrc"
    evs_active: Annotated[int, Meta(ge=1, le=4096)] = 128
    evs_backup: Annotated[int, Meta(ge=0, le=4096)] = 64
    pmtu: ByteCount = ByteCount(4096)
    mpr: Annotated[int, Meta(ge=128, le=32_640, multiple_of=128)] | None = None
    sack_bytes: ByteCount = ByteCount(16_384)
    convergence: Time | None = None
    base_rtt: Time | None = None
    rto_exponent: Annotated[int, Meta(ge=0, le=30)] = 8
    linear_cnt: Annotated[int, Meta(ge=0, le=255)] = 7
    exp_cnt: Annotated[int, Meta(ge=0, le=25)] = 10
    always_skip_after: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    srv6: bool = True
    trim: bool | None = None
    ecn_skip: bool = True
    freezing: Time | None = None

    def __post_init__(self) -> None:
        """Refuse what only another choice of paths would give a meaning."""
        for key, given, paths, remedy in (
            ("convergence", self.convergence, "single", 'leave it out, or "auto"'),
            ("freezing", self.freezing, "reps", 'leave it out, or "auto"'),
            ("always_skip_after", self.always_skip_after or None, "mrc", "leave it out, or 0"),
        ):
            if given is not None and self.paths != paths:
                value = given.text() if isinstance(given, Time) else given
                raise ValueError(
                    f".{key}: {value} does nothing with paths = {str(self.paths)!r}, only with"
                    f" {paths!r}; {remedy}"
                )

    def build(self) -> Transport:
        """Return the transport the simulator runs; raise `InputError` for what it refuses."""
        from openmrc.sim.transport import Transport

        _check_pmtu(int(self.pmtu), self.rules == "peer")
        _check_base_rtt(self.base_rtt)
        if self.rules == "peer" and not self.srv6:
            raise InputError("transport.srv6: rules = 'peer' hashes EVs by itself; leave it out")
        if not self.ecn_skip and self.paths in ("oblivious", "reps", "single"):
            raise InputError(
                f"transport.ecn_skip: {str(self.paths)!r} skips no path anyway; leave it out"
            )
        if not 1 <= self.sack_bytes <= SACK_BYTES_MAX:
            raise InputError(
                f"transport.sack_bytes: {self.sack_bytes}; accepted: 1 to {SACK_BYTES_MAX}"
            )
        return Transport(
            name=self.name,
            paths=str(self.paths),
            cc=str(self.cc),
            rules=self.rules,
            evs_active=self.evs_active,
            evs_backup=self.evs_backup,
            pmtu=int(self.pmtu),
            mpr=self.mpr,
            sack_bytes=int(self.sack_bytes),
            convergence_ps=_or(self.convergence, Transport.convergence_ps),
            base_rtt_ps=self.base_rtt,
            rto_exponent=self.rto_exponent,
            linear_cnt=self.linear_cnt,
            exp_cnt=self.exp_cnt,
            always_skip_after=self.always_skip_after,
            srv6=self.srv6,
            trim=self.trim,
            ecn_skip=self.ecn_skip,
            freezing_ps=_or(self.freezing, Transport.freezing_ps),
        )


class Convergence(Quantity):
    """How long routing takes to go around a failure; as a number the longest that may be, ps."""

    low_ps: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what "instant", "bgp", a time, or "1s-3s" (evenly between the two) states."""
        if text == "instant":
            return cls.between(0, 0)
        if text == "bgp":
            return cls.between(*BGP_PS)
        try:
            low, dash, high = text.partition("-")
            ends = (parse_time(low), parse_time(high if dash else low))
        except (InputError, AttributeError, TypeError):
            raise InputError(
                f'{text!r} is refused; accepted: "instant", a time ("50ms"), two times between'
                ' which it is drawn ("1s-3s"), or "bgp"'
            ) from None
        if ends[0] > ends[1]:
            raise InputError(f"{text!r} ends before it begins; write the shorter time first")
        return cls.between(*ends)

    @classmethod
    def between(cls, low_ps: int, high_ps: int) -> Self:
        """Return the convergence that is drawn evenly between two times."""
        found = cls(high_ps)
        found.low_ps = low_ps
        return found

    def text(self) -> str:
        """Return the text that `parse` reads back."""
        if (self.low_ps, int(self)) == BGP_PS:
            return "bgp"
        if self.low_ps == self:
            return fmt_time(self) if self else "instant"
        return f"{fmt_time(self.low_ps)}-{fmt_time(self)}"


ACK_EVERY_MAX = 1 << 16


class RoceSection(Section, frozen=True, kw_only=True):
    """`[transport]` with `kind = "roce"`: RoCEv2 with reliable connections."""

    kind: ClassVar[str] = "roce"
    name: Label = "roce"
    qps: Annotated[int, Meta(ge=1, le=QPS_MAX)] = 1
    pmtu: ByteCount = ByteCount(4096)
    cc: Literal["dcqcn", "none"] = "dcqcn"
    profile: Literal["default", "aggressive", "most-aggressive"] | None = None
    pfc: bool = True
    buffer: Size | None = None
    ack_every: Annotated[int, Meta(ge=1, le=ACK_EVERY_MAX)] = 4
    rto: Time = Time(RTO_PS)
    retry_cnt: Annotated[int, Meta(ge=0, le=7)] = RETRY_CNT
    convergence: Convergence | None = None
    base_rtt: Time | None = None
    rules: Literal["roce", "peer"] = "roce"

    def __post_init__(self) -> None:
        if self.rto < 1:
            raise ValueError(f".rto: {self.rto.text()}; at least 1 ps")
        if self.buffer is not None and not self.pfc:
            raise ValueError(f".buffer: {self.buffer.text()} is shared with pfc = true only")
        if self.buffer is not None and self.rules == "peer":
            raise ValueError(
                f".buffer: {self.buffer.text()} does nothing with rules = 'peer', which has"
                ' htsim\'s; leave it out, or "auto"'
            )
        if self.profile is not None and self.cc != "dcqcn":
            raise ValueError(
                f".profile: {self.profile!r} does nothing with cc = {self.cc!r}, only with"
                " 'dcqcn'; leave it out, or \"auto\""
            )

    def build(self) -> RoceTransport:
        """Return the transport the simulator runs; raise `InputError` for what it refuses."""
        from openmrc.sim.roce.transport import RoceTransport

        _check_pmtu(int(self.pmtu), self.rules == "peer")
        _check_base_rtt(self.base_rtt)
        return RoceTransport(
            name=self.name,
            qps=self.qps,
            pmtu=int(self.pmtu),
            cc=self.cc,
            profile=self.profile or RoceTransport.profile,
            pfc=self.pfc,
            buffer_bytes=self.buffer,
            ack_every=self.ack_every,
            rto_ps=int(self.rto),
            retry_cnt=self.retry_cnt,
            convergence_ps=RoceTransport.convergence_ps
            if self.convergence is None
            else (self.convergence.low_ps, int(self.convergence)),
            base_rtt_ps=self.base_rtt,
            rules=self.rules,
        )


def _or(given: Time | None, default_ps: int) -> int:
    return default_ps if given is None else int(given)


def _check_pmtu(pmtu: int, peer: bool) -> None:
    if not peer and pmtu not in PMTUS:
        raise InputError(f"transport.pmtu: {pmtu}; accepted: 1024, 2048, 4096 or 8192")
    if not PEER_PMTU_MIN <= pmtu <= PEER_PMTU_MAX:
        raise InputError(f"transport.pmtu: {pmtu}; accepted: {PEER_PMTU_MIN} to {PEER_PMTU_MAX}")


def _check_base_rtt(base_rtt: Time | None) -> None:
    if base_rtt is not None and base_rtt < 1:
        raise InputError('transport.base_rtt: 0ps; accepted: 1 ps or more, or "auto"')


AnyTransport = TransportSection | RoceSection
# Keys of [fabric], by what they are when nobody states them, that RoCEv2 does not look at.
MRC_ALONE: dict[str, Any] = {
    "trim": True,
    "ecn_low": 0.2,
    "ecn_high": 0.8,
    "ecn_last_hop": False,
    "forwarding": "arithmetic",
}
QUEUES = ("queue", "queue_last_hop")


def refuse_idle(fabric: FabricSection, transports: Sequence[AnyTransport]) -> None:
    """Raise `InputError` for a key of `[fabric]` that none of the transports looks at."""
    roce = [each for each in transports if isinstance(each, RoceSection)]
    if len(roce) < len(transports):
        return
    for key, default in MRC_ALONE.items():
        if (value := getattr(fabric, key)) != default:
            said = str(value).lower() if isinstance(value, bool) else repr(value)
            raise InputError(
                f"fabric.{key}: {said} does nothing: it is MRC's alone, and every transport here"
                " is RoCEv2; leave it out"
            )
    for key in QUEUES:
        value = getattr(fabric, key)
        if value is not None and all(each.pfc for each in roce):
            raise InputError(
                f"fabric.{key}: {value.text()} does nothing: with pfc = true queues have no end;"
                ' leave it out, or "auto", or set pfc = false'
            )


def refuse_convergence(fabric: Fabric, transports: Sequence[AnyTransport]) -> None:
    """Raise `InputError` for a time of convergence where routing has nothing to choose."""
    if fabric.n_planes > 1 or fabric.n_paths(0, fabric.n_nics - 1, 0) > 1:
        return
    for number, each in enumerate(transports):
        if each.convergence is not None:
            place = "transport" if len(transports) == 1 else f"transport[{number}]"
            raise InputError(
                f"{place}.convergence: {each.convergence.text()} does nothing: this fabric has one"
                ' path between two NICs, and no routing; leave it out, or "auto"'
            )


TRANSPORTS: dict[str, Any] = {section.kind: section for section in (TransportSection, RoceSection)}


def label_of(table: dict[str, Any]) -> Any:
    """Return a transport's name: what it is called, else MRC's `paths`, else its kind."""
    if table.get("kind", TransportSection.kind) == TransportSection.kind:
        return table.get("name", table.get("paths", TransportSection.kind))
    return table.get("name", table["kind"])
