"""Real gradients on a simulated cluster."""

from dataclasses import replace

import numpy as np
import pytest

from esync import config
from esync.data import find_data_dir
from esync.models.networks import MODELS, NetworkEntry
from esync.runtime.mxnet_import import mx
from esync.simulate.gradients import GradientNumerics, _draws
from esync.simulate.simulation import Simulation

from .modelling import cluster, options

WORDS = ("--network=lenet", "--batch-size=16", "--partition=contiguous", "--no-evaluation")


def trained(modelled, *words, rounds=3):
    """The final weights on every worker."""
    chosen = options(*WORDS, f"--data-dir={find_data_dir(None, 'fashion-mnist')}", *words, rounds=rounds)
    numerics = GradientNumerics(chosen, len(modelled.workers))
    Simulation(modelled, chosen, numerics).run()
    return [
        np.concatenate([p.data().asnumpy().ravel() for _, p in sorted(numerics._nets[rank].collect_params().items())])
        for rank in range(len(modelled.workers))
    ]


def test_simulated_ssgd_is_independent_of_device_speeds_and_equals_esync_with_one_iteration():
    slow = trained(cluster(0.1, 2.0, 0.7), "--mode=sync")
    fast = trained(cluster(0.3, 0.1, 0.1), "--mode=sync")
    for weights in [*slow[1:], *fast]:
        np.testing.assert_array_equal(weights, slow[0])
    esync = trained(cluster(0.1, 0.5, 0.2), "--mode=esync", "--local-iterations=1")
    np.testing.assert_allclose(esync[0], slow[0], rtol=1e-4, atol=1e-6)


def test_simulated_algorithms_with_one_worker_equal_sequential_sgd():
    (alone,) = trained(cluster(0.1), "--mode=local")
    for words in (["--mode=sync"], ["--mode=async"], ["--mode=esync", "--local-iterations=1"]):
        (weights,) = trained(cluster(0.1), *words)
        np.testing.assert_allclose(weights, alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["nag", "adamw"])
def test_simulated_server_optimizer_with_one_worker_equals_the_local_optimizer(optimizer):
    """With the same flags: both sides agree on whether the rate multiplies the sum or the mean."""
    words = [f"--optimizer={optimizer}", "--learning-rate=0.001", "--weight-decay=0.01"]
    words += ["--momentum=0.9"] if optimizer == "nag" else []
    (local,) = trained(cluster(0.1), "--mode=local", *words)
    for mode in ("sync", "async"):
        (weights,) = trained(cluster(0.1), f"--mode={mode}", *words)
        np.testing.assert_allclose(weights, local, rtol=1e-3, atol=1e-5)


def sharing_hosts(modelled, several):
    """The cluster with so many workers on each host, which exchange as one."""
    workers = [replace(worker, host=f"w{worker.rank // several}") for worker in modelled.workers]
    return replace(modelled, workers=tuple(workers), per_host=True)


@pytest.mark.parametrize("words", [["--overlap", "--weighting=samples"], ["--compression=fp16"]])
def test_simulated_workers_that_exchange_per_host_train_as_those_that_do_not(words):
    modelled = cluster(0.1, 0.3, 0.2, 0.1, 0.1)
    rule = ["--mode=local-sgd", "--local-iterations=2"]
    flat, by_host = (trained(model, *rule, *words) for model in (modelled, sharing_hosts(modelled, 2)))
    close = {"rtol": 2e-3, "atol": 2e-4} if "--compression=fp16" in words else {"rtol": 1e-4, "atol": 1e-6}
    for mine, theirs in zip(by_host, flat, strict=True):
        np.testing.assert_allclose(mine, theirs, **close)
        np.testing.assert_array_equal(mine, by_host[0])
    assert any((mine != theirs).any() for mine, theirs in zip(by_host, flat, strict=True))  # added in another order


def test_simulated_servers_and_collectives_take_the_same_adam_steps():
    words = ("--mode=sync", "--optimizer=adam", "--learning-rate=0.001")
    servers, ring = (trained(cluster(0.1, 0.5), *words, f"--collective={way}") for way in ("ps", "ring"))
    for weights in [servers[1], *ring]:
        np.testing.assert_array_equal(weights, servers[0])


def test_simulated_evaluation_takes_virtual_time_and_has_a_real_accuracy():
    chosen = options(
        "--network=lenet",
        "--batch-size=16",
        "--mode=sync",
        f"--data-dir={find_data_dir(None, 'fashion-mnist')}",
        "--test-images=200",
        rounds=5,
    )
    numerics = GradientNumerics(chosen, 1)
    simulation = Simulation(cluster(0.4), chosen, numerics)
    simulation.run()
    # An evaluation takes 1 s of virtual time: rounds that end meanwhile are skipped, the last
    # weights never are.
    assert [accuracy.round for accuracy in simulation.accuracies] == [1, 4, 5]
    assert [accuracy.time for accuracy in simulation.accuracies] == pytest.approx([0.4, 1.6, 2.0])
    assert all(0 <= accuracy.accuracy <= 1 for accuracy in simulation.accuracies)
    assert list(simulation.accuracies[-1].parts) == [f"recall/{label}" for label in range(10)]
    tested = np.bincount(numerics.dataset.test_labels)
    recalled = np.dot(list(simulation.accuracies[-1].parts.values()), tested) / tested.sum()
    assert recalled == pytest.approx(simulation.accuracies[-1].accuracy, abs=1e-6)
    assert numerics.gradients == 5


