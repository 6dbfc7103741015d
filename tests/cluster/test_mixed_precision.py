"""MXNet's automatic mixed precision on a real cluster whose servers take the steps."""

import json
import os
from pathlib import Path

import pytest

from ..support.forked import ForkedProgram
from . import amp_worker
from .harness import Cluster

ROUNDS = 4

#: MXNet's kernels for bfloat16 need instructions that not every processor has.
PROBE = """
from esync.runtime.mxnet_import import mx
from mxnet.contrib import amp
amp.init("bfloat16")
net = mx.gluon.nn.Dense(1, in_units=2, use_bias=False)
net.initialize()
with mx.autograd.record():
    loss = net(mx.nd.ones((1, 2))).sum()
loss.backward()
net.weight.grad().wait_to_read()
"""


@pytest.fixture(scope="module", autouse=True)
def bfloat16(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip where this processor has no bfloat16."""
    log = tmp_path_factory.mktemp("probe") / "log"
    ForkedProgram(["-c", PROBE], os.environ, log).wait(60)
    if "primitive descriptor" in log.read_text():
        pytest.skip("MXNet's kernels for bfloat16 do not run on this processor")


def test_amp_worker_with_overflowing_gradients_sends_nothing(tmp_path: Path) -> None:
    with Cluster(tmp_path, 2) as cluster:
        for rank in range(2):
            cluster.start_worker(rank, [amp_worker.__file__, "sync", str(tmp_path / f"{rank}.json"), str(ROUNDS)])
        cluster.finish()
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert (first["skipped"], second["skipped"]) == ([1], [])
    assert (first["scale"], second["scale"]) == (2.0**15, 2.0**16)
    # Every round has a gradient of both: the first worker's third batch goes into the second round.
    assert (first["steps"], second["steps"]) == (ROUNDS + 1, ROUNDS)
    assert first["weights"] == second["weights"] == [1 - 0.125 * 2 * ROUNDS, 1 - 0.125 * 3 * ROUNDS]
