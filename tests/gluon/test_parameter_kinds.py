"""Constants that float32 cannot hold, through all that is done with a model; and float64 weights."""

import json
from typing import Any

import numpy as np
import pytest

import esync
from esync.algorithms import LocalSGD
from esync.gluon.parameter_kinds import UnsuitableParametersError, digests
from esync.runtime.mxnet_import import mx

from ..support.scripted_world import World, steady_world
from ..support.small_net import differentiate, local_trainer, sgd_trainer, single_weight

#: What float32 would change, or what it cannot be written to.
CONSTANTS = [
    ("bool", [True, False, True]),
    ("uint8", [0, 128, 255]),
    ("int32", [0, 2**24 + 1, -(2**31)]),
    ("int64", [0, 2**53 + 1, -(2**62)]),
    ("float64", [1 / 3, 1e300, -0.0]),
]


class Net(mx.gluon.nn.HybridBlock):
    """A layer beside a constant."""

    def __init__(self, values: np.ndarray, **options: Any) -> None:
        super().__init__(**options)
        with self.name_scope():
            self.layer = mx.gluon.nn.Dense(3, in_units=2)
            self.table = self.params.get_constant("table", mx.nd.array(values, dtype=values.dtype))
        self.initialize(mx.init.One())

    def hybrid_forward(self, ops, inputs, table):
        return self.layer(inputs) * ops.ones_like(ops.cast(table, "float32")).reshape((1, -1))


def step(net: Any, trainer: esync.Trainer) -> None:
    differentiate(lambda: net(mx.nd.ones((2, 2))).sum())
    trainer.step(2)


@pytest.mark.parametrize(
    "algorithm",
    ["sync", LocalSGD(local_iterations=1), "async", "dgs", "local"],
    ids=lambda value: getattr(value, "name", value),
)
@pytest.mark.parametrize(("kind", "values"), CONSTANTS)
def test_constant_keeps_every_bit_and_is_compared_at_the_start(kind, values, algorithm):
    exact = np.array(values, kind)
    net, world = Net(exact), steady_world([1.0] * 9)
    trainer = sgd_trainer(net, algorithm, world=world)
    with trainer.trial():
        step(net, trainer)
    trainer.start()
    for _ in range(3):
        step(net, trainer)
    with trainer.mean_statistics():
        assert net.table.data().asnumpy().tobytes() == exact.tobytes()
    if algorithm != "local":
        _, sizes, _, agreement = world.made.log[0]
        assert sizes["statistics"] == 0
        assert agreement["constant table"] == digests(Net(exact, prefix="other_").collect_params().values())["table"]
        exact[0] = not exact[0]
        assert agreement["constant table"] != digests(Net(exact).collect_params().values())["table"]


@pytest.mark.parametrize(("kind", "values"), CONSTANTS[2::2])
def test_constant_is_in_checkpoints_and_evaluations(tmp_path, kind, values):
    exact, start_rounds = np.array(values, kind), []
    for rounds in (2, 4):
        net = Net(exact)

        def same(net: Any = net) -> float:
            return float(net.table.data().asnumpy().tobytes() == exact.tobytes())

        checkpoints = esync.Checkpoints(str(tmp_path / "kept"), 1, resume=True)
        run = esync.Run(
            tmp_path / f"logs-{rounds}", evaluate=same, every=1, net=net, checkpoints=checkpoints, quiet=True
        )
        with local_trainer(net, run=run, limits=esync.Limits(rounds=rounds)) as trainer:
            trainer.start()
            start_rounds.append(trainer.round)
            while not trainer.finished:
                step(net, trainer)
        again = Net(np.zeros_like(exact))
        again.load_parameters(str(tmp_path / "kept" / "model" / "model.params"))
        assert again.table.data().asnumpy().tobytes() == exact.tobytes()
    assert start_rounds == [0, 2]
    entries = [json.loads(file.read_text()) for file in tmp_path.glob("logs-*/*/iter-*.txt")]
    assert {entry.get("accuracy") for entry in entries} - {None} == {1.0}


@pytest.mark.parametrize(
    "parameters",
    [[single_weight("float64")], [single_weight(), single_weight("float64", grad_req="null", differentiable=False)]],
)
@pytest.mark.parametrize(
    "algorithm", ["sync", LocalSGD(local_iterations=1), "async"], ids=lambda value: getattr(value, "name", value)
)
def test_float64_that_changes_is_refused_where_values_are_exchanged(algorithm, parameters):
    trainer = esync.Trainer(parameters, "sgd", algorithm=algorithm, world=World())
    with pytest.raises(UnsuitableParametersError, match=r"parameter weight is float64, .*net.cast\('float32'\)"):
        trainer.start()


