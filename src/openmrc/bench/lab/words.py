"""The lab half of `mrc bench live` for people: a table, and the comparisons that hold."""

from __future__ import annotations

from typing import Any

NAMES = {
    "openmrc": "openmrc, {planes} planes",
    "tcp_default": "TCP, one plane, the kernel's default",
    "tcp_cubic": "TCP, one plane, CUBIC",
    "mptcp": "MPTCP, {planes} planes",
}


def lab_lines(found: dict[str, Any]) -> list[str]:
    """Return the lines."""
    if "skipped" in found:
        return [f"NOT MEASURED: goodput and outages in a lab: {found['skipped']}"]
    lines = [
        f"In a lab: {found['planes']} planes of {found['rate_mbps']:g} Mb/s, MTU"
        f" {found['mtu_bytes']}, median of {found['rounds']} rounds; a plane goes silent after"
        f" {found['healthy_s']:g} s",
        f"{'':46} {'goodput':>12} {'openmrc is':>12} {'outage':>10}",
    ]
    for kind, name in NAMES.items():
        lines.append(_line(kind, name.format(planes=found["planes"]), found))
    return [*lines, *_verdicts(found)]


def _line(kind: str, name: str, found: dict[str, Any]) -> str:
    row = found[kind]
    if "skipped" in row:
        return f"NOT MEASURED: {name}: {row['skipped']}"
    if "congestion" in row:
        name = f"{name} ({row['congestion']})" if kind != "tcp_cubic" else name
    ratio = found["ratios"].get(kind)
    times = "" if ratio is None else f"{ratio:.2f} times"
    line = f"{name:46} {row['goodput_mbps']:7.1f} Mb/s {times:>12}"
    if "outage_ms" in row:
        line += f" {_ms(row['outage_ms'], found):>10}"
    return line.rstrip()


def _ms(outage: float | None, found: dict[str, Any]) -> str:
    return f"> {1e3 * found['after_s']:.0f} ms" if outage is None else f"{outage:.0f} ms"


def _verdicts(found: dict[str, Any]) -> list[str]:
    ratios, bars = found["ratios"], found["bars"]
    lines = [
        f"goodput is {ratios['ceiling']:.3f} of {found['ceiling_mbps']:g} Mb/s, what the frames"
        f" leave: bar {bars['ceiling']:g}, {_holds(ratios['ceiling'] >= bars['ceiling'])}"
    ]
    if "outage" in ratios:
        lines.append(
            f"MPTCP's outage is {ratios['outage']:.1f} times openmrc's: bar {bars['outage']:g},"
            f" {_holds(ratios['outage'] >= bars['outage'])}"
        )
    return lines


def _holds(well: bool) -> str:
    return "holds" if well else "missed"
