"""The example of docs/how-to/adding_an_algorithm.md, run with the page's own commands."""

import os
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import Start

from tests.support import child
from tests.support.documented import example
from tests.support.json_files import read_json
from tests.support.scripted_world import World

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]
#: Rounds of 1, 2, 3, 3, … local iterations, on a few samples.
SMALL = ["--batch-size", "4", "--local-iterations", "3", "--grow", "2"]
GROWING = [1, 2, 3, 3, 3, 3]
#: Every gradient is longer than that.
SHORT = ["--clip", "1e-6"]
QUICK = [*SMALL, *SHORT, "--no-evaluation"]


def commands(program: str) -> list[list[str]]:
    """Arguments of the page's commands that start a program."""
    lines = (shlex.split(line, comments=True) for line in example("commands").splitlines())
    return [words[3:] for words in lines if words[:3] == ["python", "-m", program]]


def run(folder: Path, program: str, words: list[str], *flags: str, path: Path | None = None) -> str:
    """What a program prints; it has to end well."""
    places = os.pathsep.join(map(str, filter(None, [path, ROOT])))
    done = child.run("-m", program, *words, *flags, timeout=120, cwd=folder, PYTHONPATH=places)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def runs(base: Path) -> list[dict[str, Any]]:
    """What the three devices say about the whole run."""
    files = sorted((base / "lenet/growing/localhost").glob("*/run.json"))
    assert len(files) == 3
    return [read_json(file) for file in files]


def iterations(base: Path) -> list[list[int]]:
    """Local iterations of each round, for each device."""
    devices = sorted((base / "lenet/growing/localhost").glob("cpu*"))
    rounds = [[device / f"iter-{number}.txt" for number in range(1, 20)] for device in devices]
    return [[len(read_json(file)["iteration_times"]) for file in files if file.exists()] for files in rounds]


@pytest.fixture
def folder(tmp_path: Path, data_dir: Path) -> Path:
    """A folder as the page says, with a data set."""
    for name in ("growing.py", "cluster.yaml"):
        (tmp_path / name).write_text(example(name), encoding="utf-8")
    (tmp_path / "data").symlink_to(data_dir)
    return tmp_path


def test_documented_algorithm_trains_resumes_and_is_plotted(folder: Path, launch: Start) -> None:
    (words, again) = commands("esync.launch")
    first = launch(folder / words[0], *words[1:], *QUICK, "--rounds", "4", "--checkpoint-every", "2")
    first.finish()
    assert "done: Growing rounds, 4 rounds" in first.output
    assert iterations(folder / "logs") == [GROWING[:4]] * 3  # --grow counts
    for facts in runs(folder / "logs"):
        assert facts["options"]["grow"] == 2
        assert facts["options"]["clip"] == 1e-6
        assert facts["clipped"] == sum(GROWING[:4])  # --clip counts: every batch was clipped
        assert facts["algorithm"]["label"] == "Growing rounds"
        assert facts["algorithm"]["source"] == "growing.py:Growing"
        assert (facts["mode"], facts["algorithm"]["name"]) == ("growing", "growing")
        assert len(facts["algorithm"]["digest"]) == 12
    assert 0 < distance(folder / "kept/round-2", folder / "kept/round-4") < 6 * 0.005 * 4 * 1e-6 * 1.01

    assert again[-2:] == ["--rounds", "15"]
    second = launch(folder / again[0], *again[1:-2], *QUICK, "--rounds", "6")
    second.finish()
    for facts in runs(folder / "logs"):
        assert (facts["resumed"], facts["rounds"]) == (4, 6)
        assert facts["clipped"] == sum(GROWING)  # those of the first run were in the checkpoint
    assert iterations(folder / "logs") == [GROWING] * 3

    assert "Growing rounds: 18 round files" in run(folder, "logs_tools.summarize", *commands("logs_tools.summarize"))
    run(folder, "logs_tools.plot", *commands("logs_tools.plot"))
    assert (folder / "logs/lenet/growing/Growing-rounds.json").exists()
    report = read_json(folder / "logs/lenet/figures/speedup.json")
    assert report["runs"]["Growing-rounds"]["method"] == "Growing rounds"
    assert {path.suffix for path in (folder / "logs/lenet/figures").glob("throughput.*")} == {".png", ".pdf"}


def distance(one: Path, other: Path) -> float:
    """Of the models of two checkpoints: how far the weights have moved."""
    from esync.runtime.mxnet_import import mx

    before, after = (mx.nd.load(str(checkpoint / "model.params")) for checkpoint in (one, other))
    return float(np.sqrt(sum(np.sum((before[name] - after[name]).asnumpy().astype(float) ** 2) for name in before)))


def test_documented_algorithm_is_a_mode_by_file_module_and_entry_point(folder: Path) -> None:
    """The entry point is that of an installed package, with the page's own line."""
    package = folder / "installed/my_package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (folder / "growing.py").rename(package / "growing.py")
    dist_info = folder / "installed/my_package-1.0.dist-info"
    dist_info.mkdir()
    (dist_info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_package\nVersion: 1.0\n")
    point = re.fullmatch(r'\[project\.entry-points\."(.*)"\]\n(.*) = "(.*)"\n', example("entry point"))
    assert point
    (dist_info / "entry_points.txt").write_text("[{}]\n{} = {}\n".format(*point.groups()))
    ((_, _, *flags),) = commands("esync.worker")
    for name in ("growing", "my_package.growing:Growing"):
        output = run(folder, "esync.worker", ["-m", name, *flags], path=folder / "installed")
        assert "rounds until a round has --local-iterations (default: 10)" in " ".join(output.split())
    cluster = folder / "cluster.yaml"
    cluster.write_text(cluster.read_text().replace('"growing.py:Growing"', "growing"))
    times, _ = commands("esync.simulate")
    run(folder, "esync.simulate", times, *SMALL, "--rounds", "4", path=folder / "installed")
    assert iterations(folder / "timed") == [GROWING[:4]] * 3
    for facts in runs(folder / "timed"):
        assert (facts["algorithm"]["source"], len(facts["algorithm"]["digest"])) == ("growing", 12)


def test_documented_specification_example_reaches_the_exchange() -> None:
    names: dict[str, Any] = {}
    exec(example("specification"), names)
    world = World()
    world.start(names["Bounded"]())
    assert world.made.specification.staleness == 8