@pytest.mark.parametrize(
    "algorithm", ["sync", LocalSGD(local_iterations=1)], ids=lambda value: getattr(value, "name", value)
)
@pytest.mark.parametrize("kind", ["float64", "float16"])
def test_network_that_is_converted_during_the_run_is_refused(kind, algorithm):
    net = Net(np.zeros(3, np.float32))
    world = steady_world([1.0] * 9)
    trainer = sgd_trainer(net, algorithm, world=world)
    trainer.start()
    step(net, trainer)
    net.layer.cast(kind)
    differentiate(lambda: net.layer.weight.data().sum() + net.layer.bias.data().sum())
    with pytest.raises(UnsuitableParametersError, match=rf"dense.* is {kind} now; convert the network before"):
        trainer.step(2)


@pytest.mark.parametrize("algorithm", ["esync", "sync", "dgs"])
def test_sparse_gradient_is_refused_where_values_are_exchanged(algorithm):
    parameters = mx.gluon.nn.Embedding(9, 2, sparse_grad=True, prefix="words_").collect_params()
    parameters.initialize()
    trainer = esync.Trainer(parameters, "sgd", algorithm=algorithm, world=steady_world([1.0]))
    with pytest.raises(UnsuitableParametersError, match=rf"words_weight is sparse .*'{algorithm}' .*sparse_grad=False"):
        trainer.start()


@pytest.mark.parametrize(
    "optimizer", [("sgd", {"momentum": 0.9, "wd": 0.01}), ("sgd", {"lazy_update": True}), ("adam", {})]
)
def test_sparse_gradients_train_alone_as_in_gluon_and_go_on_from_a_checkpoint(tmp_path, optimizer):
    name, options = optimizer
    words = np.random.default_rng(4).integers(0, 30, (6, 8))  # most rows of the table have no gradient

    def make() -> Any:
        table = mx.gluon.nn.Embedding(30, 4, sparse_grad=True)
        table.initialize(mx.init.Constant(0.5))
        return table

    def train(table: Any, trainer: Any, batches: range) -> None:
        for number in batches:
            batch = mx.nd.array(words[number])
            differentiate(lambda batch=batch: (table(batch) ** 2 * (1 + batch.expand_dims(1))).sum())
            trainer.step(8)

    theirs, start_rounds = make(), []
    train(theirs, mx.gluon.Trainer(theirs.collect_params(), name, {**options}, kvstore=None), range(6))
    for rounds in (3, 6):
        ours = make()
        run = esync.Run(
            tmp_path / "logs",
            evaluate=lambda ours=ours: float(abs(ours.weight.data().asnumpy()).mean()),
            background=False,
            metric=("size", "min"),
            checkpoints=esync.Checkpoints(tmp_path / "kept", 1, resume=True),
            quiet=True,
        )
        with local_trainer(ours, name, {**options}, limits=esync.Limits(rounds=rounds), run=run) as trainer:
            if rounds == 3:
                with trainer.trial():
                    train(ours, trainer, range(1))
            trainer.start()
            start_rounds.append(trainer.round)
            train(ours, trainer, range(rounds - 3, rounds))
    assert start_rounds == [0, 3]
    assert ours.weight.data().asnumpy().tobytes() == theirs.weight.data().asnumpy().tobytes()


def test_float64_weights_train_alone_and_are_evaluated_to_the_last_bit(tmp_path):
    weight = single_weight("float64", 1)
    values: list[float] = []

    def evaluate() -> float:
        values.append(weight.data().asscalar())
        return values[-1]

    run = esync.Run(tmp_path, evaluate=evaluate, every=1, metric=("weight", "max"), quiet=True)
    limits = esync.Limits(rounds=3)
    options = {"learning_rate": 2.0**-40}
    with esync.Trainer([weight], "sgd", options, algorithm="local", run=run, limits=limits) as trainer:
        while not trainer.finished:
            differentiate(lambda: -weight.data().sum())
            trainer.step(1)
    assert values[-1] == weight.data().asscalar() == 1 + 3 * 2.0**-40
