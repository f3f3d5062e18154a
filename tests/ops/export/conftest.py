"""Small fabrics, exported once a platform."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from openmrc.cli import main

FABRICS = {
    "planes": """
[fabric]
nics = 8
planes = 2
port_rate = "100Gbps"
t0_down = 2
t0_up = 3
""",
    "three tiers": """
[fabric]
kind = "fat-tree"
tiers = 3
nics = 16
port_rate = "100Gbps"
t0_down = 2
t1_down = 2
""",
    "smallest": """
[fabric]
nics = 2
planes = 1
port_rate = "100Gbps"
t0_down = 1
t0_up = 1
""",
}
# The same two, where carriers name links.
for named, of in (("links", "planes"), ("three tiers of links", "three tiers")):
    FABRICS[named] = FABRICS[of] + 'sids = "uA"\n'

Export = Callable[[str, str], Path]


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Export:
    """Return the directory to which a fabric was exported for a platform."""
    found: dict[tuple[str, str], Path] = {}

    def export(platform: str, fabric: str) -> Path:
        if (platform, fabric) not in found:
            place = tmp_path_factory.mktemp(platform)
            (place / "x.toml").write_text(FABRICS[fabric])
            out = place / "out"
            assert main(["switches", platform, str(place / "x.toml"), "--out", str(out)]) == 0
            found[platform, fabric] = out
        return found[platform, fabric]

    return export
