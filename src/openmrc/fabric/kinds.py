"""The vocabulary of faults: what may break, where, when and how badly.

A fault is a kind, one or several places (see `places`), and a time: from `at` on, for a duration or
without an end; repeatedly (`period`, `duty`); or at random (`mtbf`, `mttr`), each thing
independently. Random times are drawn from a seed.

    link-down                  a link, both directions or one
    link-loss                  packets on a link are lost at random, at `rate`, maybe in bursts
    link-corrupt               packets on a link are damaged at `rate`: the receiving NIC discards
    link-slow                  a link sends at `factor` of its rate
    mtu                        a link silently loses all packets longer than `mtu`
    link-construction          links come and go from the very start: at random, in equilibrium
    transceiver-down           all links of a transceiver at once
    port-down                  a NIC's port: both directions of its link
    switch-down                a switch, and with it all of its links
    switch-silent              a switch that is up and forwards nothing
    deny                       paths across a plane, a switch or a link are denied to the NICs
    link-up, transceiver-up, port-up, switch-up, allow      end those that have no other end

`holds` defines how several faults on the same thing combine: what is down, silent or denied stays
so until the last of them ends; of several rates the one that began last applies, so that
`rate = 0`, `factor = 1` or `mtu = 65535` ends one. A fault without a duration lasts until an "-up"
or `allow` names its place; an end that ends nothing is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from openmrc.errors import InputError
from openmrc.fabric.actions import MTU_WHOLE, PORT_CORRUPT, PORT_LOSS, PORT_MTU, PORT_RATE
from openmrc.units import fmt_time

EFFECTS = range(8)  # the ways in which a fault holds a target
CUT, LOSS, CORRUPT, SLOW, NARROW, DEAD, SILENT, DENY = EFFECTS


class Rated(NamedTuple):
    """An effect that sets a number of a port: the action and key that set it, how a state says it,
    the number without a fault, and whether packets are lost.
    """

    action: int
    key: str
    word: str
    whole: float = 0.0
    loses: bool = True


RATED = {
    LOSS: Rated(PORT_LOSS, "rate", "loses"),
    CORRUPT: Rated(PORT_CORRUPT, "rate", "corrupts"),
    SLOW: Rated(PORT_RATE, "factor", "rate x", 1.0, loses=False),
    NARROW: Rated(PORT_MTU, "mtu", "mtu", MTU_WHOLE),
}


class Kind(NamedTuple):
    """What a kind of fault does."""

    places: str  # what `where` names
    effect: int
    end: str  # what the kind that ends it is called


BEGINS = {
    "link-down": Kind("links", CUT, "link-up"),
    "link-loss": Kind("links", LOSS, "link-loss over"),
    "link-corrupt": Kind("links", CORRUPT, "link-corrupt over"),
    "link-slow": Kind("links", SLOW, "link-slow over"),
    "mtu": Kind("links", NARROW, "mtu over"),
    "link-construction": Kind("links", CUT, "link-construction over"),
    "transceiver-down": Kind("transceivers", CUT, "transceiver-up"),
    "port-down": Kind("NIC ports", CUT, "port-up"),
    "switch-down": Kind("switches", DEAD, "switch-up"),
    "switch-silent": Kind("switches", SILENT, "switch-up"),
    "deny": Kind("paths", DENY, "allow"),
}
ENDS = {kind.end: kind for kind in BEGINS.values() if " " not in kind.end}
KINDS = (*BEGINS, *ENDS)
LIFTED_TOGETHER = ((CUT,), (DEAD, SILENT), (DENY,))  # effects that one end ends together

MTU_MIN = 68  # bytes: every IP link carries as much
FACTOR_MIN = 0.001  # the simulator's wheel of events spans the longest transmission
LINKS_DEFAULT = 4  # of a transceiver: 800G as 4 x 200G


@dataclass(frozen=True, repr=False)
class Fault:
    """One fault as a user states it; times in picoseconds, None if not stated."""

    at_ps: int
    kind: str
    where: str | tuple[str, ...]  # places, one by one or with commas between them
    for_ps: int | None = None
    rate: float | None = None  # of link-loss, link-corrupt: the probability for each packet
    burst: float | None = None  # of link-loss: how many packets are lost in a row, on average
    factor: float | None = None  # of link-slow: the remaining fraction of the rate
    mtu: int | None = None  # of mtu: bytes of the longest IP packet that passes
    period_ps: int | None = None
    duty: float | None = None  # fraction of the period during which the fault lasts
    mtbf_ps: int | None = None  # mean time that a thing works between two failures
    mttr_ps: int | None = None  # mean time until it is repaired
    until_ps: int | None = None  # when a repeating fault stops; else at the horizon
    share: float | None = None  # only this fraction of the things named, drawn at random
    seed: int | None = None  # of the random draws; else the schedule's
    links: int | None = None  # links per transceiver, where it is named by number
    nics: str | None = None  # the NICs that a denial is for: "0-7, 12"; else all

    def __repr__(self) -> str:
        """Return the expression that recreates the fault, without the fields that are not
        stated.
        """
        stated = [f"{key}={value!r}" for key, value in vars(self).items() if value is not None]
        return f"Fault({', '.join(stated)})"

    @property
    def place(self) -> str:
        """`where` as one text."""
        return self.where if isinstance(self.where, str) else ", ".join(self.where)

    @property
    def what(self) -> Kind:
        """The effect that the fault's kind starts, or ends."""
        return BEGINS.get(self.kind) or ENDS[self.kind]

    @property
    def level(self) -> float | None:
        """The rate or factor that it sets, if its effect has one."""
        rated = RATED.get(self.what.effect)
        return None if rated is None else getattr(self, rated.key)

    @property
    def lasts_ps(self) -> int:
        """How long each time of a fault with a period lasts."""
        return round((self.period_ps or 0) * (self.duty or 0))

    @property
    def repeats(self) -> bool:
        """Whether it repeats: every period, or at random."""
        return self.period_ps is not None or self.mtbf_ps is not None


