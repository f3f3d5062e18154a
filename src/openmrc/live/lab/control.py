"""Control of a running lab, from another terminal or from one of its hosts.

A lab listens on a Unix socket in the abstract namespace, named after the user and the lab: no file,
so nothing is left when it is killed. Such names belong to a network namespace; the lab also listens
in those of its hosts, so the same command works there. Both sides check the other's identity.

A request is one line of JSON, an answer is one line of JSON.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from openmrc.errors import InputError

LINE_BYTES_MAX = 1 << 20
ANSWER_S = 30.0  # a lab of hundreds of switches collects its counters in less
ASK_S = 5.0
VARIABLE = "OPENMRC_LAB"  # the name of their lab, for processes on its hosts
NAME_BYTES_MAX = 60  # of the 107 that an address has
_PEER = struct.Struct("iII")  # struct ucred

Answer = Callable[[dict[str, Any]], Any]


def listen(name: str) -> socket.socket:
    """Return the socket of a lab; `InputError` if one of this name runs already."""
    if not 0 < len(name.encode()) <= NAME_BYTES_MAX or not name.isprintable():
        raise InputError(f"--name {name!r}: 1 to {NAME_BYTES_MAX} printable bytes are accepted")
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.bind(_address(name))
    except OSError:
        server.close()
        raise InputError(
            f"--name {name}: a lab of this name is running already; give this one another --name"
        ) from None
    server.listen()
    return server


def serve(servers: Sequence[socket.socket], answer: Answer) -> None:
    """Answer requests one at a time, on a thread of its own, for as long as this process lives."""
    threading.Thread(target=_serve, args=(servers, answer), name="control", daemon=True).start()


def running() -> list[str]:
    """Return the names of this user's labs."""
    mark = f"@{_prefix()}"
    found = set()
    for line in Path("/proc/net/unix").read_text(errors="replace").splitlines():
        at = line.find(mark)
        if at >= 0:
            found.add(line[at + len(mark) :])
    return sorted(found)


def ask(name: str | None, request: Mapping[str, Any]) -> Any:
    """Return the answer of the lab of that name, or of the one on whose host this process runs. For
    its status the only lab of the machine need not be named; what is broken or repaired must be.

    Raises `InputError` if there is no such lab, if it was not named, or if the lab refuses.
    """
    name = _chosen(name or os.environ.get(VARIABLE), changes=request.get("do") != "status")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_S)
        try:
            connection.connect(_address(name))
            if _user_of(connection) != os.getuid():
                raise InputError(f"lab {name}: is another user's")
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(_line(connection))
        except (OSError, ValueError):
            raise InputError(f"lab {name}: does not answer; has it just ended?") from None
    if "error" in answer:
        raise InputError(answer["error"])
    return answer["answer"]


def _chosen(name: str | None, changes: bool) -> str:
    names = running()
    if name is None and len(names) == 1 and not changes:
        return names[0]
    if name in names:
        return str(name)
    there_is = f"there is: {', '.join(names)}" if names else "start one with mrc lab LAB.toml"
    if name is None:
        what = "say which lab is meant with --name NAME" if names else "no lab is running"
        raise InputError(f"{what}; {there_is}")
    raise InputError(f"--name {name}: no such lab is running; {there_is}")


def _prefix() -> str:
    return f"openmrc-lab/{os.getuid()}/"


def _address(name: str) -> bytes:
    return b"\0" + f"{_prefix()}{name}".encode()


def _user_of(connection: socket.socket) -> int:
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _, user, _ = _PEER.unpack(data)
    return int(user)


def _serve(servers: Sequence[socket.socket], answer: Answer) -> None:
    with selectors.DefaultSelector() as selector:
        for server in servers:
            selector.register(server, selectors.EVENT_READ, server)
        while True:
            for key, _ in selector.select():
                with suppress(OSError):
                    _meet(key.data, answer)


def _meet(server: socket.socket, answer: Answer) -> None:
    connection, _ = server.accept()
    with connection:
        connection.settimeout(ASK_S)
        if _user_of(connection) == os.getuid():
            connection.sendall(json.dumps(_answer(connection, answer)).encode() + b"\n")


def _answer(connection: socket.socket, answer: Answer) -> dict[str, Any]:
    try:
        request = json.loads(_line(connection))
        return {"answer": answer(request)}
    except (InputError, ValueError) as error:
        return {"error": str(error)}
    except Exception as error:  # an unforeseen request does not end the service
        return {"error": f"{type(error).__name__}: {error}"}


def _line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        if len(data) > LINE_BYTES_MAX or not (more := connection.recv(65_536)):
            raise ValueError("no line")
        data += more
    return data
