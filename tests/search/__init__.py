"""A search over moments of death; see `schedule` for what is drawn and `world` for what happens."""
