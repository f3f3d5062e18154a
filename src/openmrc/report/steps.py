"""What a training job's report says: a table of steps, sentences, and the curves of the page."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from openmrc.run.outcome import TransportResult
from openmrc.run.results import Result
from openmrc.run.training import TrainingResult
from openmrc.units import MS, US, S, fmt_time

# (heading, unit) of each column, in the order of `row`.
COLUMNS = (
    ("training over", ""),
    ("steps completed", ""),
    ("time of a step, p50", "ms"),
    ("time of a step, p100", "ms"),
    ("ideal step, compute alone", "ms"),
    ("ideal step, perfect network", "ms"),
    ("GPU time lost to the network", "%"),
    ("GPU time computing", "%"),
    ("job died", ""),
)


def rows(result: Result) -> list[list[str]]:
    """Return one row for each transport that trained; none for other workloads."""
    return [row(run.name, run.training) for run in result.transports if run.training is not None]


def row(name: str, job: TrainingResult) -> list[str]:
    """Return one transport's cells, as text."""
    figures = job.summary()
    step_us, ideal_us, steps = (figures[k] for k in ("step_us", "ideal_step_us", "steps"))
    died = "no" if job.died_ps is None else f"in step {job.died_in_step}"
    return [
        name,
        f"{steps['completed']} of {steps['total']}",
        *(_ms(us) for us in (step_us["p50"], step_us["p100"], *ideal_us.values())),
        _percent(figures["lost_to_network"]),
        _percent(figures["gpu_busy"]),
        died,
    ]


def sentences(run: TransportResult) -> list[str]:
    """Return the outcome of the job of one transport: an error that ended it, and the expectation
    of a day.
    """
    job = run.training
    if job is None:
        return []
    said = []
    if job.died_ps is not None:
        lost = job.restarts.lost_ps(job.died_ps)
        said.append(
            f"DIED: the job of {run.name} ended in step {job.died_in_step} of {len(job.ends_ps)},"
            f" after {rounded(job.died_ps)}: {_why(run)} It loses {lost / S:,.0f} s: the work"
            " since the last checkpoint, and the restart."
        )
    day = job.summary()["a_day"]
    if day["faults"] is not None:
        part = ""
        if day["goodput"] is not None:
            share = f"{day['goodput']:.1%}"
            part = f", and it does {share} of the work possible without network and errors"
        said.append(
            f"{run.name}: with the faults of {day['faults']:g} such runs a day the job dies"
            f" {day['deaths']:g} times a day; {day['useful']:.1%} of its time is useful{part}."
        )
    return said


def page_data(job: TrainingResult | None) -> dict[str, Any] | None:
    """Return what the page draws of one transport: the time of each step, us."""
    if job is None:
        return None

    def each(ends_ps: Any) -> list[float]:
        values = [0, *ends_ps.tolist()]
        return [(b - a) / US for a, b in pairwise(values)]

    return {
        "steps": len(job.ends_ps),
        "us": [ps / US for ps in job.step_ps.tolist()],
        "compute": each(job.compute_ends_ps),
        "network": each(job.network_ends_ps),
        "died": job.died_in_step,
    }


def _ms(us: float | None) -> str:
    return "-" if us is None else f"{us * US / MS:,.3f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _why(run: TransportResult) -> str:
    return f"{run.qp_errors[0]}." if run.qp_errors else "a queue pair went to error."


def rounded(ps: int) -> str:
    """Return a time to four significant figures."""
    keep = 10 ** max(0, len(str(ps)) - 4)
    return fmt_time(round(ps / keep) * keep)
