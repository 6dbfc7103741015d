"""The published entrances to the log tools, which are in `esync.reports`."""

import esync as esync  # says where the modules that were here are now
