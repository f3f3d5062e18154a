"""The files of an export: one per switch, the links between them, what the platform lacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from openmrc.errors import InputError
from openmrc.newfile import write_new
from openmrc.ops.export import containerlab, cumulus, frr, linux, sonic
from openmrc.ops.export.switches import End, Plant, Switch

PLATFORMS: dict[str, ModuleType] = {
    "sonic": sonic,
    "frr": frr,
    "cumulus": cumulus,
    "linux": linux,
    "containerlab": containerlab,
}
WITH_HOSTS = ("linux", "containerlab")  # platforms whose files have the hosts, too
LINKS, CANNOT = "links.csv", "cannot.txt"
COLUMNS = "link,rate_bps,lower,lower_port,lower_address,upper,upper_port,upper_address,plane"


def configs(platform: str, plant: Plant, chosen: Iterable[Switch]) -> Iterator[tuple[str, str]]:
    """Yield the host name and the configuration of each switch."""
    for switch in chosen:
        yield switch.host, PLATFORMS[platform].config(plant, switch)


def whole(platform: str, plant: Plant, chosen: Iterable[Switch]) -> str:
    """Return the configurations of these switches as one text."""
    text: str = PLATFORMS[platform].whole(dict(configs(platform, plant, chosen)))
    return text


def cannot(platform: str, plant: Plant) -> list[str]:
    """Return what the platform, or the fabric, leaves to other tools."""
    said: list[str] = PLATFORMS[platform].cannot(plant)
    if platform != "linux":
        said.append(
            "NICs: each port answers neighbour discovery for the lower address of its link in"
            f" {LINKS}; what it sends has the carrier as destination."
        )
    if plant.cuts_through:
        said.append('switching = "cut-through" is the chip\'s.')
    return said


def write(platform: str, plant: Plant, chosen: Iterable[Switch], out: Path) -> int:
    """Write all files to a directory that is empty or missing; return the number of switches."""
    rest = {CANNOT: "".join(f"{line}\n" for line in cannot(platform, plant))}
    if platform in WITH_HOSTS:
        rest |= PLATFORMS[platform].extra(plant)
    if platform != "linux":
        rest[LINKS] = links(platform, plant)
    _make(out)
    n = 0
    for host, text in configs(platform, plant, chosen):
        write_new(out / f"{host}{PLATFORMS[platform].SUFFIX}", text)
        n += 1
    for name, text in rest.items():
        write_new(out / name, text)
    return n


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        full = any(out.iterdir())
    except OSError as error:
        raise InputError(
            f"--out {out}: cannot be made ({error.strerror}); name another directory"
        ) from None
    if full:
        raise InputError(f"--out {out}: is not empty; name another directory")


def links(platform: str, plant: Plant) -> str:
    """Return every link with the ports and addresses of both its ends, as CSV."""
    lines = [COLUMNS]
    for cable in plant.cables():
        ends = [*_cells(platform, cable.lower), *_cells(platform, cable.upper)]
        plane = int(plant.fabric.sw_plane[cable.upper.switch])
        lines.append(",".join([cable.link, str(cable.rate_bps), *ends, str(plane)]))
    return "".join(f"{line}\n" for line in lines)


def _cells(platform: str, end: End) -> list[str]:
    port = f"plane {end.port}" if end.switch is None else PLATFORMS[platform].interface(end.port)
    return [end.host, port, end.address]
