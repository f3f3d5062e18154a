"""The tables `[transport]` of a scenario file: every key of MRC and of RoCEv2.

As in `sections`, a key that would have no effect is unknown there, and None means `"auto"`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, cast, get_type_hints

import msgspec
from msgspec import Meta

from openmrc.engine import policy
from openmrc.engine.parameters import PMTUS
from openmrc.errors import InputError
from openmrc.fabric.dscp import DEFAULT
from openmrc.say import written
from openmrc.scenario.fabric import DEPTHS, FabricSection
from openmrc.scenario.sections import Label, Section
from openmrc.scenario.toml import (
    ByteCount,
    Choice,
    Quantity,
    Size,
    Time,
    arguments,
    plain,
    unitless,
)
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.roce.transport import (
    BGP_PS,
    FAILOVER_HARDWARE_PS,
    FAILOVER_SOFTWARE_PS,
    HOLD_PS,
    QPS_MAX,
    RETRY_CNT,
    RTO_PS,
)
from openmrc.units import fmt_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from openmrc.fabric.model import Fabric
    from openmrc.sim.roce.transport import RoceTransport

_AUTO = '"auto"'
PEER_PMTU_MIN, PEER_PMTU_MAX = 64, 16_384  # of peer runs; MRC has PMTUS


class Paths(Choice):
    """The path selection of packets."""

    __slots__ = ()
    WORDS = tuple(policy.PATHS)
    ROLE = "choose"


class CongestionControl(Choice):
    """The congestion control."""

    __slots__ = ()
    WORDS = tuple(policy.CONGESTION)
    ROLE = "step"


Parameter = dataclasses.Field[Any]
# The order in which a file lists the keys; others come last.
ORDER = (
    *("name", "paths", "cc", "rules", "evs_active", "evs_backup", "pmtu", "mpr", "sack_bytes"),
    *(
        "routing",
        "convergence",
        "base_rtt",
        "rto_exponent",
        "linear_cnt",
        "exp_cnt",
        "skip_turns",
        "always_skip_after",
        "check_paths",
    ),
    *("srv6", "trim", "trim_nack", "dynamic_mpr", "share_window", "ecn_skip", "freezing"),
)
TEXTS: dict[str, Any] = {
    "name": Label,
    "paths": Paths,
    "cc": CongestionControl,
    "rules": Literal["mrc", "peer"],
    "routing": Literal["evs", "adaptive", "spray"],
    "skip_turns": Annotated[int, Meta(ge=1, le=127)] | Literal["rtt", "squared"] | None,
}


def _mrc_keys() -> dict[str, Parameter]:
    """The keys of `[transport]`, each with the parameter that it sets."""
    keyed = [each for each in dataclasses.fields(Transport) if each.metadata.get("key", True)]
    found = {each.name.removesuffix("_ps"): each for each in keyed}
    return {key: found[key] for key in dict.fromkeys((*ORDER, *found))}


def _as_key(key: str, parameter: Parameter) -> tuple[str, Any, Any]:
    """A key, its type in a file, and its default there: for a time, "auto"."""
    about, default = parameter.metadata, cast("Any", parameter.default)
    unit, least = about.get("unit"), about.get("least")
    if unit == "ps":
        return key, Time | None, None
    if unit == "bytes":
        return key, ByteCount, ByteCount(default)
    kind = TEXTS.get(key) or get_type_hints(Transport)[parameter.name]
    if least is not None and key not in TEXTS:
        kind = Annotated[int, Meta(ge=least, le=about["most"], multiple_of=about["step"])]
        kind = kind | None if default is None else kind
    return key, kind, kind(default) if key in ("paths", "cc") else default


MRC_KEYS = _mrc_keys()


class MrcSection(Section, frozen=True, kw_only=True):
    """What the keys of `[transport]` of MRC mean together."""

    kind: ClassVar[str] = "mrc"

    def __post_init__(self) -> None:
        """Refuse keys that only another choice of paths would use."""
        given = {key: getattr(self, key) for key in MRC_KEYS}
        for key, parameter in MRC_KEYS.items():
            value, only = given[key], parameter.metadata.get("only")
            _, _, default = _as_key(key, parameter)
            if key == "convergence" and given["routing"] != Transport.routing:
                continue  # switches that balance learn from routing what is broken beyond them
            if only and value != default and given["paths"] != only:
                raise ValueError(
                    f".{key}: {value.text() if isinstance(value, Time) else value} does nothing"
                    f" with paths = {str(given['paths'])!r}, only with {only!r}; leave it out, or"
                    f" {_AUTO if default is None else default}"
                )

    def build(self) -> Transport:
        """Return the transport the simulator runs; raise `InputError` for what it refuses."""
        given = {key: getattr(self, key) for key in MRC_KEYS}
        transport = Transport(
            **{MRC_KEYS[key].name: unitless(v) for key, v in given.items() if v is not None}
        )
        _check_pmtu(transport.pmtu, transport.rules == "peer")
        _check_base_rtt(transport.base_rtt_ps)
        if transport.rules == "peer" and not transport.srv6:
            raise InputError("transport.srv6: rules = 'peer' hashes EVs by itself; leave it out")
        if transport.ev_fields and transport.srv6:
            raise InputError(
                "transport.ev_fields: does nothing where packets have carriers; say srv6 = false,"
                " or leave it out"
            )
        if transport.balances:
            self._check_balance(transport)
        if not transport.ecn_skip and transport.paths in policy.PATHS.keys() - {"mrc"}:
            raise InputError(
                f"transport.ecn_skip: {transport.paths!r} skips no path anyway; leave it out"
            )
        for key, parameter in MRC_KEYS.items():
            about = parameter.metadata
            if isinstance(given[key], ByteCount) and about["least"] is not None:
                _check_bytes(key, given[key], about["least"], about["most"])
        return transport

    def _check_balance(self, transport: Transport) -> None:
        """Refuse what names paths where switches choose them."""
        said = f"does nothing with routing = {transport.routing!r}, where an EV names no path;"
        if transport.carried:
            raise InputError(f"transport.srv6: true {said} say srv6 = false")
        if transport.ev_fields:
            raise InputError(f"transport.ev_fields: true {said} leave it out")
        if transport.paths == "single":
            raise InputError(f"transport.paths: 'single' {said} leave it out")


if TYPE_CHECKING:

    class TransportSection(Transport, MrcSection, frozen=True, kw_only=True):
        """`[transport]`, or one of several `[[transport]]`: MRC, and what it leaves out."""

        convergence: Time | None = None
        base_rtt: Time | None = None
        freezing: Time | None = None
else:
    TransportSection = msgspec.defstruct(
        "TransportSection",
        [_as_key(*each) for each in MRC_KEYS.items()],
        bases=(MrcSection,),
        module=__name__,
        frozen=True,
        kw_only=True,
    )


# How routing detects failures, and how long that takes: ps.
CONVERGENCES = {"instant": (0, 0), "bgp": BGP_PS, "bgp-hold": HOLD_PS}


class Convergence(Quantity):
    """How long routing takes to converge after a failure, ps; as a number, the maximum."""

    low_ps: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a word of `CONVERGENCES`, a time, or "1s-3s" (uniform between the two)."""
        if isinstance(text, str) and text in CONVERGENCES:
            return cls.between(*CONVERGENCES[text])
        try:
            low, dash, high = text.partition("-")
            ends = (parse_time(low), parse_time(high if dash else low))
        except (InputError, AttributeError, TypeError):
            raise InputError(
                f'{written(text)} is refused; accepted: "instant", a time ("50ms"), two times'
                ' between which it is drawn ("1s-3s"), "bgp" or "bgp-hold"'
            ) from None
        if ends[0] > ends[1]:
            raise InputError(f"{text!r} ends before it begins; write the shorter time first")
        return cls.between(*ends)

    @classmethod
    def between(cls, low_ps: int, high_ps: int) -> Self:
        """Return the convergence that is drawn uniformly between two times."""
        found = cls(high_ps)
        found.low_ps = low_ps
        return found

    def text(self) -> str:
        """Return the text that `parse` reads back."""
        for word, ends in CONVERGENCES.items():
            if (self.low_ps, int(self)) == ends:
                return word
        if self.low_ps == self:
            return fmt_time(self)
        return f"{fmt_time(self.low_ps)}-{fmt_time(self)}"


