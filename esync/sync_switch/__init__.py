"""Timing policy of Sync-Switch: search for the best moment to switch, by trial runs.

`python -m esync.sync_switch search FILE` runs it. `search` decides which share of BSP to try next,
`trials` runs it, and `report` prints the result. May import `arguments`, `config`, `reports`,
`runtime` and `training`.
"""
