"""What to measure. The client decides; the server follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from openmrc.errors import InputError
from openmrc.say import number

BW, LAT = "write_bw", "write_lat"
SIZE = {BW: 65_536, LAT: 2}  # perftest's defaults, as are those below
ITERATIONS = {BW: 5000, LAT: 1000}
TX_DEPTH = 128
ALL_SIZES = tuple(1 << i for i in range(1, 24))  # 2 B .. 8 MB
SIZE_MAX = 1 << 30
ITERATIONS_MAX = 100_000_000
DURATION_MAX_S = 7 * 86_400.0
DEPTH_MAX = 256  # `Limits.send_depth`
QPS_MAX = 63  # `Limits.qps`, less one for the channel
BUFFER_MAX = 4 << 30  # bytes of all QPs' messages at an end
# Fields of a peer's plan, and their types here.
KINDS: dict[str, Callable[[Any], Any]] = {
    "test": str,
    "sizes": lambda sizes: tuple(map(int, sizes)),
    "duration_s": float,
    **dict.fromkeys(("iterations", "qps", "tx_depth"), int),
    "bidirectional": bool,
}


def _within(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InputError(f"{name} {number(value)}: {number(least)} to {number(most)} is accepted")


@dataclass(frozen=True)
class Plan:
    """One call of the client. Either `iterations` (messages of a QP) or `duration_s` is 0."""

    test: str
    sizes: tuple[int, ...]
    iterations: int
    duration_s: float
    qps: int = 1
    tx_depth: int = TX_DEPTH
    bidirectional: bool = False

    def __post_init__(self) -> None:
        if self.test not in (BW, LAT):
            raise InputError(f"test {self.test!r}: {BW} and {LAT} are accepted")
        _within("--size", min(self.sizes, default=0), 1, SIZE_MAX)
        _within("--size", max(self.sizes), 1, SIZE_MAX)
        _within("--qps", self.qps, 1, QPS_MAX)
        _within("--tx-depth", self.tx_depth, 1, DEPTH_MAX)
        if self.duration_s:
            _within("--duration", self.duration_s, 0.01, DURATION_MAX_S)
        else:
            _within("--iters", self.iterations, 1, ITERATIONS_MAX)
        if self.buffer_bytes > BUFFER_MAX:
            raise InputError(
                f"--qps {self.qps} with --size {max(self.sizes)}: up to {BUFFER_MAX >> 30} GiB of"
                " buffers are accepted"
            )

    @property
    def buffer_bytes(self) -> int:
        """Bytes registered at each end: room for a message of each QP."""
        return self.qps * max(self.sizes)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan for JSON."""
        return asdict(self)

    @classmethod
    def of(cls, told: Any) -> Plan:
        """Parse a plan that a peer sent; `InputError` if it is invalid."""
        if not isinstance(told, dict) or told.keys() != KINDS.keys():
            raise InputError("the peer is no `mrc perf` of this version")
        try:
            return cls(**{name: kind(told[name]) for name, kind in KINDS.items()})
        except (TypeError, ValueError):
            raise InputError("the peer's plan is not understood") from None
