"""The host file: which NIC of which fabric this host is, and how its ports reach the network.

    {"fabric": {"kind": "multiplane", "nics": 8, ...},     the [fabric] table of a scenario
     "nic": 3,
     "mode": "native",
     "ports": [{"interface": "e0", "gateway_mac": "02:ff:00:00:00:00"}, ...],   one per plane
     "base_rtt_us": null,                                  null: measured
     "secret": "..."}                                      of the job, hex

`mrc lab` writes one for each of its hosts and names it in `OPENMRC_HOST`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from openmrc.errors import InputError, OpenMrcError
from openmrc.fabric.model import Fabric
from openmrc.live.endpoint import links, state, udp
from openmrc.live.endpoint.limits import Limits, Port
from openmrc.reading import read_bytes
from openmrc.say import counted
from openmrc.units import US
from openmrc.verbs import secret as secrets

if TYPE_CHECKING:
    from openmrc.scenario.fabric import FabricSection

VARIABLE = "OPENMRC_HOST"
MODES = {"native": state.NATIVE, "udp": state.UDP}
ETHERTYPE_IPV6 = 0x86DD
PACKET_IGNORE_OUTGOING, PACKET_QDISC_BYPASS, SOL_PACKET = 23, 20, 263
RTT_MAX_US = 10**7
BUFFER_BYTES = 8 << 20  # requested; the kernel grants what net.core.*mem_max allow


def read(path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Return the host file's content; `InputError` if it is missing or wrong."""
    path = path or os.environ.get(VARIABLE)
    if not path:
        raise InputError(f"no host file: name one, or set {VARIABLE} (mrc lab does)")
    data = read_bytes(path, "a host file, as mrc lab writes it")
    try:
        content: dict[str, Any] = json.loads(data)
    except ValueError as error:
        raise InputError(f"{path}: no JSON: {error}") from None
    for key in ("fabric", "nic", "mode", "ports"):
        if not isinstance(content, dict) or key not in content:
            raise InputError(f"{path}: {key}: missing")
    for key, is_one, accepted in _KEYS:
        if not is_one(content.get(key)):
            value = "" if key == "secret" else f" = {content.get(key)!r:.80}"
            raise InputError(f"{path}: {key}{value}: {accepted}")
    for plane, port in enumerate(content["ports"]):
        if not isinstance(port, dict) or not isinstance(port.get("interface"), str):
            raise InputError(f"{path}: ports[{plane}]: interface: missing; name one")
        if content["mode"] == "native" and not _is_mac(port.get("gateway_mac")):
            raise InputError(
                f"{path}: ports[{plane}]: gateway_mac = {port.get('gateway_mac')!r:.80}: a MAC"
                ' address such as "02:ff:00:00:00:00" is accepted'
            )
    return content


def _is_mac(value: Any) -> bool:
    return (
        isinstance(value, str)
        and re.fullmatch("[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", value) is not None
    )


def _is_hex(value: Any) -> bool:
    return value is None or (
        isinstance(value, str) and re.fullmatch("([0-9a-fA-F]{2})*", value) is not None
    )


def _is_time(value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value is None or (is_number and 0 < value < RTT_MAX_US)


_KEYS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("nic", lambda value: type(value) is int and value >= 0, "the number of a NIC is accepted"),
    (
        "mode",
        lambda value: isinstance(value, str) and value in MODES,
        f"{', '.join(MODES)} are accepted",
    ),
    ("ports", lambda value: isinstance(value, list) and len(value) > 0, "a list is accepted"),
    ("base_rtt_us", _is_time, "microseconds above 0, or null, are accepted"),
    ("secret", _is_hex, f"bytes in hex are accepted; {secrets.REMEDY}"),
)


