"""The checks of `mrc policy check`: of a policy's text, in an uncompiled run, and of its
compilation.
"""

from __future__ import annotations

import ast
import json
import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openmrc.errors import InputError
from openmrc.policies.look import Finding, look
from openmrc.reading import read_text
from openmrc.say import counted, say
from openmrc.sim.mrc.policies import find, imported, load, module_of

ROLES = ("step", "choose")  # as named in a scenario; `learn` comes with `choose`
PATIENCE_S = 5.0  # for the remaining output of an interrupted rehearsal


@dataclass
class Checked:
    """The findings on the functions of a file, and the counts of an uncompiled run of them."""

    file: Path
    roles: dict[str, str]  # function by role
    findings: list[Finding] = field(default_factory=list)
    run: dict[str, Any] = field(default_factory=dict)
    trouble: str = ""  # of the run or the compiler; "" if there is none
    interrupted: bool = False

    @property
    def is_sound(self) -> bool:
        """True if the policy can be run."""
        return not self.trouble and all(finding.warning for finding in self.findings)

    def lines(self) -> list[str]:
        """Return the findings, a line each: the place, and what is wrong there."""
        found = [
            f"{self.file}:{line}: {'warning: ' if warning else ''}{words}"
            for line, words, warning in self.findings
        ]
        found += [
            f"{self.file}: {words}, {counted(n, 'time')}" for words, n in self._notes().items()
        ]
        return [*found, self.trouble] if self.trouble else found

    def _notes(self) -> dict[str, int]:
        notes: dict[str, int] = self.run.get("notes", {})
        return notes


def check(text: str) -> Checked:
    """Check "FILE.py", or one function, "FILE.py:NAME"; `InputError` if it is not a policy."""
    file, colon, name = text.rpartition(":")
    if not (colon and file.endswith(".py")):
        file, name = text, ""
    path = Path(file).absolute()
    tree = _tree(path)
    module_of(path)  # a file that cannot be imported has no functions to speak of
    checked = Checked(Path(file), _roles(tree, path, name))
    for role, function in checked.roles.items():
        find(f"{path}:{function}", role, Path())
    checked.findings = look(tree)
    if checked.is_sound:
        _rehearsed(checked, path)
    if checked.is_sound:
        _compiled(checked, path)
    return checked


def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(read_text(path, "a policy, FILE.py"))
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{path}: is not Python: {error}") from None


def _roles(tree: ast.Module, path: Path, name: str) -> dict[str, str]:
    """The functions to check by role: those named after a role, or the one that is named."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if name:
        if name not in functions:
            raise InputError(f"{path} has no function {name} (it has: {', '.join(functions)})")
        return {"step" if len(functions[name].args.args) > 4 else "choose": name}
    found = {role: role for role in ROLES if role in functions}
    if brought := sorted(imported(tree) & set(ROLES)) if not found else []:
        raise InputError(f"{path}: imports {brought[0]}; a policy is written in its own file")
    if not found:
        raise InputError(
            f"{path}: has neither step nor choose (it has: {', '.join(functions) or 'none'});"
            " name the function: FILE.py:NAME"
        )
    return found


def _rehearsed(checked: Checked, path: Path) -> None:
    """Run it uncompiled in a process of its own, which Ctrl-C reaches too."""
    roles = [f"{role}={name}" for role, name in checked.roles.items()]
    command = [sys.executable, "-m", "openmrc.policies.rehearse", str(path), *roles]
    say("Running it uncompiled ...")
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        said, checked.interrupted = _told(process)
        if checked.interrupted:
            process.kill()
    if not said and not checked.interrupted:
        raise InputError(f"{path}: its uncompiled run ended with status {process.returncode}")
    checked.run = json.loads(said) if said else {}
    if checked.interrupted:
        at = checked.run.get("interrupted", {}).get("line")
        checked.trouble = f"{checked.file}{f':{at}' if at else ''}: interrupted here"
    elif "error" in checked.run:
        line, words = checked.run["error"]["line"], checked.run["error"]["words"]
        checked.trouble = f"{checked.file}{f':{line}' if line else ''}: {words}"


def _told(process: subprocess.Popen[bytes]) -> tuple[str, bool]:
    """Return the output of a process, and whether it was interrupted: whenever that happens,
    earlier output is kept, and the rest is waited for.
    """
    assert process.stdout is not None
    fd, said, until = process.stdout.fileno(), b"", None
    while True:
        try:
            wait_s = None if until is None else max(until - time.monotonic(), 0.0)
            if not select.select([fd], [], [], wait_s)[0] or not (more := os.read(fd, 1 << 16)):
                return said.decode(), until is not None
            said += more
        except KeyboardInterrupt:
            until = until or time.monotonic() + PATIENCE_S


def _compiled(checked: Checked, path: Path) -> None:
    """Compile it for the engine's state, as a run does."""
    from openmrc.engine import setup
    from openmrc.sim.mrc.transport import Transport

    rooms = setup.Rooms(qps=1, planes=1, mpr=64, sends=1, receives=1, evs=1, order_len=1)
    state = setup.new_state(Transport(), rooms, nics=1, peers=1, regions=1)
    for role, name in checked.roles.items():
        try:
            load(find(f"{path}:{name}", role, Path()), state)
        except InputError as error:
            checked.trouble = str(error)
