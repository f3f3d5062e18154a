"""A child process in namespaces of its own, without root; it leaves no trace.

The caller forks a keeper. It creates the user, mount, network and PID namespaces and forks the
first process of the latter; that one forks the process that does the work, and reaps its orphans.
Each is bound to its parent by a parent-death signal, and when the first process of a PID namespace
dies the kernel kills all others in it. So SIGKILL of the caller ends everything that was started
inside, and with the last process the network namespaces and all interfaces disappear.

Python 3.11 has no unshare(2), setns(2), mount(2) and prctl(2); the C library has.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from openmrc import ending
from openmrc.ending import EXIT_INTERRUPTED
from openmrc.errors import InputError, OpenMrcError

NEW_MOUNTS, NEW_USER, NEW_PIDS, NEW_NETWORK = 0x20000, 0x1000_0000, 0x2000_0000, 0x4000_0000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 2, 4, 8, 1 << 14, 1 << 18
_PR_SET_PDEATHSIG = 1
_MESSAGE_BYTES = 4096  # of an error; a pipe takes this much at once (PIPE_BUF)
EXIT_REFUSED = 2

_libc = ctypes.CDLL(None, use_errno=True)


class Refused(InputError):
    """The machine does not permit what a lab needs."""


def unshare(kinds: int) -> None:
    """Leave the namespaces of these kinds for new ones; `OSError` if that is not allowed."""
    _call("unshare", kinds)


def set_namespace(fd: int, kind: int) -> None:
    """Move the calling thread into the namespace that `fd` refers to."""
    _call("setns", fd, kind)


def run_isolated(work: Callable[[], int], *, own_user: bool = True) -> int:
    """Run `work` as root of namespaces of its own and return the status that it returned.

    The user is mapped to root there, so the files that it writes belong to the user. With
    `own_user` false there is no user namespace: that needs root, and `work` is root of the machine.
    SIGINT, SIGTERM and SIGHUP are forwarded to it; it is killed together with the caller. If `work`
    dies of signal N the status is 128 + N. An `OpenMrcError` that it raises is raised here as an
    `InputError` with the same text, and so is a `Refused` if namespaces are not allowed. Call it
    before libraries start threads: only the calling thread continues in the child.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    keeper = _fork(lambda: _keep(work, writer, own_user))
    os.close(writer)
    try:
        status = _wait_for(keeper)
        told = os.read(reader, _MESSAGE_BYTES).decode()
    finally:
        os.close(reader)
    if told:
        kind, _, words = told.partition(" ")
        raise Refused(words) if kind == Refused.__name__ else InputError(words)
    return status


def allowed() -> str:
    """Return "" if this process may create such namespaces, else what to do about it, in one
    line.
    """
    try:
        run_isolated(lambda: 0)
    except Refused as error:
        return str(error)
    return ""


def _keep(work: Callable[[], int], writer: int, own_user: bool) -> int:
    """The keeper: create the namespaces, then wait for the first process inside."""
    user, group = os.geteuid(), os.getegid()
    try:
        unshare((NEW_USER if own_user else 0) | NEW_MOUNTS | NEW_NETWORK | NEW_PIDS)
        if own_user:
            _map_to_root(user, group)
    except OSError as error:
        # Root may do without a user namespace, as in a container that has the capability.
        if user != 0 or not _without_user():
            _tell(writer, Refused(_remedy(error)))
            return EXIT_REFUSED
    return _wait_for(_fork(lambda: _first(work, writer)))


def _without_user() -> bool:
    try:
        unshare(NEW_MOUNTS | NEW_NETWORK | NEW_PIDS)
    except OSError:
        return False
    return True


def _first(work: Callable[[], int], writer: int) -> int:
    """The first process inside: mounts, the worker, and reaping."""
    _call("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    with suppress(OSError):  # needed by `ps` alone; refused where parts of /proc are hidden
        _call("mount", b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None)
    return _wait_for(_fork(lambda: _work(work, writer)))


def _work(work: Callable[[], int], writer: int) -> int:
    try:
        return work()
    except OpenMrcError as error:
        _tell(writer, error)
        return EXIT_REFUSED


def _map_to_root(user: int, group: int) -> None:
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"0 {user} 1"),
        ("gid_map", f"0 {group} 1"),
    ):
        Path("/proc/self", name).write_text(text)


def _remedy(error: OSError) -> str:
    """Return why the namespaces were refused and what to type, in one line."""
    refused = f"namespaces are refused ({error.strerror})"
    for path, bad, setting in (
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
        ("user/max_net_namespaces", "0", "user.max_net_namespaces=10000"),
    ):
        with suppress(OSError):
            if Path("/proc/sys", path).read_text().strip() == bad:
                return f"{refused}; type: sudo sysctl -w {setting}"
    if error.errno == errno.EINVAL:
        return f"{refused}; this kernel has no user namespaces (CONFIG_USER_NS)"
    return (
        f"{refused}; in a container start it with --security-opt seccomp=unconfined or"
        " --privileged, else run as root"
    )


def _tell(writer: int, error: OpenMrcError) -> None:
    words = f"{type(error).__name__} {error}".encode()[:_MESSAGE_BYTES]
    os.write(writer, words)


def _fork(work: Callable[[], int]) -> int:
    """Return the PID of a child that runs `work`, exits with its status, and dies with its
    parent.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _call("prctl", _PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        # The first process of a PID namespace sees no parent; its parent is the keeper, which
        # dies with its own.
        if os.getppid() in (parent, 0):
            status = work()
        sys.stdout.flush()
        sys.stderr.flush()
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _wait_for(pid: int) -> int:
    """Reap until `pid` has ended and return its status; forward signals to it."""

    def forward(number: int, _frame: FrameType | None) -> None:
        ending.note(number)
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    with _handlers(forward):
        while True:
            ended, status = os.waitpid(pid if os.getpid() != 1 else -1, 0)
            if ended == pid:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code


@contextmanager
def _handlers(forward: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    told = [n for n in ending.SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, forward) for number in told}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _call(name: str, *arguments: Any) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
