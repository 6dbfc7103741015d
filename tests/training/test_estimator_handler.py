"""esync.EstimatorHandler: Gluon's Estimator with an esync.Trainer."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import esync
from esync.exchange.protocol.round_state import Limits
from esync.runtime.mxnet_import import mx

from ..support.small_net import local_trainer, make_net, values

gluon = mx.gluon
estimators = gluon.contrib.estimator

SAMPLES = 10


def loader(batch_size: int = 4) -> Any:
    rng = np.random.default_rng(0)
    images, labels = rng.standard_normal((SAMPLES, 5), np.float32), rng.integers(0, 3, SAMPLES)
    return gluon.data.DataLoader(gluon.data.ArrayDataset(images, labels), batch_size)


def estimator(net: Any, trainer: Any) -> Any:
    est = estimators.Estimator(net, gluon.loss.SoftmaxCrossEntropyLoss(), trainer=trainer, context=mx.cpu())
    est.logger.handlers.clear()
    return est


def fit(net: Any, trainer: Any, handlers: list[Any], **options: Any) -> Any:
    est = estimator(net, trainer)
    est.fit(loader(), event_handlers=handlers, **options)
    return est


def test_fit_with_handler_gives_the_weights_of_gluon():
    gluon_net, net = make_net(), make_net()
    fit(gluon_net, gluon.Trainer(gluon_net.collect_params(), "sgd", {"learning_rate": 0.1}), [], epochs=2)
    trainer = local_trainer(net)
    fit(net, trainer, [esync.EstimatorHandler()], epochs=2)
    assert trainer.round == 6  # batches of 4, 4 and 2 samples
    assert np.allclose(*([np.frombuffer(b"".join(values(block)), np.float32) for block in (gluon_net, net)]), rtol=1e-5)


@pytest.mark.parametrize(("limits", "rounds"), [(Limits(rounds=4), 4), (Limits(samples=SAMPLES + 1), 4)])
def test_fit_with_handler_ends_with_the_run(limits, rounds):
    net = make_net()
    trainer = local_trainer(net, limits=limits)
    epochs: list[Any] = []

    class Count(estimators.EpochEnd):
        def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
            epochs.append(estimator)

    est = fit(net, trainer, [Count(), esync.EstimatorHandler()], epochs=1000)
    assert (trainer.round, trainer.finished, len(epochs)) == (rounds, True, 2)
    est.fit(loader(), epochs=1000, event_handlers=[esync.EstimatorHandler()])  # which has nothing left to do
    assert trainer.round == rounds


def test_fit_with_handler_counts_the_samples_of_a_mean_loss():
    class MeanLoss(gluon.loss.SoftmaxCrossEntropyLoss):
        def hybrid_forward(self, *args: Any, **kwargs: Any) -> Any:
            return super().hybrid_forward(*args, **kwargs).mean()

    net = make_net()
    trainer = local_trainer(net, limits=Limits(samples=SAMPLES))
    est = estimators.Estimator(net, MeanLoss(), trainer=trainer, context=mx.cpu())
    est.logger.handlers.clear()
    est.fit(loader(), epochs=1000, event_handlers=[esync.EstimatorHandler()])
    assert (trainer.round, trainer.samples) == (3, SAMPLES)

    other = make_net()
    fit(other, gluon.Trainer(other.collect_params(), "sgd", {"learning_rate": 0.1}), [], epochs=1)
    np.testing.assert_allclose(net[0].weight.data().asnumpy(), other[0].weight.data().asnumpy(), rtol=1e-4, atol=1e-6)


def test_fit_that_ends_before_the_run_lets_close_end_it_for_all_workers():
    net = make_net()
    trainer = local_trainer(net)
    for rounds in (3, 6):  # another fit may follow
        fit(net, trainer, [esync.EstimatorHandler()], epochs=1)
        assert (trainer.round, trainer.finished, trainer.ends_run) == (rounds, False, True)


def test_fit_with_handler_records_the_loss():
    net = make_net()
    trainer = local_trainer(net)
    fit(net, trainer, [esync.EstimatorHandler()], batches=1)
    images, labels = next(iter(loader()))
    with mx.autograd.record():  # batch norm as in training
        loss = gluon.loss.SoftmaxCrossEntropyLoss()(make_net()(images), labels)
    assert trainer.world.recorder.take()["logged"] == {"loss": pytest.approx(loss.mean().asscalar(), rel=1e-5)}


def test_fit_records_the_loss_under_another_name_beside_a_metric_of_that_name(tmp_path):
    run = esync.Run(tmp_path, quiet=True, evaluate=lambda: 0.5, background=False, metric=("loss", "min"))
    net = make_net()
    fit(net, local_trainer(net, run=run), [esync.EstimatorHandler()], batches=1)
    run._rounds.flush()
    assert {"loss", "logged"} < (entry := json.loads((tmp_path / "cpu/iter-1.txt").read_text())).keys()
    assert entry["logged"].keys() == {"train_loss"}


def test_handler_with_trainer_of_gluon_is_refused():
    net = make_net()
    with pytest.raises(TypeError, match=r"trainer=esync.Trainer.*mxnet.gluon.trainer.Trainer"):
        fit(net, gluon.Trainer(net.collect_params(), "sgd"), [esync.EstimatorHandler()], epochs=1)


def test_handler_pauses_for_other_handlers_between_two_epochs_of_fit(monkeypatch):
    log: list[str] = []

    @contextmanager
    def paused() -> Iterator[None]:
        log.append("paused")
        yield
        log.append("trains")

    class Validation(estimators.EpochEnd):
        def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
            log.append("validates")

    net = make_net()
    trainer = local_trainer(net)
    monkeypatch.setattr(trainer, "paused", paused)
    fit(net, trainer, [Validation(), esync.EstimatorHandler()], epochs=2)
    assert log == ["paused", "validates", "trains"] * 2
