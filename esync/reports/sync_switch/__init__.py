"""Readers of Sync-Switch runs, published ones and our own: files, settings, groups, figures."""
