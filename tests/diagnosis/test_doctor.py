"""`esync doctor` as a program, on this machine and with parts of the installation broken."""

import json
import shlex
import socket
import subprocess
import sys

import pytest

from tests.support import child

#: Run doctor in a process in which the named packages cannot be imported.
WITHOUT = """
import runpy, sys
for name in {names!r}:
    sys.modules[name] = None
sys.argv = ["esync", "doctor", *{words!r}]
runpy.run_module("esync", run_name="__main__")
"""
DESCRIPTION = """\
scheduler: {{host: localhost, port: {port}}}
servers: [{{host: localhost}}]
workers: [{{host: localhost, device: cpu}}]
train: {{mode: sync, data_dir: {data}}}
"""


def doctor(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    result = child.run("-m", "esync", "doctor", *words, OMP_NUM_THREADS="1", **variables)
    assert "Traceback" not in result.stdout + result.stderr
    return result


def without(names: list[str], *words: str) -> subprocess.CompletedProcess[str]:
    result = child.run("-c", WITHOUT.format(names=names, words=words))
    assert "Traceback" not in result.stdout + result.stderr
    return result


def findings(result: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    return {finding["check"]: finding for finding in json.loads(result.stdout)["findings"]}


def test_doctor_on_this_machine_finds_every_part():
    result = doctor("--json")
    checks = findings(result)
    assert result.returncode == int(any(finding["status"] == "problem" for finding in checks.values()))
    assert checks["Python"]["status"] == checks["MXNet"]["status"] == checks["gluoncv"]["status"] == "ok"
    assert checks["MXNet"]["message"].startswith("1.9.1")
    assert {"system", "packages", "NumPy", "processes", "shared memory", "open files", "ports", "GPU"} <= checks.keys()


def test_doctor_without_mxnet_says_how_to_install_it():
    result = without(["mxnet"])
    assert result.returncode == 1
    assert "problem  MXNet: not installed\n" in result.stdout
    assert "pip install 'esync[cpu]'" in result.stdout


@pytest.mark.parametrize("name", ["numpy", "rich", "pydantic"])
def test_doctor_without_a_package_names_it(name):
    result = without(["mxnet", name], ":quick")
    assert result.returncode == 1
    assert f"the package {name} is not installed" in result.stdout
    assert result.stdout.splitlines()[-1].endswith("warning(s)")


def test_doctor_with_mxnet_that_kills_its_process_names_the_signal(tmp_path):
    (tmp_path / "mxnet").mkdir()
    (tmp_path / "mxnet" / "__init__.py").write_text("import os; os.abort()")
    result = doctor(PYTHONPATH=str(tmp_path))
    assert result.returncode == 1
    assert "importing it fails: the process was ended by SIGABRT" in result.stdout


def test_doctor_with_few_open_files_warns_and_says_what_to_do():
    script = shlex.quote(WITHOUT.format(names=["mxnet"], words=["--json"]))
    limited = f"ulimit -n 256; exec {sys.executable} -c {script}"
    result = subprocess.run(
        ["bash", "-c", limited], capture_output=True, text=True, timeout=60, env=child.environment()
    )
    finding = findings(result)["open files"]
    assert (finding["status"], finding["message"]) == ("warning", "256 in one process")
    assert "ulimit -n 1024" in finding["remedy"]


def test_doctor_with_wrong_description_names_file_and_line(tmp_path):
    file = tmp_path / "wrong.yaml"
    file.write_text("scheduler: {host: localhost}\nservers: [{host: localhost}]\nworkers: 3\n")
    assert f"problem  description: {file}:3: workers" in without(["mxnet"], str(file)).stdout
    assert f"{tmp_path}/none.yaml" in without(["mxnet"], str(tmp_path / "none.yaml")).stdout


def test_doctor_with_description_names_port_in_use_and_missing_data(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file = tmp_path / "cluster.yaml"
        file.write_text(DESCRIPTION.format(port=port, data=tmp_path / "nothing"))
        result = without(["mxnet"], str(file))
    assert result.returncode == 1
    assert f"problem  ports: scheduler.port {port}: it is in use" in result.stdout
    assert f"problem  host localhost: {tmp_path / 'nothing' / 'fashion-mnist'}: no such folder" in result.stdout
