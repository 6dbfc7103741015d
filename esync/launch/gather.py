"""Copy the logs of remote hosts to where they would be if all workers had run on this machine.

What arrives is unpacked beside its place and then moved there, so that a device's folder is either
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


def gather(plan: LaunchPlan, agents: AgentPool, nonce: str, say: Callable[[str], None]) -> dict[str, str]:
    """Copy the logs of a job that has ended, however it has ended.

    Args:
        plan: the job.
        agents: the agents of its hosts. If one has ended meanwhile, a new one is started and asked.
        nonce: see `folders.LogFolders`.
        say: tells the user which hosts are waited for.

    Returns:
        For each host whose logs could not be copied, by name, a sentence that says where they are.
    """
    hosts = {host.name: host for host in plan.log_hosts if not host.here}
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
            again = {name: requests[name] for name in problems}
            with AgentPool([hosts[name] for name in again], say) as anew:
                problems = _copy(plan.folder_here, anew, again)
    except KeyboardInterrupt:
        problems = dict.fromkeys(hosts, "interrupted while the logs were copied")
    return {name: _missing(hosts[name], plan.mode_folder, why) for name, why in problems.items()}


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
    found: dict[str, str] = json.loads(zlib.decompress(base64.b64decode(answer["logs"])))
    return found


def unpack(texts: Mapping[str, str], folder: Path) -> None:
    """Write the logs of a host (device/file → text), each device's folder as a whole."""
    beside = folder.with_name(f".{folder.name}.copy-{os.getpid()}")
    try:
        for name, text in texts.items():
            if not LOG_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a name of a log")
            (beside / name).parent.mkdir(parents=True, exist_ok=True)
            (beside / name).write_text(text, encoding="utf-8", errors="surrogateescape")
        for device in sorted(beside.iterdir()) if texts else []:
            _put(device, folder / device.name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _put(arrived: Path, place: Path) -> None:
    """Move a device's folder to its place.

    Logs of earlier runs, which lie in folders there, are kept.
    """
    for path in arrived.iterdir():
        with open(path, "rb") as file:
            flush_file(file.fileno(), path)
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        for earlier in place.glob(f"{EARLIER_PREFIX}*"):
            shutil.move(earlier, arrived / earlier.name)
        shutil.rmtree(place)
    shutil.move(arrived, place)


def _missing(host: Host, mode_folder: Path, why: str) -> str:
    there = mode_folder if str(mode_folder).startswith("~") else Path(host.entry.workdir or "~") / mode_folder
    where = f"{host.address}:{there / host.name}"
    return f"the logs of {host.name} have not been copied ({why}); they are in {where}"
