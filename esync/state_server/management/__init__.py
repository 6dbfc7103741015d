"""Commands of manage.py that this project has or changes."""
