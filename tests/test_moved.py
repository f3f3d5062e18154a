"""Old names of modules work for one release, and say so."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from openmrc import moved


@pytest.fixture(autouse=True)
def _imported_anew() -> None:
    """A warning comes with the first import of an old name in a process."""
    for name in [*moved.NOW, "openmrc.inlab.spec"]:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("old", [old for old, homes in moved.NOW.items() if len(homes) == 1])
def test_an_old_name_gives_the_same_module_and_warns(old: str) -> None:
    (home,) = moved.NOW[old]
    with pytest.warns(
        DeprecationWarning, match=rf"^{old} is {home} now; the old name goes"
    ) as seen:
        module = import_module(old)
    assert module is import_module(home)
    assert module.__name__ == home
    assert module.__spec__ is not None
    assert module.__spec__.name == home
    assert len(seen) == 1


def test_a_name_is_found_in_whichever_part_has_it_and_is_the_same() -> None:
    from openmrc.cli import lab
    from openmrc.run.lab import spec

    with pytest.warns(DeprecationWarning, match=r"openmrc\.cli\.lab and openmrc\.run\.lab\.spec"):
        from openmrc import labs
    assert labs.split is lab.split
    assert labs.lab_spec is spec.lab_spec
    with pytest.raises(AttributeError, match=r"module 'openmrc\.labs' has no attribute 'nothing'"):
        _ = labs.nothing


def test_a_module_of_a_room_that_moved_is_not_loaded_twice() -> None:
    with pytest.warns(DeprecationWarning, match=r"^openmrc\.inlab(\.spec)? is openmrc\.run\.lab"):
        old = import_module("openmrc.inlab.spec")
    assert old is import_module("openmrc.run.lab.spec")


def test_the_warning_names_the_line_that_imports() -> None:
    with pytest.warns(DeprecationWarning, match=r"^openmrc\.inside is") as seen:
        import openmrc.inside  # type: ignore[import-not-found]  # noqa: F401
    assert seen[0].filename == __file__


def test_names_that_never_were_fail_as_usual() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'openmrc\.outside'"):
        import_module("openmrc.outside")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'openmrc\.live\.outside'"):
        import_module("openmrc.live.outside")


def test_a_benchmark_runs_under_its_old_name() -> None:
    command = [sys.executable, "-W", "default", "-m", "openmrc.benchsim", "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    now = subprocess.run(
        [*command[:-2], "openmrc.bench.sim", "nothing"], capture_output=True, text=True, check=False
    )
    assert done.returncode == now.returncode != 0
    assert done.stderr.splitlines()[-1] == now.stderr.splitlines()[-1]


def test_what_was_a_module_and_is_a_room_offers_its_names() -> None:
    from openmrc.run import simulate
    from openmrc.scenario import load_scenario
    from openmrc.traffic import Traffic
    from openmrc.verbs import exchange, hostfile, inside, metrics

    assert callable(simulate)
    assert callable(load_scenario)
    assert Traffic.__module__ == "openmrc.traffic.traffic"
    assert [module.__name__ for module in (exchange, hostfile, inside, metrics)] == [
        f"openmrc.verbs.{name}" for name in ("exchange", "hostfile", "inside", "metrics")
    ]
