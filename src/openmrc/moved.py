"""Module names from before the packages were divided: they work for one release, with a warning.

Importing an old name returns the module at its new place; if it was divided, a module that finds
each of its names in one of the parts. `python -m` works as well.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

NOW: dict[str, tuple[str, ...]] = {
    "openmrc.benchlive": ("openmrc.bench.live",),
    "openmrc.benchsim": ("openmrc.bench.sim",),
    "openmrc.engine.paths": (
        "openmrc.engine.ev",
        "openmrc.engine.rotation",
        "openmrc.engine.beliefs",
        "openmrc.engine.probes",
    ),
    "openmrc.hostfile": ("openmrc.verbs.hostfile",),
    "openmrc.inlab": ("openmrc.run.lab",),
    "openmrc.inside": ("openmrc.verbs.inside",),
    "openmrc.labs": ("openmrc.cli.lab", "openmrc.run.lab.spec"),
    "openmrc.live.exchange": ("openmrc.verbs.exchange",),
    "openmrc.live.host": ("openmrc.live.endpoint.host",),
    "openmrc.live.metrics": ("openmrc.verbs.metrics",),
    "openmrc.live.soak": ("openmrc.soak.live",),
    "openmrc.live.switches": ("openmrc.live.switch.switches",),
    "openmrc.sim.transport": ("openmrc.sim.mrc.transport", "openmrc.fabric.queues"),
    "openmrc.wire.pause": ("openmrc.wire.roce.pause",),
    "openmrc.wire.roce_view": ("openmrc.wire.roce.view",),
}


class OldNames(MetaPathFinder, InspectLoader):
    """Finds a module of `NOW` by its old name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Handle old names only; all others are for Python's own finders."""
        return ModuleSpec(fullname, self) if _homes(fullname) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module at its new place, and warn the importer."""
        homes = _homes(spec.name)
        words = f"{spec.name} is {' and '.join(homes)} now; the old name goes with the next release"
        warnings.warn(words, DeprecationWarning, stacklevel=2)
        parts = [import_module(home) for home in homes]
        module = parts[0] if len(parts) == 1 else _joined(spec.name, parts)
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing but restore the module's own spec: it is already executed."""
        module.__spec__ = self._own

    def get_code(self, fullname: str) -> CodeType:
        """Return the code, for `python -m`."""
        home = _homes(fullname)[0]
        text = f"import runpy\nrunpy.run_module({home!r}, run_name='__main__', alter_sys=True)"
        return compile(text, fullname, "exec")

    def get_source(self, fullname: str) -> None:
        """Return None: there is no source."""


def _homes(name: str) -> tuple[str, ...]:
    """The new names of a module, also if its package was moved as a whole; nothing if it never
    moved.
    """
    room, _, module = name.rpartition(".")
    return NOW.get(name) or tuple(f"{home}.{module}" for home in NOW.get(room, ()))


def _joined(name: str, parts: Sequence[ModuleType]) -> ModuleType:
    """A module with the names of all these."""

    def find(attribute: str) -> Any:
        for part in parts:
            if hasattr(part, attribute):
                return getattr(part, attribute)
        raise AttributeError(f"module {name!r} has no attribute {attribute!r}")

    module = ModuleType(name)
    module.__dict__["__getattr__"] = find
    return module


def accept_old_names() -> None:
    """Make imports find old names from now on."""
    if not any(isinstance(finder, OldNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, OldNames())  # before a finder loads a file of a package twice
