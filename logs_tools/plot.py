"""The published entrance to `esync.reports.plot`, which draws figures and a speedup table."""

import sys
from pathlib import Path

if not __package__:  # started as a file: imports start at the checkout, as they do with -m
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from esync.reports.plot import main

if __name__ == "__main__":
    sys.exit(main())
