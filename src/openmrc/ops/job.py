"""What failed while a torch job ran, from the records of its ranks (`OPENMRC_RECORD=DIR`).

Ranks know which paths to which peers were avoided, on which plane, and when; they know nothing of
switches. So a place is an end: a port that went down; a host's port on a plane, if all its peers
lost it; a plane, if most hosts did; or else the route from one host to another.

Jobs append to the files that are there, a restarted one to those of its first life. Each line names
its job, and each job is read on its own.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from openmrc.errors import InputError
from openmrc.ops.headline import Bad, Headline, headline
from openmrc.reading import BROKEN, fault, read_text

MOST = 0.5  # of the paths of a route: then the route failed, not single paths
RECORDS = "a directory of records (OPENMRC_RECORD=DIR)"
RECORD_BYTES_MAX = 1 << 30  # of a rank: some ten million lines
TIMES_MAX = {"t": 1e11, "at_us": 1e15}  # s since 1970; us since an endpoint started
# What a text that is no record does to its reader.
HOSTS_MIN = 3  # with two, a host's port cannot be told from the other's


@dataclass(frozen=True)
class Outage:
    """A path that was avoided: source and destination, plane, from when until when."""

    source: str  # host
    target: str
    plane: int
    path: tuple[int, int, int]  # rank, peer, EV
    since_s: float
    until_s: float | None  # None: it did not return


@dataclass(frozen=True)
class Trouble:
    """A place for which paths were avoided; times in seconds since 1970."""

    where: str
    since_s: float
    until_s: float | None
    paths: int
    back: int
    kind: str  # "plane", "host", "path", "port"


@dataclass(frozen=True)
class Job:
    """The records of the ranks of a job."""

    hosts: dict[int, str]  # by rank
    ways: dict[tuple[str, str, int], int]  # paths from host to host on a plane
    outages: tuple[Outage, ...]
    ports: tuple[Trouble, ...]  # that went down
    causes: tuple[str, ...]  # why ranks left, if because of a failure
    since_s: float
    until_s: float


def is_one(directory: Path) -> bool:
    """Whether ranks wrote records in this directory."""
    return any(directory.glob("rank-*.jsonl"))


def read(directory: Path) -> list[Job]:
    """Return the records of the ranks, job by job, the earliest first.

    Raises `InputError` for files that are not such records.
    """
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for file in sorted(directory.glob("rank-*.jsonl")):
        for number, text in enumerate(read_text(file, RECORDS, RECORD_BYTES_MAX).splitlines(), 1):
            try:
                line = _line(text)
            except BROKEN as error:
                why = fault(error)
                raise InputError(f"{file}:{number}: is no line of a record ({why})") from None
            if "job" not in line:
                older = "does not name its job, an older openmrc wrote it"
                raise InputError(f"{file}:{number}: {older}; record into a new directory")
            lines[str(line["job"])].append(line)
    try:
        return sorted(map(_job, lines.values()), key=lambda job: job.since_s)
    except BROKEN as error:
        raise InputError(f"{directory}: is no record of a job ({fault(error)})") from None


def _line(text: str) -> dict[str, Any]:
    line = json.loads(text)
    at = {key: float(line[key]) for key in TIMES_MAX if key in line}
    if not all(0 <= at[key] <= TIMES_MAX[key] for key in at):
        raise ValueError(f"its times: {at}")
    return dict(line | at | {"rank": int(line["rank"]), "event": str(line["event"])})


def _job(lines: Sequence[dict[str, Any]]) -> Job:
    hosts: dict[int, str] = {}
    ways: dict[tuple[str, str, int], int] = defaultdict(int)
    for line in lines:
        if line["event"] == "joined":
            hosts[line["rank"]] = str(line["host"])
            for peer, told in line["peers"].items():
                hosts.setdefault(int(peer), str(told["host"]))
                for plane, paths in told["paths"].items():
                    ways[str(line["host"]), str(told["host"]), int(plane)] += int(paths)
    if not hosts:
        raise ValueError("nobody joined")
    times = [line["t"] for line in lines]
    return Job(
        hosts,
        dict(ways),
        tuple(_outages(lines, hosts)),
        tuple(_ports(lines, hosts)),
        tuple(dict.fromkeys(str(x["cause"]) for x in lines if x.get("cause"))),
        min(times),
        max(times),
    )


def _when(lines: Iterable[dict[str, Any]]) -> dict[int, float]:
    """By rank, when its endpoint's clock began. Events are noticed late, and never early."""
    began: dict[int, float] = {}
    for line in lines:
        if "at_us" in line:
            start_s = line["t"] - float(line["at_us"]) / 1e6
            began[line["rank"]] = min(began.get(line["rank"], start_s), start_s)
    return began


