"""A recipe of CONTRIBUTING, followed to the letter in a copy of the package."""

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
            "q.max_wnd = max(1.5 * bdp, WINDOW_PACKETS_MIN * q.pkt)",
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
from openmrc.live.endpoint.host import Limits
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


def test_a_new_transport_key_is_two_files(tmp_path: Path) -> None:
    copy = tmp_path / "openmrc"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, changes in RECIPE.items():
        text = (copy / name).read_text()
        for old, new in changes:
            assert text.count(old) == 1
            text = text.replace(old, new)
        (copy / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", FOLLOW],
        env=os.environ | {"PYTHONPATH": str(tmp_path), "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["default"] == 32.0
    assert found["stated"] == 1000.0
    assert found["refused"] == (
        "--set: transport.window_min: 0 is refused; accepted: a whole number >= 1"
    )
    assert found["live"] == 64
    assert found["written"]
    assert found["limit"] == 65
    assert found["lab"].startswith(
        "scenario: transport.window_only: 2 of 'mrc' is only simulated; --world lab"
    )
    assert found["schema"]
    recipe = CONTRIBUTING.read_text().split("## A new transport key\n")[1].split("\n## ")[0]
    for step in ("engine/parameters.py", "scenario.schema.json", "soak/sim.py", "scenario.md"):
        assert step in recipe
