"""Errors that a user can do something about."""


class ExpectedError(Exception):
    """Its message is all that a user needs: programs print it as one sentence, without a traceback, and exit with 1."""
