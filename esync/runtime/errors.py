"""Errors that a user can do something about."""


class ExpectedError(Exception):
    """Its message is all that a user needs: programs print it as one sentence, without a traceback, and exit with 1.

    Attributes:
        transient: another process in the place of this one may do better.
    """

    transient = False


class DeadlockError(ExpectedError):
    """All tasks wait, so nothing can happen any more; the message says which tasks, and for what."""


class AlgorithmResultError(ExpectedError):
    """A method of an algorithm has returned what cannot be used."""
