"""The published entrance to the state server, which is in `esync.state_server`: manage.py."""

import esync as esync  # says where modules are that were here
