"""`esync launch --slurm`: on a real Slurm, where there is one, and with a stand-in for its srun."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launching import Start, write
from slurm_cluster import MISSING, NODES, PROGRAMS, SlurmCluster
from test_launched_jobs import rounds

from esync.launch import slurm
from esync.launch.command import main
from esync.launch.description import Description, DescriptionError, read
from esync.launch.hosts import Host, HostEntry
from esync.launch.slurm import SlurmError
from esync.launch.ssh import NO_FOLDER
from esync.launch.ssh_errors import explain_exit

pytestmark = pytest.mark.timeout(400)
LONG = 180
ROOT = Path(__file__).parents[2]
STAND_IN = Path(__file__).parent / "stand_in"
EXAMPLE = ROOT / "examples/slurm"


def variables(nodes: str, node: str = "") -> dict[str, str]:
    """The variables of a job with a stand-in for srun; `node` is the node that launch runs on."""
    names = {"SLURM_JOB_ID": "7", "STAND_IN_NODES": nodes, "PATH": f"{STAND_IN}:{os.environ['PATH']}"}
    return {**names, **({"SLURMD_NODENAME": node} if node else {})}


@pytest.fixture
def job(monkeypatch, tmp_path) -> Callable[..., Description]:
    """The description of a job with a stand-in for srun."""

    def describe(nodes: str, node: str = "", text: str = "train: {mode: sync}\n", **environment: str) -> Description:
        for name, value in {**variables(nodes, node), **environment}.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "train.yaml").write_text(text)
        return read(tmp_path / "train.yaml", cluster=slurm.cluster())

    return describe


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A real Slurm."""
    if os.geteuid() or not all(PROGRAMS.values()):
        pytest.skip(MISSING)
    running = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    yield running
    running.close()


# --- the description ------------------------------------------------------------------------------


def test_slurm_with_gpus_makes_a_worker_for_each_and_for_each_task_of_nodes_without(job):
    description = job("n1:2:8:4 n2:3:6:0", node="n1", SLURM_CPUS_PER_TASK="2")
    expected = [("n1", f"gpu{number}", None) for number in range(4)] + [("n2", "cpu", 2)] * 3
    assert [(worker.host, worker.device, worker.threads) for worker in description.workers] == expected
    assert {description.scheduler.host, description.servers[0].host, description.state_server.host} == {"n1"}
    assert list(description.hosts) == ["n2"]
    assert description.hosts["n2"].srun == ["--cpus-per-task=6"]
    assert (description.hosts["n2"].workdir, description.hosts["n2"].python) == (os.getcwd(), sys.executable)


def test_slurm_outside_of_the_nodes_reaches_all_of_them_by_srun(job):
    description = job("n1:1:8:2 n2:1:8:1")
    assert {name: host.srun for name, host in description.hosts.items()} == {
        "n1": ["--cpus-per-task=8", "--gres=gpu:2"],
        "n2": ["--cpus-per-task=8", "--gres=gpu:1"],
    }
    assert all(worker.threads is None for worker in description.workers)


def test_slurm_with_more_than_nine_nodes_keeps_their_order(job):
    names = [f"n{number}" for number in range(12)]
    assert [worker.host for worker in job(" ".join(f"{name}:1:1:0" for name in names)).workers] == names


@pytest.mark.parametrize("key", ["scheduler", "servers", "state_server", "workers", "hosts", "spare_hosts"])
def test_slurm_with_description_of_the_cluster_is_refused_by_name(job, key):
    with pytest.raises(DescriptionError, match=rf"train.yaml:2: {key}: leave it out; with --slurm the job decides"):
        job("n1:1:1:0", text=f"train: {{mode: sync}}\n{key}: []\n")


