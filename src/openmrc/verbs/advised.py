"""A device that follows a denylist: it uses no path across a place that the list names.

The list is a controller's, `http://HOST:PORT` or `https://...`, or a file; `OPENMRC_DENYLIST` names
it for every device that a host file describes. It is read once a second. It only advises: while no
list can be read the last one is valid until it is stale, then none is, and no error with it ever
reaches a queue pair. With `OPENMRC_JOB` the device also reports its counters to the controller once
a second, for the job of that name.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import Protocol

import numpy as np

from openmrc.errors import InputError, OpenMrcError
from openmrc.fabric.model import Fabric, LongArray
from openmrc.live.closing import Closing
from openmrc.reading import read_bytes
from openmrc.say import say
from openmrc.verbs.denylist import Denylist, ports, read
from openmrc.verbs.secret import token

VARIABLE = "OPENMRC_DENYLIST"
JOB = "OPENMRC_JOB"  # a job's name
LOOK_S = 1.0
TIMEOUT_S = 2.0  # of a request
BYTES_MAX = 1 << 22


class Advised(Protocol):
    """An object that follows a list."""

    nic: int

    @property
    def fabric(self) -> Fabric | None:
        """The fabric of its paths."""

    def totals(self) -> dict[str, int]:
        """Its counters."""

    def keep_off(self, denied: LongArray) -> None:
        """Use no path across these directed ports, and all others again."""


class Advice:
    """The denylist at `where` as a device knows and follows it; without clock."""

    def __init__(
        self,
        device: Advised,
        where: str,
        secret: bytes,
        tell: Callable[[str], None] = say,
        job: str = "",
    ) -> None:
        if device.fabric is None:
            raise InputError(
                f"{VARIABLE}: a denylist names places of a fabric; a device on an ordinary network"
                " knows none, so unset it"
            )
        self._device, self._fabric, self._tell = device, device.fabric, tell
        self._fetch = _fetcher(where, secret)
        self._job, self._word = job, secrets.token_hex(8)
        self._post = _poster(where, secret) if job else None
        self._where, self._told = where, ""
        self._list = Denylist()
        self._denied = np.zeros(0, np.int64)

    def look(self, now_us: int) -> None:
        """Read the list, and make the device follow the entries that are valid now."""
        try:
            self._list = read(self._fabric, self._fetch())
            if self._post is not None:
                known = {"job": self._job, "device": self._word, "nic": self._device.nic}
                self._post(json.dumps(known | self._device.totals()).encode())
            self._say("")
        except (InputError, OSError, ValueError) as error:
            self._say(f"{self._where}: {error}; the last denylist counts while it is fresh")
        denied = ports(self._fabric, self._list.valid(now_us))
        if not np.array_equal(denied, self._denied):
            self._device.keep_off(denied)
            self._denied = denied

    def _say(self, words: str) -> None:
        """Print a message once."""
        if words and words != self._told:
            self._tell(words)
        self._told = words


class Follower(Closing):
    """Checks the denylist once a second, until it is closed; denied paths then stay denied."""

    def __init__(self, device: Advised, where: str, secret: bytes) -> None:
        self._advice = Advice(device, where, secret, job=os.environ.get(JOB, ""))
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="denylist", daemon=True)
        self._advice.look(_now_us())  # paths denied before the first packet cost none
        self._thread.start()

    def close(self) -> None:
        """Stop following."""
        self._closing.set()
        self._thread.join(2 * TIMEOUT_S)

    def _follow(self) -> None:
        while not self._closing.wait(LOOK_S):
            try:
                self._advice.look(_now_us())
            except OpenMrcError:
                return  # the device is closed, or its loop has failed


def _fetcher(where: str, secret: bytes) -> Callable[[], bytes]:
    """Return a function that reads the list, from a controller's address or from a file."""
    if not where.startswith(("http://", "https://")):
        return lambda: read_bytes(where, "a denylist")
    ask = _asker(where, secret, "/denylist")
    return lambda: ask(None)


def _poster(where: str, secret: bytes) -> Callable[[bytes], bytes]:
    """Return a function that reports a job to a controller."""
    if not where.startswith(("http://", "https://")):
        raise InputError(f"{JOB}: a file hears of no job; name a controller with {VARIABLE}")
    return _asker(where, secret, "/jobs")


def _asker(where: str, secret: bytes, path: str) -> Callable[[bytes | None], bytes]:
    """Return a function that requests a path of a controller, or posts content to it."""
    address = where.rstrip("/") + path
    headers = {"Authorization": f"Bearer {token(secret)}"}
    # No proxy: a controller is on the job's own network.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(content: bytes | None) -> bytes:
        request = urllib.request.Request(address, content, headers)
        try:
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                found = answer.read(BYTES_MAX + 1)
        except urllib.error.HTTPError as error:
            raise InputError(f"the controller answers {error.code} {error.reason}") from None
        except urllib.error.URLError as error:
            raise InputError(f"no controller answers ({error.reason})") from None
        except HTTPException:
            raise InputError("what answers there is no controller") from None
        if len(found) > BYTES_MAX:
            raise InputError(f"more than {BYTES_MAX} bytes")
        return bytes(found)

    return ask


def _now_us() -> int:
    return time.time_ns() // 1000
