"""scripts/demo.sh: what it trains, and what it compares."""

import os
import shlex
import subprocess
from pathlib import Path

from esync.arguments.presets import settings_of
from esync.launch.description import read

ROOT = Path(__file__).resolve().parents[1]


def test_demo_compares_the_modes_that_it_trains_with_the_fastest_device_alone_among_them(tmp_path: Path) -> None:
    checkout, called = tmp_path / "checkout", tmp_path / "called"
    (checkout / "scripts").mkdir(parents=True)
    script = checkout / "scripts" / "demo.sh"
    script.write_text((ROOT / "scripts" / "demo.sh").read_text())
    (checkout / "scripts" / "setup.sh").touch()  # nothing is installed
    python = tmp_path / "programs" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\necho "$@" >> {called}\n')
    python.chmod(0o755)
    environment = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"}
    words = ["bash", script, tmp_path / "logs", "0.7"]
    subprocess.run(words, cwd=ROOT, env=environment, check=True, timeout=60, capture_output=True)
    lines = [shlex.split(line) for line in called.read_text().splitlines()]
    trained = []
    for _, _, file, *flags in (line for line in lines if line[1] == "esync.launch"):
        assert flags[flags.index("--target-accuracy") + 1] == "0.7"
        train = read(ROOT / file).train
        options = dict(zip(flags[::2], flags[1::2], strict=True))
        trained.append(options.get("--mode") or settings_of(options.get("--preset")).get("mode") or train["mode"])
    compared = [line[line.index("-m") + 1] for line in lines if line[0].endswith("summarize.py")]
    assert trained == compared == ["local", "esync", "tiered", "sync"]
