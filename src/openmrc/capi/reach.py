"""How an end is named by a GID, the only identification that a program passes to its peer besides
numbers.

In a fabric the GID is the address of a NIC's port (`wire.addresses`), and identifies the NIC. On an
ordinary network it is the address at which plane 0 receives: for IPv4 `64:ff9b:1:PORT::a.b.c.d`,
below the prefix of RFC 8215 for local use; for IPv6 the address itself, and the port is MRC's own.
A peer asks there for everything else, the other planes and the ports that packets come from, by TCP
on the same port number, before the first packet: one line of JSON, with the version of the wire.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import json
import socket
import threading
import time
from collections.abc import Sequence

from openmrc.capi.places import Refused
from openmrc.errors import OpenMrcError
from openmrc.live.endpoint.peers import Reach
from openmrc.verbs.line import VERSION, ExchangeError, Line
from openmrc.wire.layout import UDP_PORT

PREFIX = bytes.fromhex("0064ff9b0001")
PATIENCE_S = 10.0
AGAIN_S = 0.1  # until the next caller is looked for, where there is no descriptor for one


def gid_of(reach: Reach) -> bytes:
    """The GID of a device of plain UDP, from the address of its plane 0."""
    address = ipaddress.ip_address(reach.address)
    if address.version == 4:
        return PREFIX + reach.port.to_bytes(2, "big") + bytes(4) + address.packed
    if reach.port != UDP_PORT:
        raise OpenMrcError(
            f"{reach.address} port {reach.port}: a GID of IPv6 has no room for a port, and"
            f" {UDP_PORT} is taken"
        )
    return address.packed


def where(gid: bytes) -> tuple[str, int]:
    """The address and port that a GID names; EINVAL if it is not such a GID."""
    if gid.startswith(PREFIX):
        port = int.from_bytes(gid[6:8], "big")
        if port and not any(gid[8:12]):
            return str(ipaddress.IPv4Address(gid[12:])), port
    elif any(gid):
        return str(ipaddress.IPv6Address(gid)), UDP_PORT
    raise Refused(errno.EINVAL, f"GID {gid.hex()}: no address of an end")


class Answering:
    """Answers requests for the planes of this device."""

    def __init__(self, planes: Sequence[Reach]) -> None:
        ways = [{"address": p.address, "port": p.port, "sources": p.sources} for p in planes]
        self._line = json.dumps({"openmrc": VERSION, "planes": ways}).encode() + b"\n"
        first = planes[0]
        family = socket.AF_INET6 if ":" in first.address else socket.AF_INET
        self._socket = socket.create_server((first.address, first.port), family=family)
        self._thread = threading.Thread(target=self._serve, name="mrc reach", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while self._socket.fileno() >= 0:
            try:
                asking, _ = self._socket.accept()
            except OSError:  # closed; or out of descriptors, which others give back
                time.sleep(AGAIN_S)
                continue
            with asking, contextlib.suppress(OSError):
                asking.setblocking(False)  # the answer fits the kernel's room: who asks is no brake
                asking.send(self._line)

    def close(self) -> None:
        """Stop answering."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def ask(gid: bytes) -> tuple[Reach, ...]:
    """The planes of the end with this GID, as it reports them within `PATIENCE_S`."""
    address, port = where(gid)
    until = time.monotonic() + PATIENCE_S
    try:
        connection = socket.create_connection((address, port), PATIENCE_S)
        with contextlib.closing(Line(connection, until)) as line:
            told = line.receive()
    except OSError as error:
        raise Refused(error.errno or errno.ETIMEDOUT, f"{address} port {port}: {error}") from None
    except ExchangeError as error:
        code = errno.EPROTO if time.monotonic() < until else errno.ETIMEDOUT
        raise Refused(code, f"{address} port {port}: no end of libmrc ({error})") from None
    if not isinstance(told.get("planes"), list):
        raise Refused(errno.EPROTO, f"{address} port {port}: no end of libmrc")
    if (version := told.get("openmrc")) != VERSION:
        raise Refused(
            errno.EPROTO,
            f"{address} port {port} speaks version {version!r:.80} of the wire, this end version"
            f" {VERSION}: install the same openmrc at both ends",
        )
    return tuple(map(Reach.of, told["planes"]))
