"""Every parameter of the protocol, once: its default, unit, range, and source.

One line here yields the key of `[transport]` in a scenario, the field of the simulator's
`Transport` and of a live device's `Limits`, and the field of CONFIG that compiled code reads, all
of the same name. Only the code that uses the parameter remains to be written. A time ends in `_ps`
here and in CONFIG; in a scenario it has no such suffix, because the value carries its unit.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from openmrc.engine.packet import MPR_UNIT

PMTUS = (1024, 2048, 4096, 8192)  # row 20
MPR_MIN, MPR_MAX = 512, 255 * MPR_UNIT  # row 16; MRC 1.5: the largest range of PSNs on the wire
RTO_UNIT_PS = 1_024_000  # row 9
BURST_MAX = 64  # segments that Linux takes in one datagram
# port masks are 32 bits wide on the wire (MRC 2.10); sixteen ports is twice the largest NIC known
PLANES_MAX = 16


def stated(
    default: Any,
    source: str,
    unit: str = "",
    *,
    least: int | None = None,
    most: int | None = None,
    step: int | None = None,
    only: str = "",
    key: bool = True,
    record: bool = True,
) -> Any:
    """Return the field of a parameter: an integer from `least` to `most`, a multiple of `step`, or
    a boolean.

    `only` is the choice of `paths` that the parameter belongs to; `key` says that a scenario may
    set it, `record` that CONFIG holds it as it is.
    """
    about = {"source": source, "unit": unit, "least": least, "most": most, "step": step}
    return field(default=default, metadata=about | {"only": only, "key": key, "record": record})


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The parameters of an endpoint in either world."""

    evs_active: int = stated(128, "row 12", "EVs", least=1, most=4096, record=False)
    evs_backup: int = stated(64, "row 12", "EVs", least=0, most=4096, record=False)
    pmtu: int = stated(4096, "row 20", "bytes")
    # None: from the bandwidth-delay product, at least MPR_MIN
    mpr: int | None = stated(
        None, "row 16", "packets", least=MPR_UNIT, most=MPR_MAX, step=MPR_UNIT, record=False
    )
    sack_bytes: int = stated(16_384, "row 5", "bytes", least=1, most=2**31 - 1)
    rto_exponent: int = stated(8, "row 9", "log2(1.024 us)", least=0, most=30, record=False)
    linear_cnt: int = stated(7, "row 9", "RTOs", least=0, most=255)
    exp_cnt: int = stated(10, "row 9", "RTOs", least=0, most=25)  # 25: for ever
    max_wimm: int = stated(128, "MRC 1.8", "messages", least=1, most=MPR_MAX, key=False)
    # False: trimmed headers are not answered, so peers send NO_TRIM
    trim_nack: bool = stated(True, "MRC 1.9")
    dynamic_mpr: bool = stated(False, "MRC 1.5")
    # QPs to one destination share one window, in place of one for each
    share_window: bool = stated(False, "row 24")
    # new packets in a row on one EV, so that the kernel takes them together; at most the plane's
    # share of what may be sent now
    burst: int = stated(1, "rotation.py", "packets", least=1, most=BURST_MAX, key=False)

    def evs_per_plane(self, planes: int) -> tuple[int, int]:
        """Active and backup EVs of each plane: equal numbers on each plane, and at least one
        active.
        """
        return max(self.evs_active // planes, 1), self.evs_backup // planes


@dataclass(frozen=True, kw_only=True)
class Variants(Parameters):
    """The parameters of an endpoint in the simulator only; a live endpoint keeps the defaults."""

    paths: str = stated("mrc", "MRC 3.4", record=False)  # a name in policy.PATHS, or a user's own
    cc: str = stated("nscc", "MRC 4.6", record=False)  # the same in policy.CONGESTION
    shuffle_rounds: int = stated(64, "row 13", "rounds", least=1, key=False)
    # CE marks in a row on one EV; 0: never
    always_skip_after: int = stated(0, "row 23", "packets", least=0, most=1_000_000, only="mrc")
    # turns that a marked path loses: a number, or one of `policy.SKIP_TURNS`; None: by `rules`
    skip_turns: int | str | None = stated(
        None, "row 13", "turns", least=1, most=127, only="mrc", record=False
    )
    # True: a path carries data only after it has answered a probe, also at the start
    check_paths: bool = stated(False, "row 36", only="mrc")
    # False: a CE mark affects the window only, and makes no EV SKIP
    ecn_skip: bool = stated(True, "MRC 3.3", record=False)
    # how long REPS stays frozen after a loss: the value of its authors' own simulator
    freezing_ps: int = stated(10_000_000_000, "reps.py", "ps", only="reps")


RECORDED = [
    (each.name, "i1" if isinstance(each.default, bool) else "i8")
    for each in fields(Variants)
    if each.metadata["record"]
]


def completed(given: Parameters) -> Variants:
    """Return these parameters, with defaults for those that their world does not have."""
    values: dict[str, Any] = {
        each.name: getattr(given, each.name, each.default) for each in fields(Variants)
    }
    return Variants(**values)