def _outages(lines: Sequence[dict[str, Any]], hosts: dict[int, str]) -> Iterable[Outage]:
    began, since = _when(lines), dict[tuple[int, int, int], tuple[int, float]]()

    def outage(path: tuple[int, int, int], until_s: float | None) -> Outage:
        plane, since_s = since.pop(path)
        rank, peer, _ = path
        return Outage(hosts[rank], hosts[peer], plane, path, since_s, until_s)

    for line in lines:
        if line["event"] not in ("path_bad", "path_revived") or line["peer"] is None:
            continue
        path = (line["rank"], int(line["peer"]), int(line["ev"]))
        at_s = began[line["rank"]] + float(line["at_us"]) / 1e6
        if line["event"] == "path_bad":
            since.setdefault(path, (int(line["plane"]), at_s))
        elif path in since:
            yield outage(path, at_s)
    for path in list(since):
        yield outage(path, None)


def _ports(lines: Sequence[dict[str, Any]], hosts: dict[int, str]) -> Iterable[Trouble]:
    began, since = _when(lines), dict[tuple[str, int], float]()
    found: dict[tuple[str, int], Trouble] = {}
    for line in lines:
        if line["event"] not in ("port_down", "port_up"):
            continue
        host, plane = hosts[line["rank"]], int(line["plane"])
        at_s = began[line["rank"]] + float(line["at_us"]) / 1e6
        if line["event"] == "port_down":
            since.setdefault((host, plane), at_s)
        elif (host, plane) in since:
            where = f"port {plane} of host {host}"
            found[host, plane] = Trouble(where, since.pop((host, plane)), at_s, 0, 0, "port")
    yield from found.values()
    for (host, plane), at_s in since.items():
        yield Trouble(f"port {plane} of host {host}", at_s, None, 0, 0, "port")


# --- where


def troubles(job: Job, since_s: float = 0.0) -> list[Trouble]:
    """Return the places, that with the most paths avoided first; only those that were still bad
    `since_s` seconds into the job.
    """
    from_s = job.since_s + since_s
    outages = [it for it in job.outages if it.until_s is None or it.until_s >= from_s]
    found = [port for port in job.ports if port.until_s is None or port.until_s >= from_s]
    for plane in sorted({it.plane for it in outages}):
        found += _of_plane(job, plane, [it for it in outages if it.plane == plane])
    return sorted(found, key=lambda it: (-it.paths, it.since_s, it.where))