_TAKEN_BY = {  # keys that only some kinds have
    "rate": ("link-loss", "link-corrupt"),
    "burst": ("link-loss",),
    "factor": ("link-slow",),
    "mtu": ("mtu",),
    "links": ("transceiver-down", "transceiver-up"),
    "nics": ("deny", "allow"),
}
_NEEDED = {
    "rate": "a share of packets from 0 to 1",
    "factor": f"what is left of the rate, {FACTOR_MIN} to 1",
    "mtu": f"the longest IP packet that passes, {MTU_MIN} to {MTU_WHOLE} B",
}
_TOGETHER = (("period", "duty"), ("mtbf", "mttr"))


def check(fault: Fault) -> None:
    """Raise `InputError` that begins with the key ("rate: ...") for what is wrong in any fabric."""
    given = {
        name.removesuffix("_ps"): value
        for name, value in vars(fault).items()
        if value is not None and name not in ("at_ps", "kind", "where")
    }
    if fault.kind not in KINDS:
        raise InputError(f"kind: {fault.kind!r}; one of {', '.join(KINDS)} is accepted")
    if fault.at_ps < 0:
        raise InputError(f"at: {fault.at_ps} ps; 0 or later is accepted")
    for key, kinds in _TAKEN_BY.items():
        if key in given and fault.kind not in kinds:
            raise InputError(f"{key}: {fault.kind} has none, {' and '.join(kinds)} may; remove it")
        if key in _NEEDED and key not in given and fault.kind in kinds:
            raise InputError(f"{key}: is missing; {fault.kind} needs {_NEEDED[key]}")
    if fault.kind in ENDS:
        for key in given:
            if key not in _TAKEN_BY:
                raise InputError(f"{key}: {fault.kind} happens once, and is an end; remove it")
    _check_when(fault, given)
    _check_values(fault)


def _check_when(fault: Fault, given: dict[str, Any]) -> None:
    for key in ("for", "period", "mtbf", "mttr"):
        if key in given and given[key] <= 0:
            raise InputError(f"{key}: {given[key]} ps; a time above 0 is accepted")
    for one, other in (*_TOGETHER, *(pair[::-1] for pair in _TOGETHER)):
        if one in given and other not in given:
            raise InputError(f"{other}: is missing; {one} needs it")
    if fault.kind == "link-construction" and "mtbf" not in given:
        raise InputError("mtbf: is missing; link-construction needs mtbf and mttr")
    if "period" in given and "mtbf" in given:
        raise InputError("period: does not go with mtbf; remove one of them")
    if "for" in given and fault.repeats:
        key, remedy = ("period", "duty") if "period" in given else ("mtbf", "mttr")
        raise InputError(
            f"for: does not go with {key}; {remedy} and until say how long, so remove it"
        )
    if fault.duty is not None and not 0 < fault.duty < 1:
        raise InputError(f"duty: {fault.duty}; a share of the period above 0 and below 1 is needed")
    if fault.period_ps is not None and not 0 < fault.lasts_ps < fault.period_ps:
        raise InputError(
            f"duty: {fault.duty} of {fmt_time(fault.period_ps)}; at least 1 ps of fault and 1 ps"
            " without is needed"
        )
    if "until" in given and not fault.repeats:
        raise InputError("until: only what has a period or an mtbf repeats; remove it, or use for")
    if fault.until_ps is not None and fault.until_ps <= fault.at_ps:
        raise InputError(f"until: {fmt_time(fault.until_ps)}; a time after at is accepted")
    if "seed" in given and "share" not in given and "mtbf" not in given:
        raise InputError("seed: nothing is random without share or mtbf; remove it")
    if fault.seed is not None and fault.seed < 0:
        raise InputError(f"seed: {fault.seed}; 0 or above is accepted")


def _check_values(fault: Fault) -> None:
    if fault.rate is not None and not 0 <= fault.rate <= 1:
        raise InputError(f"rate: {fault.rate}; a share of packets from 0 to 1 is accepted")
    if fault.burst is not None:
        if fault.rate is None or not 0 < fault.rate < 1:
            raise InputError(f"burst: needs a rate above 0 and below 1, not {fault.rate}")
        least = max(1.0, fault.rate / (1 - fault.rate))
        if fault.burst < least:
            raise InputError(
                f"burst: {fault.burst}; {least:g} packets or more at a rate of {fault.rate}"
            )
    if fault.factor is not None and not FACTOR_MIN <= fault.factor <= 1:
        raise InputError(f"factor: {fault.factor}; {FACTOR_MIN} to 1 is accepted")
    if fault.mtu is not None and not MTU_MIN <= fault.mtu <= MTU_WHOLE:
        raise InputError(f"mtu: {fault.mtu} B; {MTU_MIN} to {MTU_WHOLE} B is accepted")
    if fault.share is not None and not 0 < fault.share <= 1:
        raise InputError(f"share: {fault.share}; a share above 0 and up to 1 is accepted")
    if fault.links is not None and fault.links < 1:
        raise InputError(f"links: {fault.links}; 1 or more is accepted")