def section(
    content: dict[str, Any], path: str | os.PathLike[str] | None = None
) -> tuple[FabricSection, Fabric]:
    """Return the `[fabric]` table of a host file and its fabric, in which this host has a place."""
    from openmrc.scenario.scenario import fabric_section

    where = path or os.environ.get(VARIABLE)
    try:
        found = fabric_section(content["fabric"])
        fabric = found.build()
    except InputError as error:
        raise error.at(str(where)) from None
    if content["nic"] >= fabric.n_nics:
        raise InputError(
            f"{where}: nic = {content['nic']}: 0 to {fabric.n_nics - 1} are accepted, as many as"
            " its fabric has"
        )
    if len(content["ports"]) != fabric.n_planes:
        ports = counted(len(content["ports"]), "port")
        planes = counted(fabric.n_planes, "plane")
        raise InputError(f"{where}: {ports} on {planes}; name one a plane")
    return found, fabric


@dataclass(frozen=True)
class Attachment:
    """What a device is created from, and the sockets of its ports."""

    fabric: Fabric
    nic: int
    ports: list[Port]
    limits: Limits
    base_rtt_ps: int | None
    mode: int
    sockets: list[socket.socket]


@contextlib.contextmanager
def attached(path: str | os.PathLike[str] | None = None, **limits: Any) -> Iterator[Attachment]:
    """Open the ports of a host file; sockets that are not detached within the block are closed
    after it.

    `limits` are those of `live.endpoint.limits.Limits`.
    """
    limits_of(limits)
    content = read(path)
    table, its_fabric = section(content, path)
    mode = MODES[content["mode"]]
    new_port = native_port if mode == state.NATIVE else _udp_port
    rtt_us = content.get("base_rtt_us")
    sockets: list[socket.socket] = []
    try:
        yield Attachment(
            fabric=its_fabric,
            nic=content["nic"],
            ports=[new_port(port, sockets) for port in content["ports"]],
            limits=limits_of({"trimming": table.trim, **limits}),
            base_rtt_ps=None if rtt_us is None else round(rtt_us * US),
            mode=mode,
            sockets=sockets,
        )
    finally:
        for one in sockets:
            one.close()


def fabric(path: str | os.PathLike[str] | None = None) -> Fabric:
    """The fabric of a host file."""
    return section(read(path), path)[1]


def limits_of(given: dict[str, Any]) -> Limits:
    """Return the limits of a device; `InputError` for an unknown one."""
    known = {field.name for field in fields(Limits)}
    if unknown := set(given) - known:
        raise InputError(f"{min(unknown)}: no limit of a device; {', '.join(sorted(known))} are")
    return Limits(**given)


def secret(path: str | os.PathLike[str] | None = None) -> bytes:
    """The job's secret in the host file; empty if it has none."""
    return bytes.fromhex(read(path).get("secret") or "")


def native_port(port: dict[str, Any], sockets: list[socket.socket]) -> Port:
    """A packet socket on an interface: whole Ethernet frames."""
    name = port["interface"]
    try:
        mtu = links.mtu(name)
        one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    except PermissionError:
        raise OpenMrcError(
            f"{name}: packet sockets need CAP_NET_RAW: run in `mrc lab`, or as root;"
            " `mrc doctor` says more"
        ) from None
    except OSError as error:
        raise InputError(f"interface {name}: {error.strerror}") from None
    sockets.append(one)
    one.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    with contextlib.suppress(OSError):
        one.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        one.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    one.bind((name, ETHERTYPE_IPV6))
    one.setblocking(False)
    return Port(one.fileno(), bytes.fromhex(port["gateway_mac"].replace(":", "")), name, mtu)


def _udp_port(port: dict[str, Any], sockets: list[socket.socket]) -> Port:
    """An ordinary UDP socket on an interface."""
    name = port["interface"]
    try:
        mtu = links.mtu(name)
        one = udp.open_socket(name)
    except OSError as error:
        raise InputError(f"interface {name}: {error.strerror}") from None
    sockets.append(one)
    return Port(one.fileno(), bytes(6), name, mtu)
