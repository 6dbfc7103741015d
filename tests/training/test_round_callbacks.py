"""The callbacks of a round: logging, evaluation, and the end of a run."""

import json

import numpy as np
import pytest

from ..support.kept_rounds import Run


@pytest.fixture
def run(tmp_path) -> Run:
    return Run(tmp_path)


def test_round_log_entry_contains_the_results_of_the_round(run):
    run.round(samples=128)
    run.end()
    entry = json.loads((run.logs.folder / "iter-1.txt").read_text())
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


def test_round_keeper_flush_writes_the_log(run):
    run.round()
    run.keeper.flush()
    assert (run.logs.folder / "iter-1.txt").exists()
    run.end()


def test_run_json_contains_the_facts_of_the_run(run):
    run.round()
    run.end()
    facts = json.loads((run.logs.folder / "run.json").read_text())
    batch_size = 21  # 128 samples in 6 iterations
    assert facts == {
        "batch_size": batch_size,
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
    facts = json.loads((run.logs.folder / "run.json").read_text())
    assert (facts["drift"], facts["drifts"], facts["rounds"], facts["rank"]) == (0.5, [1.0, 1.0], 1, 2)


def test_run_json_with_unserializable_fact_names_it(run):
    run.trainer.algorithm.facts = {"drift": {1, 2}}
    with pytest.raises(TypeError, match=r"\{1, 2\} cannot be written to a log file"):
        run.end()


def test_accuracy_that_arrives_between_rounds_is_logged_in_its_round(run):
    run.round()
    run.keeper.poll(run.trainer)
    run.arrive()
    run.keeper.poll(run.trainer)
    run.round()
    assert run.end() == {1: 0.01, 2: 0.02}


def test_accuracy_that_arrives_at_the_end_of_a_round_is_logged_in_its_round(run):
    """As in modes in which every iteration is a round, so there is no poll between two rounds."""
    for _ in range(4):
        run.round()
        run.arrive()
    assert run.end() == {1: 0.01, 2: 0.02, 3: 0.03, 4: 0.04}


def test_rounds_that_end_during_an_evaluation_are_not_evaluated(run):
    for _ in range(3):
        run.round()
    run.arrive()
    run.keeper.poll(run.trainer)
    run.round()
    run.round()
    assert run.end() == {1: 0.01, 2: None, 3: None, 4: 0.04, 5: 0.05}


def test_final_weights_are_evaluated_after_the_running_evaluation(run):
    run.round()
    run.round(finished=True)
    assert run.end() == {1: 0.01, 2: 0.02}
    assert len(run.evaluator.started) == 2


def test_final_weights_are_evaluated_once(run):
    run.round(finished=True)
    run.arrive()
    assert run.end() == {1: 0.01}
    assert len(run.evaluator.started) == 1


def test_final_weights_only_are_evaluated_on_every_sample(run):
    run.round()
    run.arrive()
    run.round(finished=True)
    assert run.end() == {1: 0.01, 2: 0.02}
    assert run.evaluator.every_sample == [False, True]


def test_final_weights_only_are_evaluated_after_the_target_is_reached(tmp_path):
    run = Run(tmp_path, target=0.02)
    run.round()
    run.arrive()
    run.round()
    run.arrive()
    run.round()  # the one in which the others learn of the end
    run.round(finished=True)
    assert run.end() == {1: 0.01, 2: 0.02, 3: None, 4: 0.04}


def test_evaluate_every_n_rounds_also_evaluates_the_final_weights(tmp_path):
    run = Run(tmp_path, every=3)
    for _ in range(7):
        run.round()
        if run.evaluator.started:
            run.arrive()
    assert run.end() == {1: None, 2: None, 3: 0.03, 4: None, 5: None, 6: 0.06, 7: 0.07}


def test_worker_that_does_not_evaluate_logs_no_accuracy(tmp_path):
    run = Run(tmp_path, evaluate=False)
    run.round()
    run.round(finished=True)
    assert run.end() == {1: None, 2: None}


def test_run_that_is_over_before_its_first_round_closes_the_evaluator(run):
    run.trainer.round = 7  # of a slot that somebody else has held
    assert run.end() == {}
    assert run.evaluator.closed


def test_target_accuracy_reached_stops_the_run(tmp_path):
    run = Run(tmp_path, target=0.02)
    run.round()
    run.arrive()
    run.keeper.poll(run.trainer)
    assert run.trainer.stops == 0
    run.round()
    run.arrive()
    run.keeper.poll(run.trainer)
    assert run.trainer.stops == 1


def test_target_accuracy_reached_in_the_final_round_does_not_call_stop(tmp_path):
    run = Run(tmp_path, target=0.01)
    run.round(finished=True)
    run.end()
    assert run.trainer.stops == 0