def test_slurm_outside_of_a_job_or_without_srun_or_its_answer_says_so(monkeypatch, tmp_path, capfd):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    file = write(tmp_path / "train.yaml", {"train": {"mode": "sync"}})
    assert main([str(file), "--slurm"]) == 1
    assert "launch: error: --slurm: this is not inside an allocation of Slurm" in capfd.readouterr().err
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError, match="there is no srun in the PATH"):
        slurm.cluster()
    monkeypatch.setenv("PATH", f"{STAND_IN}:{os.defpath}")
    with pytest.raises(SlurmError, match="srun has ended with exit code 1"):
        slurm.cluster()
    assert "no such job" in capfd.readouterr().err
    monkeypatch.setenv("STAND_IN_NODES", "n1:0:0:0")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    with pytest.raises(SlurmError, match=r"no node of n\[1-2\] has said what it is"):
        slurm.cluster()


def test_host_with_srun_and_login_is_refused_and_its_errors_name_the_shared_folder(tmp_path):
    hosts = "{n1: {srun: [], user: me}}"
    text = f"scheduler: {{host: n1}}\nservers: [{{host: n1}}]\nworkers: [{{host: n1, device: cpu}}]\nhosts: {hosts}\n"
    (tmp_path / "cluster.yaml").write_text(text)
    with pytest.raises(DescriptionError, match=r"cluster.yaml:4: hosts.n1.srun: srun needs no login"):
        read(tmp_path / "cluster.yaml")
    host = Host("n1", "n1", False, entry=HostEntry(srun=[], workdir="/local"))
    message = explain_exit(host, NO_FOLDER, [])
    assert message.startswith("host n1: there is no folder /local that it could enter; start launch in a folder")
    assert "hosts.n1" not in message


# --- jobs -----------------------------------------------------------------------------------------


def test_launch_with_stand_in_for_srun_runs_a_whole_job(tmp_path, data_dir, launch: Start):
    train = {"mode": "esync", "network": "lenet", "batch_size": 8, "local_lr": 0.01, "rounds": 4}
    content = {"train": {**train, "data_dir": str(data_dir), "no_evaluation": True}}
    nodes = variables(f"{NODES[0]}:1:1:0 {NODES[1]}:2:2:0", node=NODES[0])
    running = launch(content, "--slurm", "--json", "job.json", PYTHONPATH=str(ROOT), **nodes)
    running.finish()
    assert json.loads((tmp_path / "job.json").read_text())["figures"]["rounds"] == 4
    folder = tmp_path / "logs/lenet/esync"
    for device in (f"{NODES[0]}/cpu", f"{NODES[1]}/cpu", f"{NODES[1]}/cpu-1"):
        assert rounds(folder / device) == [1, 2, 3, 4]


# --- a real Slurm ---------------------------------------------------------------------------------


class Batch:
    """The example's job on a real Slurm."""

    def __init__(self, cluster: SlurmCluster, folder: Path, data_dir: Path, *flags: str) -> None:
        for path in EXAMPLE.iterdir():
            shutil.copy(path, folder)
        self._cluster, self.folder, self.output = cluster, folder, folder / "output.txt"
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        exported = f"--export=ALL,PYTHONPATH={ROOT},PATH={path}"
        words = ["sbatch", "--parsable", f"--chdir={folder}", f"--output={self.output}", exported]
        flags = ("--data-dir", str(data_dir), "--no-evaluation", "--batch-size", "8", *flags)
        self.number = cluster.run(*words, str(folder / "job.sh"), *flags).strip()
        assert self.number.isdecimal(), self.number

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something to come true."""
        end = time.monotonic() + LONG
        while not condition():
            assert time.monotonic() < end, self.output.read_text() if self.output.exists() else self.state
            time.sleep(0.2)

    @property
    def state(self) -> str:
        """PENDING, RUNNING, COMPLETED …"""
        output = self._cluster.run("scontrol", "show", "job", self.number)
        return output.partition("JobState=")[2].partition(" ")[0]

    def processes(self) -> list[str]:
        """Command lines of what runs in the job's folder."""
        commands = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if (entry / "cwd").resolve() == self.folder:
                    commands.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue  # it has ended meanwhile
        return commands


def test_example_on_real_slurm_runs_on_both_nodes(tmp_path, data_dir, cluster):
    batch = Batch(cluster, tmp_path, data_dir, "--rounds", "3")
    batch.until(lambda: batch.state in ("COMPLETED", "FAILED"))
    assert batch.state == "COMPLETED", batch.output.read_text()
    assert "done: ESync, 3 rounds" in batch.output.read_text()
    for node in NODES:
        assert rounds(tmp_path / "logs/lenet/esync" / node / "cpu") == [1, 2, 3]
    batch.until(lambda: batch.processes() == [])


