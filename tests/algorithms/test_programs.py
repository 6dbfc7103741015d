"""Programs with an algorithm from outside the package: without MXNet, and with files that name what must not be run."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from esync.checkpoint.store import _sealed
from esync.data import find_data_dir
from tests.state_server.calling import ServerProcess, post, report

ROOT = Path(__file__).parents[2]
DESCRIPTION = """
scheduler: {host: localhost}
servers: [{host: localhost}]
workers: [{host: localhost, device: cpu, step_time: 0.1}, {host: localhost, device: cpu, step_time: 0.3}]
train: {mode: "halfway.py:Halfway", pull: 0.25, network: lenet, batch_size: 16, rounds: 3}
"""
#: Leaves a trace when it is run.
EVIL = """
from pathlib import Path
from esync.algorithms import LocalSGD
Path(__file__).with_name("executed").touch()
class Evil(LocalSGD):
    pass
"""


def program(folder: Path, *words: str, path: Path = ROOT, code: int = 0) -> str:
    """What `python WORDS` prints in a folder; it must end with that exit code, and without a traceback."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DMLC_", "ESYNC_"))}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**environment, "PYTHONPATH": os.pathsep.join(dict.fromkeys([str(path), str(ROOT)]))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a description, and the algorithm that it names."""
    shutil.copy(Path(__file__).with_name("halfway.py"), tmp_path)
    (tmp_path / "cluster.yaml").write_text(DESCRIPTION)
    return tmp_path


def named_evil(content: Any) -> Any:
    """JSON in which whatever names an algorithm names another one."""
    if isinstance(content, dict):
        return {key: named_evil(value) for key, value in content.items()}
    if isinstance(content, list):
        return [named_evil(each) for each in content]
    return "evil.py:Evil" if content in ("halfway.py:Halfway", "halfway", "Halfway", "local") else content


@pytest.fixture
def evil(folder: Path) -> Path:
    """A folder with a file that must not be run; it is shown that it would leave a trace."""
    (folder / "evil.py").write_text(EVIL)
    trace = folder / "executed"
    program(folder, "-m", "esync.worker", "-m", "evil.py:Evil", "--help")
    trace.unlink()
    return trace


def test_a_checkpoint_that_names_code_is_only_read(folder, evil):
    data = str(find_data_dir(None, "fashion-mnist").absolute())
    words = ["-m", "esync.worker", "-c", "1", "-m", "local", "-n", "mlp", "--data-dir", data, "--no-evaluation"]
    words += ["--checkpoint-dir", "kept", "--checkpoint-every", "2", "--rounds"]
    program(folder, *words, "3")
    for part in folder.glob("kept/round-*/worker-0.json"):
        content = named_evil(json.loads(part.read_text()))
        assert content["agreement"]["algorithm"] == "evil.py:Evil"
        del content["sha256"]
        part.write_text(json.dumps(_sealed(content)))
    assert "evil.py:Evil" in program(folder, *words, "4", "--resume", code=1)
    assert not evil.exists()


def test_a_state_server_that_is_told_names_of_code_only_keeps_them(folder, evil):
    words = ("-m", "esync.state_server", "--port", "0", "--state-dir", str(folder / "state"))
    for first in (True, False):  # the second one reads the journal of the first one
        server = ServerProcess(*words, cwd=folder, PYTHONPATH=str(ROOT))
        try:
            job = f"{server.url}/api/v1/jobs/evil"
            if first:
                begun = {"num_workers": 1, "epsilon": 0.02}
                post(job, {**begun, "mode": "evil.py:Evil", "algorithm": "evil.py:Evil"})
                assert post(job, begun)[0] == 200
                assert post(f"{job}/report", report(device="evil.py:Evil", host="evil.py:Evil"))[0] == 200
            assert "evil.py:Evil" in program(folder, "-m", "esync.status", f"127.0.0.1:{server.port}", "--job", "evil")
        finally:
            server.end(signal.SIGTERM)
    assert not evil.exists()
