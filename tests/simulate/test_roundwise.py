"""The simulation round by round, against the one event by event on random clusters."""

import math
import random
from dataclasses import replace

import pytest

from esync.algorithms.registry import all_flags
from esync.launch import flags
from esync.runtime.straggler_injection import StragglerEvent
from esync.simulate.cluster import ClusterModel
from esync.simulate.coordination import StateServerModel
from esync.simulate.devices import JITTERS, DeviceModel, Pause
from esync.simulate.engine import SimulationEngine
from esync.simulate.job import SimulationJob, run
from esync.simulate.network import Link, Network
from esync.simulate.result import result
from esync.simulate.roundwise import sharing
from esync.simulate.roundwise.exchange import OverlappingRoundsError
from esync.simulate.roundwise.simulation import ALGORITHMS, REGARDED, WITHOUT_EFFECT, RoundwiseSimulation, covers
from esync.simulate.servers import ServerModel
from esync.simulate.simulation import Simulation, TimingNumerics
from esync.simulate.world import WorkerModel

from .modelling import cluster, options

CLUSTERS = 45


def random_device(draw, kinds):
    more = {}
    if draw.random() < 0.4:
        more = {"jitter": draw.choice([0.05, 0.3, 1.0]), "distribution": draw.choice(JITTERS)}
    if draw.random() < 0.1:
        more["pauses"] = [Pause(1.0, 0.7, 3.0)]
    if draw.random() < 0.1:
        more["speed"] = [(2.0, 0.5)]
    if draw.random() < 0.1:
        more["trace"] = (0.1, 0.2, 0.15)
    return DeviceModel(step_time=draw.choice(kinds), **more)


def random_cluster(draw):
    """1 to 12 workers and 1 or 2 servers on a network that may be free, shared or uneven."""
    kinds = [round(draw.uniform(0.03, 1.5), 4) for _ in range(draw.randint(1, 4))]
    base = Link(draw.choice([math.inf, 125e6, 12.5e6, 1.25e6]), draw.choice([0.0, 1e-4, 5e-3]))
    own, on_one_host, workers = {}, draw.random() < 0.25, []
    for rank in range(draw.randint(1, 12)):
        host = f"w{rank // 2 if on_one_host else rank}"
        if draw.random() < 0.3:
            own[host] = Link(draw.choice([1e6, 5e6, math.inf]), draw.choice([2e-4, 0.03]))
        workers.append(WorkerModel(rank, host, f"cpu-{rank}", random_device(draw, kinds)))
    count = draw.choice([1, 1, 2])
    if count == 1 and draw.random() < 0.15:
        workers[0] = WorkerModel(0, "s0", "cpu", workers[0].device)
    servers = tuple(
        ServerModel(f"s{shard}", draw.choice([0, 1e-6, 1e-4, 1e-3]), draw.choice([math.inf, 1e9]))
        for shard in range(count)
    )
    state_server = StateServerModel(draw.choice(["s0", "other"]), draw.choice([0, 1e-6, 2e-4, 5e-3]))
    return ClusterModel(tuple(workers), servers, state_server, lambda host: own.get(host, base), 1.0)


def random_options(draw, seed):
    mode = draw.choice(["esync", "esync", "esync", "sync", "local-sgd", "diloco"])
    words = [f"--mode={mode}", f"--network={draw.choice(['lenet', 'resnet18-v1'])}", f"--seed={seed}"]
    if mode == "esync":
        words += draw.choice(
            [[], [], ["--epsilon=0.02"], ["--epsilon=0.5"], ["--slowest-iterations=3"], ["--local-iterations=4"]]
        )
    if draw.random() < 0.2:
        words.append(f"--max-time={draw.choice([2, 5])}")
    if draw.random() < 0.2:
        words.append("--epochs=0.05")
    return options(*words, rounds=draw.randint(1, 6))


def roundwise(modelled, chosen, leases=True, watch=None):
    simulation = RoundwiseSimulation(modelled, chosen, TimingNumerics(chosen, 60_000), watch, leases)
    simulation.run()
    return simulation