FAILOVERS = {"hardware": FAILOVER_HARDWARE_PS, "software": FAILOVER_SOFTWARE_PS}


class Failover(Quantity):
    """How long NICs take to leave a plane that has no way to the peer, ps."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a word of `FAILOVERS`, or a time."""
        if isinstance(text, str) and text in FAILOVERS:
            return cls(FAILOVERS[text])
        try:
            return cls(parse_time(text))
        except (InputError, AttributeError, TypeError):
            raise InputError(
                f'{written(text)} is refused; accepted: a time ("3ms"), "hardware" or "software"'
            ) from None

    def text(self) -> str:
        """Return the text that `parse` reads back."""
        words = {int(ps): word for word, ps in FAILOVERS.items()}
        return words.get(int(self)) or fmt_time(self)


STEPS_MAX = 7
ACK_EVERY_MAX = 1 << 16
# Keys of RoCEv2 that the simulator takes as they are.
AS_STATED = (
    *("name", "qps", "pmtu", "cc", "pfc", "buffer"),
    *("ack_every", "rto", "rto_first", "retry_cnt", "reordering", "base_rtt", "rules"),
    "routing",
)
# Keys that only switches that balance have, with what they also need.
BALANCED = ("load_steps", "ties", "recovery", "reordering", "failover")


