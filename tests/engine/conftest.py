"""What the stories of the engine share; `pair.py` is their vocabulary."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:  # so that the stories can import their vocabulary
    sys.path.insert(0, str(ROOT))
