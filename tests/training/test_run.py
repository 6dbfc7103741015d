"""esync.Run in a loop of one's own, on one device.

tests/launch/test_user_program_jobs.py has several workers.
"""

import os
import re
import signal
import socket
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import esync
from esync import config, mx
from esync.gluon.parameter_kinds import UnsuitableParametersError
from esync.gluon.replica import Replica
from esync.reports.grouping import sections_of
from esync.reports.runs import load_run
from esync.reports.summarize import main as summarize
from esync.runtime import progress
from esync.runtime.errors import EvaluationError
from esync.runtime.processes import EVALUATING
from esync.training.forked_evaluation import ForkedEvaluation

from ..support import child
from ..support.json_files import read_json
from ..support.scripted_world import steady_world
from ..support.small_net import differentiate, flat, make_net, nn, sgd_trainer

INPUTS = mx.nd.array(np.random.RandomState(0).normal(size=(8, 4)))
LABELS = mx.nd.array(np.arange(8) % 2)


def dense() -> mx.gluon.Block:
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=4))
    net.initialize(mx.init.Constant(0.5))
    net.hybridize()
    return net


def train(net, run, rounds: int = 4, **settings) -> esync.Trainer:
    """Train as a user would, to the end of the run."""
    limits = esync.Limits(rounds=rounds)
    trainer = sgd_trainer(net, "local", limits=limits, run=run, **settings)
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    try:
        trainer.start()
        while not trainer.finished:
            differentiate(lambda: loss_of(net(INPUTS), LABELS))
            trainer.step(8)
    except BaseException as error:
        run.train_failed(trainer, str(error))
        raise
    finally:
        trainer.close()
    return trainer


def train_plainly(net, run, rounds: int, rate: float = 0.1, inputs=INPUTS) -> None:
    """Train on the sum of the outputs, in a with statement."""
    options, limits = {"learning_rate": rate}, esync.Limits(rounds=rounds)
    with esync.Trainer(net.collect_params(), "sgd", options, algorithm="local", run=run, limits=limits) as trainer:
        while not trainer.finished:
            differentiate(lambda: net(inputs))
            trainer.step(8)


def entries(folder: Path) -> dict[int, dict]:
    files = {int(re.sub(r"\D", "", path.name)): path for path in folder.glob("iter-*.txt")}
    return {number: read_json(files[number]) for number in sorted(files)}


def facts(folder: Path) -> dict:
    return read_json(folder / "run.json")


def test_run_writes_rounds_facts_and_final_model(tmp_path, capsys):
    net = dense()
    run = esync.Run(tmp_path, net=net, input_shape=(4,), facts={"batch_size": 8})
    train(net, run)
    logged = entries(tmp_path / "cpu")
    assert list(logged) == [1, 2, 3, 4]
    assert all(entry["num_samples"] == 8 for entry in logged.values())
    info = facts(tmp_path / "cpu")
    assert (info["finished"], info["rounds"], info["mode"], info["batch_size"]) == (True, 4, "local", 8)
    assert (info["optimizer"], info["learning_rate"]) == ("sgd", 0.1)
    again = mx.gluon.SymbolBlock.imports(
        str(tmp_path / "cpu/model/model-symbol.json"), ["data"], str(tmp_path / "cpu/model/model-0000.params")
    )
    assert np.array_equal(again(INPUTS).asnumpy(), net(INPUTS).asnumpy())
    output = capsys.readouterr().out
    assert output.startswith(f"worker 0 of 1 on cpu, logs in {tmp_path / 'cpu'}\n")
    assert output.endswith(f"done after 4 rounds\nfinal model in {tmp_path / 'cpu/model'}\n")


