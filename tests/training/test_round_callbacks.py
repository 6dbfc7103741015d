"""The callbacks of a round: logging, evaluation, and the end of a run."""

from dataclasses import replace

import numpy as np
import pytest

from esync.exchange import Result
from esync.reports.rounds import read_round
from esync.runtime.progress import parse

from ..support.json_files import read_json
from ..support.kept_rounds import Run


@pytest.fixture
def run(tmp_path) -> Run:
    return Run(tmp_path)


def test_round_log_entry_contains_the_results_of_the_round(run):
    run.round(samples=128)
    run.end()
    entry = read_json(run.logs.folder / "iter-1.txt")
    assert entry.pop("total_time") > 0
    assert entry.pop("bytes_sent") >= 0
    assert entry.pop("bytes_received") >= 0
    assert entry == {
        "num_iters": 1,
        "time": {"0": {"forward and backward": 0.5}},
        "num_samples": 128,
        "wait": 0.25,
        "transfer": 0.125,
        "accuracy": 0.01,
    }


def test_run_json_contains_the_facts_of_the_run(run):
    run.round()
    run.end()
    assert run.facts == {
        "batch_size": 21,  # 128 samples in 6 iterations
        "rank": 2,
        "iterations": 7,
        "overruns": 1,
        "rounds": 1,
        "finished": True,
    }


def test_run_json_with_facts_of_algorithm_accepts_numpy_and_keeps_common_facts(run):
    run.trainer.algorithm.facts = {"drift": np.float32(0.5), "drifts": np.ones(2), "rounds": 7, "rank": -1}
    run.round()
    run.end()
    facts = run.facts
    assert (facts["drift"], facts["drifts"], facts["rounds"], facts["rank"]) == (0.5, [1.0, 1.0], 1, 2)


def test_run_json_with_unserializable_fact_names_it(run):
    run.trainer.algorithm.facts = {"drift": {1, 2}}
    with pytest.raises(TypeError, match=r"\{1, 2\} cannot be written to a log file"):
        run.end()


#: Name → options, what happens, the accuracies in the logs, which evaluations are on every sample, calls of stop.
#: r: a round ends; f: the final one does; a: the evaluation is done; p: the loop polls.
EVALUATIONS = {
    "done between two rounds": ({}, "rpapr", {1: 0.01, 2: 0.02}, [False, False], 0),
    "done at the end of a round": ({}, "rararara", {1: 0.01, 2: 0.02, 3: 0.03, 4: 0.04}, [False] * 4, 0),
    "under way for rounds": ({}, "rrraprr", {1: 0.01, 2: None, 3: None, 4: 0.04, 5: 0.05}, [False, False, True], 0),
    "under way at the end": ({}, "rf", {1: 0.01, 2: 0.02}, [False, True], 0),
    "of the final weights once": ({}, "fa", {1: 0.01}, [True], 0),
    "of the final weights on every sample": ({}, "raf", {1: 0.01, 2: 0.02}, [False, True], 0),
    "target not reached": ({"target": 0.02}, "rap", {1: 0.01}, [False], 0),
    "target reached": ({"target": 0.02}, "raprap", {1: 0.01, 2: 0.02}, [False] * 2, 1),
    # In the third round the others learn of the end.
    "after the target only of the final weights": (
        {"target": 0.02},
        "rararf",
        {1: 0.01, 2: 0.02, 3: None, 4: 0.04},
        [False, False, True],
        1,
    ),
    "target reached in the final round": ({"target": 0.01}, "f", {1: 0.01}, [True], 0),
    "every third round, and the last": (
        {"every": 3},
        "rrra" + 4 * "ra",
        {1: None, 2: None, 3: 0.03, 4: None, 5: None, 6: 0.06, 7: 0.07},
        [False, False, True],
        0,
    ),
}


@pytest.mark.parametrize(
    ("options", "events", "accuracies", "every_sample", "stops"), EVALUATIONS.values(), ids=EVALUATIONS
)
def test_evaluations_are_logged_in_their_rounds(tmp_path, options, events, accuracies, every_sample, stops):
    run = Run(tmp_path, **options)
    does = {
        "r": run.round,
        "f": lambda: run.round(finished=True),
        "a": run.arrive,
        "p": lambda: run.keeper.poll(run.trainer),
    }
    for event in events:
        does[event]()
    assert run.end() == accuracies
    assert (run.evaluator.every_sample, run.trainer.stops) == (every_sample, stops)


def test_worker_that_does_not_evaluate_logs_no_accuracy(tmp_path):
    run = Run(tmp_path, evaluate=False)
    run.round()
    run.round(finished=True)
    assert run.end() == {1: None, 2: None}


def test_run_that_is_over_before_its_first_round_closes_the_evaluator(run):
    assert run.end() == {}
    assert run.evaluator.closed


@pytest.mark.parametrize("rounds", [0, 1])
def test_final_model_of_a_round_without_this_worker_has_a_log_of_its_own(tmp_path, rounds):
    times = iter([0.0, *[1.0] * (2 * rounds), *[5.0] * 9])
    run = Run(tmp_path, now=lambda: next(times))
    for _ in range(rounds):
        run.round()
        run.arrive()
    run.trainer.exchanges, run.trainer.replica.weights = 33, 33.0  # of the others, before its own update arrived
    run.trainer.world.recorder.samples = 64
    run.trainer.world.recorder.add("global update", 0.5)
    run.trainer.algorithm.result = replace(run.trainer.algorithm.result, elapsed=9.0, exchanged_at=8.0)
    assert run.end() == ({1: 0.01, 33: 0.33} if rounds else {33: 0.33})
    assert run.evaluator.every_sample == [*[False] * rounds, True]
    final = read_round(run.logs.folder / "iter-33.txt", 33)
    assert (final.samples, final.total_time) == (0, 4.0)  # a second ago


def test_final_model_of_an_asynchronous_run_is_evaluated_after_the_last_commits_of_others(run):
    run.trainer.algorithm.counts_exchanges = True
    for step in (1, 4):
        run.trainer.algorithm.result = Result(step, step, 64, 0.0, 0.0, finished=step == 4, step=step)
        if step == 1:
            run.round()
            run.arrive()
    run.trainer.replica.weights = 4.0
    assert run.end() == {1: 0.04}


def test_asynchronous_worker_logs_its_exchanges_with_the_round_of_the_run(run):
    run.trainer.algorithm.counts_exchanges = True
    for round_ in (0, 1):
        run.trainer.algorithm.result = Result(round_, 2 * round_ + 1, 64, 0.0, 0.0, finished=round_ == 1)
        run.round(finished=round_ == 1)
        run.arrive()
    assert run.end() == {1: 0.01, 2: 0.02}
    shown = [progress for line in run.stream.getvalue().splitlines() if (progress := parse(line))][-1]
    assert (shown.round, shown.exchanges, shown.accuracy_round) == (1, 2, 1)
    assert shown.line().startswith("round    1  exchange    2 ")
    assert read_json(run.logs.folder / "iter-2.txt")["round"] == 1
    facts = run.facts
    assert (facts["rounds"], facts["exchanges"]) == (1, 2)
