"""What the tests of launch have: launchers, machines, a data set of a few samples."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "launch"))
sys.path.append(str(Path(__file__).parents[1] / "data"))

from job_fixtures import data_dir, launch  # noqa: F401
