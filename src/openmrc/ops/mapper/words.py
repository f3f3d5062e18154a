"""The messages between agents and their controller: objects of JSON, which are validated.

The sender knows the job's secret, and may still be faulty, of another version, or hostile. A
message of any other form is an `InputError`, and ends the connection.

    agent       {"join": NIC, "schedule": {...}}   (the first message of the line names a key's NIC)
                {"report": {"at_us", "periods", "lost": [[number, turn, at_us], ...], "late": [...],
                            "bursts": [[burst, [lost row, ...], [unknown row, ...]], ...],
                            "rounds": [[turn, at_us, [number, ...] or null], ...],
                            "down": [plane, ...]}}
                {"counted": burst, "heard": [row, ...]}
    controller  {"welcome": version}, {"burst": number, "port": port, "n": n}, {"count": burst},
                {"denylist": {...}}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from openmrc.errors import InputError
from openmrc.ops.mapper.agent import REPORTED_MAX, BurstReport, Loss, Report, Round
from openmrc.ops.mapper.bursts import Count, Order
from openmrc.ops.schedule import BURST_MAX, TURNS, Schedule
from openmrc.units import US

BURSTS_MAX = ROUNDS_MAX = 1024  # of one report
NUMBER_MAX = 1 << 31
TIME_MAX_US = (1 << 62) // US
PERIODS_MAX = 1 << 20


class Reported(NamedTuple):
    """A report, and the planes whose ports are down at its sender."""

    report: Report
    down: tuple[int, ...]


class Counted(NamedTuple):
    """What an agent received of a burst."""

    report: BurstReport


def describe(schedule: Schedule) -> dict[str, int | str]:
    """Return what two ends must agree on to refer to the same probes."""
    fabric = schedule.fabric
    return {
        "probes": type(schedule).__name__,
        "nics": fabric.n_nics,
        "planes": fabric.n_planes,
        "ports": fabric.n_ports,
        "per_port": schedule.per_port,
        "k": schedule.k,
        "period_us": schedule.period_ps // US,
    }


def join(schedule: Schedule, nic: int) -> dict[str, Any]:
    """Return an agent's first message."""
    return {"join": nic, "schedule": describe(schedule)}


