"""SIGUSR1 to a worker whose run may be preempted, and to one whose run another worker has ended for it."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import esync
from esync import mx

from ..support.small_net import differentiate, sgd_trainer
from .test_run import INPUTS, LABELS, dense, facts


@pytest.fixture(autouse=True)
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The signal's handler is as before after the test."""
    monkeypatch.setenv("ESYNC_PREEMPTION", "1")
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


def trained(folder: Path, notice_after: int, ends_at: int = 0) -> esync.Run:
    """Train for 30 rounds at most, with a signal after one of them, and the end by another worker after another."""
    net = dense()
    checkpoints = esync.Checkpoints(folder / "kept", every=1000, resume=True)
    run = esync.Run(folder / "logs", net=net, checkpoints=checkpoints, evaluate=lambda: 0.5, background=False)
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    with sgd_trainer(net, "local", limits=esync.Limits(rounds=30), run=run) as trainer:
        trainer.start()
        while not trainer.finished:
            differentiate(lambda: loss_of(net(INPUTS), LABELS))
            trainer.step(8)
            if trainer.round == notice_after:
                os.kill(os.getpid(), signal.SIGUSR1)
            if trainer.round == ends_at:
                threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR1)).start()
                trainer.stop()
    return run


def test_run_that_is_told_goes_on_later(tmp_path: Path) -> None:
    run = trained(tmp_path, notice_after=5)
    assert run.preempted
    assert run.folder is not None
    reached = facts(run.folder)["rounds"]
    assert 5 <= reached <= 7
    assert not facts(run.folder)["finished"]
    assert [path.name for path in (tmp_path / "kept").glob("round-*")] == [f"round-{reached}"]
    assert not (tmp_path / "kept/model").exists()
    again = trained(tmp_path, notice_after=0)
    assert not again.preempted
    assert facts(run.folder)["rounds"] == 30
    trained(tmp_path / "whole", notice_after=0)
    resumed, whole = (mx.nd.load(str(folder / "kept/model/model.params")) for folder in (tmp_path, tmp_path / "whole"))
    assert resumed.keys() == whole.keys()
    assert all((resumed[name] == whole[name]).asnumpy().all() for name in whole)


def test_notice_that_comes_after_another_worker_has_ended_the_run_counts(tmp_path: Path) -> None:
    run = trained(tmp_path, notice_after=0, ends_at=5)
    assert run.preempted
    assert not (tmp_path / "kept/model").exists()


def test_preemption_needs_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ESYNC_PREEMPTION=1 needs checkpoints"):
        esync.Run(tmp_path)
