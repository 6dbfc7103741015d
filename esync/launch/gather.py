"""Copy the logs of remote hosts to where they would be if all workers had run on this machine.

Logs are unpacked beside their destination and then moved there, so that a device's folder is either
complete or missing.
"""

import base64
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .. import config
from ..runtime.files import EARLIER_PREFIX, flush_file
from .agent_pool import AgentPool
from .folders import NONCE_FILE
from .hosts import Host
from .spec import LaunchPlan

#: Path of a log below its host's folder: device/file, neither of them hidden.
LOG_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")


def gather(plan: LaunchPlan, agents: AgentPool, nonce: str, notify: Callable[[str], None]) -> dict[str, str]:
    """Copy the logs of a job that has ended, with success or not.

    Args:
        plan: the job.
        agents: the agents of its hosts. One that has ended meanwhile is replaced by a new one.
        nonce: see `folders.LogFolders`.
        notify: tells the user which hosts are waited for.

    Returns:
        Name of each host whose logs could not be copied → a sentence that says where they are.
    """
    hosts = {host.name: host for host in plan.log_hosts if not host.local}
    requests = {
        name: {
            "do": "logs",
            "folder": str(plan.mode_folder / name),
            "nonce_file": NONCE_FILE,
            "nonce": nonce,
        }
        for name in hosts
    }
    problems: dict[str, str] = {}
    try:
        problems = _copy(plan.folder_here, agents, requests)
        if problems:
            retries = {name: requests[name] for name in problems}
            with AgentPool([hosts[name] for name in retries], notify) as new_agents:
                problems = _copy(plan.folder_here, new_agents, retries)
    except KeyboardInterrupt:
        problems = dict.fromkeys(hosts, "interrupted while the logs were copied")
    return {name: _missing(hosts[name], plan.mode_folder, reason) for name, reason in problems.items()}


def _copy(mode_folder: Path, agents: AgentPool, requests: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Request and unpack the logs; return, by host, why logs are missing."""
    answers, problems = agents.try_to_ask(requests, config.LAUNCH_COPY)
    for name, answer in answers.items():
        if answer.get("shared"):
            continue
        try:
            unpack(texts_of(answer), mode_folder / name)
        except (OSError, zlib.error, ValueError) as error:
            problems[name] = f"host {name}: cannot write its logs: {error}"
    return problems


def texts_of(answer: Mapping[str, Any]) -> dict[str, str]:
    """Return the logs in an agent's answer: device/file → text."""
    texts: dict[str, str] = json.loads(zlib.decompress(base64.b64decode(answer["logs"])))
    return texts


def unpack(texts: Mapping[str, str], folder: Path) -> None:
    """Write the logs of a host (device/file → text), each device's folder as a whole."""
    temporary = folder.with_name(f".{folder.name}.copy-{os.getpid()}")
    try:
        for name, text in texts.items():
            if not LOG_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a name of a log")
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).write_text(text, encoding="utf-8", errors="surrogateescape")
        for device in sorted(temporary.iterdir()) if texts else []:
            _install(device, folder / device.name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _install(arrived: Path, target: Path) -> None:
    """Move a device's folder to `target`, and keep the logs of earlier runs in subfolders there."""
    for path in arrived.iterdir():
        with open(path, "rb") as file:
            flush_file(file.fileno(), path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        for earlier in target.glob(f"{EARLIER_PREFIX}*"):
            shutil.move(earlier, arrived / earlier.name)
        shutil.rmtree(target)
    shutil.move(arrived, target)


def _missing(host: Host, mode_folder: Path, reason: str) -> str:
    folder = mode_folder if str(mode_folder).startswith("~") else Path(host.entry.workdir or "~") / mode_folder
    location = f"{host.address}:{folder / host.name}"
    return f"the logs of {host.name} have not been copied ({reason}); they are in {location}"
