"""`mrc doctor --torch`: what a training job on this host would use, before it is started."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from typing import Any

from openmrc.engine.parameters import PMTUS
from openmrc.errors import InputError
from openmrc.live.endpoint.planes import Plane, find, ordinary
from openmrc.live.endpoint.pmtu import most_payload, mtu_for
from openmrc.say import counted
from openmrc.verbs import hostfile, network
from openmrc.version import __version__

GROUPS = ("torch.backends", "torch.distributed.backends")  # of 2.13, and of 2.14 and later
INSTALL = "pip install 'openmrc[torch]'"


def examine() -> dict[str, Any]:
    """Return what is available; `lacks` says in lines what is missing and what to type."""
    os.getcwd()  # where there is none, a library of torch's ends the process
    try:
        import torch
    except ImportError:
        return {"openmrc": __version__, "torch": None, "lacks": [f"torch: {INSTALL}"]}
    from openmrc.torch import backend, shared, world

    found: dict[str, Any] = {"openmrc": __version__, "torch": torch.__version__, "lacks": []}
    registered = all("mrc" in entry_points(group=group).names for group in GROUPS)
    if not registered:
        found["lacks"].append(f"torch does not know the name mrc: {INSTALL}")
    found["registered"] = registered
    for key, look in (
        ("adapter", lambda: "backend" if backend.wanted() else "group"),
        ("shared_memory", shared.wanted),
        ("timeout_s", world.silence_s),
        ("wire", wire),
    ):
        try:
            found[key] = look()
        except InputError as error:
            found[key] = None
            found["lacks"].append(str(error))
    return found


def wire() -> dict[str, Any]:
    """The mode, and its planes if they are known before the device is opened."""
    if file := os.environ.get(hostfile.VARIABLE):
        return {"mode": "host file", "file": file, "planes": []}
    from openmrc.torch.wire import INTERFACES_VARIABLE

    named = os.environ.get(INTERFACES_VARIABLE)
    names = [one.strip() for one in named.split(",")] if named else ordinary()
    return {"mode": "ip", "file": None, "planes": [_plane(one) for one in find(names)]}


def _plane(plane: Plane) -> dict[str, Any]:
    fitting = most_payload(plane.mtu, plane.ipv4, network.PMTU)
    if fitting < PMTUS[0]:
        least = mtu_for(PMTUS[0])
        raise InputError(f"{plane.interface}: MTU {plane.mtu}: {least} or more is needed")
    return {
        "interface": plane.interface,
        "address": str(plane.address),
        "mtu": plane.mtu,
        "pmtu_bytes": fitting,
    }


def lines(found: dict[str, Any]) -> list[str]:
    """Return the same as text."""
    told = [f"{'versions':14} openmrc {found['openmrc']}, torch {found['torch'] or 'none'}"]
    if found["torch"] is not None:
        known = "known" if found["registered"] else "not known"
        told.append(f'{"backend":14} "mrc" is {known} to torch, adapter {found["adapter"]}')
        near = {True: "shared memory", False: "MRC over loopback", None: "?"}
        told.append(f"{'on this host':14} {near[found['shared_memory']]}")
        told += _wire_lines(found["wire"])
        if found["timeout_s"] is not None:
            told.append(f"{'timeout':14} silence of {found['timeout_s']:g} s ends a job")
    return [*told, *(f"{'lacks':14} {line}" for line in found["lacks"])]


def _wire_lines(there: dict[str, Any] | None) -> list[str]:
    if there is None:
        return []
    if there["file"]:
        return [f"{'other hosts':14} the device of {there['file']}"]
    told = [f'{"other hosts":14} mode "ip": plain UDP, {counted(len(there["planes"]), "plane")}']
    for number, one in enumerate(there["planes"]):
        told.append(
            f"{f'plane {number}':14} {one['interface']}, {one['address']}, MTU {one['mtu']}, PMTU"
            f" {one['pmtu_bytes']} B"
        )
    return told
