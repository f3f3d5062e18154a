"""Rehearsals of the policies that are named on the command line, in one uncompiled process."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from openmrc.policies.rehearse import rehearse

print(json.dumps([rehearse(Path(file), {role: role}) for role, file in
                  (each.split("=") for each in sys.argv[1:])]))  # fmt: skip
