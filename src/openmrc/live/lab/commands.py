"""Commands on hosts: started in their namespaces, their lines marked with the host's name.

Each is a process group of its own, so that a Ctrl-C meant for the lab does not race with them: the
lab ends them, gently first. Lines are printed whole and in the order in which they arrive.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from openmrc.errors import InputError
from openmrc.live.lab.namespaces import Namespaces

GRACE_S = 3.0  # between SIGTERM and SIGKILL
DRAIN_S = 0.3  # for the remaining output of a finished command's own children
POLL_S = 0.1
READ_BYTES = 65_536
LINE_BYTES_MAX = 65_536  # a longer one is split

Write = Callable[[bytes], None]


class Command:
    """A command that runs on a host; `status` is None until it has ended."""

    def __init__(
        self,
        host: str,
        process: subprocess.Popen[bytes],
        streams: Sequence[tuple[IO[bytes], Write]],
    ) -> None:
        self.host = host
        self.process = process
        self.streams = streams

    @property
    def status(self) -> int | None:
        """Exit status, 128 + N after signal N, None while it runs."""
        code = self.process.poll()
        return code if code is None or code >= 0 else 128 - code


def start(
    namespaces: Namespaces,
    host: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    out: Write,
    err: Write,
) -> Command:
    """Start a command on a host; `out` and `err` take its lines, each prefixed with "h3| "."""
    with namespaces.inside(host):
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **environment},
                process_group=0,
            )
        except OSError as error:
            raise InputError(
                f"{command[0]}: cannot be run ({error.strerror}); name a command of this machine"
            ) from None
    assert process.stdout is not None
    assert process.stderr is not None
    return Command(host, process, [(process.stdout, out), (process.stderr, err)])


def run_shell(namespaces: Namespaces, host: str, environment: Mapping[str, str]) -> int:
    """Run the user's shell on a host, on this terminal; return its exit status."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    with namespaces.inside(host):
        try:
            done = subprocess.run([shell], env={**os.environ, **environment}, check=False)
        except OSError as error:
            raise InputError(f"SHELL={shell}: cannot be run ({error.strerror})") from None
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def watch(commands: Sequence[Command], stopping: Callable[[], int]) -> int:
    """Pass lines on until every command has ended; return the status of the first that failed, or
    0.

    "First" is in time; of two found ended at once, in the order of hosts. When `stopping` returns a
    status above 0 all commands are ended, and that is the result.
    """
    failed, told_at, reported = 0, 0.0, set[str]()
    with _Lines(commands) as lines:
        while running := [command for command in commands if command.status is None]:
            lines.pass_on(POLL_S)
            for command in commands:
                if command.status is not None and command.host not in reported:
                    reported.add(command.host)
                    failed = failed or command.status
            if not stopping():
                continue
            if not told_at:
                told_at = time.monotonic()
                _signal(running, signal.SIGTERM)
            elif time.monotonic() > told_at + GRACE_S:
                _signal(running, signal.SIGKILL)
        for command in commands:
            if command.host not in reported:
                failed = failed or command.status or 0
        lines.finish()
    return stopping() or failed


def _signal(commands: Sequence[Command], number: int) -> None:
    for command in commands:
        with suppress(ProcessLookupError):
            os.killpg(command.process.pid, number)


class _Lines:
    """The output lines of all commands."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self._selector = selectors.DefaultSelector()
        self._rest: dict[int, bytes] = {}
        for command in commands:
            for stream, write in command.streams:
                mark = f"{command.host}| ".encode()
                self._selector.register(stream, selectors.EVENT_READ, (mark, write, stream))

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            self._close(key)
        self._selector.close()

    def pass_on(self, timeout_s: float) -> bool:
        """Pass on lines that arrive within the time; False if there were none."""
        if not self._selector.get_map():
            time.sleep(min(timeout_s, 0.01))
            return False
        ready = self._selector.select(timeout_s)
        for key, _ in ready:
            self._read(key)
        return bool(ready)

    def finish(self) -> None:
        """Pass on the remaining lines, without waiting for processes that the commands left
        running.
        """
        until = time.monotonic() + DRAIN_S
        while self._selector.get_map() and time.monotonic() < until:
            if not self.pass_on(0.02):
                break

    def _read(self, key: selectors.SelectorKey) -> None:
        data = os.read(key.fd, READ_BYTES)
        if not data:
            self._close(key)
            return
        mark, write, _ = key.data
        *whole, rest = (self._rest.pop(key.fd, b"") + data).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            whole, rest = [*whole, rest], b""
        if whole:
            write(b"".join(mark + line + b"\n" for line in whole))
        if rest:
            self._rest[key.fd] = rest

    def _close(self, key: selectors.SelectorKey) -> None:
        self._selector.unregister(key.fileobj)
        mark, write, stream = key.data
        if rest := self._rest.pop(key.fd, b""):
            write(mark + rest + b"\n")
        stream.close()
