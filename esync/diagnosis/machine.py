"""Checks of this machine: Python, packages, processes, memory, ports, files and the data set."""

import importlib.metadata
import mmap
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .. import config
from ..runtime.cores import affinity, cores
from ..runtime.files import memory_descriptor
from ..runtime.memory import available_memory
from .finding import REINSTALL, Check, Finding

#: Oldest and newest version of Python that this package runs on.
PYTHON = (3, 10), (3, 13)
#: Megabytes of /dev/shm that a DataLoader with several processes needs at least.
SHARED_MEGABYTES = 256
#: File descriptors that a job of some twenty processes needs at most in one of them.
DESCRIPTORS = 1024
#: Gigabytes of memory that a worker with a network such as ResNet-18 needs.
WORKER_GIGABYTES = 1.0


def python() -> Finding:
    """Check the version of Python."""
    text = f"{sys.version.split()[0]} ({sys.executable})"
    if PYTHON[0] <= sys.version_info[:2] <= PYTHON[1]:
        return Finding("Python", "ok", text)
    supported = f"{PYTHON[0][0]}.{PYTHON[0][1]} to {PYTHON[1][0]}.{PYTHON[1][1]}"
    return Finding("Python", "problem", text, f"use Python {supported}, and make a new virtual environment with it")


def system() -> Finding:
    """Check the operating system, and count cores and memory."""
    if sys.platform != "linux":
        return Finding("system", "problem", sys.platform, "use Linux, or a container or virtual machine with Linux")
    gigabytes = available_memory() / 1e9
    quota = f" (a quota leaves these of {affinity()})" if cores() < affinity() else ""
    text = f"Linux, {cores()} core(s){quota}, {gigabytes:.1f} GB of memory available"
    if gigabytes < WORKER_GIGABYTES:
        return Finding("system", "warning", text, "a worker that trains ResNet-18 needs 1 GB: end other programs")
    return Finding("system", "ok", text)


def packages() -> Iterator[Finding]:
    """Check that what this package needs is installed, and that NumPy is older than version 2."""
    try:
        required = importlib.metadata.requires("esync") or []
    except importlib.metadata.PackageNotFoundError:
        yield Finding("packages", "warning", "esync runs from its folder and is not installed", REINSTALL)
        required = ["numpy"]
    names = [re.match(r"[\w.-]+", requirement)[0] for requirement in required if "extra ==" not in requirement]  # type: ignore[index]
    versions: dict[str, str | None] = {}
    for name in names:
        try:
            versions[name.lower()] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name.lower()] = None
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        yield Finding("packages", "problem", f"not installed: {', '.join(missing)}", REINSTALL)
    elif len(versions) > 1:
        yield Finding("packages", "ok", f"all {len(versions)} that are needed are installed")
    if numpy := versions.get("numpy"):
        if int(numpy.partition(".")[0]) < 2:
            yield Finding("NumPy", "ok", numpy)
        else:
            remedy = 'MXNet 1.9.1 needs NumPy 1: pip install "numpy>=1.23,<2"'
            yield Finding("NumPy", "problem", numpy, remedy)


def processes() -> Finding:
    """Check that processes can be forked and programs started."""
    if (pid := os.fork()) == 0:
        os._exit(0)
    forked = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    ended = subprocess.run([sys.executable, "-c", "pass"], timeout=60, check=False).returncode
    if forked or ended:
        problem = f"a forked process ended with {forked}, a new one of Python with {ended}"
        return Finding("processes", "problem", problem, "look for limits on processes: ulimit -u, cgroups, seccomp")
    return Finding("processes", "ok", "can be forked and started")


def shared_memory() -> Iterator[Finding]:
    """Check memory that processes share: anonymous, as this package uses it, and /dev/shm."""
    descriptor = memory_descriptor("esync-doctor")
    try:
        os.ftruncate(descriptor, mmap.PAGESIZE)
        with mmap.mmap(descriptor, mmap.PAGESIZE) as memory:
            memory[0] = 1
    finally:
        os.close(descriptor)
    name = "shared memory"
    folder = Path("/dev/shm")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        problem = f"{folder} is not there, or cannot be written to"
        remedy = "a DataLoader with several processes needs it: mount it, or use threads"
        yield Finding(name, "warning", problem, remedy)
        return
    free = shutil.disk_usage(folder).free // 1_000_000
    if free < SHARED_MEGABYTES:
        remedy = "a DataLoader with several processes needs more; a container gets it by --shm-size=1g"
        yield Finding(name, "warning", f"{free} MB free in {folder}", remedy)
    else:
        yield Finding(name, "ok", f"{free} MB free in {folder}")


def descriptors() -> Finding:
    """Check how many files a process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < DESCRIPTORS:
        able = hard == resource.RLIM_INFINITY or hard >= DESCRIPTORS
        remedy = f"raise it: ulimit -n {DESCRIPTORS}" + ("" if able else ", after root has raised the hard limit")
        return Finding("open files", "warning", f"{soft} in one process", remedy)
    return Finding("open files", "ok", f"{soft if soft != resource.RLIM_INFINITY else 'any number'} in one process")


def ports() -> Finding:
    """Check that a process can listen on a free port of this machine, and another one reach it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        socket.create_connection(address, timeout=5).close()
    name = socket.gethostname()
    try:
        socket.gethostbyname(name)
    except OSError as error:
        remedy = f"add the name to /etc/hosts, or give addresses in descriptions instead of {name}"
        return Finding("ports", "warning", f"free ones, but the name {name} has no address ({error})", remedy)
    return Finding("ports", "ok", "a free one was opened and reached on 127.0.0.1")


def folder() -> Finding:
    """Check that the current folder, where logs go, can be written to."""
    current = os.getcwd()
    with tempfile.TemporaryFile(dir=current) as file:
        file.write(bytes(mmap.PAGESIZE))
    free = shutil.disk_usage(current).free / 1e9
    if free < 1:
        return Finding("folder", "warning", f"{current}: {free:.1f} GB free", "make room, or use another --log-dir")
    return Finding("folder", "ok", f"{current}: can be written to, {free:.1f} GB free")


def data_set() -> Finding:
    """Check that the usual data set is here and whole."""
    from ..data import REGISTRY, DataError, find_data_dir
    from ..data.fetch import faults

    name, entry = config.DATASET, REGISTRY[config.DATASET]
    fetch = "python -m esync.data fetch"
    try:
        directory = find_data_dir(None, name)
    except DataError:
        return Finding("data set", "warning", f"{name} is not here", f"get it: {fetch}")
    broken = [file.name for file in faults(entry, directory)]
    if broken:
        problem = f"{directory / name}: missing or broken: {', '.join(broken)}"
        return Finding("data set", "warning", problem, f"get it anew: {fetch} --to {directory}")
    return Finding("data set", "ok", f"{name} in {directory / name}, checksums right")


CHECKS: tuple[Check, ...] = (
    ("Python", python),
    ("system", system),
    ("packages", packages),
    ("processes", processes),
    ("shared memory", shared_memory),
    ("open files", descriptors),
    ("ports", ports),
    ("folder", folder),
    ("data set", data_set),
)
