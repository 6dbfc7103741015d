"""Readers of Sync-Switch runs, published ones and our own: files, settings, job logs, groups, figures."""