LoadSteps = Annotated[
    tuple[Annotated[float, Meta(gt=0, le=1000)], ...], Meta(min_length=1, max_length=STEPS_MAX)
]


class RoceSection(Section, frozen=True, kw_only=True):
    """`[transport]` with `kind = "roce"`: RoCEv2 with reliable connections."""

    kind: ClassVar[str] = "roce"
    name: Label = "roce"
    qps: Annotated[int, Meta(ge=1, le=QPS_MAX)] = 1
    pmtu: ByteCount = ByteCount(4096)
    cc: Literal["dcqcn", "rtt", "none"] = "dcqcn"
    profile: Literal["default", "lenient", "aggressive", "most-aggressive", "paper"] | None = None
    pfc: bool = True
    buffer: Size | None = None
    ack_every: Annotated[int, Meta(ge=1, le=ACK_EVERY_MAX)] = 4
    rto: Time = Time(RTO_PS)
    rto_first: Time | None = None
    retry_cnt: Annotated[int, Meta(ge=0, le=7)] = RETRY_CNT
    local_repair: Time | None = None
    convergence: Convergence | None = None
    routing: Literal["hashed", "adaptive", "spray"] = "hashed"
    load_steps: LoadSteps | None = None
    ties: Literal["random", "rotation"] | None = None
    recovery: Literal["selective", "timer"] | None = None
    reordering: Time | None = None
    failover: Failover | None = None
    base_rtt: Time | None = None
    rules: Literal["roce", "peer"] = "roce"

    def __post_init__(self) -> None:
        if self.rto < 1:
            raise ValueError(f".rto: {self.rto.text()}; at least 1 ps")
        if self.rto_first is not None and not 1 <= self.rto_first <= self.rto:
            raise ValueError(
                f".rto_first: {self.rto_first.text()}; at least 1 ps, and at most rto,"
                f" {self.rto.text()}"
            )
        self._check_balance()
        longest = Time(self._convergence_ps()[1])
        if self.local_repair is not None and self.local_repair >= longest:
            raise ValueError(
                f".local_repair: {self.local_repair.text()} does nothing: by then routing has"
                f' converged, within {longest.text()}; a shorter time is accepted, or "auto"'
            )
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

    def _check_balance(self) -> None:
        """Refuse keys that this routing, or this recovery, does not use."""
        given = {key: getattr(self, key) for key in (*BALANCED, "local_repair")}
        idle = {
            "hashed": BALANCED,
            "adaptive": ("local_repair",),
            "spray": ("load_steps", "local_repair"),
        }[self.routing]
        for key in idle:
            if given[key] is not None:
                raise ValueError(
                    f".{key}: {_said(given[key])} does nothing with routing = {self.routing!r};"
                    ' leave it out, or "auto"'
                )
        if self.recovery == "timer" and self.reordering is not None:
            raise ValueError(
                f".reordering: {self.reordering.text()} does nothing with recovery = 'timer', where"
                ' nothing is reported; leave it out, or "auto"'
            )
        if self.reordering is not None and self.reordering < 1:
            raise ValueError(f".reordering: {self.reordering.text()}; at least 1 ps")
        steps = self.load_steps or ()
        if list(steps) != sorted(set(steps)):
            raise ValueError(
                f".load_steps: {written(list(steps))}; each must exceed the one before"
            )

    def build(self) -> RoceTransport:
        """Return the transport the simulator runs; raise `InputError` for what it refuses."""
        from openmrc.sim.roce.transport import RoceTransport

        _check_pmtu(int(self.pmtu), self.rules == "peer")
        _check_base_rtt(self.base_rtt)
        return RoceTransport(
            **arguments(self, *AS_STATED),
            profile=self.profile or RoceTransport.profile,
            local_repair_ps=RoceTransport.local_repair_ps
            if self.local_repair is None
            else int(self.local_repair),
            convergence_ps=self._convergence_ps(),
            load_steps=self.load_steps or RoceTransport.load_steps,
            ties=self.ties or RoceTransport.ties,
            recovery=self.recovery or RoceTransport.recovery,
            failover_ps=RoceTransport.failover_ps if self.failover is None else int(self.failover),
        )

    def _convergence_ps(self) -> tuple[int, int]:
        """The shortest and the longest time that routing takes, ps."""
        return (
            BGP_PS if self.convergence is None else (self.convergence.low_ps, int(self.convergence))
        )


