"""A network as the exchange sees it: weights, statistics and updates."""

import numpy as np
import pytest

from esync.exchange import STATISTICS, WEIGHTS
from esync.gluon.replica import Replica, UnsuitableParametersError
from esync.models.networks import build
from esync.runtime.mxnet_import import mx

from ..support.small_net import differentiate, single_weight

nn = mx.gluon.nn

# --- a network ------------------------------------------------------------------------------------


def small_net():
    """Return a network of convolution, batch norm and a dense layer, with known shapes.

    Gluon's names are in the order of the layers.
    """
    net = nn.HybridSequential(prefix="small_")
    with net.name_scope():
        net.add(nn.Conv2D(8, 3, in_channels=1), nn.BatchNorm(in_channels=8), nn.Dense(4))
    mx.random.seed(1)
    net.initialize(mx.init.Xavier())
    net(mx.nd.ones((2, 1, 8, 8))).wait_to_read()
    return net


def replica_of(net) -> Replica:
    parameters = [parameter for _, parameter in sorted(net.collect_params().items())]
    return Replica(parameters, lambda batch_size: None)


def replica_of_weight(weight) -> Replica:
    return Replica([weight], lambda batch_size: None)


def everything(net, trained: bool) -> np.ndarray:
    parameters = [parameter for _, parameter in sorted(net.collect_params().items())]
    chosen = [p for p in parameters if (p.grad_req != "null") == trained]
    return np.concatenate([p.data().asnumpy().reshape(-1).astype(np.float32) for p in chosen])


def values_of(vector) -> np.ndarray:
    out = np.full(vector.size, np.nan, np.float32)
    vector.read(0, vector.size, out)
    return out


def test_replica_of_frozen_layers_counts_them_as_statistics():
    net = small_net()
    before = replica_of(net)
    net[0].collect_params().setattr("grad_req", "null")
    after = replica_of(net)
    moved = sum(p.data().size for p in net[0].collect_params().values())
    assert after.weights.size == before.weights.size - moved
    assert after.statistics.size == before.statistics.size + moved
    assert after.gradients.size == after.weights.size


def test_replica_gradient_of_float16_is_that_of_the_last_backward_pass():
    weight = single_weight("float16", 3)
    replica = replica_of_weight(weight)
    slope = mx.nd.array([3.0, 0.1, -2.0], dtype="float16")
    differentiate(lambda: (weight.data() * slope).sum())
    replica.open()
    gradient = values_of(replica.gradient(0.3))
    replica.close()
    assert gradient.tolist() == (np.float32(0.3) * slope.asnumpy().astype(np.float32)).tolist()


@pytest.mark.parametrize("hybridize", [True, False])
def test_replica_reads_and_writes_weights_in_onednn_layout(hybridize):
    """After a forward pass in predict mode, oneDNN keeps convolution weights in a layout of its
    own.
    """
    mx.random.seed(0)
    images = mx.nd.random.uniform(shape=(8, 1, 28, 28))
    one = build("resnet18-v1x0.25", 10, mx.cpu(), seed=1, hybridize=hybridize)
    other = build("resnet18-v1x0.25", 10, mx.cpu(), seed=2, hybridize=hybridize)
    expected, different = one(images).asnumpy(), other(images).asnumpy()
    assert np.abs(expected - different).max() > 1e-3

    source, target = replica_of(one), replica_of(other)
    source.open()
    weights, statistics = values_of(source.weights), values_of(source.statistics)
    source.close()
    assert np.array_equal(weights, everything(one, trained=True))
    target.open()
    for start in range(0, weights.size, 999_991):
        target.write(WEIGHTS, start, weights[start : start + 999_991])
    target.write(STATISTICS, 0, statistics)
    target.close()
    assert np.array_equal(everything(other, trained=True), weights)
    for _ in range(2):  # the second pass finds the layout of the first
        np.testing.assert_allclose(other(images).asnumpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(one(images).asnumpy(), expected, rtol=1e-5, atol=1e-6)


def test_replica_open_waits_for_pending_computation():
    weight = single_weight("float32", 3)
    replica = replica_of_weight(weight)
    pending = mx.nd.ones((1500, 1500))
    for _ in range(5):
        pending = mx.nd.dot(pending, pending) * 0 + 1
    weight.data()[:] = pending[0, :3] * 7
    replica.open()
    assert values_of(replica.weights).tolist() == [7, 7, 7]
    replica.close()


# --- the update since the last exchange -----------------------------------------------------------


def test_replica_common_weights_can_be_changed_in_place():
    """Compressed exchanges change the anchor first and write the weights from it."""
    replica = replica_of(small_net())
    assert replica.common_weights() is None
    replica.keep_anchor()
    common = replica.common_weights()
    common[:] = np.arange(common.size)
    replica.open()
    replica.write(WEIGHTS, 3, common[3:])
    update = values_of(replica.update())
    np.testing.assert_array_equal(values_of(replica.weights)[3:], common[3:])
    replica.close()
    assert not update[3:].any()
    np.testing.assert_array_equal(common, np.arange(common.size))


def test_replica_common_weights_of_float16_are_not_available():
    replica = replica_of_weight(single_weight("float16", 3))
    replica.keep_anchor()
    assert replica.common_weights() is None


def test_replica_update_does_not_count_float16_rounding():
    """The anchor is what the network really holds, so the update without a local step is zero."""
    replica = replica_of_weight(single_weight("float16", 3))
    replica.keep_anchor()
    replica.open()
    replica.write(WEIGHTS, 0, np.full(replica.weights.size, 0.05, np.float32))
    replica.close()
    replica.open()
    update = values_of(replica.update())
    replica.close()
    assert not update.any()


# --- what cannot be exchanged ---------------------------------------------------------------------


def initialized(layer, **options):
    layer.initialize(**options)
    return layer


class SparseWeight(mx.gluon.Block):
    """A layer whose values themselves are sparse."""

    def __init__(self, **options):
        super().__init__(**options)
        self.weight = self.params.get("weight", shape=(5, 3), stype="row_sparse", grad_stype="row_sparse")


def frozen(layer):
    initialized(layer).collect_params().setattr("grad_req", "null")
    return layer


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (lambda: initialized(nn.Dense(2, prefix="later_")), r"later_weight is not initialized yet: .* one batch"),
        (lambda: nn.Dense(2, in_units=3, prefix="never_", use_bias=False), "never_weight is not initialized yet"),
        (
            lambda: initialized(nn.Dense(2, in_units=3), ctx=[mx.cpu(0), mx.cpu(1)]),
            "lives on 2 devices: start one process per device",
        ),
        (
            lambda: initialized(SparseWeight(prefix="sparse_")),
            r"the values of parameter sparse_weight are sparse \(row_sparse\).* leave stype out",
        ),
        (lambda: frozen(nn.Dense(2, in_units=3)), "no parameter of this network is trained"),
    ],
)
def test_replica_of_parameters_that_cannot_be_exchanged_is_refused(layer, message):
    with pytest.raises(UnsuitableParametersError, match=message):
        replica_of(layer())


