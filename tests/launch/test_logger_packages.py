"""Weights & Biases offline, and a local MLflow server, in environments of their own: they bring 80 packages."""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.request
from pathlib import Path

import pytest

from tests.support import child
from tests.support.ports import free_port

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

JOB = """
scheduler: {host: localhost}
servers: [{host: localhost}]
workers:
  - {host: localhost, device: cpu, step_time: 0.1}
  - {host: localhost, device: cpu, step_time: 0.2}
train: {network: lenet, mode: sync, rounds: 3, batch_size: 8, test_images: 100, name: base-seed3}
"""
READ_MLFLOW = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
(run,) = client.search_runs([client.get_experiment_by_name("lenet").experiment_id])
history = {tag: [m.step for m in client.get_metric_history(run.info.run_id, tag)] for tag in run.data.metrics}
files = [file.path for name in ("model", "report") for file in client.list_artifacts(run.info.run_id, name)]
print(json.dumps([run.info.run_name, run.info.status, run.data.tags["group"], run.data.params, history, files]))
"""
READ_WANDB = """
import json, struct, sys
from wandb.proto import wandb_internal_pb2

def records(path):  # LevelDB's log format: blocks of 32 KiB, in which pieces have a checksum, a length and a kind
    data, at, whole = open(path, "rb").read(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""

steps, names, runs = {}, [], set()
for path in sys.argv[1:]:
    for record in records(path):
        values = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        for name in values:
            steps.setdefault(name, []).append(values["round"])
        names += [entry.path for entry in record.artifact.manifest.contents]
        if record.HasField("run"):
            runs.add((record.run.run_id, record.run.display_name, record.run.run_group, record.run.project))
print(json.dumps([sorted(runs), steps, names]))
"""


def environment(folder: Path, *packages: str) -> Path:
    """Return a Python that has these packages, and behind them those of this one."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "behind.pth").write_text(f"{Path(__file__).resolve().parents[2]}\n{sysconfig.get_path('purelib')}\n")
    return python


def output(python: Path, program: str, *words: str) -> str:
    """Return the last line that a program prints."""
    result = subprocess.run([python, "-c", program, *words], check=True, stdout=subprocess.PIPE, text=True)
    return result.stdout.splitlines()[-1]


def wait_for(address: str) -> None:
    """Wait until a server answers."""
    until = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.5)


def test_job_is_logged_to_both(tmp_path: Path, data_dir: Path) -> None:
    server_python = environment(tmp_path / "server", "mlflow")
    python = environment(tmp_path / "workers", "wandb", "mlflow-skinny")
    uri = f"http://127.0.0.1:{(port := free_port())}"
    server = [str(server_python), "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    server += ["--backend-store-uri", f"sqlite:///{tmp_path}/m.db", "--artifacts-destination", str(tmp_path / "kept")]
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    with subprocess.Popen(server, cwd=tmp_path, start_new_session=True) as process:
        try:
            wait_for(f"{uri}/health")
            flags = ["--wandb", "demo", "--mlflow", uri, "--log-dir", "logs", "--data-dir", str(data_dir)]
            launch = [python, "-m", "esync", "launch", str(file), *flags]
            variables = child.environment(WANDB_MODE="offline")
            subprocess.run(launch, check=True, cwd=tmp_path, env=variables, timeout=300)
            read = output(python, READ_MLFLOW, uri)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
    name, status, group, parameters, history, files = json.loads(read)
    assert (name, status, group) == ("lenet/sync@base-seed3", "FINISHED", "lenet/sync@base")
    assert (parameters["mode"], parameters["workers"]) == ("sync", "2")
    assert history["samples_per_second"] == [1, 2, 3]
    assert history["accuracy"][-1] == 3
    assert {"model/model.params", "report/job.yaml", "report/report.html"} <= {*files} | {f"model/{x}" for x in files}

    folders = sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    assert len(folders) == 2  # the worker's and launch's, of one run
    read = output(python, READ_WANDB, *map(str, folders))
    runs, steps, names = json.loads(read)
    assert len({run[0] for run in runs}) == 1
    assert ["lenet/sync@base-seed3", "lenet/sync@base", "demo"] in [run[1:] for run in runs]
    assert steps["samples_per_second"] == [1, 2, 3]
    assert steps["accuracy"][-1] == 3
    assert {"model.params", "job.yaml", "report.html", "outcome.json"} <= set(names)
