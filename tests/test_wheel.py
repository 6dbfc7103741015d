"""The wheel built from the sdist, in a virtual environment and an empty folder.

What this package needs is taken from the environment that runs the tests: nothing is downloaded.
"""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import zipfile
from pathlib import Path

import pytest

from .data import tiny_dataset
from .support import child

pytest.importorskip("setuptools.command.bdist_wheel", reason="setuptools from 70.1 on builds wheels")

ROOT = Path(__file__).parents[1]
#: What is packed; the links in esync/ lead to the others.
FOLDERS = ("esync", "clusters", "examples", "logs_tools", "SimpleStateServer")
FILES = ("config.py", "setup.py", "pyproject.toml", "README.md", "LICENSE", "NOTICE")
BUILD_SDIST = "from setuptools import build_meta; import sys; build_meta.build_sdist(sys.argv[1])"


def succeed(*command: str | Path, cwd: Path) -> str:
    """Run a command, which has to succeed; what it printed."""
    words, environment = list(map(str, command)), child.environment()
    result = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the sdist from a copy: building leaves folders behind."""
    folder = tmp_path_factory.mktemp("built")
    copy = folder / "checkout"
    copy.mkdir()
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, copy)
    succeed(sys.executable, "-c", BUILD_SDIST, folder, cwd=copy)
    return next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """Make the wheel from the sdist."""
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    succeed(sys.executable, "-m", "pip", "wheel", "-q", *offline, "-w", sdist.parent, sdist, cwd=sdist.parent)
    return next(sdist.parent.glob("*.whl"))


def new_environment(venv: Path, *installed: str | Path) -> Path:
    """Make a virtual environment with this package; the folder of its commands."""
    succeed(sys.executable, "-m", "venv", "--without-pip", venv, cwd=venv)
    python = venv / "bin" / "python"
    offline = ["-q", "--no-deps", "--no-index", "--no-build-isolation"]
    ours, theirs = venv / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix), sysconfig.get_path("purelib")
    # Only this folder, behind the wheel: a .pth file in it that leads to the checkout is not read
    # there.
    (ours / "dependencies.pth").write_text(f"{theirs}\n")
    hack = Path(theirs, "distutils-precedence.pth")  # brings distutils back
    if hack.exists():
        shutil.copy(hack, ours)
    succeed(sys.executable, "-m", "pip", "--python", python, "install", *offline, *installed, cwd=venv)
    return venv / "bin"


@pytest.fixture(scope="module")
def bin_folder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel in a new virtual environment; the folder of its commands."""
    return new_environment(tmp_path_factory.mktemp("venv"), wheel)


@pytest.fixture(scope="module")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the sdist."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder)
    return next(folder.iterdir())


def test_wheel_contains_every_module_and_data_file(wheel):
    left_out = {"__pycache__", ".mypy_cache", ".ruff_cache"}
    expected = set()
    for top in ("esync", "logs_tools", "SimpleStateServer"):
        for folder, names, files in os.walk(ROOT / top, followlinks=True):
            names[:] = set(names) - left_out
            expected |= {str(Path(folder, file).relative_to(ROOT)) for file in files}
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == expected
    assert {"esync/config.py", "esync/clusters/quick.yaml", "esync/examples/own_model.py"} <= packed


def test_sdist_has_only_the_package_and_its_metadata_at_the_top(sdist):
    with tarfile.open(sdist) as archive:
        top = {Path(name).parts[1] for name in archive.getnames() if len(Path(name).parts) > 1}
    metadata = {"LICENSE", "NOTICE", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg", "setup.py"}
    assert top == {"esync", "esync.egg-info", "logs_tools", "SimpleStateServer"} | metadata


def test_unpacked_sdist_has_files_instead_of_links(unpacked):
    assert not [path for path in unpacked.rglob("*") if path.is_symlink()]
    for name in ("config.py", "clusters/quick.yaml", "examples/own_model.py"):
        assert (unpacked / "esync" / name).read_bytes() == (ROOT / name).read_bytes()


def test_unpacked_sdist_runs_without_being_installed(unpacked):
    version = succeed(sys.executable, "setup.py", "--version", cwd=unpacked).strip()
    assert f"-{version}" in unpacked.name
    assert "--mode" in succeed(sys.executable, "-m", "esync.worker", "--help", cwd=unpacked)


def test_unpacked_sdist_can_be_installed_for_editing(unpacked, tmp_path):
    (tmp_path / "venv").mkdir()
    commands = new_environment(tmp_path / "venv", "-e", unpacked)
    where = succeed(commands / "python", "-c", "import esync.config; print(esync.config.__file__)", cwd=tmp_path)
    assert Path(where.strip()) == unpacked / "esync" / "config.py"
    assert succeed(commands / "esync", "--version", cwd=tmp_path).startswith("esync ")


def test_wheel_contains_licences_and_names_its_own(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (info,) = {Path(name).parts[0] for name in archive.namelist() if ".dist-info/" in name}
        for name in ("LICENSE", "NOTICE", "esync/state_server/dashboard/uplot/LICENSE"):
            assert archive.read(f"{info}/licenses/{name}") == (ROOT / name).read_bytes()
        metadata = archive.read(f"{info}/METADATA").decode()
    assert "\nLicense-Expression: Apache-2.0\n" in metadata


def test_wheel_command_works_in_an_empty_folder(bin_folder, tmp_path):
    def esync(*words: str) -> str:
        return succeed(bin_folder / "esync", *words, cwd=tmp_path)

    where = succeed(bin_folder / "python", "-c", "import esync; print(esync.__file__, esync.__version__)", cwd=tmp_path)
    file, version = where.split()
    assert Path(file).is_relative_to(bin_folder.parent)
    assert esync("--version") == f"esync {version}\n"
    summary = esync("simulate", ":paper", "--numerics", "none", "--max-time", "60")
    assert summary.startswith("resnet18-v1, esync, 6 workers: ")
    assert "round files, devices: 6" in esync("summarize", "--mode", "esync")
    esync("plot")
    assert (tmp_path / "logs" / "resnet18-v1" / "figures" / "speedup.txt").exists()
    commands = esync("launch", ":quick", "--dry-run")
    assert f"{bin_folder / 'python'} -m esync.worker " in commands


def test_wheel_trains_on_a_cluster_in_an_empty_folder(bin_folder, tmp_path):
    tiny_dataset.write(tmp_path / "data")
    output = succeed(bin_folder / "esync", "launch", ":quick", "--rounds", "2", "--data-dir", "data", cwd=tmp_path)
    assert "done: ESync, 2 rounds in" in output
    assert list(tmp_path.glob("logs/lenet/esync/report.html"))
    assert list(tmp_path.glob("logs/lenet/esync/*/*/model/model.params"))


def test_wheel_state_server_works_in_an_empty_folder(bin_folder, tmp_path):
    command = [str(bin_folder / "esync"), "state-server", "--port", "0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=child.environment(), stdout=pipe, text=True) as server:
        try:
            url = server.stdout.readline().removeprefix("listening on ").strip()
            browser = urllib.request.Request(url, headers={"Accept": "text/html"})
            with urllib.request.urlopen(browser, timeout=60) as page:
                assert b"<title>" in page.read()  # of the dashboard
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0
        finally:
            server.kill()
