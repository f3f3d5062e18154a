"""A checkout of the repository, whose package runs in processes of its own.

What `same.py` and `paired.py` share: neither imports the package, since they look at two of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

MRC = "import sys; from openmrc.cli import main; sys.exit(main())"
WHERE = "import openmrc; print(openmrc.__file__)"
TIMED_OUT = 124
TINY = """
    transport = [{ name = "mrc" }, { kind = "roce" }]
    fabric = { nics = 4, t0_down = 2 }
    workload = { kind = "permutation", size = "64KiB" }
"""


@dataclass(frozen=True)
class Checkout:
    """A directory that holds src/openmrc, and one in which its compiled code is kept.

    Checkouts share no such directory: only a few versions are kept in one, and each is needed.
    """

    root: Path
    cache: Path

    def python(self, *arguments: str, limit_s: float | None = None) -> CompletedProcess[str]:
        """Run this Python in the checkout with the checkout's package, and wait for the end.

        What is not over after `limit_s` is ended, with status 124.
        """
        more = {"PYTHONPATH": str(self.root / "src"), "OPENMRC_CACHE": str(self.cache)}
        command = [sys.executable, *arguments]
        try:
            return subprocess.run(
                command,
                cwd=self.root,
                env=os.environ | more,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired:
            return CompletedProcess(command, TIMED_OUT, "", f"not over after {limit_s:g} s\n")

    def must(self, *arguments: str) -> str:
        """As `python`; what it printed, or the end of this program."""
        done = self.python(*arguments)
        if done.returncode:
            words = f"{self.root}: {' '.join(arguments)}: status {done.returncode}\n{done.stderr}"
            raise SystemExit(words)
        return done.stdout

    def warm(self) -> None:
        """Compile the simulator of both transports, unless that is done."""
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as tiny:
            tiny.write(TINY)
            tiny.flush()
            self.must("-c", MRC, "run", tiny.name, "--json")


def checkout(root: str | Path, cache: Path) -> Checkout:
    """The checkout in this directory; ends this program if Python takes the package elsewhere."""
    one = Checkout(Path(root).resolve(), cache.resolve())
    found = Path(one.must("-c", WHERE).strip())
    if not found.is_relative_to(one.root):
        raise SystemExit(f"{root}: no checkout; Python finds the package in {found.parent}")
    return one
