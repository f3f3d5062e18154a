"""Why a run was slow, or died: the places that broke, as its senders and ports tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from openmrc.errors import InputError
from openmrc.ops import words
from openmrc.ops.diagnose.findings import findings
from openmrc.ops.finding import Finding, Window
from openmrc.ops.headline import Bad, Headline, headline
from openmrc.ops.records import Record

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Answer:
    """The answer about one transport."""

    transport: str
    knows: bool  # whether its senders keep an account of paths; if not, ports alone tell
    headline: Headline
    findings: tuple[Finding, ...]
    text: str

    def as_json(self) -> dict[str, Any]:
        """Return the object that `mrc why --json` prints."""
        return {
            "transport": self.transport,
            "paths_known": self.knows,
            "nothing_broke": self.knows and not self.findings,
            **self.headline.as_json(),
            "findings": [asdict(finding) for finding in self.findings],
            "text": self.text,
        }


def why(
    record: Record, job: str | None = None, step: int | None = None, since_us: float = 0.0
) -> Answer:
    """Return why a run was slow: as a whole, from a time on, in a step, or for a job.

    Raises `InputError` for a job or step that does not exist.
    """
    from_us, until_us = _window(record, step, since_us)
    flows = _flows_of(record, job)
    opening = words.opening(record, flows, job, step)
    if not record.is_recorded:
        head = headline((), record.spoken, "What broke is not known.")
        return Answer(record.name, False, head, (), f"{opening} {words.unknown(record)}")
    qps = None if job is None else set(flows["qp"].to_list())
    window = Window(from_us, until_us, qps)
    found = tuple(sorted(findings(record, window), key=_harm))
    text = f"{opening} {words.told(record, window, found, flows)}"
    return Answer(record.name, record.account is not None, _headline(record, found), found, text)


def _headline(record: Record, found: Sequence[Finding]) -> Headline:
    unknown = ""
    if record.account is None:
        unknown = "Nothing broke that ports count."
    elif narrow := record.summary.get("narrow_paths"):
        unknown = f"A path is too narrow (MTU): {narrow[0].partition(':')[0]}."
    bad = [
        Bad(
            it.where, it.kind, it.dead, it.over, max(it.times, it.downs), it.one_of,
            it.narrow_bytes > 0, it.ends,
        )
        for it in found
    ]  # fmt: skip
    return headline(bad, record.spoken, unknown)


def _harm(it: Finding) -> tuple[bool, int, int]:
    """The sort key: what is certain first, then by paths avoided, then by losses."""
    return bool(it.one_of), -it.paths, -it.lost


def _window(record: Record, step: int | None, since_us: float) -> tuple[float, float]:
    import polars as pl

    if since_us > record.end_us:
        ended = f"{record.name} ended after {words.time(record.end_us)}"
        raise InputError(f"--since {words.time(since_us)}: {ended}; name an earlier time")
    if step is None:
        return since_us, float("inf")
    steps = record.steps
    if steps is None or not len(steps):
        raise InputError("--step: the run has no steps; only training has")
    if not 1 <= step <= len(steps):
        raise InputError(f"--step {step}: there are steps 1 to {len(steps)}")
    ends = [0.0, *steps.sort("step").with_columns(pl.col("end_us").fill_null(1e30))["end_us"]]
    return max(since_us, ends[step - 1]), ends[step]


def _flows_of(record: Record, job: str | None) -> pl.DataFrame:
    import polars as pl

    if job is None:
        return record.flows
    jobs = [name for name in record.flows["job"].unique().sort().to_list() if name is not None]
    if job not in jobs:
        there = ", ".join(jobs) if jobs else "none"
        raise InputError(f"--job {job}: is not there; the run's jobs: {there}")
    return record.flows.filter(pl.col("job") == job)
