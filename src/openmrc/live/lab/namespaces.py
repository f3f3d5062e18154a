"""Network namespaces by name, and batches of `ip`, `tc` and `nft` run in them.

A namespace is an open file: it lives as long as this process, or anything inside, holds it, so none
is ever left over. The tools run as children that inherit the namespace of the calling thread, all
batches in parallel. Links, offloads and sysctls are set by system calls, because a process takes 2
to 9 ms.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from openmrc.errors import InputError
from openmrc.live.lab.isolation import NEW_NETWORK, set_namespace, unshare

ROOT = "root"  # the namespace in which the lab was started
OWN = "/proc/thread-self/ns/net"

# The tools are in directories that an ordinary user's PATH may lack.
TOOL_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/bin", "/bin"])
BATCH_ARGUMENTS = {"ip": ["-batch", "-"], "tc": ["-batch", "-"], "nft": ["-f", "-"]}

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCETHTOOL = 0x8913, 0x8914, 0x8946
_IFF_UP, _IFF_MULTICAST = 0x1, 0x1000
# ethtool's commands that set one offload each: transmit checksum, TSO, GSO, GRO
_OFFLOADS = (0x17, 0x1F, 0x24, 0x2C)
_NAME_BYTES = 16


class LabError(InputError):
    """The machine refused a step of creating or changing a lab."""


@dataclass(frozen=True)
class Batch:
    """Lines for one tool in one namespace."""

    namespace: str
    tool: str  # a key of `BATCH_ARGUMENTS`
    lines: Sequence[str]


class Namespaces:
    """The network namespaces of a lab, by name; created and entered by this process."""

    def __init__(self, names: Iterable[str]) -> None:
        self._fds = {ROOT: os.open(OWN, os.O_RDONLY)}
        for name in names:
            try:
                unshare(NEW_NETWORK)
            except OSError as error:
                raise LabError(
                    f"namespace {name}: {error.strerror}; raise user.max_net_namespaces"
                ) from None
            self._fds[name] = os.open(OWN, os.O_RDONLY)
            _set_defaults()
        set_namespace(self._fds[ROOT], NEW_NETWORK)
        _set_defaults()

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Put the calling thread, and what it starts, into a namespace during the block."""
        set_namespace(self._fds[name], NEW_NETWORK)
        try:
            yield
        finally:
            set_namespace(self._fds[ROOT], NEW_NETWORK)

    def path(self, name: str) -> str:
        """Return what `ip link add ... netns` takes, in a batch run by `run`."""
        return f"/proc/self/fd/{self._fds[name]}"

    def run(self, batches: Iterable[Batch]) -> None:
        """Run all batches in parallel; raise `LabError` with the line that was refused."""
        running = [(batch, *self._begin(batch)) for batch in batches if batch.lines]
        for _, process, _ in running:
            process.wait()
        for batch, process, errors in running:
            said = os.pread(errors, 4096, 0).decode(errors="replace")
            os.close(errors)
            if process.returncode != 0:
                raise LabError(_refusal(batch, said))

    def output(self, name: str, *arguments: str) -> str:
        """Return what a command prints in a namespace; "" if it fails."""
        with self.inside(name):
            done = subprocess.run(
                arguments, capture_output=True, text=True, env=tool_environment(), check=False
            )
        return done.stdout if done.returncode == 0 else ""

    def _begin(self, batch: Batch) -> tuple[subprocess.Popen[bytes], int]:
        given, errors = os.memfd_create("batch"), os.memfd_create("errors")
        text = "".join(f"{line}\n" for line in batch.lines)
        with open(given, "wb") as stream, self.inside(batch.namespace):
            stream.write(text.encode())
            stream.seek(0)
            try:
                process = subprocess.Popen(
                    [batch.tool, *BATCH_ARGUMENTS[batch.tool]],
                    stdin=stream,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    pass_fds=list(self._fds.values()),
                    env=tool_environment(),
                )
            except FileNotFoundError:
                raise LabError(missing_tool(batch.tool)) from None
        return process, errors


def tool_environment() -> dict[str, str]:
    """Return the environment in which the tools are found and print English."""
    return {**os.environ, "PATH": TOOL_PATH, "LC_ALL": "C"}


def missing_tool(tool: str) -> str:
    """Return the line that says that `tool` is missing and how to get it."""
    package = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables"}[tool]
    return f"there is no `{tool}`; type: sudo apt install {package}"


def set_sysctl(name: str, value: int) -> None:
    """Set a value below /proc/sys/net of the calling thread's namespace."""
    try:
        Path("/proc/sys/net", name).write_text(str(value))
    except FileNotFoundError:
        raise LabError(
            f"/proc/sys/net/{name}: there is none; boot a kernel with IPv6, without ipv6.disable=1"
        ) from None
    except OSError as error:
        raise LabError(
            f"/proc/sys/net/{name}: {error.strerror}; in a container start it with --privileged"
        ) from None


def set_link(interface: str, up: bool) -> None:
    """Set an interface of the calling thread's namespace up or down.

    Without multicast: a router's kernel would join groups on it, and send reports of its own.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", interface.encode(), 0)
        (before,) = struct.unpack_from(
            "H", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request), _NAME_BYTES
        )
        flags = (before | _IFF_UP if up else before & ~_IFF_UP) & ~_IFF_MULTICAST
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", interface.encode(), flags))


def clear_offloads(interface: str) -> None:
    """Turn checksum and segmentation offloads of an interface off, so that frames are sent as
    written.

    With them on, a veth passes super-packets on, and checksums that were never computed.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for command in _OFFLOADS:
            value = np.array([command, 0], np.uint32)  # struct ethtool_value
            request = struct.pack("16sQ8x", interface.encode(), value.ctypes.data)
            try:
                fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
            except OSError as error:
                raise LabError(f"{interface}: offloads stay on ({error.strerror})") from None


def _set_defaults() -> None:
    """Keep interfaces of a lab from configuring addresses by themselves, so that none sends
    unasked.
    """
    set_sysctl("ipv6/conf/default/addr_gen_mode", 1)
    set_sysctl("ipv6/conf/default/accept_ra", 0)
    set_sysctl("ipv6/conf/default/accept_dad", 0)


def _refusal(batch: Batch, said: str) -> str:
    """The tool's message, and the line that it is about: `ip` and `tc` print its number last."""
    words = [line for line in said.splitlines() if line.strip()]
    which: Any = words[-1].rpartition(":")[2] if words else ""
    line = batch.lines[int(which) - 1] if which.isdigit() else ""
    told = words[0] if words else "failed without a message"
    return f"{batch.namespace}: `{batch.tool} {line or '...'}`: {told}; see mrc doctor"
