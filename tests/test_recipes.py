"""Recipes of CONTRIBUTING, followed to the letter in a copy of the package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import openmrc

PACKAGE = Path(openmrc.__file__).parent
CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"

# A key `window_min`: no window is smaller than so many packets; and one of simulated endpoints.
RECIPE = {
    "engine/parameters.py": [
        (
            "    max_wimm: int = stated(",
            '    window_min: int = stated(32, "reference 4.6", "packets", least=1, most=1024)\n'
            "    max_wimm: int = stated(",
        ),
        (
            "    check_paths: bool = stated(",
            '    window_only: int = stated(1, "reference 4.6", "packets", least=1, most=1024)\n'
            "    check_paths: bool = stated(",
        ),
    ],
    "engine/nscc.py": [
        (
            "q.max_wnd = max(1.5 * bdp, WINDOW_PACKETS_MIN * q.pkt / share, q.pkt)",
            "q.max_wnd = max(1.5 * bdp, c.window_min * c.window_only * q.pkt)",
        )
    ],
}

FOLLOW = """
import json
import re
from openmrc import parse_scenario
from openmrc.engine import setup
from openmrc.errors import InputError
from openmrc.live.endpoint.limits import Limits
from openmrc.scenario.schema import text as schema_text
from openmrc.sim.world import World

SMALL = '''
fabric = {nics = 2, planes = 1, t0_down = 2}
workload = {kind = "stream", size = "4KiB"}
'''

def largest_window(*changes):
    scenario = parse_scenario(SMALL, list(changes))
    fabric, traffic, _ = scenario.build()
    world = World(fabric, traffic, scenario.transports[0].build())
    setup.open_qp(world.engine, 0)
    q = world.engine.qp[0]
    return float(q.max_wnd / q.pkt)

try:
    parse_scenario(SMALL, ["transport.window_min=0"])
except InputError as error:
    refused = str(error)
def in_a_lab(**keys):
    from openmrc.run.lab.run import run_in_lab
    tables = {
        "fabric": {"nics": 4, "t0_down": 2},
        "workload": {"kind": "permutation", "size": "1kB"},
        "transport": keys,
    }
    try:
        run_in_lab(tables)
    except InputError as error:
        return str(error)

def limit(value):
    from openmrc.run.lab.plan import limits_of
    from openmrc.scenario.transports import TransportSection
    derived = type("derived", (), {"mpr_packets": 128})
    return limits_of(TransportSection(window_min=value), derived, True, 4, 1).window_min

