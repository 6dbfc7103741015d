"""The published entrances to the log tools, which are in `esync.reports`."""
