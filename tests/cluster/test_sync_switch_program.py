"""`python -m esync.worker --mode sync-switch` on a real cluster, and a report on its logs."""

import csv
import json
from pathlib import Path

from esync.reports.sync_switch_report import main

from .harness import Cluster
from .test_worker_program import rounds

FLAGS = "-m sync-switch -c 1 -n lenet -b 16 -l 0.0005 --momentum 0.9 --weight-decay 0.0001 --lr-decay 0.5:0.1"
SCHEDULE = "--switch-order 101 --train-steps 4 24 30 --ckpt-frequency 2 10 2 --hparams - momentum=0.5 -"


def test_sync_switch_program_switches_back_and_forth_and_is_reported(tmp_path: Path, capsys) -> None:
    with Cluster(tmp_path, 2, servers=2) as cluster:
        for rank, step_time in enumerate(("0.02", "0.15")):
            logs = ["-ld", str(tmp_path / f"logs-{rank}"), "--step-time", step_time]
            cluster.start_worker(rank, ["-m", "esync.worker", *FLAGS.split(), *SCHEDULE.split(), *logs])
        cluster.finish()
    fast, slow = (rounds(tmp_path / f"logs-{rank}" / "cpu") for rank in range(2))
    assert len(fast) > len(slow) >= 4 + 6  # asynchronous in the middle
    # Synchronous at the beginning and at the end; on a busy machine the fast worker may once be the last.
    assert max(entry["wait"] for entry in fast[1:4]) > 0.05
    assert max(entry["wait"] for entry in fast[-4:]) > 0.05
    assert min(entry["wait"] for entry in fast[5:-8]) == 0
    folder = tmp_path / "logs-0" / "cpu"
    facts = json.loads((folder / "run.json").read_text())
    assert facts["switch_order"] == "101"
    assert facts["finished"]
    assert facts["bsp_share"] == 0.5
    assert abs(facts["bsp_share_done"] - 0.5) < 0.1  # commits that were under way at the switch back
    with open(folder / "loss.csv") as file:
        losses = list(csv.DictReader(file))
    samples = sum(entry["num_samples"] for entry in (*fast, *slow))
    assert int(losses[-1]["Samples"]) == samples >= 4 * 32 + 20 * 16 + 6 * 32
    assert not (tmp_path / "logs-1" / "cpu" / "loss.csv").exists()
    assert main([str(tmp_path / "logs-0"), "--no-figures"]) == 0
    assert "fashion-mnist, lenet, 2 workers" in capsys.readouterr().out
