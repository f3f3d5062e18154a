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

# A key `window_min`: no window is smaller than so many packets.
RECIPE = {
    "engine/parameters.py": (
        "    max_wimm: int = stated(",
        '    window_min: int = stated(32, "reference 4.6", "packets", least=1, most=1024)\n'
        "    max_wimm: int = stated(",
    ),
    "engine/nscc.py": (
        "q.max_wnd = max(1.5 * bdp, WINDOW_PACKETS_MIN * q.pkt)",
        "q.max_wnd = max(1.5 * bdp, c.window_min * q.pkt)",
    ),
}

FOLLOW = """
import json
from openmrc import parse_scenario
from openmrc.engine import setup
from openmrc.errors import InputError
from openmrc.live.endpoint.host import Limits
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
print(json.dumps({
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
    for name, (old, new) in RECIPE.items():
        text = (copy / name).read_text()
        assert text.count(old) == 1
        (copy / name).write_text(text.replace(old, new))
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
    recipe = CONTRIBUTING.read_text().split("## A new transport key\n")[1].split("\n## ")[0]
    assert "engine/parameters.py" in recipe
