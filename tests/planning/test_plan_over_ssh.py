"""`esync plan` for machines that are network namespaces with limited bandwidth, over a real sshd."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launching import Start, write
from namespaces import DESK, Machines, missing

from esync.launch.description import read

pytestmark = pytest.mark.timeout(600)

ANT, BEE, CAT, DOG = "ant", "bee", "cat", "dog"
LIMITS = {ANT: 200, BEE: 40, CAT: 200}
#: As `-m esync.planning`, where no MXNet is installed.
WITHOUT_MXNET = (
    "-c",
    "import sys; sys.modules['mxnet'] = None; sys.argv[0] = 'esync plan'\n"
    "from esync.planning.__main__ import main; sys.exit(main())",
)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    if why := missing():
        pytest.skip(why)
    with Machines(tmp_path / "network", (ANT, BEE, CAT)) as network:
        try:
            for name, limit in LIMITS.items():
                network.limit(name, limit)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"this machine makes no narrow links: {error}")
        yield network


@pytest.fixture
def file(tmp_path: Path, data_dir: Path, machines: Machines) -> Path:
    """A cluster of three machines that are there and one that is not."""
    hosts = {name: machines.entry(name) for name in (ANT, BEE, CAT)}
    hosts[DOG] = {**machines.entry(ANT), "address": "10.77.0.99"}
    content: dict[str, Any] = {
        "hosts": hosts,
        "scheduler": {"host": ANT},
        "servers": [{"host": ANT}],
        "state_server": {"host": ANT},
        "workers": [{"host": name, "device": "cpu", "threads": 1, "step_time": 0.2} for name in (BEE, CAT)]
        + [{"host": DOG, "device": "cpu"}, {"host": CAT, "device": "gpu7"}],
        "train": {"network": "lenet", "batch_size": 8, "data_dir": str(data_dir)},
    }
    return write(tmp_path / "cluster.yaml", content)


def test_machines_are_measured_by_one_without_mxnet_and_what_is_missing_is_named(
    machines: Machines, launch: Start, file: Path
) -> None:
    job = launch(file, "--modes", "sync,esync", inside=machines.inside(DESK), command=WITHOUT_MXNET)
    assert job.wait(300) == 0, job.output
    assert job.gone_within(60) == {}
    description = read(file.with_name("cluster.calibrated.yaml"))
    assert [worker.host for worker in description.workers] == [BEE, CAT]
    assert all(worker.simulate.step_time >= 0.2 for worker in description.workers if worker.simulate.step_time)
    bandwidths = {name: link.bandwidth for name, link in description.network.hosts.items()}
    assert bandwidths.keys() == {BEE}  # the others are equal
    # Where the processors are busy, the short queues of these links run empty: less than half has been measured.
    assert 10e6 < bandwidths[BEE] < 48e6
    assert 50e6 < description.network.bandwidth < 250e6
    assert description.servers[0].simulate.message_time != 1e-4
    output = job.output
    assert "not measured: host dog: ssh cannot log in to 10.77.0.99" in output
    assert "not measured: worker-3 (cat/gpu7) ended with exit code 1: " in output
    assert "not measured: worker-2 (dog/cpu) is left out: the description has no step_time for it" in output
    assert "network: measuring bee – ant (1 of 2)" in output
    assert "esync launch" in output  # and what to run


def test_interrupted_measurement_leaves_nothing_on_any_machine(
    machines: Machines, launch: Start, file: Path, tmp_path: Path
) -> None:
    job = launch(file, inside=machines.inside(DESK), command=("-m", "esync.planning"))
    job.until(lambda: any("esync.worker" in line for line in job.processes().values()), 200)
    os.kill(job.process.pid, signal.SIGINT)
    assert job.wait(100) != 0
    assert job.gone_within(60) == {}
    assert not (tmp_path / "cluster.calibrated.yaml").exists()
    assert "Traceback" not in job.output
