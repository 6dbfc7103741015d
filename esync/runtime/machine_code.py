"""Compile loops with numba, and keep the machine code for later processes if possible."""

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

_warned = False  # whether this process has warned of machine code that cannot be kept


class _Cache(FunctionCache):
    """Numba's files with machine code; files that cannot be read or written are ignored.

    With numba's own class, two processes that compile a function for different types at the same time
    would write their code to the same file, and a third one would run the wrong code.
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
    """Let one process at a time read or write an existing folder."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            lock_file(descriptor, Path(folder), "no other process compiles loops meanwhile", wait=True)
        yield


def machine_code(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function at its first call, and keeps the machine code.

    Numba keeps it beside the function's file or in the home directory, or in NUMBA_CACHE_DIR. If none
    of them is writable, each process compiles the function again.

    Args:
        options: options of `numba.njit`.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        compiled = njit(nogil=True, **options)(function)
        try:
            compiled._cache = _Cache(function)
        except (RuntimeError, OSError) as error:  # RuntimeError: numba has found no folder
            _warn(str(error))
        return compiled

    return decorate


def _warn(reason: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        log.warning("compiled loops cannot be kept (%s): each process compiles them anew; set NUMBA_CACHE_DIR", reason)
