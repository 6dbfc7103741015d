"""`esync doctor CLUSTER.yaml` with hosts that are reached over a real ssh."""

import json
import shutil
from pathlib import Path

import pytest
from launching import description, write
from sshd import ADDRESSES, Sshd

from tests.support import child

pytestmark = pytest.mark.timeout(240)


def doctor(file: Path) -> tuple[int, dict[str, dict[str, str]]]:
    command = ("-m", "esync", "doctor", "--json", str(file))
    result = child.run(*command, timeout=200, cwd=file.parent, OMP_NUM_THREADS="1")
    assert "Traceback" not in result.stdout + result.stderr
    return result.returncode, {finding["check"]: finding for finding in json.loads(result.stdout)["findings"]}


def described(folder: Path, data_dir: Path, sshd: Sshd, **options: object) -> Path:
    content = description([0.05, 0.1, 0.2], rounds=2, data_dir=str(data_dir))
    content["hosts"] = {name: sshd.entry(name) for name in ADDRESSES}
    content["hosts"]["left"].update(options)
    for name in ADDRESSES:
        sshd.workdir(name)
    return write(folder / "cluster.yaml", content)


def test_doctor_with_hosts_that_can_take_part_says_so_and_writes_nothing(tmp_path, data_dir, sshd):
    for name in ADDRESSES:
        shutil.rmtree(sshd.workdir(name))
    _, checks = doctor(described(tmp_path, data_dir, sshd))
    for check in ("description", "host left", "host right", "network"):
        assert checks[check]["status"] == "ok", checks[check]
    assert not any(path for name in ADDRESSES for path in sshd.workdir(name).iterdir())


def test_doctor_with_a_host_without_python_names_it_and_still_asks_the_other(tmp_path, data_dir, sshd):
    code, checks = doctor(described(tmp_path, data_dir, sshd, python="no-such-python"))
    assert code == 1
    assert checks["host left"]["status"] == "problem"
    assert "no-such-python" in checks["host left"]["message"]
    assert "hosts.left.python" in checks["host left"]["remedy"]
    assert checks["host right"]["status"] == "ok"
    assert "network" not in checks


def test_doctor_with_missing_key_file_names_it(tmp_path, data_dir, sshd):
    code, checks = doctor(described(tmp_path, data_dir, sshd, key=str(tmp_path / "lost")))
    assert code == 1
    assert "there is no key file" in checks["host left"]["message"]
