"""The published entrance to the state server, `esync.state_server`: manage.py."""

import esync as esync  # says where the modules that were here are now
