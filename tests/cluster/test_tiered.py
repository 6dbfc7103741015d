"""Mode tiered on a real cluster: a worker that is left out comes back."""

import re
from pathlib import Path

from .harness import Cluster
from .test_worker_program import rounds

FLAGS = "-m tiered -c 1 -n lenet -b 4 -ll 0.001 --no-evaluation --rounds 150 --leave-out auto --leave-out-probe 0.5"
DEALT = "data of workers that are left out will be dealt to the others; --leave-out none prevents it"


def test_tiered_worker_that_was_left_out_comes_back(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3, servers=2) as cluster:
        place = ["-ip", "127.0.0.1", "-port", str(cluster.start_state_server())]
        for rank, step in enumerate(("0.05", "0.06", "0.05")):
            words = [*FLAGS.split(), *place, "--compression", "fp16", "--overlap", "--step-time", step]
            words += ["--straggle", "compute:6@0+8"] * (rank == 2)
            cluster.start_worker(rank, ["-m", "esync.worker", *words, "-ld", str(tmp_path / f"logs-{rank}")])
        cluster.finish()
    assert "left out (--leave-out)" in cluster.output("worker-2")
    assert DEALT in cluster.output("worker-0")
    for rank in range(2):  # its data is dealt to the others, and given back
        shares = re.findall("([0-9]+) samples are this worker's share.*: (.*) dealt", cluster.output(f"worker-{rank}"))
        assert shares == [("30000", "those of worker 2 are"), ("20000", "none is")]
    came = rounds(tmp_path / "logs-2" / "cpu")
    assert came[-1]["num_iters"] == 150  # at last, rounds wait for it again
    assert len(came) < 150
