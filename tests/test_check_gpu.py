"""scripts/check_gpu.sh on machines where nothing can be checked."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"

#: Answers of a driver that has no GPU, and of one whose GPU has this compute capability.
NO_GPU = "echo 'No devices were found'; exit 6"
GPU = 'case "$*" in *name*) echo Card;; *driver_version*) echo 470.57;; *compute_cap*) {} ;; esac'


def check(folder: Path, driver: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of the script with a driver of our own; show that it left nothing behind."""
    checkout, programs = folder / "checkout", folder / "programs"
    shutil.copytree(SCRIPTS, checkout / "scripts")
    before = sorted(checkout.rglob("*"))
    programs.mkdir()
    (programs / "nvidia-smi").write_text(f"#!/bin/sh\n{driver}\n")
    for name in ("python", "python3", "pip"):  # whoever installs, calls one of them
        (programs / name).write_text(f"#!/bin/sh\ntouch {folder / 'installed'}\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(
        [checkout / "scripts" / "check_gpu.sh", *words], capture_output=True, text=True, timeout=60, env=environment
    )
    assert sorted(checkout.rglob("*")) == before
    assert not (folder / "installed").exists()
    return done


@pytest.mark.parametrize(
    ("driver", "words", "reason"),
    [
        (NO_GPU, [], "no NVIDIA GPU here: nvidia-smi is not installed, finds no GPU, or cannot reach the driver"),
        (
            GPU.format("echo 9.0"),
            [],
            "MXNet 1.9.1's cu112 is for GPUs of compute capability 5.0 to 8.9; the Card has 9.0",
        ),
        (
            GPU.format("echo 8.6"),
            ["cu101"],
            "MXNet 1.9.1's cu101 is for GPUs of compute capability 3.0 to 7.5; the Card has 8.6",
        ),
        (GPU.format("exit 2"), ["cu99"], "'cu99' is not a build of MXNet 1.9.1 for GPUs: cu101, cu112 or cu117"),
    ],
    ids=["no GPU", "too new", "too new for the build", "unknown build"],
)
def test_check_gpu_where_it_cannot_run_says_why_and_installs_nothing(tmp_path, driver, words, reason):
    done = check(tmp_path, driver, *words)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"check_gpu: {reason}\n")


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine has a driver for GPUs")
def test_check_gpu_without_a_driver_says_so():
    done = subprocess.run([SCRIPTS / "check_gpu.sh"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("check_gpu: no NVIDIA GPU here: ")
    assert done.stderr.count("\n") == 1
