"""`[workload]` with `kind = "jobs"`: several workloads at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from openmrc.errors import InputError
from openmrc.scenario.sections import Label, Section
from openmrc.scenario.toml import Time, write_table
from openmrc.scenario.workload import WorkloadSection

if TYPE_CHECKING:
    from openmrc.traffic.traffic import Traffic

TRAINING = "training"
Placement = Annotated[str, Meta(min_length=1)]  # of a job; a list of numbers becomes such text


class JobSection(Section, frozen=True, kw_only=True):
    """One `[[workload.job]]`: where it runs and when it starts; `work` is its other keys."""

    name: Label
    nics: Placement = "all"
    start: Time = Time(0)


class Jobs(WorkloadSection, frozen=True, kw_only=True):
    """Several workloads at the same time, each on NICs of its own choice."""

    kind: ClassVar[str] = "jobs"
    whole: ClassVar[str] = "all jobs finished after"
    job: tuple[tuple[JobSection, WorkloadSection], ...]

    def build(self, n_nics: int, seed: int) -> Traffic:
        from openmrc.workload.jobs import several_jobs

        return several_jobs(
            [self._job(index, n_nics, seed) for index in range(len(self.job))], n_nics
        )

    def _job(self, index: int, n_nics: int, seed: int) -> Any:
        from openmrc.workload.jobs import Job, read_nics

        job, work = self.job[index]
        place = f"workload.job[{index}]"
        if work.kind == TRAINING:
            raise InputError(
                f"{place}.kind: {work.kind!r}: only mrc day knows several training jobs; a run has"
                f" one, [workload] with kind = {work.kind!r}"
            )
        try:
            nics = read_nics(job.nics, n_nics)
        except InputError as error:
            raise error.at(f"{place}.nics") from None
        try:
            traffic = work.build(len(nics), _seed_of(seed, index))
        except InputError as error:
            key = str(error).removeprefix("workload")
            raise InputError(
                f"{place}{key}" if key.startswith(".") else f"{place}: {error}"
            ) from None
        return Job(job.name, traffic, nics, job.start)

    def tables(self) -> list[str]:
        return [
            f'[workload]\nkind = "{self.kind}"\n',
            *(
                write_table(
                    "[[workload.job]]",
                    work,
                    name=job.name,
                    nics=job.nics,
                    start=job.start,
                    kind=work.kind,
                )
                for job, work in self.job
            ),
        ]


def _seed_of(seed: int, job: int) -> int:
    """Return the seed of a job: each draws independently."""
    import numpy as np

    return int(np.random.SeedSequence([seed, job]).generate_state(1, np.uint64)[0] >> 1)


JOB_KEYS = tuple(field.name for field in msgspec.structs.fields(JobSection))