def differences(one, other, place="result"):
    """Where two results differ by more than rounding: the order of additions may be another one."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        return [difference for key in one for difference in differences(one[key], other[key], f"{place}.{key}")]
    if isinstance(one, list):
        assert len(one) == len(other)
        return [
            difference
            for index, pair in enumerate(zip(one, other, strict=True))
            for difference in differences(*pair, f"{place}[{index}]")
        ]
    if isinstance(one, float) and isinstance(other, float):
        return [] if math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9) else [(place, one, other)]
    return [] if one == other else [(place, one, other)]


def with_shared_hosts(draw, modelled):
    """The cluster with two to four workers on each host, which exchange as one."""
    several = draw.randint(2, 4)
    workers = [
        worker if worker.host == "s0" else replace(worker, host=f"w{worker.rank // several}")
        for worker in modelled.workers
    ]
    return replace(modelled, workers=tuple(workers), per_host=True, memory_bandwidth=draw.choice([1e7, 1e9, 1e10]))


def event_by_event(modelled, chosen, **more):
    reference = Simulation(modelled, chosen, TimingNumerics(chosen, 60_000), **more)
    reference.run()
    return result(reference, "")


@pytest.mark.parametrize("per_host", [False, True])
def test_roundwise_equals_event_by_event(per_host):
    compared = 0
    for seed in range(CLUSTERS):
        draw = random.Random(seed)
        modelled = with_shared_hosts(draw, random_cluster(draw)) if per_host else random_cluster(draw)
        chosen, leases = random_options(draw, seed), per_host or draw.random() < 0.8
        assert covers(modelled, chosen)
        try:
            quick = roundwise(modelled, chosen, leases)
        except OverlappingRoundsError:
            continue
        assert differences(event_by_event(modelled, chosen, leases=leases), result(quick, "")) == [], f"seed {seed}"
        compared += not per_host or bool(modelled.host_groups())
    assert compared > 0.7 * CLUSTERS


def test_roundwise_per_host_with_one_worker_on_each_host_changes_nothing():
    modelled, chosen = cluster(0.1, 0.25, 0.4, link=Link(1e6, 1e-3)), options("--mode=esync", "--network=lenet")
    flat, by_host = (roundwise(replace(modelled, per_host=each), chosen) for each in (False, True))
    assert result(flat, "") == result(by_host, "")


def test_roundwise_shares_a_port_as_event_by_event():
    for seed in range(20):
        draw = random.Random(seed)
        limits = [draw.choice([1e6, 3e6, math.inf]) for _ in range(30)]
        times = [round(draw.uniform(0, 2), draw.choice([1, 6])) for _ in limits]
        engine = SimulationEngine()
        network = Network(engine, lambda host: Link(10e6 if host == "s" else limits[int(host)]), ["s"])  # noqa: B023
        done = []
        for index, time in enumerate(times):
            network.send(str(index), "s", 1e6, lambda index=index: done.append((engine.time, index)), at=time)  # noqa: B023
        engine.run()
        entries = sorted(zip(times, limits, range(30), strict=True), key=lambda entry: entry[0])
        assert sharing.carry(10e6, 1e6, entries) == done


def test_roundwise_needs_at_most_five_events_per_worker_and_round():
    times = [0.03 + 3.47 * rank / 299 for rank in range(300)]
    link = Link(125e8, 5e-4)
    chosen = options("--network=lenet", rounds=10)
    seen = []
    simulation = roundwise(
        cluster(*times, link=link, answer_time=1e-6), chosen, watch=lambda each, _: seen.append(each.rounds)
    )
    assert simulation.rounds == 10
    assert simulation.events < 5 * 300 * 10
    assert seen == list(range(1, 11))


def test_roundwise_with_rounds_that_overlap_on_a_server_raises_overlapping():
    # The first worker's next payload is there before the second one has looked at the status again.
    modelled, chosen = cluster(0.001, 0.004, 0.05, message_time=1e-4), options("--mode=sync", "--network=lenet")
    with pytest.raises(OverlappingRoundsError):
        roundwise(modelled, chosen)


def test_roundwise_with_payload_faster_than_the_last_request_equals_event_by_event():
    far = cluster(0.01, 0.5, link=Link(math.inf, 0.0))
    modelled = ClusterModel(
        far.workers, far.servers, far.state_server, lambda host: Link(math.inf, 0.05 if host == "w1" else 0.0), 1.0
    )
    chosen = options("--mode=sync", "--network=lenet")
    assert differences(event_by_event(modelled, chosen), result(roundwise(modelled, chosen), "")) == []


@pytest.mark.parametrize(
    "words",
    [
        ["--mode=async"],
        ["--overlap"],
        ["--query-mode=delayed-ack"],
        ["--compression=fp16"],
        ["--mode=sync", "--collective=ring"],
        ["--mode=async", "--use-dcasgd=1"],
    ],
)
def test_roundwise_does_not_cover_these_flags(words):
    modelled = cluster(0.1, 0.2)
    assert covers(modelled, options())
    assert not covers(modelled, options(*words))


def test_roundwise_does_not_cover_crashes_stragglers_and_shared_hosts():
    assert not covers(cluster(0.1, 0.2, crashes=[(1, 1.0, 1.0)]), options())
    assert not covers(cluster(0.1, 0.2, straggler_events=[StragglerEvent("compute", 1.0, 0.0, 1.0)]), options())
    beside = cluster(0.1, 0.2, servers=2)
    at_server = WorkerModel(0, "s1", "cpu", beside.workers[0].device)
    assert not covers(
        ClusterModel((at_server, *beside.workers[1:]), beside.servers, beside.state_server, beside.link, 1.0), options()
    )


def test_roundwise_counts_the_bytes_of_further_vectors():
    """SCAFFOLD sends a second vector as long as the weights."""
    modelled = cluster(0.1, 0.25, link=Link(1e6, 1e-3), servers=2)
    scaffold, local = (
        options(f"--mode={mode}", "--network=lenet", "--local-iterations=3") for mode in ("scaffold", "local-sgd")
    )
    assert covers(modelled, scaffold)
    quick = result(roundwise(modelled, scaffold), "")
    assert not differences(quick, event_by_event(modelled, scaffold))
    sent = [
        sum(each["bytes_sent"] for each in result(roundwise(modelled, each), "test")["devices"])
        for each in (scaffold, local)
    ]
    assert 1.9 * sent[1] < sent[0] < 2.1 * sent[1]


@pytest.mark.parametrize(
    "words",
    [
        ["--epsilon=0.3"],
        ["--slowest-iterations=2"],
        ["--mode=sync"],
        ["--mode=esync", "--local-iterations=3"],
        ["--mode=diloco", "--global-lr=0.5", "--outer-momentum=0.5"],
        ["--mode=local-sgd", "--weighting=samples"],
    ],
)
def test_roundwise_covers_these_flags(words):
    assert covers(cluster(0.1, 0.2), options(*words))


def test_roundwise_names_flags_that_exist():
    common = flags.known().keys() - all_flags().keys()
    assert common >= REGARDED | WITHOUT_EFFECT


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_roundwise_covers_algorithms_with_options_that_exist_but_no_subclass(algorithm):
    assert set(algorithm.Options.model_fields) >= ALGORITHMS[algorithm]
    words = options(f"--mode={algorithm.name}")
    assert covers(cluster(0.1, 0.2), words)
    words.algorithm = type("Own", (algorithm,), {})
    assert not covers(cluster(0.1, 0.2), words)


@pytest.mark.parametrize("overlapping", [True, False])
def test_roundwise_job_gives_the_same_result_with_and_without_logs(tmp_path, overlapping):
    first, second = (0.001, 0.004) if overlapping else (0.2, 0.3)
    path = tmp_path / "cluster.yaml"
    path.write_text(
        f"""
scheduler: {{host: near}}
servers: [{{host: near}}]
workers:
  - {{host: far, device: cpu, count: 2, step_time: {first}}}
  - {{host: other, device: cpu, step_time: {second}}}
  - {{host: slow, device: cpu, step_time: 0.05}}
network: {{bandwidth: 10Gbit}}
train: {{mode: sync, network: lenet, rounds: 5, log_dir: {tmp_path / "logs"}}}
"""
    )
    logged, unlogged = (run(SimulationJob(path, "none", logs=logs, quiet=True)) for logs in (True, False))
    assert logged.result == unlogged.result
    assert logged.logs is not None
    assert (unlogged.real["events"] < logged.real["events"]) == (not overlapping)
