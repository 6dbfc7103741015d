"""Files of JSON: read, and changed in some of their fields."""

import json
from pathlib import Path
from typing import Any


def read_json(path: Path) -> Any:
    """The content of a file."""
    return json.loads(path.read_text())


def change_json(path: Path, **fields: Any) -> None:
    """Set fields of the object in a file."""
    path.write_text(json.dumps(read_json(path) | fields))
