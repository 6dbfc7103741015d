"""Samples to a target, and the noise scale, from logs that the simulator has written; and times planned from them."""

import shutil
from pathlib import Path

import pytest
import yaml

from esync.planning.__main__ import main
from esync.planning.log_training import TargetError, read_training
from esync.reports.runs import RunError
from esync.simulate.job import SimulationJob, run

from ..support.json_files import read_json


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A description, with logs of a short training beside it."""
    folder = tmp_path_factory.mktemp("logged")
    content = {
        "scheduler": {"host": "localhost"},
        "servers": [{"host": "localhost"}],
        "state_server": {"host": "localhost"},
        "workers": [
            {"host": "localhost", "device": "cpu", "simulate": {"step_time": step}} for step in (0.1, 0.1, 0.3)
        ],
        "train": {"network": "mlp", "batch_size": 16, "test_images": 200, "eval_duration": 1, "local_lr": 0.002},
    }
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump(content))
    settings = {"mode": "esync", "rounds": 12, "log_dir": str(folder / "logs")}
    run(SimulationJob(file, "real", settings, logs=True, quiet=True))
    return file


def test_training_in_logs_reaches_its_best_accuracy_and_has_the_noise_scale(cluster: Path) -> None:
    logs = cluster.parent / "logs"
    accuracies = {
        int(path.stem.removeprefix("iter-")): entry["accuracy"]
        for path in logs.rglob("iter-*.txt")
        if "accuracy" in (entry := read_json(path))
    }
    best = max(accuracies, key=lambda number: (accuracies[number], -number))
    used = sum(read_json(path)["num_samples"] for n in range(1, best + 1) for path in logs.rglob(f"iter-{n}.txt"))

    training, notes = read_training(logs)

    assert training.target == f"{accuracies[best]:.3f}"
    assert training.samples.sum() == pytest.approx(used, abs=3 * 16)
    assert training.measured
    assert (training.noise_scales > 1).all()
    assert (training.worth < 1).all()
    assert "the best in the logs" in notes[0]
    assert read_training(logs, min(accuracies.values()))[0].samples.sum() < training.samples.sum()
    with pytest.raises(TargetError, match=r"test accuracy 0\.990 was not reached; the best value in these logs is 0\."):
        read_training(logs, 0.99)


def test_logs_of_one_device_of_several_are_refused(cluster: Path, tmp_path: Path) -> None:
    logs = next((cluster.parent / "logs").glob("mlp/esync/localhost/*"))
    shutil.copytree(logs, tmp_path / "mlp/esync/localhost" / logs.name)
    with pytest.raises(RunError, match="logs of one device of several"):
        read_training(tmp_path)


def test_plan_from_logs_predicts_times_to_the_target_for_a_program(
    cluster: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    logs, out = str(cluster.parent / "logs"), tmp_path / "plan.json"
    words = [str(cluster), "--from-logs", logs, "--modes", "esync,local", "--json", str(out)]
    assert main([*words, "--write", str(tmp_path / "a.yaml"), "--jobs", "1", "--", "python", "train.py"]) == 0
    plan, shown = read_json(out), capsys.readouterr()
    rows = {row["method"]: row for members in plan["classes"].values() for row in members}
    assert f"to {plan['target']}" in shown.out
    assert "gradient noise scale in the logs" in " ".join(shown.out.split())
    alone, esync = (next(row for name, row in rows.items() if name.startswith(mode)) for mode in ("local", "esync"))
    assert alone["time_to_target"] * alone["useful"] == pytest.approx(esync["time_to_target"] * esync["useful"])
    rounds = [read_json(path) for path in Path(logs).rglob("iter-*.txt")]
    (reached,) = {entry["total_time"] for entry in rounds if f"{entry.get('accuracy', 0):.3f}" == plan["target"]} or {0}
    assert rows["esync"]["time_to_target"] == pytest.approx(reached, rel=0.15)
    assert "-- python train.py" in shown.out
    with pytest.raises(SystemExit, match="2"):
        main([str(cluster), "--no-measure", "--target-accuracy", "0.8"])
    assert "--target-accuracy needs --from-logs" in capsys.readouterr().err
