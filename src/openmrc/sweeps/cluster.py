"""Jobs on a Dask cluster: its scheduler is at an address, its workers have openmrc installed."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from openmrc.errors import InputError, MissingExtra
from openmrc.sweeps.job import Job, Outcome, run_job

CONNECT_S = 10  # an available scheduler answers within milliseconds


def run_on_cluster(jobs: Iterable[Job], address: str) -> Generator[tuple[Job, Outcome], None, None]:
    """Run `jobs` on the cluster whose scheduler is at `address`; yield each outcome as it arrives.

    The cluster handles workers that die: it retries elsewhere, and gives up in time. Raises
    `MissingExtra` without Dask, `InputError` if no scheduler answers.
    """
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise MissingExtra("a sweep on a Dask cluster", "dask") from None
    try:
        client = Client(address, timeout=CONNECT_S)
    except (OSError, ValueError) as error:
        why = str(error) or type(error).__name__
        raise InputError(
            f"dask: no scheduler answers at {address!r} ({why}); such as tcp://10.0.0.1:8786"
        ) from None
    with client:
        futures = {client.submit(run_job, job, pure=False): job for job in jobs}
        try:
            for future in as_completed(list(futures)):
                job = futures.pop(future)
                try:
                    outcome = future.result()
                except Exception as error:  # of the cluster: errors of the job are in its outcome
                    outcome = Outcome(error=" ".join(f"{type(error).__name__}: {error}".split()))
                yield job, outcome
        finally:
            client.cancel(list(futures))
