"""The published entrance to `esync.reports.sync_switch_report`, which reports Sync-Switch runs."""

import sys
from pathlib import Path

if not __package__:  # started as a file: imports start at the checkout, as they do with -m
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from esync.reports.sync_switch_report import main

if __name__ == "__main__":
    sys.exit(main())
