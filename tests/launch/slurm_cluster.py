"""A real Slurm for tests: its controller and two nodes, all on loopback addresses of this machine.

The second node has two devices that stand for GPUs: Slurm counts and assigns them, and nobody can
compute with them.
"""

import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from esync.runtime.processes import tied
from tests.support.ports import free_port

SBIN = f"{os.environ['PATH']}:/usr/sbin:/sbin:/usr/local/sbin"
PROGRAMS = {name: shutil.which(name, path=SBIN) for name in ("munged", "slurmctld", "slurmd", "sbatch", "srun")}
MISSING = "there is no Slurm here, or this is not root; on Debian and Ubuntu: apt-get install slurm-wlm munge"
#: Addresses as names: they need nobody to resolve them.
NODES = ["127.0.0.2", "127.0.0.3"]

_CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
GresTypes=gpu
KillWait=5
"""


class SlurmCluster:
    """Runs until `close`.

    Args:
        folder: of its files.

    Attributes:
        variables: with which its programs are called.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._processes = folder, list[subprocess.Popen[bytes]]()
        folder.chmod(0o755)  # munged wants others to reach its socket
        (folder / "state").mkdir()
        host = socket.gethostname()
        text = _CONFIGURATION.format(host=host, port=free_port(), user=getpass.getuser(), folder=folder)
        for node, devices in zip(NODES, ("", "Gres=gpu:2"), strict=True):
            text += f"NodeName={node} NodeHostname={host} Port={free_port()} CPUs=2 {devices}\n"
        gpus = "".join(f"NodeName={NODES[1]} Name=gpu File=/dev/{device}\n" for device in ("null", "zero"))
        (folder / "gres.conf").write_text(gpus)
        (folder / "slurm.conf").write_text(f"{text}PartitionName=all Nodes={','.join(NODES)} Default=YES\n")
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # otherwise slurmd wants one of version 2
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf")}
        files = {
            f"--{option}": folder / f"munge.{option.partition('-')[0]}" for option in ("key-file", "socket", "pid-file")
        }
        files |= {"--seed-file": folder / "munge.seed", "--log-file": folder / "munge.log"}
        self._start("munged", "--foreground", "--force", *(f"{flag}={path}" for flag, path in files.items()))
        self._until(lambda: (folder / "munge.socket").exists())
        self._start("slurmctld", "-D")
        for node in NODES:
            self._start("slurmd", "-D", "-N", node)
        self._until(lambda: self.run("sinfo", "--noheader", "--states=idle", "--format=%D").strip() == str(len(NODES)))

    def run(self, *command: str) -> str:
        """Return what one of its programs prints, errors included."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        environment = {**os.environ, **self.variables}
        done = subprocess.run(command, **streams, env=environment, text=True, timeout=180, check=False)
        return done.stdout

    def _start(self, name: str, *words: str) -> None:
        command = tied([str(PROGRAMS[name]), *words])  # it ends with the tests, however those end
        with open(self._folder / f"{name}-{len(self._processes)}.log", "wb") as log:
            environment = {**os.environ, **self.variables}
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        self._processes.append(process)

    def _until(self, condition) -> None:
        limit = time.monotonic() + 60
        while not condition():
            logs = "\n".join(path.read_text(errors="replace") for path in sorted(self._folder.glob("*-*.log")))
            assert all(process.poll() is None for process in self._processes), logs
            assert time.monotonic() < limit, logs
            time.sleep(0.2)

    def close(self) -> None:
        """End its jobs, and then itself."""
        self.run("scancel", "--full", "--signal=KILL", f"--user={getpass.getuser()}")
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