def test_example_on_real_slurm_that_is_requeued_resumes_and_when_cancelled_leaves_nothing(tmp_path, data_dir, cluster):
    batch = Batch(cluster, tmp_path, data_dir, "--rounds", "100000", "--checkpoint-every", "5")
    batch.until(lambda: any(tmp_path.glob("kept/round-*/worker-1.json")))
    assert any("esync.worker" in line for line in batch.processes())
    cluster.run("scontrol", "requeue", batch.number)
    batch.until(lambda: batch.state == "PENDING" and batch.processes() == [])
    grep = ["grep", "-rqs", "going on from the checkpoint of round", str(tmp_path / "logs")]
    batch.until(lambda: subprocess.run(grep, check=False).returncode == 0)
    cluster.run("scancel", batch.number)
    batch.until(lambda: batch.state == "CANCELLED" and batch.processes() == [])


def test_example_on_real_slurm_writes_a_checkpoint_when_its_time_is_nearly_over(tmp_path, data_dir, cluster):
    batch = Batch(cluster, tmp_path, data_dir, "--rounds", "100000", "--checkpoint-every", "100000")
    device = tmp_path / "logs/lenet/esync" / NODES[1] / "cpu"
    batch.until(lambda: len(rounds(device)) >= 3)
    cluster.run("scancel", "--batch", "--signal=USR1", batch.number)  # as --signal=B:USR1@60 does
    batch.until(lambda: batch.state == "FAILED" and batch.processes() == [])
    assert f"ExitCode={os.EX_TEMPFAIL}:0" in cluster.run("scontrol", "show", "job", batch.number)
    assert "SIGUSR1: the workers have 50 s to write a checkpoint and end" in batch.output.read_text()
    assert (tmp_path / f"kept/round-{rounds(device)[-1]}").is_dir()


@pytest.mark.parametrize("flags", ["--gres=gpu:2 -n 1", "--gpus-per-task=1 -n 2 -c 1", "--gpus=2 -n 2"])
def test_processes_on_real_slurm_have_all_gpus_and_cores_of_the_job(cluster, flags):
    program = (
        "import subprocess; from esync.launch import slurm; found = slurm.cluster(); [node] = found['hosts'];"
        "print([worker['device'] for worker in found['workers']], flush=True);"
        "words = ['sh', '-c', 'echo $CUDA_VISIBLE_DEVICES on $(nproc) of $SLURM_CPUS_ON_NODE'];"
        "subprocess.run(slurm.step(node, found['hosts'][node]['srun'], *words))"
    )
    salloc = ["salloc", "--quiet", f"--nodelist={NODES[1]}", *flags.split(), sys.executable, "-c", program]
    cores = 2 if "-n 2" in flags else 1
    output = cluster.run("env", f"PYTHONPATH={ROOT}", *salloc)
    assert output.splitlines()[0] == "['gpu0', 'gpu1']", output
    assert output.splitlines()[1:] == [f"0,1 on {cores} of {cores}"], output


def test_answer_of_a_megabyte_in_one_line_comes_through_real_srun(cluster):
    answer = cluster.run(
        "salloc", "--quiet", *slurm.step(NODES[0], [], "sh", "-c", "yes | head -c 2097152 | tr -d '\\n'")
    )
    assert answer.strip() == "y" * 2**20


def test_launch_under_salloc_on_real_slurm_reaches_all_nodes_by_srun(tmp_path, data_dir, cluster):
    train = {"mode": "sync", "network": "lenet", "batch_size": 8, "rounds": 3, "data_dir": str(data_dir)}
    file = write(tmp_path / "train.yaml", {"train": {**train, "no_evaluation": True}})
    command = ["salloc", "--nodes=2", f"--chdir={tmp_path}", sys.executable, "-m", "esync.launch", str(file), "--slurm"]
    output = cluster.run("env", f"PYTHONPATH={ROOT}", *command)
    assert ", 3 rounds in " in output, output
