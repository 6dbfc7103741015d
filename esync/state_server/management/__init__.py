"""Commands of manage.py that this project adds or changes."""
