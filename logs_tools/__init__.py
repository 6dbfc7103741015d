"""The published entrances to the log tools, which are in `esync.reports`."""

import esync as esync  # says where modules are that were here
