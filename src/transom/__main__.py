"""`python -m transom`: the command line."""

import sys

from transom.cli import main

if __name__ == "__main__":
    sys.exit(main())
