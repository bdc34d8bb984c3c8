"""`python -m edagym`: the command line."""

import sys

from edagym.cli import main

if __name__ == "__main__":
    sys.exit(main())
