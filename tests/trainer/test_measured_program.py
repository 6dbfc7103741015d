"""ESYNC_MEASURE: a program reports how long its iterations take, and leaves no trace."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from esync.runtime import progress

from ..support.child import environment

pytestmark = pytest.mark.timeout(120)

#: The training of a user: it keeps records, evaluates, keeps checkpoints, and would end after two rounds.
PROGRAM = """
import esync
from esync import mx

checkpoints = esync.Checkpoints("checkpoints", every=1)
net = mx.gluon.nn.Dense(1, in_units=4)
net.initialize()
trainer = esync.Trainer(
    net.collect_params(), "sgd", {"learning_rate": 0.1}, algorithm="sync", limits=esync.Limits(rounds=2),
    run=esync.Run(evaluate=lambda: 0.5, net=net), checkpoints=checkpoints
)
try:
    for data in trainer.batches([mx.nd.ones((8, 4))] * 10):
        data = data[: trainer.batch_size(8)]
        with mx.autograd.record():
            loss = net(data).sum()
        loss.backward()
        trainer.step(len(data))
        checkpoints.save_if_due()
finally:
    open("ended", "w").close()
net.save_parameters("model")
"""


def test_measured_program_reports_its_iterations_and_leaves_no_trace(tmp_path: Path) -> None:
    variables = environment(ESYNC_MEASURE="1", ESYNC_PROGRESS="json", ESYNC_STEP_TIME="0.02", ESYNC_DEVICE="cpu")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        measured = _until(lambda event: event["half"]["iterations"] > 20, process)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors
    assert measured["vectors"] == {"weights": 5, "statistics": 0}
    assert measured["samples"] == 8 * measured["iterations"]
    assert measured["seconds"] >= 0.02 * measured["iterations"]
    half = measured["half"]  # the emulated device takes half as long for half a batch
    assert half["samples"] == 4 * half["iterations"]
    assert half["seconds"] / half["iterations"] < 0.9 * measured["seconds"] / measured["iterations"]
    assert measured["squares"] >= measured["seconds"] ** 2 / measured["iterations"] * (1 - 1e-9)
    assert [path.name for path in tmp_path.iterdir()] == ["ended"]  # cleanly, without logs, checkpoints or a model


def _until(enough: Callable[[dict], bool], process: "subprocess.Popen[str]") -> dict:
    """Return the first measurement of a process that is enough."""
    assert process.stdout is not None
    assert process.stderr is not None
    for line in process.stdout:
        event = progress.parse_event(line.strip())
        if event is not None and event["kind"] == progress.MEASURED and enough(event):
            return event
    raise AssertionError(process.stderr.read())
