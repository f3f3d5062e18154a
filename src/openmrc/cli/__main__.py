"""`python -m openmrc.cli`, which is `mrc`."""

import sys

from openmrc.cli import main

sys.exit(main())
