"""`python -m openmrc.cli`, which is `mrc`."""

import sys

from openmrc.cli.command import main

sys.exit(main())
