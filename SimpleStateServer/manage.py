#!/usr/bin/env python
"""Django's command line for the state server.

    cd SimpleStateServer && python manage.py runserver 0.0.0.0:10010

This starts the same server as `python -m esync.state_server`, with fewer flags.
"""

import os
import sys
from pathlib import Path


def main() -> None:
    """Run the command given on the command line."""
    # Started with a script, Python looks for modules beside it; the packages lie one level above.
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    os.environ["DJANGO_SETTINGS_MODULE"] = "esync.state_server.settings"
    from django.core.management import execute_from_command_line
    from django.db import OperationalError

    from esync.runtime.errors import ExpectedError

    try:
        execute_from_command_line(sys.argv)
    except ExpectedError as error:
        sys.exit(str(error))
    except OperationalError as error:
        sys.exit(f"the history's database cannot be used ({error}): ESYNC_STATE_DIR or DATABASE_URL says where it is")


if __name__ == "__main__":
    main()
