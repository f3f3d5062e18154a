"""How many cases a property of the engine is tried on, which, and what plain Python leaves out."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings

from openmrc.jit import interpreted

# Plain Python is slower, and sees the first of the cases that compiled code sees.
EXAMPLES = 5 if interpreted() else 40
COMMON = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,  # a failing case fails again in the next run
    phases=[Phase.explicit, Phase.generate],  # cases are small; making them smaller takes minutes
    suppress_health_check=[HealthCheck.too_slow],
)

# A story that takes seconds in plain Python and says nothing there that shorter ones do not say.
long = pytest.mark.skipif(interpreted(), reason="seconds in plain Python")