def said(report: Report, down: list[int]) -> dict[str, Any]:
    """Return a report as a message."""

    def losses(found: list[Loss]) -> list[list[int]]:
        return [[one.number, one.turn, one.at_ps // US] for one in found]

    return {
        "report": {
            "at_us": report.at_ps // US,
            "periods": report.periods,
            "lost": losses(report.lost),
            "late": losses(report.late),
            "bursts": [[one.burst, list(one.lost), list(one.unknown)] for one in report.bursts],
            "rounds": [[one.turn, one.at_ps // US, one.numbers] for one in report.rounds],
            "down": down,
        }
    }


def counted(report: BurstReport) -> dict[str, Any]:
    """Return what an agent received of a burst as a message."""
    return {"counted": report.burst, "heard": list(report.heard)}


def ordered(order: Order | Count) -> dict[str, Any]:
    """Return an order to agents as a message."""
    if isinstance(order, Count):
        return {"count": order.burst}
    return {"burst": order.burst, "port": order.port, "n": order.n}


def read_join(message: Mapping[str, Any], schedule: Schedule) -> int:
    """Return the NIC of an agent that joins."""
    nic = _number(message, "join", schedule.fabric.n_nics)
    if message.get("schedule") != describe(schedule):
        raise InputError(
            f"nic {nic}: its schedule is {message.get('schedule')!r:.200}, the controller's is"
            f" {describe(schedule)}; start both with the same fabric, period and load"
        )
    return nic


def read(message: Mapping[str, Any], schedule: Schedule, nic: int) -> Reported | Counted:
    """Return what the agent of a NIC sends after it has joined: about its own probes alone."""
    if "counted" in message:
        burst = _number(message, "counted", NUMBER_MAX)
        heard = _numbers(message, "heard", BURST_MAX, BURST_MAX)
        return Counted(BurstReport(burst, (), heard))
    body = message.get("report")
    if not isinstance(body, dict):
        raise InputError("neither a report nor a count")
    bursts = _list(body, "bursts", BURSTS_MAX)
    report = Report(
        at_ps=_number(body, "at_us", TIME_MAX_US) * US,
        periods=_number(body, "periods", PERIODS_MAX),
        lost=_losses(body, "lost", schedule, nic),
        late=_losses(body, "late", schedule, nic),
        bursts=[_burst(one) for one in bursts],
        rounds=[_round(one, schedule, nic) for one in _list(body, "rounds", ROUNDS_MAX)],
    )
    n_planes = schedule.fabric.n_planes
    return Reported(report, _numbers(body, "down", n_planes, n_planes))


def read_order(message: Mapping[str, Any], schedule: Schedule) -> Order | Count | None:
    """Return what the controller requests; None if it is another message."""
    if "count" in message:
        return Count(_number(message, "count", NUMBER_MAX))
    if "burst" in message:
        n = _number(message, "n", BURST_MAX + 1)
        return Order(
            _number(message, "burst", NUMBER_MAX),
            _number(message, "port", schedule.fabric.n_ports),
            max(n, 1),
        )
    return None


def _losses(body: Mapping[str, Any], key: str, schedule: Schedule, nic: int) -> list[Loss]:
    found = []
    for row in _list(body, key, 2 * REPORTED_MAX):
        if not isinstance(row, list) or len(row) != 3:
            raise InputError(f"{key}: [number, turn, at_us] is accepted")
        number, turn, at_us = row
        bounds = ((number, schedule.n_probes), (turn, TURNS), (at_us, TIME_MAX_US))
        if not all(_is_number(value, most) for value, most in bounds):
            raise InputError(f"{key}: no probe of this schedule")
        found.append(Loss(number, turn, at_us * US))
    for turn in {one.turn for one in found}:
        _check_own(key, schedule, nic, turn, [one.number for one in found if one.turn == turn])
    return found


def _check_own(key: str, schedule: Schedule, nic: int, turn: int, numbers: Sequence[int]) -> None:
    judges = schedule.judges(turn, numbers)
    if foreign := set(judges.tolist()) - {nic}:
        raise InputError(f"{key}: a probe that nic {min(foreign)} judges, not nic {nic}")


def _round(row: Any, schedule: Schedule, nic: int) -> Round:
    if not isinstance(row, list) or len(row) != 3:
        raise InputError("rounds: [turn, at_us, numbers or null] is accepted")
    turn, at_us, listed = row
    if not _is_number(turn, TURNS) or not _is_number(at_us, TIME_MAX_US):
        raise InputError("rounds: no turn of this schedule, or no time")
    if listed is None:
        return Round(turn, at_us * US)
    numbers = _numbers({"rounds": listed}, "rounds", schedule.n_probes, REPORTED_MAX)
    _check_own("rounds", schedule, nic, turn, numbers)
    return Round(turn, at_us * US, numbers)


def _burst(row: Any) -> BurstReport:
    if not isinstance(row, list) or len(row) != 3 or not _is_number(row[0], NUMBER_MAX):
        raise InputError("bursts: [burst, lost rows, unknown rows] is accepted")
    lost, unknown = (_numbers({"rows": one}, "rows", BURST_MAX, BURST_MAX) for one in row[1:])
    return BurstReport(row[0], lost, (), unknown)


def _is_number(value: Any, most: int) -> bool:
    return type(value) is int and 0 <= value < most


def _number(body: Mapping[str, Any], key: str, most: int) -> int:
    value = body.get(key)
    if not _is_number(value, most):
        raise InputError(f"{key}: a whole number below {most} is accepted")
    return int(value)  # type: ignore[arg-type]  # it is one


def _list(body: Mapping[str, Any], key: str, most: int) -> list[Any]:
    value = body.get(key)
    if not isinstance(value, list) or len(value) > most:
        raise InputError(f"{key}: a list of up to {most} is accepted")
    return value


def _numbers(body: Mapping[str, Any], key: str, most: int, length: int) -> tuple[int, ...]:
    found = _list(body, key, length)
    if not all(_is_number(value, most) for value in found):
        raise InputError(f"{key}: whole numbers below {most} are accepted")
    return tuple(found)
