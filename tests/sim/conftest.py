"""What the stories of the simulator share; `lab.py` is their vocabulary."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:  # so that the stories can import their vocabulary
    sys.path.insert(0, str(ROOT))

# the same examples in every run: a failure here is a change of the code, not of the luck
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")
