import json

import numpy as np
import pytest

from esync.checkpoints.state_serialization import NotStorableError, OptimizerState, decode, encode
from esync.runtime.mxnet_import import mx

from ..support.small_net import backward, make_net, values


def there_and_back(value):
    arrays: dict[str, np.ndarray] = {}
    tree = json.loads(json.dumps(encode(value, arrays)))
    return decode(tree, arrays, mx.cpu())


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        2**62,
        0.1,
        float("inf"),
        "text",
        (),
        [],
        {},
        (1, [2.5, {3: "x", (4, 5): None}]),
        {"a": {1: (0.1,)}},
    ],
)
def test_encode_round_trips_plain_values(value):
    back = there_and_back(value)
    assert back == value
    assert type(back) is type(value)


def test_encode_round_trips_arrays_of_every_kind():
    value = {0: (mx.nd.array([[1, 2]], dtype="float16"), None), 1: np.array([1.5]), "n": np.float64(0.1)}
    back = there_and_back(value)
    assert isinstance(back[0][0], mx.nd.NDArray)
    assert back[0][0].dtype == np.float16
    assert back[0][0].asnumpy().tolist() == [[1, 2]]
    assert isinstance(back[1], np.ndarray)
    assert back["n"] == 0.1


@pytest.mark.parametrize("value", [object(), print, [lambda: 0], {1: make_net}])
def test_encode_of_value_that_is_no_state_raises(value):
    with pytest.raises(NotStorableError):
        encode(value, {})


OPTIMIZERS = {
    "sgd": {"momentum": 0.9},
    "adam": {},
    "nadam": {},
    "rmsprop": {"centered": True},
    "dcasgd": {},
}


def train(trainer, net, steps: range) -> None:
    for number in steps:
        backward(net, number)
        trainer.step(8)


def gluon_trainer(net, optimizer: str, **options):
    return mx.gluon.Trainer(net.collect_params(), optimizer, options, kvstore=None)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizer_state_resumes_bit_for_bit(optimizer):
    def schedule():
        return mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.1)

    net = make_net()
    trainer = gluon_trainer(net, optimizer, lr_scheduler=schedule(), **OPTIMIZERS[optimizer])
    state = OptimizerState(trainer)
    train(trainer, net, range(3))
    arrays: dict[str, np.ndarray] = {}
    saved = json.loads(json.dumps(state.save(arrays)))
    middle = [parameter.data().copy() for parameter in net.collect_params().values()]
    train(trainer, net, range(3, 6))

    other = make_net()
    for parameter, value in zip(other.collect_params().values(), middle, strict=True):
        parameter.set_data(value)
    resumed = gluon_trainer(other, optimizer, lr_scheduler=schedule(), **OPTIMIZERS[optimizer])
    OptimizerState(resumed).load(saved, arrays)
    train(resumed, other, range(3, 6))
    assert values(other) == values(net)
    assert resumed.learning_rate == trainer.learning_rate


def test_optimizer_state_keeps_rates_set_in_the_loop_unless_the_user_changes_them():
    net = make_net()
    trainer = gluon_trainer(net, "sgd", learning_rate=0.1, momentum=0.9)
    state = OptimizerState(trainer)
    trainer.set_learning_rate(0.01)
    train(trainer, net, range(1))
    arrays: dict[str, np.ndarray] = {}
    saved = state.save(arrays)
    for rate, expected in ((0.1, 0.01), (0.5, 0.5)):
        resumed = gluon_trainer(make_net(), "sgd", learning_rate=rate, momentum=0.9)
        OptimizerState(resumed).load(saved, arrays)
        assert resumed.learning_rate == expected
