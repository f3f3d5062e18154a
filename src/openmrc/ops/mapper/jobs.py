"""Which jobs run, on which NICs, and what each lost, by the counts of their own devices.

A device with a job's name reports the totals of all its queue pairs to the controller once a
second. A job without reports for `OVER_US` is over; if its name comes again, it is another job.
Each device draws a random identifier, so several of one NIC add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from openmrc.errors import InputError
from openmrc.fabric import places as fabric_places
from openmrc.fabric.model import Fabric
from openmrc.ops.mapper.history import JobRow, Row

OVER_US = 10 * 10**6
NAME_MAX, WORD_MAX = 128, 32  # characters
JOBS_MAX = 1024  # at once
DEVICES_MAX = 1 << 17  # of all jobs
COUNT_MAX = 1 << 62
COUNTS = ("sent", "again", "set_aside")
TOLD_MAX = 4


class Counts(NamedTuple):
    """The counts of one device."""

    nic: int
    sent: int
    again: int
    set_aside: int


@dataclass
class _Job:
    since_us: int
    last_us: int
    of: dict[str, Counts] = field(default_factory=dict)


class Jobs:
    """The jobs of a fabric that run now."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._jobs: dict[str, _Job] = {}

    def hear(self, now_us: int, row: Mapping[str, Any]) -> None:
        """Process a device's report; `InputError` if it is invalid, or there are too many
        devices.
        """
        name, word = _text(row, "job", NAME_MAX), _text(row, "device", WORD_MAX)
        nic = _count(row, "nic", self._fabric.n_nics)
        counts = Counts(nic, *(_count(row, key, COUNT_MAX) for key in COUNTS))
        job = self._jobs.get(name)
        if job is None and len(self._jobs) >= JOBS_MAX:
            raise InputError(f"{JOBS_MAX} jobs run already")
        is_new = job is None or word not in job.of
        if is_new and sum(len(one.of) for one in self._jobs.values()) >= DEVICES_MAX:
            raise InputError(f"{DEVICES_MAX} devices tell of jobs already")
        if job is None:
            job = self._jobs[name] = _Job(now_us, now_us)
        job.last_us = now_us
        job.of[word] = counts

    def over(self, now_us: int) -> list[JobRow]:
        """Remove the jobs that are over, and return them."""
        gone = [name for name, one in self._jobs.items() if now_us - one.last_us > OVER_US]
        return [_row(name, self._jobs.pop(name), True) for name in gone]

    def rows(self) -> list[JobRow]:
        """Return the jobs that run."""
        return [_row(name, one, False) for name, one in self._jobs.items()]


def _row(name: str, job: _Job, is_over: bool) -> JobRow:
    nics = sorted({one.nic for one in job.of.values()})
    sums = [sum(getattr(one, key) for one in job.of.values()) for key in COUNTS]
    until_us = job.last_us if is_over else None
    return JobRow(name, job.since_us, job.last_us, until_us, _ranges(nics), *sums)


def _ranges(nics: Sequence[int]) -> str:
    """NICs as places name them: "0-3,8"."""
    found: list[list[int]] = []
    for nic in nics:
        if found and found[-1][1] == nic - 1:
            found[-1][1] = nic
        else:
            found.append([nic, nic])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def reached(fabric: Fabric, job: JobRow, rows: Iterable[Row]) -> list[str]:
    """Return the places that lost probes while a job ran and that its packets may cross: links of
    its NICs, and of their T0s if it has several.
    """
    nics = fabric_places.nics(fabric, job.nics)
    t0s = {int(fabric.port_peer_switch[nic * fabric.n_planes]) for nic in nics.tolist()}
    indices = {int(fabric.sw_index[t0]) for t0 in t0s}
    own = set(nics.tolist())
    found = []
    for row in rows:
        ended = row.last_us if row.until_us is None else row.until_us
        if ended < job.since_us or (job.until_us is not None and row.since_us > job.until_us):
            continue
        for port in fabric_places.ports(fabric, row.place).tolist():
            ends = {int(fabric.port_nic[port]), int(fabric.port_peer_nic[port])} - {-1}
            switches = {int(fabric.port_switch[port]), int(fabric.port_peer_switch[port])} - {-1}
            t0_ends = {int(fabric.sw_index[one]) for one in switches if fabric.sw_tier[one] == 0}
            if ends & own or (not ends and len(indices) > 1 and t0_ends & indices):
                found.append(row.place)
                break
    return list(dict.fromkeys(found))


def _text(row: Mapping[str, Any], key: str, longest: int) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= longest or not value.isprintable():
        raise InputError(f"{key}: up to {longest} printable characters are accepted")
    return value


def _count(row: Mapping[str, Any], key: str, most: int) -> int:
    value = row.get(key)
    if type(value) is not int or not 0 <= value < most:
        raise InputError(f"{key}: a whole number below {most} is accepted")
    return value