def test_run_reports_the_end_to_the_launcher_once_before_the_final_model(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(progress.VARIABLE, "json")
    net = dense()
    train(net, esync.Run(tmp_path, net=net))
    lines = capsys.readouterr().out.splitlines()
    kinds = [event["kind"] if (event := progress.parse_event(line)) else line for line in lines]
    model = f"final model in {tmp_path / 'cpu/model'}"
    events = [kind for kind in kinds if kind in (progress.FINISHED, progress.LEFT, model)]
    assert events == [progress.FINISHED, model, progress.LEFT]


def test_run_with_input_shape_infers_the_networks_shapes(tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Dense(2))
    net.initialize()
    train(net, esync.Run(tmp_path, net=net, input_shape=(4,), quiet=True))
    assert net[0].weight.shape == (2, 4)


def test_run_measures_computing_and_loading_of_a_loop_that_names_no_phases(tmp_path):
    """Computing is what happens between two steps, but for what the loop names otherwise."""
    net, loss_of = dense(), mx.gluon.loss.SoftmaxCrossEntropyLoss()
    limits = esync.Limits(rounds=3)
    trainer = esync.Trainer(
        net.collect_params(), "sgd", algorithm="local", limits=limits, run=esync.Run(tmp_path, quiet=True)
    )
    trainer.start()
    while not trainer.finished:
        with trainer.world.recorder.phase("get_batch"):
            time.sleep(0.05)
        time.sleep(0.02)
        differentiate(lambda: loss_of(net(INPUTS), LABELS))
        trainer.step(8)
    trainer.close()
    for entry in entries(tmp_path / "cpu").values():
        phases = entry["time"]["0"]
        assert phases["get_batch"] >= 0.05
        # Rounded to microseconds, and read off two clocks that start one after the other.
        assert 0.02 <= phases["forward and backward"] <= entry["iteration_times"][0] - phases["get_batch"] + 0.001


def test_run_evaluates_the_weights_of_the_round_in_another_process(tmp_path):
    net = dense()
    pid = os.getpid()

    def evaluate() -> float:
        assert os.getpid() != pid
        assert os.getpriority(os.PRIO_PROCESS, 0) >= EVALUATING
        return float(net[0].weight.data().abs().sum().asscalar()) / 100

    run = esync.Run(tmp_path, evaluate=evaluate, every=100, quiet=True)
    train(net, run)
    logged = entries(tmp_path / "cpu")
    assert "accuracy" not in logged[1]
    assert logged[4]["accuracy"] == pytest.approx(float(net[0].weight.data().abs().sum().asscalar()) / 100)


def test_run_with_another_metric_ends_at_its_target(tmp_path, capsys):
    values = iter([4.0, 3.0, 2.0, 1.0, 0.5] + [0.5] * 1000)  # the first is that of the trial
    net = dense()
    run = esync.Run(tmp_path, evaluate=lambda: next(values), metric=("perplexity", "min"), target=1.0)
    trainer = train(net, run, rounds=100_000)
    logged = entries(tmp_path / "cpu")
    assert trainer.round < 100_000
    perplexities = [entry["perplexity"] for entry in logged.values() if "perplexity" in entry]
    assert perplexities[:3] == [3.0, 2.0, 1.0]
    assert not any("accuracy" in entry for entry in logged.values())
    info = facts(tmp_path / "cpu")
    assert (info["metric"], info["target"]) == ({"name": "perplexity", "goal": "min"}, 1.0)
    assert re.search(r"perplexity 1 of round \d+ reaches the target 1.0: stopping", capsys.readouterr().out)


@pytest.mark.parametrize("background", [True, False])
def test_run_logs_how_long_an_evaluation_takes(tmp_path, background):
    def evaluate() -> float:
        time.sleep(0.2)
        return 0.5

    train(dense(), esync.Run(tmp_path, evaluate=evaluate, background=background, quiet=True), rounds=2)
    assert 0.2 <= entries(tmp_path / "cpu")[2]["evaluation_time"] < 20


@pytest.mark.parametrize(
    ("evaluate", "message", "background"),
    [
        (lambda: "0.5", "a number, or a mapping of names to numbers, but <lambda> has returned '0.5'", False),
        (mx.metric.Accuracy().get, r"has returned \('accuracy', nan\) \(of what a metric's get\(\) returns", True),
        (lambda: mx.nd.ones(2), r"to numbers, but <lambda> has returned \[1. 1.\] <NDArray 2 @cpu\(0\)>", False),
        *(
            (
                lambda: 1 / 0,
                r"evaluate has failed in .*test_run.py, line \d+: ZeroDivisionError: division by zero",
                background,
            )
            for background in (True, False)
        ),
        (lambda: 93.5, "evaluate should return the accuracy, 0 to 1, but <lambda> has returned 93.5", False),
    ],
)
def test_run_whose_evaluation_does_not_work_is_refused_before_the_first_round(tmp_path, evaluate, message, background):
    with pytest.raises(EvaluationError, match=message):
        train(dense(), esync.Run(tmp_path, evaluate=evaluate, background=background, quiet=True), rounds=100_000)
    assert entries(tmp_path / "cpu") == {}


@pytest.mark.parametrize("threads", [True, False])
def test_run_evaluates_by_a_data_loader_with_workers_made_before(tmp_path, threads):
    net, dataset = dense(), mx.gluon.data.ArrayDataset(INPUTS, LABELS)
    loader = mx.gluon.data.DataLoader(dataset, 4, num_workers=1, thread_pool=threads)

    def evaluate() -> dict:
        batches = ((data.as_in_context(mx.cpu()), label.asnumpy()) for data, label in loader)
        right = np.concatenate([net(data).argmax(1).asnumpy() == label for data, label in batches])
        recalls = {label: right[LABELS.asnumpy() == label].mean() for label in range(2)}
        return {"recall": {**recalls, "without samples": np.nan}, "accuracy": mx.nd.array(right).mean()}

    train(net, esync.Run(tmp_path, evaluate=evaluate, quiet=True))
    last, expected = entries(tmp_path / "cpu")[4], evaluate()
    assert last["accuracy"] == expected["accuracy"].asscalar()
    assert last["parts"] == {f"recall/{label}": expected["recall"][label] for label in range(2)}


@pytest.mark.parametrize("changed", [{"rate": 0.2}, {"weight_average": "polynomial"}])
def test_runs_of_a_program_with_other_settings_are_not_one_group(tmp_path, changed):
    for name, settings in (("a", {}), ("b", changed)):
        run = esync.Run(tmp_path / name / "program", quiet=True, weight_average=settings.get("weight_average"))
        train_plainly(dense(), run, 2, settings.get("rate", 0.1))
    (section,) = sections_of([load_run(tmp_path / name) for name in "ab"], ["", ""], None, problems := [])
    assert len(section.groups) == 2
    assert not [problem for problem in problems if "one group" in problem]


def test_evaluation_of_the_average_leaves_float64_weights_as_they_are(tmp_path):
    """They are not rounded to float32."""
    ends = []
    for kind in ("none", "polynomial"):
        net = nn.Dense(2, in_units=4)
        net.initialize(mx.init.Constant(1 / 3))
        net.cast("float64")
        run = esync.Run(tmp_path / kind, evaluate=lambda: 0.5, background=False, quiet=True, weight_average=kind)
        train_plainly(net, run, 20, inputs=INPUTS.astype("float64"))
        ends.append(net.weight.data().asnumpy())
    assert ends[0].dtype == np.float64
    assert np.array_equal(*ends)
    assert not np.array_equal(ends[0], ends[0].astype(np.float32))


def test_average_is_begun_anew_where_other_parameters_are_trained(tmp_path, caplog):
    for frozen, rounds in ((False, 10), (True, 20), (True, 30)):
        net = nn.HybridSequential()
        net.add(nn.Dense(3, in_units=4), nn.Dense(2, in_units=3))
        net.initialize(mx.init.Constant(0.1))
        if frozen:
            net[0].collect_params().setattr("grad_req", "null")
        checkpoints = esync.Checkpoints(tmp_path / "kept", every=5, resume=rounds > 10)
        run = esync.Run(tmp_path / "logs", checkpoints=checkpoints, quiet=True, weight_average="polynomial", net=net)
        train_plainly(net, run, rounds)
    message = "the average in the checkpoint is of other trained parameters: it begins anew"
    assert caplog.text.count(message) == 1  # the third run goes on with that of the second


@pytest.mark.parametrize(("average", "warnings"), [("polynomial", 1), ("none", 0)])
def test_average_that_is_lost_with_a_replaced_worker_is_warned_of(average, warnings, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(esync.Trainer, "replacement", True)
    train(dense(), esync.Run(tmp_path, quiet=True, weight_average=average), rounds=3)
    assert caplog.text.count("the average of the weights was lost with the worker that this one replaces") == warnings


class Centred(nn.Dense):
    """Keeps the mean of its inputs, and the newest one, in arrays of its own."""

    def __init__(self) -> None:
        super().__init__(2, in_units=4)
        self.mean, self.newest, self.scale = mx.nd.zeros(4), mx.nd.zeros(4), mx.nd.ones(4)

    def forward(self, x):
        if mx.autograd.is_training():
            self.mean[:] = 0.9 * self.mean + 0.1 * x.mean(axis=0)
            self.newest = x[0]
        return super().forward((x - self.mean) * self.scale)


@pytest.mark.parametrize("background", [True, False])
def test_array_that_training_changes_and_the_fork_has_not_is_named(tmp_path, background, caplog):
    net = nn.Sequential()
    net.add(Centred())
    net.initialize()
    run = esync.Run(tmp_path, evaluate=lambda: 0.5, background=background, net=net, quiet=True)
    train(net, run)
    warning = f"training changes arrays that are no Parameters ({net[0].name}.mean, {net[0].name}.newest): `evaluate`"
    assert caplog.text.count(warning) == (1 if background else 0)


def test_class_that_a_program_never_recognizes_is_warned_of(tmp_path, caplog):
    def evaluate():
        return {"accuracy": 0.6, "recall": {"cat": 0.9, "dog": 0.9, "owl": 0.0}}

    train(dense(), esync.Run(tmp_path, evaluate=evaluate, background=False, quiet=True), rounds=8)
    assert caplog.text.count("no test sample of class owl has been recognized") == 1


def test_run_whose_evaluation_hangs_in_the_fork_is_refused_with_its_stack(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(config, "EVALUATION_STILL", 1.0)
    batches = mx.io.PrefetchingIter(mx.io.NDArrayIter(INPUTS, LABELS, 4))  # its threads are not in the fork

    def evaluate() -> float:
        for batch in batches:
            mean = float(batch.data[0].mean().asscalar())
        return mean

    with pytest.raises(EvaluationError, match="hangs, as its stack above shows: it") as caught:
        train(dense(), esync.Run(tmp_path, evaluate=evaluate, metric=("mean", "min"), quiet=True))
    assert "memory" not in str(caught.value)
    assert re.search(
        r"mxnet/io/io.py\", line \d+ in __next__\n.*test_run.py\", line \d+ in evaluate", capfd.readouterr().err
    )
    assert entries(tmp_path / "cpu") == {}


def test_run_whose_evaluation_takes_longer_than_its_limit_is_refused(tmp_path):
    def evaluate() -> float:
        while True:
            pass

    with pytest.raises(EvaluationError, match=r"is too slow.*evaluation_timeout, 1 s"):
        train(dense(), esync.Run(tmp_path, evaluate=evaluate, evaluation_timeout=1, quiet=True))


@pytest.mark.parametrize("target", [None, 0.9])
def test_run_whose_evaluation_fails_later_writes_its_final_model(tmp_path, caplog, target):
    values = iter([0.1, 0.2])  # that of the trial, and that of a round
    net = dense()
    run = esync.Run(tmp_path, evaluate=lambda: next(values), target=target, net=net, quiet=True)
    if target is None:
        assert train(net, run, rounds=200).round == 200
    else:
        with pytest.raises(EvaluationError, match="the run has ended without its target: evaluate has failed"):
            train(net, run, rounds=100_000_000)
    assert "StopIteration" in caplog.text
    assert (tmp_path / "cpu/model/model.params").exists()
    assert facts(tmp_path / "cpu")["finished"]


def test_run_that_evaluates_in_the_worker_sees_what_the_program_changes(tmp_path):
    """A moving average, for instance, of which a fork would have the first value for ever."""
    net, calls = dense(), []

    def evaluate() -> float:
        calls.append(os.getpid())
        return len(calls) / 10

    train(net, esync.Run(tmp_path, evaluate=evaluate, background=False, quiet=True))
    assert calls == [os.getpid()] * 5
    assert entries(tmp_path / "cpu")[4]["accuracy"] == 0.5


@pytest.mark.parametrize(("value", "warned"), [(0.5, True), (1.0, False)])
def test_metric_that_stays_the_same_while_the_weights_change_is_noticed(caplog, value, warned):
    net = dense()
    evaluation = ForkedEvaluation(lambda: value, Replica(list(net.collect_params().values()), lambda size: 0.0))
    for number in range(10):
        net[0].weight.set_data(mx.nd.full((2, 4), number))
        evaluation.watched_result()
    assert caplog.text.count("evaluate has returned 0.5 5 times in a row") == warned


def test_run_restarts_killed_evaluation_whose_processes_keep_its_pipes_open(tmp_path, caplog):
    net, marker = dense(), tmp_path / "killed"

    def evaluate() -> float:
        if not marker.exists():
            held = os.fork()
            if not held:
                time.sleep(600)
            marker.write_text(str(held))
            os.kill(os.getpid(), signal.SIGKILL)
        return 0.25

    try:
        train(net, esync.Run(tmp_path, evaluate=evaluate, quiet=True))
    finally:
        os.kill(int(marker.read_text()), signal.SIGKILL)
    assert entries(tmp_path / "cpu")[4]["accuracy"] == 0.25
    assert "was killed by SIGKILL; starting it again (1 of at most 3)" in caplog.text


#: A program of a user's own that trains alone; HOW it ends is put into it.
ALONE = """
import os, sys, esync
from esync import mx
net = mx.gluon.nn.Dense(1, in_units=4)
net.initialize()
checkpoints = esync.Checkpoints("kept", 2)
run = esync.Run("logs", evaluate=lambda: 0.5, net=net, checkpoints=checkpoints)
trainer = esync.Trainer(net.collect_params(), "sgd", limits=esync.Limits(rounds=4), run=run)
while not trainer.finished:
    with mx.autograd.record():
        loss = net(mx.nd.ones((2, 4))).sum()
    loss.backward()
    trainer.step(2)
    {how}
"""


@pytest.mark.parametrize(
    ("how", "code", "rounds", "finished"),
    [
        ("if trainer.round == 3: raise ValueError('mine')", 1, 3, False),
        ("os.chdir('/')\n    if trainer.round == 3: break", 0, 3, True),
    ],
)
def test_run_of_lone_program_without_close_records_how_it_ended(tmp_path, how, code, rounds, finished):
    program = tmp_path / "train.py"
    program.write_text(ALONE.format(how=how))
    done = child.run(str(program), cwd=tmp_path, timeout=120)
    assert done.returncode == code
    assert list(entries(tmp_path / "logs/cpu")) == list(range(1, rounds + 1))
    assert facts(tmp_path / "logs/cpu")["finished"] == finished
    assert (tmp_path / "kept/model/model.params").exists() == finished


def test_run_of_another_trainer_is_refused(tmp_path):
    run = esync.Run(tmp_path, quiet=True)
    train(dense(), run)
    trainer = esync.Trainer(dense().collect_params(), "sgd", algorithm="local", run=run)
    with pytest.raises(RuntimeError, match="make a new one for each Trainer"):
        trainer.start()
    assert facts(tmp_path / "cpu")["finished"] is True


def test_run_resumes_from_its_checkpoint(tmp_path):
    def once(rounds: int, resume: bool) -> tuple[mx.gluon.Block, esync.Trainer]:
        net = dense()
        checkpoints = esync.Checkpoints(tmp_path / "kept", 2, resume=resume)
        run = esync.Run(tmp_path / "logs", checkpoints=checkpoints, net=net, quiet=True)
        return net, train(net, run, rounds)

    once(4, False)
    net, trainer = once(8, True)
    assert trainer.round == 8
    assert list(entries(tmp_path / "logs/cpu")) == list(range(1, 9))
    assert facts(tmp_path / "logs/cpu")["resumed"] == 4
    full_net = dense()
    train(full_net, esync.Run(tmp_path / "whole", quiet=True), 8)
    assert np.array_equal(net[0].weight.data().asnumpy(), full_net[0].weight.data().asnumpy())
    assert (tmp_path / "kept/model/model.params").exists()


def test_run_with_an_average_evaluates_saves_and_resumes_it(tmp_path):
    """The final model is the average of the rounds' weights; the training itself is as without."""

    def once(name: str, rounds: int, resume: bool = False, average: str = "polynomial", folder: str = "kept"):
        net = dense()

        def evaluate() -> float:
            return float(net[0].weight.data().asnumpy()[0, 0])

        checkpoints = esync.Checkpoints(tmp_path / folder, 3, resume=resume)
        run = esync.Run(
            tmp_path / name, checkpoints=checkpoints, net=net, evaluate=evaluate, quiet=True, weight_average=average
        )
        train(net, run, rounds)
        final = mx.nd.load(str(tmp_path / folder / "model/model.params"))["0.weight"].asnumpy()
        evaluated = {number: entry.get("accuracy") for number, entry in entries(tmp_path / name / "cpu").items()}
        return net[0].weight.data().asnumpy(), final, evaluated

    seen = [once(f"{rounds}", rounds, average="none", folder=f"{rounds}")[0] for rounds in (1, 9)]
    trained, final, evaluated = once("whole", 9)  # mode local adds every eighth iteration
    expected = 0.1 * seen[0] + 0.9 * seen[1]
    assert np.array_equal(trained, seen[-1])
    assert final == pytest.approx(expected, abs=1e-6)
    assert not np.array_equal(final, trained)
    assert evaluated[9] == pytest.approx(float(final[0, 0]))
    once("parts", 3, folder="parts")
    assert np.array_equal(once("parts", 9, resume=True, folder="parts")[1], final)


def test_run_takes_folders_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("ESYNC_LOG_DIR", str(tmp_path / "logs"))
    monkeypatch.setenv("ESYNC_DEVICE_FOLDER", "cpu-7")
    monkeypatch.setenv("ESYNC_CHECKPOINT_DIR", str(tmp_path / "kept"))
    monkeypatch.setenv("ESYNC_CHECKPOINT_EVERY", "2")
    run = esync.Run(quiet=True)
    train(dense(), run)
    assert run.folder == tmp_path / "logs/cpu-7"
    assert run.checkpoints.newest.round == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": 0}, "every=0"),
        ({"target": 0.5}, "target=0.5 needs evaluate"),
        ({"target": 90, "evaluate": float}, "target=90: accuracy should be 0 to 1"),
        ({"target": float("nan"), "evaluate": float}, "target=nan: accuracy should be 0 to 1"),
        ({"metric": ("accuracy", "high")}, r"metric \('accuracy', 'high'\)"),
        ({"metric": ("", "max")}, r"metric \('', 'max'\)"),
        ({"weight_average": "mean"}, "weight_average='mean': it should be 'none' or 'polynomial'"),
    ],
)
def test_run_with_unusable_argument_names_it(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        esync.Run(tmp_path, **settings)


def test_trainer_with_checkpoints_of_its_own_and_of_its_run_is_refused(tmp_path):
    run = esync.Run(tmp_path, checkpoints=esync.Checkpoints(tmp_path / "a"))
    with pytest.raises(ValueError, match="give them to the run only"):
        train(dense(), run, checkpoints=esync.Checkpoints(tmp_path / "b"))


def test_run_whose_evaluation_is_suspended_kills_and_restarts_it(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(config, "EVALUATION_STILL", 1.0)
    marker = tmp_path / "stopped"

    def evaluate() -> float:
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        return 0.5

    train(dense(), esync.Run(tmp_path, evaluate=evaluate, quiet=True))
    assert entries(tmp_path / "cpu")[4]["accuracy"] == 0.5
    assert re.search(r"evaluates the model \(process \d+, stopped\) has not computed for 1 s: killing it", caplog.text)


def test_a_named_run_has_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["some/train.py"])
    run = esync.Run(tmp_path, name="base")
    train(dense(), run, rounds=2)
    assert run.folder == tmp_path / "train/local@base" / socket.gethostname() / "cpu"
    assert summarize(["-b", str(tmp_path), "-n", "train"]) == 0
    assert load_run(tmp_path / "train/local@base").name == "base"


def test_name_of_a_run_that_cannot_be_used_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="cannot name a run"):
        esync.Run(tmp_path, name="a/b")
    monkeypatch.setenv("ESYNC_LOG_DIR", str(tmp_path))
    with pytest.raises(ValueError, match="give esync launch --name"):
        esync.Run(name="base")


def test_evaluate_is_tried_before_any_worker_begins(tmp_path):
    """The others would use up samples while rank 0 evaluates."""
    net = make_net()
    world, logs = steady_world(flat(net)), []

    def evaluate() -> float:
        logs.append([entry[0] for entry in world.made.log])
        return 0.5

    run = esync.Run(tmp_path, evaluate=evaluate, background=False, quiet=True)
    esync.Trainer(net.collect_params(), "sgd", algorithm="sync", world=world, run=run).start()
    assert logs == [["join"]]
    run.close()


def test_parameter_beside_the_trainer_that_waits_for_its_shape_is_refused(tmp_path):
    """Each worker would initialize its own later."""
    net = nn.HybridSequential()
    net.add(nn.Dense(4), nn.Dense(2, in_units=4))
    net.initialize()
    trainer = esync.Trainer(net[1].collect_params(), "sgd", algorithm="local", run=esync.Run(tmp_path, net=net))
    with pytest.raises(UnsuitableParametersError, match=rf"{net[0].weight.name} is not initialized yet"):
        trainer.start()


@pytest.mark.parametrize("device", ["my gpu", "..", "a/gpu0", "gpu", "cpu\n"])
def test_device_whose_folder_the_log_tools_would_not_find_is_refused(tmp_path: Path, device: str) -> None:
    with pytest.raises(ValueError, match=r"device=.*: it should be cpu, gpu0, gpu1, …"):
        esync.Run(tmp_path / "logs", device=device)


def test_device_of_a_launched_worker_has_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESYNC_DEVICE_FOLDER", "gpu0")
    run = esync.Run(tmp_path / "logs", device="my gpu")
    train(dense(), run, rounds=1)
    assert run.folder == tmp_path / "logs/gpu0"
