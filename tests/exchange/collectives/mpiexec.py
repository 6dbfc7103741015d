"""Runs programs under a real mpiexec, where there is one."""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MPIEXEC = next(
    (
        str(path)
        for path in (Path(sys.executable).with_name("mpiexec"), shutil.which("mpiexec"))
        if path and Path(path).exists()
    ),
    None,
)


@functools.lru_cache(maxsize=1)
def why_not() -> str:
    """Why there is no MPI to test with; "" where there is one."""
    if MPIEXEC is None:
        return "there is no mpiexec: pip install 'esync[mpi]'"
    code, output = run(1, [[sys.executable, "-c", "from mpi4py import MPI; MPI.COMM_WORLD.Barrier()"]], 30)
    return "" if code == 0 else f"MPI does not work here: {output.strip()[-200:]}"


def run(ranks: int, commands: Sequence[Sequence[str]], seconds: float = 90, **environment: str) -> tuple[int, str]:
    """Run `ranks` processes of one command, or one process of each command.

    Returns the exit code and the output.
    """
    words = [str(MPIEXEC)]
    for index, command in enumerate(commands):
        words += [*([":"] if index else []), "-n", str(ranks if len(commands) == 1 else 1), *command]
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        start_new_session=True,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