def test_simulated_collective_and_servers_weight_statistics_alike():
    two = cluster(0.1, 0.3)
    words = ("--mode=esync", "--network=mobilenet-v1x0.0625", "--batch-size=4")
    weights = {
        (way, kind): trained(two, *words, f"--statistics-weighting={kind}", f"--collective={way}", rounds=1)[0]
        for way in ("ps", "ring")
        for kind in ("uniform", "samples")
    }
    for way in ("ps", "ring"):
        uniform, samples = weights[way, "uniform"], weights[way, "samples"]
        assert np.abs(uniform - samples).max() > 0
    for kind in ("uniform", "samples"):
        np.testing.assert_allclose(weights["ps", kind], weights["ring", kind], rtol=1e-4, atol=1e-5)


def test_simulated_overlap_ends_with_the_common_model_on_all_workers():
    one = trained(cluster(0.1, 0.25), "--mode=esync", "--local-iterations=2", "--overlap")
    np.testing.assert_array_equal(one[0], one[1])
    (alone,) = trained(cluster(0.1), "--mode=local", rounds=6)
    (ahead,) = trained(cluster(0.1), "--mode=esync", "--local-iterations=2", "--overlap")
    # A single worker's mean is its own update, so running ahead changes nothing.
    np.testing.assert_allclose(ahead, alone, rtol=1e-4, atol=1e-6)


def test_simulation_seeds_random_numbers_of_networks_that_draw_them():
    nn = mx.gluon.nn
    plain, drawing = nn.HybridSequential(), nn.HybridSequential()
    plain.add(nn.Dense(3))
    drawing.add(nn.Dense(3), nn.HybridSequential())
    drawing[1].add(nn.Dropout(0.5))
    assert not _draws(plain)
    assert _draws(drawing)


def small_net(classes):
    """With batch norm, and quick."""
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Conv2D(8, 5, strides=2), nn.BatchNorm(), nn.Activation("relu"))
        net.add(nn.Conv2D(16, 3, strides=2), nn.BatchNorm(), nn.Activation("relu"), nn.Dense(classes))
    return net


def untrained(net):
    return [p for _, p in sorted(net.collect_params().items()) if p.grad_req == "null"]


@pytest.mark.parametrize(
    "words",
    [
        ["--mode=async"],
        pytest.param(["--mode=async", "--use-dcasgd=1"], marks=pytest.mark.long),
        pytest.param(["--mode=gd-async", "--secondary-ratio=0.1"], marks=pytest.mark.long),
    ],
)
def test_simulated_evaluation_uses_the_mean_statistics_of_all_workers(monkeypatch, words):
    monkeypatch.setitem(MODELS, "mlp", NetworkEntry(small_net))
    monkeypatch.setattr(config, "SPARSE_STATISTICS_EVERY", 1)
    examined = {}

    class Kept(GradientNumerics):
        def evaluate(self, weights, statistics, every_sample=False):
            examined[self._options.statistics] = values(weights), values(statistics)
            return super().evaluate(weights, statistics, every_sample)

    def values(source):
        out = np.empty(source.size, np.float32)
        source.read(0, source.size, out)
        return out

    accuracy = {}
    for kind in ("mean", "rank0"):
        chosen = options(
            "--network=mlp",
            "--batch-size=16",
            "--partition=class",
            f"--data-dir={find_data_dir(None, 'fashion-mnist')}",
            "--test-images=200",
            "--eval-duration=1000",
            f"--statistics={kind}",
            *words,
            rounds=100,
        )
        numerics = Kept(chosen, 5)
        simulation = Simulation(cluster(0.1, 0.11, 0.12, 0.13, 0.14, servers=2), chosen, numerics)
        simulation.run()
        accuracy[kind] = simulation.accuracies[-1].accuracy
    assert examined["mean"][0].tobytes() == examined["rank0"][0].tobytes()  # the same weights
    if "--mode=async" in words:  # with sparse messages the weights of the workers differ, too
        assert accuracy["mean"] > accuracy["rank0"]
    # A worker's last iterations may not have been sent, so its latest may have moved on a little.
    latest = [np.concatenate([p.data().asnumpy().ravel() for p in untrained(net)]) for net in numerics._nets.values()]
    mean, rank0 = np.mean(latest, axis=0), latest[0]
    assert np.linalg.norm(examined["mean"][1] - mean) < 0.4 * np.linalg.norm(rank0 - mean)
    assert examined["rank0"][1].tolist() == rank0.tolist()


@pytest.mark.parametrize("spec", ["class", "uniform"])
def test_simulated_workers_train_on_the_data_of_those_that_are_left_out(spec):
    """By class, each of five workers has two classes; the last one's are dealt to the others."""

    class Observed(GradientNumerics):
        def start(self, rank, world):
            trainer, iteration = super().start(rank, world)
            iterations[rank] = iteration
            return trainer, iteration

    iterations = {}
    modelled = cluster(0.1, 0.1, 0.1, 0.1, 60.0)
    words = (*WORDS, "--mode=tiered", f"--partition={spec}", f"--data-dir={find_data_dir(None, 'fashion-mnist')}")
    chosen = options(*words, rounds=4)
    simulation = Simulation(modelled, chosen, Observed(chosen, 5))
    simulation.run()
    assert simulation.workers[4].rounds == 0
    held = [iterations[rank].batches._indices for rank in range(5)]
    assert [len(indices) for indices in held] == [15_000] * 4 + [12_000]
    assert len(np.unique(np.concatenate(held[:4]))) == 60_000
    labels = simulation.numerics.dataset.train_labels
    assert all({8, 9} <= set(labels[indices].tolist()) for indices in held[:4])
