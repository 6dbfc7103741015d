"""Migrations of the history's tables, applied at each start."""
