"""TCP's congestion control under Gloo, which sets none: the default, or a named one."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

DEFAULT = Path("/proc/sys/net/ipv4/tcp_congestion_control")
CUBIC = "cubic"
INTERNET = (socket.AF_INET, socket.AF_INET6)


def default() -> str:
    """The congestion control of a connection that sets none."""
    return DEFAULT.read_text(encoding="ascii").strip()


def refusal(name: str) -> str:
    """Why this process may not choose a congestion control; "" if it may."""
    with socket.socket() as one:
        try:
            _set(one, name)
        except OSError as error:
            return (
                f"{error.strerror}; type: sudo sysctl -w net.ipv4.tcp_allowed_congestion_control="
                f'"{default()} {name}"'
            )
    return ""


def gloo_group(name: str) -> Any:
    """A Gloo group of all ranks whose connections have this congestion control."""
    import torch.distributed as dist

    before = set(connections())
    group = dist.new_group(backend="gloo")
    connected = 0
    for inode, fd in connections().items():
        if inode in before:
            continue
        with socket.socket(fileno=os.dup(fd)) as one:
            _set(one, name)
            connected += one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 0
    assert connected >= dist.get_world_size() - 1, f"Gloo has {connected} connections"
    return group


def _set(one: socket.socket, name: str) -> None:
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())


def connections() -> dict[int, int]:
    """The descriptors of this process's TCP sockets, by inode."""
    found = {}
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            status = os.fstat(fd)
            if not stat.S_ISSOCK(status.st_mode):
                continue
            with socket.socket(fileno=os.dup(fd)) as one:
                if one.family in INTERNET and one.type == socket.SOCK_STREAM:
                    found[status.st_ino] = fd
        except OSError:  # the descriptor of the listing itself, closed by now
            continue
    return found
