"""Reading Sync-Switch runs, published ones and our own: files, names, job logs, groups, figures."""
