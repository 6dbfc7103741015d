"""Checks of MXNet, gluoncv and the GPUs, in a process of their own.

A broken build of MXNet may end the process that imports it, or hang; the process here is given up
after a limit, and its exit code or signal is told.
"""

import importlib.util
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from .finding import Check, Finding

#: Version that this package is written for.
MXNET = "1.9.1"
#: Seconds that the import of MXNet and gluoncv may take.
PATIENCE = 120.0
#: Mark in front of the answer, to tell it from what libraries print.
MARK = "@engine "
EXTRAS = "pip install 'esync[cpu]', or with cu101, cu112 or cu117 for NVIDIA GPUs with that version of CUDA"

_PROBE = f"""
import json
from esync.runtime.mxnet_import import mx
found = {{"version": mx.__version__, "gpus": mx.context.num_gpus(), "gluoncv": None, "trouble": ""}}
features = mx.runtime.Features()
found["cuda"], found["distributed"] = features.is_enabled("CUDA"), features.is_enabled("DIST_KVSTORE")
found["sum"] = float(mx.nd.ones((2, 2)).sum().asscalar())
try:
    import gluoncv
    found["gluoncv"] = gluoncv.__version__
except Exception as error:
    found["trouble"] = f"{{type(error).__name__}}: {{error}}"
print({MARK!r} + json.dumps(found), flush=True)
"""


def engine() -> Iterator[Finding]:
    """Check MXNet, gluoncv and the GPUs."""
    if importlib.util.find_spec("mxnet") is None:
        remedy = f"needed where workers and parameter servers run: {EXTRAS}"
        yield Finding("MXNet", "problem", "not installed", remedy)
        yield _gpus({"gpus": 0, "cuda": False}, _gpu_names())
        return
    print("importing MXNet, which may take some seconds …", file=sys.stderr, flush=True)
    report, trouble = _probe()
    if report is None:
        remedy = f"install it anew, in a new virtual environment: {EXTRAS}"
        if "shared object file" in trouble:
            remedy = "a library of the system is missing; on Debian and Ubuntu: apt-get install libgomp1 libquadmath0"
        yield Finding("MXNet", "problem", f"it is installed, but importing it fails: {trouble}", remedy)
        return
    yield _mxnet(report)
    if report["gluoncv"]:
        yield Finding("gluoncv", "ok", report["gluoncv"])
    else:
        remedy = "the networks by name need it: pip install 'gluoncv>=0.10.5,<0.11'"
        yield Finding("gluoncv", "problem", f"cannot be imported: {report['trouble']}", remedy)
    yield _gpus(report, _gpu_names())


def _mxnet(report: dict[str, Any]) -> Finding:
    if report["sum"] != 4.0:
        return Finding("MXNet", "problem", f"{report['version']} adds four ones to {report['sum']:g}", EXTRAS)
    if not report["distributed"]:
        remedy = f"use a build with USE_DIST_KVSTORE=1: {EXTRAS}"
        return Finding("MXNet", "problem", f"{report['version']}, built without the distributed key store", remedy)
    if report["version"] != MXNET:
        return Finding("MXNet", "warning", report["version"], f"this package is tested with {MXNET}: {EXTRAS}")
    return Finding("MXNet", "ok", f"{report['version']}, {'for CUDA' if report['cuda'] else 'for CPUs'}")


def _gpus(report: dict[str, Any], names: list[str]) -> Finding:
    """Compare the GPUs that MXNet can use with those that the driver names."""
    if report["gpus"]:
        remedy = "this package has never run on a GPU; scripts/check_gpu.sh finds out what works"
        return Finding("GPU", "warning", f"{report['gpus']} that MXNet can use", remedy)
    if not names:
        return Finding("GPU", "ok", "none; workers train on the CPU")
    text = f"MXNet can use none of {len(names)}: {'; '.join(names)}"
    if not report["cuda"]:
        return Finding("GPU", "warning", text, f"MXNet for GPUs (compute capability 3.0 to 8.9): {EXTRAS}")
    remedy = "compare the driver with CUDA's version, and the GPU with MXNet's builds (compute capability 3.0 to 8.9)"
    return Finding("GPU", "warning", text, remedy)


def _gpu_names() -> list[str]:
    """Return the GPUs that NVIDIA's driver names; none where it is not installed."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return completed.stdout.split("\n")[:-1] if completed.returncode == 0 else []


def _probe() -> tuple[dict[str, Any] | None, str]:
    """Import MXNet in a process of its own; return what it says of itself, or why it failed."""
    try:
        command = [sys.executable, "-c", _PROBE]
        ended = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return None, f"it has not ended within {PATIENCE:.0f} s"
    for line in ended.stdout.splitlines():
        if line.startswith(MARK):
            return json.loads(line.removeprefix(MARK)), ""
    if ended.returncode < 0:
        return None, f"the process was ended by {signal.Signals(-ended.returncode).name}"
    lines = [line for line in ended.stderr.splitlines() if line.strip()]
    return None, lines[-1].strip() if lines else f"exit code {ended.returncode}"


CHECKS: tuple[Check, ...] = (("MXNet", engine),)
