"""Programs with an algorithm from outside the package: without MXNet, and with logs that name code
not to be run.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from esync.checkpoints.store import _sealed
from esync.data import find_data_dir

from ..support import child

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
    """Run `python WORDS` in a folder; return what it prints.

    It must end with that exit code, and without a traceback.
    """
    python_path = os.pathsep.join(dict.fromkeys([str(path), str(ROOT)]))
    done = child.run(*words, timeout=120, cwd=folder, PYTHONPATH=python_path)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a description, and the algorithm that it names."""
    shutil.copy(Path(__file__).with_name("halfway.py"), tmp_path)
    (tmp_path / "cluster.yaml").write_text(DESCRIPTION)
    return tmp_path


def test_programs_without_mxnet_run_an_algorithm_file(folder):
    """Covers the programs that neither train nor compute gradients."""
    nowhere = folder / "nowhere"
    nowhere.mkdir()
    (nowhere / "mxnet.py").write_text("raise ModuleNotFoundError(\"No module named 'mxnet'\", name='mxnet')\n")

    def run(*words: str, **options: Any) -> str:
        return program(folder, *words, path=nowhere, **options)

    assert "halfway" in run("-m", "esync.worker", "-m", "halfway.py:Halfway", "--help")
    assert "--mode halfway.py:Halfway --pull 0.25 " in run("-m", "esync.launch", "cluster.yaml", "--dry-run")
    simulate = ("-m", "esync.simulate", "cluster.yaml", "--numerics", "none")
    assert "3 rounds in" in run(*simulate, "--quiet")
    # Each combination runs in a process of its own, which must know the options of the other modes.
    run(*simulate, "--sweep", "mode=halfway.py:Halfway,local-sgd", "--jobs", "2", "--json", "sweep.json")
    assert [row.get("rounds") for row in json.loads((folder / "sweep.json").read_text())] == [3, 3]
    (folder / "halfway.py").unlink()
    run(str(ROOT / "logs_tools" / "summarize.py"), "-n", "lenet")
    assert "localhost" in json.loads((folder / "logs" / "lenet" / "halfway" / "Halfway.json").read_text())
    run(str(ROOT / "logs_tools" / "plot.py"), "-n", "lenet", "--json", "compared.json")
    assert "Halfway" in (folder / "compared.json").read_text()

    (folder / "halfway.py").write_text("import mxnet\n")
    assert "No module named 'mxnet'" in (output := run(*simulate, code=2))
    assert "importable without MXNet: import it inside the methods" in output


def named_evil(content: Any) -> Any:
    """JSON in which whatever names an algorithm names another one."""
    if isinstance(content, dict):
        return {key: named_evil(value) for key, value in content.items()}
    if isinstance(content, list):
        return [named_evil(item) for item in content]
    return "evil.py:Evil" if content in ("halfway.py:Halfway", "halfway", "Halfway", "local") else content


def test_resume_from_checkpoint_that_names_code_does_not_run_it(folder):
    """A file that is named on a command line leaves a trace."""
    (folder / "evil.py").write_text(EVIL)
    evil = folder / "executed"
    program(folder, "-m", "esync.worker", "-m", "evil.py:Evil", "--help")
    evil.unlink()
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
