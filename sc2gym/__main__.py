"""`python -m sc2gym` is the `sc2gym` command."""

import sys

from .cli import main

sys.exit(main())
