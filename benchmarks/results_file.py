"""The figures of a benchmark as a JSON file, whole or not at all."""

import json
from pathlib import Path
from typing import Any

from esync.runtime.files import write_whole


def write_figures(path: Path, figures: Any) -> None:
    """Write them. Raises OSError where the file cannot be written."""
    write_whole(path, (json.dumps(figures, indent=2) + "\n").encode())
