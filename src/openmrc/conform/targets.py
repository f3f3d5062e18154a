"""Targets outside of this process: a live endpoint, or any implementation on a network."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

from openmrc.conform import whole
from openmrc.conform.network import EVS, Where, verdict
from openmrc.conform.outcome import Outcome
from openmrc.conform.script import Rule
from openmrc.errors import OpenMrcError
from openmrc.verbs import secret as secrets

# Of the live endpoint and of the kit: loopback has many addresses.
LIVE, KIT = ("127.77.1.1", "127.77.1.2"), ("127.77.2.1", "127.77.2.2")
LISTENING = "listening on port "


def over_network(rules: Sequence[Rule], where: Where) -> list[Outcome]:
    """Test an implementation against rules, and return their outcomes, in order.

    Raises `InputError` for planes that this host does not have, which is not a failure of a rule.
    """
    with where.opened(where.planes, EVS):
        pass
    return whole.hold(rules, lambda rule, always: verdict(rule, where, always))


@contextlib.contextmanager
def served(kind: str) -> Iterator[Where]:
    """The project's own live endpoint (`live`), or libmrc, with its upper tester, as a process of
    its own.
    """
    secret = secrets.new()
    words = ["conformance", "--serve", "--against", kind]
    words += ["--port", "0", "--interface", ",".join(LIVE)]
    with subprocess.Popen(
        [sys.executable, "-m", "openmrc.cli", *words],
        env={**os.environ, secrets.VARIABLE: secret.hex()},  # which its user alone can read
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            assert child.stdout is not None
            said = child.stdout.readline()
            if not said.startswith(LISTENING):
                raise OpenMrcError(f"{kind}: did not start")
            yield Where(KIT, "127.0.0.1", int(said.removeprefix(LISTENING)), secret)
        finally:
            child.kill()
