"""Sync-Switch's timing policy: when to switch, found by trials (python -m esync.sync_switch search)."""
