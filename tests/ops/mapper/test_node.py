"""`mrc doctor --node` on a host of a lab, over real frames that Linux's own switches turn round."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.live.lab.conftest import FABRIC, MRC, mrc, needed, said_by

FAULT = """
[[fault]]
at = "0us"
kind = "link-down"
where = "nic 1 plane 0"
"""


@pytest.mark.parametrize("mode", ["native", "udp"])
def test_a_node_with_a_dead_port_is_named_with_its_reason(mode: str, tmp_path: Path) -> None:
    needed("linux")
    file = tmp_path / f"node-{mode}.toml"
    file.write_text(f'{FABRIC}{FAULT}\n[lab]\nswitch = "linux"\nmode = "{mode}"\n')
    done = mrc("lab", file, "--hosts", "0-1", "--", *MRC, "doctor", "--node", "--json")
    assert done.returncode == 1, done.stderr
    fit, unfit = (json.loads("\n".join(said_by(host, done))) for host in (0, 1))
    assert fit == {"nic": 0, "fit": True, "reasons": []}
    assert unfit == {"nic": 1, "fit": False, "reasons": ["port of plane 0 is down"]}