def _of_plane(job: Job, plane: int, outages: list[Outage]) -> list[Trouble]:
    ways = {(a, b): n for (a, b, p), n in job.ways.items() if p == plane}
    lost = defaultdict(set)
    for it in outages:
        lost[it.source, it.target].add(it.path)
    dead = {way for way, paths in lost.items() if len(paths) > MOST * ways.get(way, len(paths))}
    hosts = sorted({host for way in ways for host in way})
    of_host = {host: {way for way in ways if host in way} for host in hosts}
    bad = [host for host in hosts if of_host[host] <= dead]
    found, left = [], list(outages)
    if len(hosts) >= HOSTS_MIN and len(bad) > MOST * len(hosts):
        return [_trouble(f"plane {plane}", "plane", left)]
    for host in bad if len(hosts) >= HOSTS_MIN else ():
        mine = [it for it in left if host in (it.source, it.target)]
        found.append(_trouble(f"host {host} on plane {plane}", "host", mine))
        left = [it for it in left if it not in mine]
    by_way: dict[tuple[str, str], list[Outage]] = defaultdict(list)
    for it in left:
        by_way[it.source, it.target].append(it)
    for (source, target), mine in sorted(by_way.items()):
        back = by_way.get((target, source))
        if back is None:
            where = f"the way from {source} to {target} on plane {plane}"
            found.append(_trouble(where, "path", mine))
        elif source < target:
            where = f"the way between {source} and {target} on plane {plane}"
            found.append(_trouble(where, "path", mine + back))
    return found


def _trouble(where: str, kind: str, outages: Sequence[Outage]) -> Trouble:
    paths = {it.path for it in outages}
    gone = {it.path for it in outages if it.until_s is None}
    ends = [it.until_s for it in outages if it.until_s is not None]
    until_s = None if gone else max(ends)
    since_s = min(it.since_s for it in outages)
    return Trouble(where, since_s, until_s, len(paths), len(paths - gone), kind)


# --- text


def lines(job: Job, found: Sequence[Trouble]) -> list[str]:
    """Return the lines that `mrc why` prints: the headline, and a paragraph."""
    return [*_headline(job, found).lines(str), text(job, found)]


def _headline(job: Job, found: Sequence[Trouble]) -> Headline:
    bad = [Bad(it.where, it.kind, True, it.until_s is not None) for it in found]
    return headline(bad, str, f"The job failed: {job.causes[0]}." if job.causes else "")


def text(job: Job, found: Sequence[Trouble]) -> str:
    """Return the paragraph."""
    n_hosts = len(set(job.hosts.values()))
    said = [
        f"A job of {len(job.hosts)} ranks on {n_hosts} host{'s' * (n_hosts > 1)} ran for"
        f" {job.until_s - job.since_s:.1f} s from {_clock(job.since_s)} on."
    ]
    said += [_sentence(job, it) for it in found]
    if not found and not job.ways:
        said.append("Its ranks share memory: no packet was sent.")
    elif not found:
        said.append("No path was avoided.")
    said += [f"It failed: {cause}." for cause in job.causes[:1]]
    if found and not job.causes:
        said.append("No rank failed.")
    return " ".join(said)


def _sentence(job: Job, it: Trouble) -> str:
    what = f"{it.where[0].upper()}{it.where[1:]}"
    since = f"{_clock(it.since_s)} ({it.since_s - job.since_s:.1f} s into it)"
    if not it.paths:
        return f"{what} was down from {since} {_until(it.until_s)}."
    paths = f"{it.paths:,} path{'s were' if it.paths != 1 else ' was'} avoided"
    if it.until_s is not None:
        after = f"and {'all are' if it.paths != 1 else 'it is'} back since {_clock(it.until_s)}"
    else:
        after = f"and {it.back or 'none'} {'are' if it.back > 1 else 'is'} back"
    return f"{what}: {paths} from {since} on, {after}."


def _until(until_s: float | None) -> str:
    return "on" if until_s is None else f"to {_clock(until_s)}"


def _clock(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(at_s)) + f".{int(at_s * 10) % 10} UTC"


def as_json(job: Job, found: Sequence[Trouble]) -> dict[str, Any]:
    """Return the object that `mrc why --json` prints."""
    return {
        "ranks": len(job.hosts),
        "hosts": sorted(set(job.hosts.values())),
        "since_s": job.since_s,
        "until_s": job.until_s,
        "nothing_broke": not found and not job.causes,
        **_headline(job, found).as_json(),
        "findings": [asdict(it) for it in found],
        "failed": list(job.causes),
        "text": text(job, found),
    }
