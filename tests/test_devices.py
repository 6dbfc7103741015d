"""What touches the device itself does the same on a GPU as on the CPU.

Without a GPU, the half of these tests that is for the CPU runs. `scripts/check_gpu.sh` runs the
other half.
"""

import numpy as np
import pytest

import esync
from esync.exchange.keystores.mxnet_server import DeviceMemory
from esync.exchange.protocol.payload_staging import HostMemory
from esync.gluon.replica import Replica
from esync.models import export
from esync.models.networks import build
from esync.rules import Step, sgd
from esync.runtime.mxnet_import import mx

from .support.devices import DEVICES, context_of
from .support.small_net import OPTIMIZERS, batch, make_net

pytestmark = pytest.mark.parametrize("device", DEVICES)


def weights_of(net) -> np.ndarray:
    """All weights and statistics, one after the other."""
    parameters = [parameter for _, parameter in sorted(net.collect_params().items())]
    return np.concatenate([parameter.data().asnumpy().reshape(-1) for parameter in parameters])


def trained(context, optimizer: str, options: dict, folder=None, resume: bool = False, until: int = 6):
    """Train the small network alone on a device, to its round `until`; return it."""
    net = make_net()
    net.collect_params().reset_ctx(context)
    checkpoints = None if folder is None else esync.Checkpoints(folder, every=3, resume=resume)
    trainer = esync.Trainer(net.collect_params(), optimizer, options, algorithm="local", checkpoints=checkpoints)
    with trainer:
        trainer.start()
        for number in range(trainer.round, until):
            data, label = (array.as_in_context(context) for array in batch(number))
            with mx.autograd.record():
                loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()(net(data), label)
            loss.backward()
            trainer.step(len(data))
            if checkpoints is not None:
                checkpoints.save_if_due()
    return net


@pytest.mark.parametrize("network", ["lenet", "resnet18-v1", "mobilenet-v1"])
def test_device_has_the_initial_weights_of_the_cpu_and_computes_its_scores(device, network):
    images = np.random.default_rng(0).random((8, 1, 28, 28), np.float32)
    weights, scores = [], []
    for context in (context_of(device), mx.cpu()):
        net = build(network, 10, context, seed=1)
        computed = net(mx.nd.array(images, ctx=context))
        assert {computed.context} == {ctx for p in net.collect_params().values() for ctx in p.list_ctx()} == {context}
        weights.append(weights_of(net))
        scores.append(computed.asnumpy())
    np.testing.assert_array_equal(*weights)
    np.testing.assert_allclose(*scores, rtol=1e-3, atol=1e-3)


def test_device_replica_reads_and_writes_weights_and_statistics(device):
    net = make_net()
    net.collect_params().reset_ctx(context_of(device))
    parameters = [parameter for _, parameter in sorted(net.collect_params().items())]
    replica = Replica(parameters, lambda batch_size: None)
    for vector in (replica.weights, replica.statistics):
        vector.settle()  # initial values are computed in the background
        vector.open()
        expected, actual = np.arange(vector.size, dtype=np.float32), np.zeros(vector.size, np.float32)
        vector.write(0, expected)
        vector.close()
        vector.settle()
        vector.open()
        vector.read(0, vector.size, actual)
        vector.close()
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(("optimizer", "options"), OPTIMIZERS)
def test_device_takes_the_steps_of_the_cpu(device, optimizer, options):
    one, other = (trained(context, optimizer, dict(options)) for context in (context_of(device), mx.cpu()))
    assert not np.allclose(weights_of(one), weights_of(make_net()), atol=1e-3)  # it has learnt something
    np.testing.assert_allclose(weights_of(one), weights_of(other), rtol=1e-3, atol=1e-4)


def test_device_resumes_from_a_checkpoint_with_its_optimizer_state(device, tmp_path):
    context, adam = context_of(device), ("adam", {"learning_rate": 0.01})
    reference = trained(context, *adam)
    trained(context, *adam, folder=tmp_path, until=4)
    resumed = trained(context, *adam, folder=tmp_path, resume=True)
    np.testing.assert_allclose(weights_of(resumed), weights_of(reference), rtol=1e-4, atol=1e-5)


def test_device_export_gives_the_same_scores_on_the_cpu(device, tmp_path):
    context = context_of(device)
    net = build("lenet", 10, context, seed=5)
    images = np.random.default_rng(0).random((4, 1, 28, 28), np.float32)
    expected = net(mx.nd.array(images, ctx=context)).asnumpy()
    export.save(net, tmp_path, (1, 1, 28, 28), lambda message: None)
    block = mx.gluon.SymbolBlock.imports(
        str(tmp_path / "model-symbol.json"), ["data"], str(tmp_path / "model-0000.params"), ctx=mx.cpu()
    )
    np.testing.assert_allclose(block(mx.nd.array(images)).asnumpy(), expected, rtol=1e-3, atol=1e-4)


def test_device_memory_of_a_server_does_what_host_memory_does(device):
    rng = np.random.default_rng(0)
    before, payload = rng.standard_normal((2, 1000)).astype(np.float32)
    results, steps = [], []
    for memory in (DeviceMemory(context_of(device)), HostMemory()):
        server_weights, values = before.copy(), payload.copy()
        staged = memory.stage(values)
        values.fill(9)  # the request's memory is not the server's
        start = memory.to_array(server_weights)
        new = start + staged * (staged > 0) * 1e-9 + staged * (staged < 0)
        memory.undo_rounding(new, start, 1e-6)
        results.append(memory.fetch(new).copy())
        total = memory.stage(values)
        memory.add(total, memory.stage(payload), 2.0)
        weights, state = memory.update(sgd, new, total, None, Step(0.1, momentum=0.9), 4)
        steps.append([memory.fetch(weights).copy(), memory.fetch(state).copy()])
        memory.release([staged])
    np.testing.assert_allclose(*results, rtol=1e-6)
    np.testing.assert_allclose(*steps, rtol=1e-5, atol=1e-6)
    positive = payload > 0
    np.testing.assert_array_equal(results[0][positive], before[positive])
    assert not np.array_equal(results[0], before)