def test_replica_keeps_mean_statistics_beside_its_own():
    net = small_net()
    replica = replica_of(net)
    statistics = everything(net, trained=False)
    mean = np.arange(statistics.size, dtype=np.float32)
    with replica.holding(replica.common):
        assert everything(net, trained=False).tolist() == statistics.tolist()  # there is no other one
    replica.open()
    replica.keep_statistics(separate=True)
    assert values_of(replica.common[1]).tolist() == statistics.tolist()  # nothing has come yet
    replica.write(STATISTICS, 0, mean[:3])
    replica.write(STATISTICS, 3, mean[3:])
    assert values_of(replica.statistics).tolist() == statistics.tolist()
    assert values_of(replica.common[1]).tolist() == mean.tolist()
    replica.close()
    with replica.holding(replica.common):
        assert everything(net, trained=False).tolist() == mean.tolist()
    assert everything(net, trained=False).tolist() == statistics.tolist()
    replica.open()
    replica.keep_statistics(separate=False)
    replica.write(STATISTICS, 0, mean)
    replica.close()
    assert everything(net, trained=False).tolist() == mean.tolist()
    assert replica.common == (replica.weights, replica.statistics)


# --- parameters of other kinds --------------------------------------------------------------------


class DroppedParameter(mx.gluon.Parameter):
    """Its values are dropped out whenever they are read, as in AWD-LSTM (weight drop)."""

    def data(self, ctx=None):
        return mx.nd.Dropout(super().data(ctx), p=0.5, mode="always")


def test_parameter_that_computes_its_data_is_exchanged_as_stored():
    weight = DroppedParameter("dropped", shape=(64,), init="ones")
    weight.initialize()
    replica = replica_of_weight(weight)
    replica.open()
    assert np.array_equal(values_of(replica.weights), np.ones(64, np.float32))
    replica.write(WEIGHTS, 0, np.full(64, 3, np.float32))
    replica.close()
    assert np.array_equal(weight.list_data()[0].asnumpy(), np.full(64, 3, np.float32))


def test_parameter_without_stored_values_is_refused():
    class Computed(mx.gluon.Parameter):
        def list_data(self):
            return [array * 2 for array in super().list_data()]

    weight = Computed("computed", shape=(3,), init="ones")
    weight.initialize()
    with pytest.raises(UnsuitableParametersError, match=r"computed computes its values .*Computed\.list_data"):
        replica_of_weight(weight)


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_assigned_values_are_found_in_a_sample_and_in_all_values(size):
    weight = single_weight(size=size)
    replica = replica_of_weight(weight)
    replica.keep_anchor()
    replica.sample_weights()
    assert replica.assigned_since_sample() is None
    weight.set_data(mx.nd.full((size,), 2))
    sampled = replica.assigned_since_sample()
    replica.open()
    compared = replica.assigned_since_exchange(replica.vectors)
    replica.close()
    for assignment in (sampled, compared):
        assert assignment.names == ("weight",)
        assert np.array_equal(assignment.values[0], np.full(size, 2, np.float32))
    replica.sample_weights()
    assert replica.assigned_since_sample() is None


def test_assigned_value_among_many_is_found_by_bits():
    weight = single_weight(size=100_000, init="zeros")
    replica = replica_of_weight(weight)
    replica.keep_anchor()
    weight.data()[99_999:] = -0.0
    replica.open()
    assert replica.assigned_since_exchange(replica.vectors) is not None
    replica.close()


def test_assignments_that_are_alike_in_the_sample_only_are_not_the_same():
    assignments = []
    for first in (0.0, 1.0):
        weight = single_weight(size=1000)
        replica = replica_of_weight(weight)
        replica.sample_weights()
        weight.data()[:] = 2
        weight.data()[:1] = first
        assignments.append(replica.assigned_since_sample())
    assert assignments[0].digest != assignments[1].digest
