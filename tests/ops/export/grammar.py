"""The commands of FRR and Cumulus Linux that an export uses, as their documents spell them.

FRR 10.x: doc/user/static.rst, zebra.rst. Cumulus Linux 5.14: the NVUE reference. Words in capitals
stand for values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv6Address, IPv6Interface, IPv6Network

VALUES: dict[str, Callable[[str], object]] = {
    "ADDRESS": IPv6Address,
    "INTERFACE_ADDRESS": IPv6Interface,
    "PREFIX": IPv6Network,
    "PORT": lambda text: _matches(r"swp[1-9]\d*", text),
    "NAME": lambda text: _matches(r"[A-Za-z0-9][-A-Za-z0-9]*", text),
    "NUMBER": lambda text: _matches(r"\d+", text),
    "CLASS": lambda text: _matches(r"[0-7]", text),
    "DSCP": lambda text: _matches(r"[0-9]|[1-5]\d|6[0-3]", text),
    "TRIM_BYTES": lambda text: _in(256 <= int(text) <= 1024 and int(text) % 4 == 0, text),
    "PERCENT": lambda text: _in(0 <= int(text) <= 100, text),
}
# A node's commands, and with a list behind it the node that a command opens.
FRR = {
    "hostname NAME": None,
    "service integrated-vtysh-config": None,
    "interface PORT": {"description ...": None, "ipv6 address INTERFACE_ADDRESS": None},
    "ipv6 route PREFIX blackhole": None,
    "ipv6 route PREFIX ADDRESS PORT": None,
    "segment-routing": {
        "srv6": {
            "locators": {
                "locator NAME": {
                    "prefix PREFIX block-len NUMBER node-len NUMBER func-bits NUMBER": None,
                    "behavior usid": None,
                    "format usid-f3216": None,
                }
            },
            "static-sids": {
                "sid PREFIX locator NAME behavior uN": None,
                "sid PREFIX locator NAME behavior uA interface PORT nexthop ADDRESS": None,
            },
        }
    },
}
LOCATOR = "router segment-routing srv6 locator NAME"
SID = "router segment-routing static srv6-sid PREFIX"
ECN = "qos congestion-control default-global traffic-class CLASS"
TRIM = "system forwarding packet-trim"
NVUE = [
    "system hostname NAME",
    "interface PORT ip address INTERFACE_ADDRESS",
    "vrf default router static PREFIX via blackhole",
    "vrf default router static PREFIX via ADDRESS",
    "router segment-routing srv6 state enabled",
    f"{LOCATOR} prefix PREFIX",
    f"{LOCATOR} block-length NUMBER",
    f"{LOCATOR} node-length NUMBER",
    f"{LOCATOR} func-length NUMBER",
    f"{SID} locator-name NAME",
    f"{SID} behavior uN",
    "qos mapping default-global trust l3",
    "qos mapping default-global dscp DSCP switch-priority CLASS",
    "qos egress-queue-mapping default-global switch-priority CLASS traffic-class CLASS",
    "qos egress-scheduler default-global traffic-class CLASS mode strict",
    f"{ECN} ecn enabled",
    f"{ECN} min-threshold NUMBER",
    f"{ECN} max-threshold NUMBER",
    f"{ECN} probability PERCENT",
    f"{TRIM} state enabled",
    f"{TRIM} remark dscp DSCP",
    f"{TRIM} size TRIM_BYTES",
    f"{TRIM} switch-priority CLASS",
    "interface PORT packet-trim egress-eligibility traffic-class CLASS",
]


def check_frr(text: str) -> None:
    """Raise `ValueError` with the line that no node of FRR has, or that stands too deep."""
    nodes: list[dict[str, object]] = [dict(FRR)]
    for line in text.splitlines():
        word = line.strip()
        if word == "!":
            continue
        if word == "exit":
            nodes.pop()
            _in(bool(nodes), line)
            continue
        _in(len(line) - len(word) == len(nodes) - 1, line)
        found = next((c for c in nodes[-1] if _fits(c, word)), None)
        if found is None:
            raise ValueError(line)
        opened = nodes[-1][found]
        if isinstance(opened, dict):
            nodes.append(opened)
    _in(len(nodes) == 1, "a node is left open")


def check_nvue(text: str) -> None:
    """Raise `ValueError` with the line that NVUE does not have."""
    *lines, last = text.splitlines()
    _in(last == "nv config apply", last)
    for line in lines:
        _in(line.startswith("nv set "), line)
        if not any(_fits(command, line.removeprefix("nv set ")) for command in NVUE):
            raise ValueError(line)


def _fits(command: str, line: str) -> bool:
    known, said = command.split(" "), line.split(" ")
    if known[-1] == "...":
        return said[: len(known) - 1] == known[:-1] and len(said) >= len(known)
    if len(known) != len(said):
        return False
    for one, other in zip(known, said, strict=True):
        if one in VALUES:
            try:
                VALUES[one](other)
            except ValueError:
                return False
        elif one != other:
            return False
    return True


def _matches(pattern: str, text: str) -> None:
    _in(re.fullmatch(pattern, text) is not None, text)


def _in(right: bool, text: str) -> None:
    if not right:
        raise ValueError(text)
