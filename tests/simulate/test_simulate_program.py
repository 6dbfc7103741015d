"""The program `python -m esync.simulate`."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from esync.data import find_data_dir
from esync.models.networks import MODELS, build
from esync.runtime.mxnet_import import mx
from esync.simulate import sweep
from esync.simulate.__main__ import main
from esync.simulate.timing import SIZES

DESCRIPTION = """
scheduler: {host: near}
servers: [{host: near}]
state_server: {host: near}
workers:
  - {host: near, device: cpu, step_time: 0.1, simulate: {jitter: 0.1}}
  - {host: far, device: gpu0, step_time: 0.5, simulate: {pauses: [{at: 1, lasting: 0.5, every: 3}], speed: [[2, 0.5]]}}
network: {bandwidth: 1Gbit, latency: 0.2ms, hosts: {far: {bandwidth: 100Mbit, latency: 5ms}}}
simulate: {evaluation_time: 0.5}
train: {mode: esync, network: lenet, batch_size: 16, rounds: 4}
"""


@pytest.fixture
def described(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(DESCRIPTION)
    return path


def run(described, *words, code=0):
    logs = described.parent / "logs"
    assert main([str(described), "--quiet", f"--log-dir={logs}", *words]) == code
    return logs


def outcome(described, *words, code=0):
    """Run without gradients; what --json writes."""
    path = described.parent / "out.json"
    run(described, "--numerics=none", *words, f"--json={path}", code=code)
    return json.loads(path.read_text())


@pytest.fixture
def one_process(monkeypatch):
    """Run the simulations of a sweep one after the other in this process."""
    monkeypatch.setattr(sweep, "pool", lambda *_: ThreadPoolExecutor(1))


def test_simulate_with_real_gradients_twice_writes_the_same_files(described, capsys):
    data = f"--data-dir={find_data_dir(None, 'fashion-mnist')}"
    contents = []
    for number in range(2):
        path = described.parent / f"result-{number}.json"
        logs = run(described, data, "--test-images=100", "--overwrite", f"--json={path}")
        rounds = sorted(logs.rglob("iter-*.txt")) + sorted(logs.rglob("run.json"))
        contents.append([path.read_bytes(), *(file.read_bytes() for file in rounds)])
        real = json.loads(path.with_suffix(".real.json").read_text())
        assert real["computed_gradients"] > 8
        assert real["core_seconds"] > 0
    assert contents[0] == contents[1]
    assert len(contents[0]) == 1 + 2 * 4 + 2
    out = json.loads(contents[0][0])
    assert (out["rounds"], out["workers"], out["numerics"]) == (4, 2, "real")
    assert out["accuracies"][-1][2] == out["final_accuracy"]
    assert "test accuracy" in capsys.readouterr().out


def test_simulate_with_shares_by_speed_deals_them_so(described):
    data = f"--data-dir={find_data_dir(None, 'fashion-mnist')}"
    by_speed, by_weights = (described.parent / name for name in ("speed.json", "weights.json"))
    run(described, data, "--no-evaluation", "--partition=class:speed", f"--json={by_speed}", "--no-logs")
    run(described, data, "--no-evaluation", "--partition=class:5,1", f"--json={by_weights}", "--no-logs")
    assert by_speed.read_text() == by_weights.read_text()


def test_simulate_without_gradients_checks_the_weights_of_the_shares(described, capsys):
    run(described, "--numerics=none", "--partition=class:1,2,3", code=2)
    assert "weights for 3 workers, but there are 2" in capsys.readouterr().err


def test_simulate_writes_logs_that_the_log_tools_read(described):
    logs = run(described, "--numerics=none")
    from esync.reports import summarize

    assert summarize.main(["-b", str(logs), "-n", "lenet", "-m", "esync"]) == 0
    summary = json.loads((logs / "lenet" / "esync" / "ESync.json").read_text())
    assert {"near", "far"} <= set(summary)
    entry = json.loads((logs / "lenet" / "esync" / "far" / "gpu0" / "iter-2.txt").read_text())
    assert entry["num_samples"] == 16
    assert entry["bytes_sent"] == pytest.approx(4 * 61706, rel=0.02)
    assert entry["time"]["0"]["forward and backward"] >= 0.5


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--target-accuracy=0.8", "--numerics=none"], 2, "--target-accuracy: with --numerics none nothing"),
        (["--sweep=network.bandwidth"], 2, "expected KEY=A,B,C"),
        (["--sweep=workers.9.step_time=1,2", "--numerics=none"], 2, "there are the entries 0 to 1, and no '9'"),
        (["--sweep=network.bandwith=1Mbit,1Gbit"], 2, "(did you mean bandwidth?)"),
        (["--sweep=epsilom=1,2"], 2, "(did you mean epsilon?)"),
        (["--sweep=network.bandwidth.x=1,2"], 2, "x: there is a single value"),
        (["--sweep=network.hosts.fare.latency=1ms,2ms"], 2, "nothing runs on a host of that name (did you mean far?)"),
        (["--sweep=train.epsilon=1,2", "--epsilon=0.1"], 2, "--sweep train.epsilon: it has no effect beside --epsilon"),
        (["--sweep=mode=sync", "--sweep=mode=async"], 2, "--sweep mode: it is swept twice"),
        (["--sweep=mode=sync,,async"], 2, "a value is empty"),
        (["--sweep=workers.0.simulate.speed=[[2"], 2, "not valid YAML"),
        (["--data-dir=/nowhere"], 1, "/nowhere"),
        (["--preset=fast", "--leave-out=9", "--numerics=none"], 2, "--leave-out: rank 9 cannot be left out"),
    ],
)
def test_simulate_with_mistake_names_it(described, capsys, words, code, message):
    run(described, *words, code=code)
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("step_time: 0.5, ", "", "workers[1].simulate.step_time: a simulation needs it"),
        (", rounds: 4", "", "nothing ends this run"),
        ("jitter: 0.1", "jitter: 0.1, trace: nowhere", "workers[0].simulate.trace"),
        ("lasting: 0.5", "lasting: 5", "over before it begins again"),
        ("[[2, 0.5]]", "[[2, 0]]", "speed"),
        ("bandwidth: 1Gbit", "bandwidth: 0Mbit", "network.bandwidth: '0Mbit': expected more than 0"),
        ("bandwidth: 100Mbit", f"bandwidth: {'9' * 310}bit", "the number is too large"),
        ("hosts: {far:", "hosts: {edge: {latency: 1ms}, far:", "network.hosts.edge: nothing runs on a host of that"),
        ("latency: 5ms", "latency: 50us", "network.hosts.far.latency: 0.05 ms are less than half of network.latency"),
        (
            "[{at: 1, lasting: 0.5, every: 3}]",
            "[{at: 0, lasting: 1, every: 2}, {at: 1, lasting: 1, every: 2}]",
            "workers[1].simulate.pauses: ",
        ),
        ("jitter: 0.1", "jitter: 0.6", "simulate.jitter: normal jitter is 0.4 at most; lognormal takes any"),
        (
            "jitter: 0.1",
            "crashes: [{at: 3, restart_after: 1}, {at: 1, restart_after: 2.5}]",
            "workers[0].simulate.crashes: at 3 there is nobody to crash",
        ),
    ],
)
def test_simulate_with_mistake_in_the_description_names_it(described, capsys, before, after, message):
    described.write_text(DESCRIPTION.replace(before, after))
    run(described, "--numerics=none", code=2)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("entries", "seconds"),
    [
        (
            {n: {"time": {"0": {"forward and backward": t}}} for n, t in ((1, 0.3), (2, 0.4), (10, 0.5))},
            0.3 + 0.4 + 0.5 + 0.3,
        ),
        ({1: {"time": {"0": {"get_batch": 0.1, "forward and backward": 0.3, "local update": 0.05}}}}, 4 * 0.45),
        ({1: {"time": {"0": {"forward and backward": 0.3}}, "iteration_times": [0.5]}}, 4 * 0.5),
    ],
)
def test_simulate_takes_a_measured_run_as_trace_with_all_phases(described, entries, seconds):
    for number, entry in entries.items():
        (described.parent / f"iter-{number}.txt").write_text(json.dumps(entry))
    described.write_text(DESCRIPTION.replace("jitter: 0.1", "trace: ." if len(entries) > 1 else "trace: iter-1.txt"))
    assert outcome(described, "--mode=local", "--rounds=4")["seconds"] == pytest.approx(seconds)


def test_simulate_with_trace_of_a_simulation_gives_the_same_result(described):
    text = DESCRIPTION.replace("jitter: 0.1", "jitter: 0.4")
    described.write_text(text)
    words = ["--mode=local-sgd", "--rounds=6"]
    first, logs = outcome(described, *words), described.parent / "logs" / "lenet" / "local-sgd"
    for old, device in (
        ("{jitter: 0.4}", "near/cpu"),
        ("{pauses: [{at: 1, lasting: 0.5, every: 3}], speed: [[2, 0.5]]}", "far/gpu0"),
    ):
        assert old in text
        text = text.replace(old, f"{{trace: {logs / device}}}")
    described.write_text(text)
    again = outcome(described, *words, "--no-logs")
    assert again["seconds"] == pytest.approx(first["seconds"], rel=1e-4)
    for before, after in zip(first["devices"], again["devices"], strict=True):
        assert after["iterations"] == before["iterations"]
        assert after["computing"] == pytest.approx(before["computing"], rel=1e-4)


@pytest.mark.parametrize("content", ["[]", '{"time": {"0": {"forward and backward": NaN}}}'])
def test_simulate_with_malformed_trace_is_refused(described, capsys, content):
    (described.parent / "iter-1.txt").write_text(content)
    described.write_text(DESCRIPTION.replace("jitter: 0.1", "trace: iter-1.txt"))
    run(described, "--numerics=none", code=2)
    error = capsys.readouterr().err
    assert "workers[0].simulate.trace: " in error
    assert "Traceback" not in error


def test_simulate_with_count_models_many_machines_of_one_kind(described):
    text = DESCRIPTION.replace("{host: near, device: cpu, step_time", "{host: edge, count: 30, device: cpu, step_time")
    described.write_text(text.replace("hosts: {far:", "hosts: {edge: {latency: 10ms}, far:"))
    out = outcome(described)
    assert out["workers"] == 31
    assert [device["host"] for device in out["devices"]][:2] == ["edge-0", "edge-1"]


def test_simulate_with_free_network_is_faster(described):
    assert outcome(described, "--free-network")["seconds"] < outcome(described)["seconds"]


@pytest.mark.parametrize("numerics", ["none", "real"])
def test_simulate_with_the_size_of_a_larger_network_sends_as_much_as_that(described, numerics):
    def received(network: str, extra: str = "") -> list[float]:
        described.write_text(DESCRIPTION.replace("evaluation_time: 0.5", f"evaluation_time: 100{extra}"))
        path = described.parent / "result.json"
        data = [f"--data-dir={find_data_dir(None, 'fashion-mnist')}", "--test-images=10"] if numerics == "real" else []
        words = (f"--numerics={numerics}", f"-n={network}", "--mode=sync", "--overwrite", f"--json={path}")
        rounds = run(described, *words, *data).glob(f"{network}/sync/*/*/iter-*.txt")
        logged = sum(json.loads(file.read_text())["bytes_sent"] for file in rounds)
        result = json.loads(path.read_text())
        # at the server, by the workers, and by their round files
        return [
            result["traffic"]["near"]["received"],
            sum(device["bytes_sent"] for device in result["devices"]),
            logged,
        ]

    large = received("lenet")
    assert all(small < 0.9 * amount for small, amount in zip(received("mlp"), large, strict=True))
    assert received("mlp", ", model_bytes: 246824B") == pytest.approx(large, rel=0.03)  # there are headers, too


def test_simulate_goes_on_with_the_final_model_of_another_simulation(described):
    data = [f"--data-dir={find_data_dir(None, 'fashion-mnist')}", "--no-logs", "--test-images=500", "-n=mlp"]
    first, second = described.parent / "models/first.params", described.parent / "second.json"  # a new folder
    once = described.parent / "first.json"
    run(described, *data, "--mode=sync", "--rounds=30", f"--final-model={first}", f"--json={once}")
    evaluated = ["--eval-duration=1", "--learning-rate=1e-9", "--rounds=2", "--seed=5"]  # learns nothing any more
    run(described, *data, "--mode=sync", f"--initial-model={first}", *evaluated, f"--json={second}")
    reached, went_on = (json.loads(path.read_text())["final_accuracy"] for path in (once, second))
    assert went_on == pytest.approx(reached, abs=1e-3)
    assert reached > 0.2


def final_model(described: Path, rounds: int, average: str) -> np.ndarray:
    """Return the final weights of a simulation whose model is averaged like that."""
    path = described.parent / "final.params"
    data = [f"--data-dir={find_data_dir(None, 'fashion-mnist')}", "--no-logs", "--test-images=100", "-n=mlp"]
    words = ["--mode=sync", f"--rounds={rounds}", f"--weight-average={average}", f"--final-model={path}"]
    run(described, *data, *words)
    return np.concatenate([value.asnumpy().ravel() for value in mx.nd.load(str(path)).values()])


def test_simulated_average_is_that_of_the_rounds(described):
    first, second, average = (final_model(described, *terms) for terms in ((1, "none"), (2, "none"), (2, "polynomial")))
    assert not np.array_equal(first, second)
    assert average == pytest.approx(0.1 * first + 0.9 * second, abs=1e-6)  # η = 8: weights 1 and 9


def test_simulated_average_begins_anew_in_a_replacement(described):
    description = DESCRIPTION.replace("jitter: 0.1", "crashes: [{at: 2.2, restart_after: 0.1}]")
    described.write_text(description.replace("speed: [[2, 0.5]]", "speed: [[2, 1]]"))
    assert not np.array_equal(*(final_model(described, 8, average) for average in ("none", "polynomial")))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--numerics=none", "--final-model=x.params"], "--final-model: with --numerics none there is no model"),
        (["--numerics=none", "--initial-model=x.params"], "--initial-model: with --numerics none there is no model"),
        (["--final-model=x.params", "--no-evaluation"], "--final-model and --no-evaluation contradict each other"),
        (["--final-model=x.params", "--sweep=epsilon=1,2"], "--final-model and --sweep contradict each other"),
        (["--initial-model=/nowhere/x.params"], "--initial-model /nowhere/x.params: No such file or directory"),
        (["--initial-model=CLUSTER"], "cluster.yaml: not the parameters of lenet"),
    ],
)
def test_simulate_with_model_that_cannot_be_used_names_it(described, capsys, words, message):
    data = f"--data-dir={find_data_dir(None, 'fashion-mnist')}"
    words = [word.replace("CLUSTER", str(described)) for word in words]
    assert main([str(described), "--quiet", "--no-logs", data, *words]) in (1, 2)
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


PROGRAM = """
scheduler: {host: near}
servers: [{host: near}]
state_server: {host: near}
workers: [{host: near, device: cpu, step_time: 0.1}, {host: far, device: cpu, step_time: 0.5}]
network: {bandwidth: 1Gbit, latency: 0.2ms}
simulate: {model_bytes: 10MB, batch_size: 16}
program: python train.py --epochs 3
"""


def test_simulate_program_whose_model_size_is_known_without_its_network(described):
    described.write_text(PROGRAM)
    out = outcome(described, "--mode=sync", "--rounds=4", "--no-logs")
    assert (out["network"], out["samples"]) == ("train", 4 * 2 * 16)
    sent = out["devices"][1]["bytes_sent"]
    assert 4 * 10e6 < sent < 4 * 10.1e6  # a model in every round, and a little more


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        (PROGRAM, ["--rounds=1"], "program: a simulation does not run it"),
        (PROGRAM.replace("model_bytes: 10MB, ", ""), ["--numerics=none", "--rounds=1"], "{model_bytes: 44.7MB}"),
        (PROGRAM, ["--numerics=none", "--network=lenet"], "--network: the program decides on it"),
        (PROGRAM.replace("10MB", "10"), ["--numerics=none"], "units B, kB, MB, GB, for instance 44.7MB"),
        (DESCRIPTION.replace("simulate: {eval", "simulate: {batch_size: 4, eval"), [], "train.batch_size"),
        (
            DESCRIPTION.replace("mode: esync", "mode: esync, elastic: true, redistribute: true"),
            ["--numerics=none"],
            "--elastic is not modelled",
        ),
        ("per_host: true" + DESCRIPTION, ["--mode=async"], "per_host: mode async uses what each worker sends at once"),
        ("per_host: true" + DESCRIPTION, ["--mode=sync", "--collective=ring"], "per_host: with the collective ring"),
        (DESCRIPTION.replace("simulate: {eval", "simulate: {memory_bandwidth: 10, eval"), [], "for instance 10GB"),
        (DESCRIPTION, ["--checkpoint-dir=c"], "--checkpoint-dir: a simulation writes and reads no checkpoints"),
        (
            DESCRIPTION.replace("mode: esync", "mode: esync, checkpoint_dir: c"),
            ["--checkpoint-every=5"],
            "--checkpoint-every: a simulation writes and reads no checkpoints",
        ),
    ],
)
def test_simulate_refuses_what_it_does_not_model(described, capsys, text, words, message):
    described.write_text(text)
    run(described, "--no-logs", *words, code=2)
    assert message in capsys.readouterr().err


def test_simulate_sweep_runs_every_combination(described, capsys):
    rows = outcome(described, "--sweep=network.bandwidth=10Mbit,1Gbit", "--sweep=mode=sync,async")
    assert [row["sweep"] for row in rows] == [
        {"network.bandwidth": bandwidth, "mode": mode}
        for bandwidth in ("10Mbit", "1Gbit")
        for mode in ("sync", "async")
    ]
    assert rows[0]["seconds"] > rows[2]["seconds"]
    assert "efficiency" in capsys.readouterr().out


def test_simulate_sweep_of_per_host_shows_what_it_saves(described, one_process):
    described.write_text(DESCRIPTION.replace("{host: near, device: cpu", "{host: far, device: cpu"))
    flat, by_host = outcome(described, "--mode=sync", "--sweep=per_host=false,true")
    server = flat["servers"][0]
    assert by_host["traffic"][server]["received"] < 0.6 * flat["traffic"][server]["received"]
    assert by_host["seconds"] < flat["seconds"]


def test_simulate_sweep_of_host_with_hyphen_in_its_name(described, one_process):
    described.write_text(
        DESCRIPTION.replace("host: far", "host: edge-a.b").replace("hosts: {far:", "hosts: {edge-a.b:")
    )
    slow, fast = outcome(described, "--sweep=network.hosts.edge-a.b.bandwidth=1Mbit,100Mbit", "--mode=sync")
    assert slow["seconds"] > fast["seconds"] + 1


def test_simulate_sweep_reads_numbers_as_a_description_does(described, one_process):
    words = ["--sweep=servers.0.simulate.message_time=1e-4,1E-1", "--mode=sync"]
    short, long = outcome(described, *words)
    assert long["seconds"] > short["seconds"] + 1
    described.write_text(DESCRIPTION.replace("0.2ms", "2e-4s").replace("jitter: 0.1", "jitter: 1e-1"))
    assert outcome(described, *words) == [short, long]


def test_simulate_sweep_with_invalid_combination_runs_the_others(described, one_process, capsys):
    rows = outcome(described, "--sweep=mode=sync,esync", "--sweep=epsilon=0.1,0.2", code=1)
    assert ["error" in row for row in rows] == [True, True, False, False]
    assert [row["sweep"]["epsilon"] for row in rows] == ["0.1", "0.2"] * 2
    captured = capsys.readouterr()
    assert "simulate: error: mode=sync, epsilon=0.1: " in captured.err
    assert "--epsilon makes no sense with --mode sync" in captured.err
    assert "2 of 4 combinations failed" in captured.err
    assert "Traceback" not in captured.err
    assert "mode=esync, epsilon=0.2, 4 rounds" in captured.out
    assert captured.out.count("failed") == 2
    assert captured.out.count("--epsilon makes no sense with --mode sync") == 2  # in the rows of the table


def test_simulate_takes_crashes_in_any_order(described):
    crashes = "{at: 3.5, restart_after: 0.5}, {at: 1, restart_after: 1}"
    described.write_text(DESCRIPTION.replace("jitter: 0.1", f"crashes: [{crashes}]"))
    assert [device["crashes"] for device in outcome(described, "--mode=sync", "--rounds=10")["devices"]] == [2, 0]


def test_simulated_network_sizes_equal_those_of_the_networks():
    network = "mobilenet-v2"
    from esync.runtime.mxnet_import import mx

    parameters = build(network, 10, mx.cpu(), 0, hybridize=False).collect_params().values()
    counted = [
        sum(p.data().size for p in parameters if (p.grad_req == "null") == averaged) for averaged in (False, True)
    ]
    assert list(SIZES[network].values()) == counted
    assert set(SIZES) == set(MODELS)


def test_simulate_runs_the_descriptions_of_the_package(capsys):
    folder = Path(__file__).parents[2] / "clusters"
    for path in sorted(folder.glob("*.yaml")):
        if path.stem in ("edge",):
            continue  # a thousand workers take a while
        assert main([str(path), "--numerics=none", "--no-logs", "--quiet", "--rounds=2"]) == 0, path


def test_a_simulation_with_a_name_leaves_the_logs_of_the_others_alone(described, capsys):
    logs = run(described, "--numerics=none")
    run(described, "--numerics=none", "--name=second")
    assert "earlier run" not in capsys.readouterr().out
    assert sorted(path.name for path in (logs / "lenet").iterdir()) == ["esync", "esync@second"]
    assert not list(logs.rglob("earlier-*"))
    run(described, "--numerics=none")
    assert "logs of an earlier run are in no figure" in capsys.readouterr().out