print(json.dumps({
    "lab": in_a_lab(window_only=2),
    "limit": limit(65),
    "schema": {"window_min", "window_only"} <= set(re.findall("\\w+", schema_text())),
    "default": largest_window(),
    "stated": largest_window("transport.window_min=1000"),
    "refused": refused,
    "live": Limits(window_min=64).window_min,
    "written": "window_min = 32" in parse_scenario(SMALL).to_toml(),
}))
"""


def followed(
    recipe: dict[str, list[tuple[str, str]]], follow: str, folder: Path
) -> dict[str, object]:
    """What a script prints, as JSON, with these changes made in a copy of the package."""
    copy = folder / "openmrc"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, changes in recipe.items():
        text = (copy / name).read_text()
        for old, new in changes:
            assert text.count(old) == 1, (name, old)
            text = text.replace(old, new)
        (copy / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", follow],
        env=os.environ | {"PYTHONPATH": str(folder), "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def section(heading: str) -> str:
    return CONTRIBUTING.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]


def test_a_new_transport_key_is_two_files(tmp_path: Path) -> None:
    found = followed(RECIPE, FOLLOW, tmp_path)
    assert found["default"] == 32.0
    assert found["stated"] == 1000.0
    assert found["refused"] == (
        "--set: transport.window_min: 0 is refused; accepted: a whole number >= 1"
    )
    assert found["live"] == 64
    assert found["written"]
    assert found["limit"] == 65
    lab = "scenario: transport.window_only: 2 of 'mrc' is only simulated; --world lab accepts 1"
    assert found["lab"] == lab
    assert found["schema"]
    recipe = section("A new transport key")
    for step in ("engine/parameters.py", "scenario.schema.json", "soak/sim.py", "scenario.md"):
        assert step in recipe


# A fault `link-short`: a link silently loses all packets shorter than `least` bytes.
FAULT = {
    "fabric/actions.py": [
        ("NIC_PORT_UP = 13\n", "NIC_PORT_UP = 13\nPORT_LEAST = 14\n"),
        ('    ("losing", "i1"),', '    ("frame_min", "i4"),\n    ("losing", "i1"),'),
    ],
    "fabric/kinds.py": [
        ("EFFECTS = range(8)", "EFFECTS = range(9)"),
        ("SILENT, DENY = EFFECTS", "SILENT, DENY, SHORT = EFFECTS"),
        (
            "    NARROW: Rated(",
            '    SHORT: Rated(PORT_LEAST, "least", "from"),\n    NARROW: Rated(',
        ),
        ("import MTU_WHOLE, PORT_CORRUPT", "import PORT_LEAST, MTU_WHOLE, PORT_CORRUPT"),
        (
            '    "mtu": Kind("links"',
            '    "link-short": Kind("links", SHORT, "link-short over"),\n    "mtu": Kind("links"',
        ),
        (
            "    period_ps: int | None = None",
            "    least: int | None = None\n    period_ps: int | None = None",
        ),
        ('    "mtu": ("mtu",),', '    "mtu": ("mtu",),\n    "least": ("link-short",),'),
        ('    "mtu": f"the longest', '    "least": "bytes",\n    "mtu": f"the longest'),
    ],
    "fabric/health.py": [
        ("PORT_LOSS, PORT_MTU\n", "PORT_LEAST, PORT_LOSS, PORT_MTU\n"),
        (
            "    elif action == PORT_MTU:",
            "    elif action == PORT_LEAST:\n        health.frame_min = int(rate)\n"
            "    elif action == PORT_MTU:",
        ),
        ("or health.frame_max > 0", "or health.frame_max > 0 or health.frame_min > 0"),
        (
            "    if health.loss > 0:\n",
            "    if frame_bytes < health.frame_min:\n        return LOST\n"
            "    if health.loss > 0:\n",
        ),
    ],
    "fabric/draw.py": [
        (
            '        if kind == "mtu":',
            '        if kind == "link-short":\n            values["least"] = 1000\n'
            '        if kind == "mtu":',
        ),
    ],
}

BREAK = """
import json
from openmrc import parse_scenario, simulate
from openmrc.live.lab.health import Health, healing
from openmrc.live.lab.linux import CANNOT
from openmrc.sim.watch.sampler import _harms

scenario = parse_scenario('''
fabric = {nics = 4, planes = 1, t0_down = 2}
workload = {kind = "permutation", size = "16KiB"}
stop = {time = "30us"}
[[fault]]
at = "0s"
kind = "link-short"
where = "plane * t0 * - t1 *"
least = 2000
''')
fabric, _, schedule = scenario.build()
health = Health(fabric)
health.apply(schedule.events)
troubles = {each["state"] for each in health.troubles()}
health.apply(healing(fabric, "everywhere"))
packets = simulate(scenario).summary()["transports"]["mrc"]["packets"]
print(json.dumps({
    "lost": packets["dropped_fault"],
    "troubles": sorted(troubles),
    "healed": health.troubles(),
    "linux": sorted(kind for kind, _ in CANNOT.values()),
    "harms": _harms(schedule.events["action"], schedule.events["rate"]).tolist(),
}))
"""


def test_a_fault_with_a_new_effect_is_four_files(tmp_path: Path) -> None:
    found = followed(FAULT, BREAK, tmp_path)
    assert int(str(found["lost"])) > 0  # answers are short; data and what is trimmed is not
    assert found["troubles"] == ["from 2000"]
    assert found["healed"] == []
    assert found["linux"] == ["link-corrupt", "link-short"]
    assert set(found["harms"]) == {True}  # type: ignore[call-overload]  # of JSON: a list
    recipe = section("A fault with a new effect")
    assert [name for name in FAULT if name not in recipe] == []
