"""Compile loops with numba; the machine code is kept for later processes, where there is a place for it."""

import contextlib
import logging
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache

from .files import lock_file

log = logging.getLogger(__name__)

_warned = False  # this process, of machine code that cannot be kept


class _Cache(FunctionCache):
    """Numba's files with machine code; one that cannot be read or written is no error.

    Numba itself lets two processes that compile a function for different types at the same time
    write their code to the same file, so that a third runs the wrong one.
    """

    @contextlib.contextmanager
    def _guard_against_spurious_io_errors(self) -> Iterator[None]:
        try:
            with _locked(self.cache_path):
                yield
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            _warn(f"{self.cache_path}: {error}")


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Let one process at a time read or write a folder that is there."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            lock_file(descriptor, Path(folder), "no other process compiles loops meanwhile", wait=True)
        yield


def machine_code(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function when it is called first, and keeps the machine code.

    Numba keeps it beside the function's file or in the home directory, or in NUMBA_CACHE_DIR. Where
    it can write to none of them, each process compiles anew.

    Args:
        options: of `numba.njit`.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        made = njit(nogil=True, **options)(function)
        try:
            made._cache = _Cache(function)
        except (RuntimeError, OSError) as error:  # RuntimeError: numba has found no folder
            _warn(str(error))
        return made

    return decorate


def _warn(why: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        log.warning("compiled loops cannot be kept (%s): each process compiles them anew; set NUMBA_CACHE_DIR", why)