def _said(value: Any) -> str:
    """A key's value as an error names it."""
    return value.text() if isinstance(value, Quantity) else written(plain(value))


def _check_pmtu(pmtu: int, peer: bool) -> None:
    if not peer and pmtu not in PMTUS:
        raise InputError(f"transport.pmtu: {pmtu}; accepted: 1024, 2048, 4096 or 8192")
    _check_bytes("pmtu", pmtu, PEER_PMTU_MIN, PEER_PMTU_MAX)


def _check_bytes(key: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InputError(f"transport.{key}: {value}; accepted: {least} to {most}")


def _check_base_rtt(base_rtt: int | None) -> None:
    if base_rtt is not None and base_rtt < 1:
        raise InputError('transport.base_rtt: 0ps; accepted: 1 ps or more, or "auto"')


AnyTransport = TransportSection | RoceSection
# Keys of [fabric] that RoCEv2 ignores, with their values by default.
MRC_ALONE: dict[str, Any] = {
    "trim": True,
    "ecn_low": 0.2,
    "ecn_high": 0.8,
    "ecn_last_hop": False,
    "forwarding": "arithmetic",
    "dscp": DEFAULT.text,
}


def refuse_idle(fabric: FabricSection, transports: Sequence[AnyTransport]) -> None:
    """Raise `InputError` for a key of `[fabric]` that no transport uses, and for `trim_nack` where
    nothing is trimmed.
    """
    for number, each in enumerate(transports):
        if isinstance(each, RoceSection) or each.trim_nack:
            continue
        if not (fabric.trim if each.trim is None else each.trim):
            place = "transport" if len(transports) == 1 else f"transport[{number}]"
            raise InputError(
                f"{place}.trim_nack: false does nothing: no switch trims; leave it out"
            )
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
    for key in DEPTHS:
        value = getattr(fabric, key)
        if value is not None and all(each.pfc for each in roce):
            raise InputError(
                f"fabric.{key}: {value.text()} does nothing: with pfc = true queues have no end;"
                ' leave it out, or "auto", or set pfc = false'
            )


def refuse_convergence(fabric: Fabric, transports: Sequence[AnyTransport]) -> None:
    """Raise `InputError` for a time of convergence, or of local repair, or a rule of choice where
    routing, or a switch, has no choice; and for one of planes where NICs have none.
    """
    one_path = fabric.n_paths(0, fabric.n_nics - 1, 0) == 1
    idle = ["local_repair", "load_steps", "ties"] if one_path else []
    where = "a plane of this fabric" if fabric.n_planes > 1 else "this fabric"
    why = dict.fromkeys(
        ("convergence", *idle), f"{where} has one path between two NICs, and no routing"
    )
    if fabric.n_planes == 1:
        idle += ["convergence"] if one_path else []
        idle += ["failover"]
        why["failover"] = "this fabric has one plane"
    for number, each in enumerate(transports):
        place = "transport" if len(transports) == 1 else f"transport[{number}]"
        if one_path and isinstance(each, MrcSection) and each.routing != Transport.routing:
            raise InputError(
                f"{place}.routing: {written(each.routing)} does nothing: {where} has one path"
                " between two NICs; leave it out"
            )
        for key in idle:
            if (value := getattr(each, key, None)) is not None:
                raise InputError(
                    f"{place}.{key}: {_said(value)} does nothing: {why[key]}; leave it out,"
                    ' or "auto"'
                )


TRANSPORTS: dict[str, Any] = {section.kind: section for section in (TransportSection, RoceSection)}


def label_of(table: dict[str, Any]) -> Any:
    """Return a transport's name: the stated one, else MRC's `paths`, else its kind."""
    if table.get("kind", TransportSection.kind) == TransportSection.kind:
        return table.get("name", table.get("paths", TransportSection.kind))
    return table.get("name", table["kind"])
