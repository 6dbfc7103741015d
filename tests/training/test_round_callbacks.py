"""What is logged and evaluated of rounds, and what ends a run."""

import json

import numpy as np
import pytest

from ..support.kept_rounds import Run


@pytest.fixture
def run(tmp_path) -> Run:
    return Run(tmp_path)


def test_what_is_logged_of_a_round(run):
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


def test_flushed_is_on_the_disk(run):
    run.round()
    run.keeper.flush()
    assert (run.logs.folder / "iter-1.txt").exists()
    run.end()


def test_the_facts_of_the_run(run):
    run.round()
    run.end()
    facts = json.loads((run.logs.folder / "run.json").read_text())
    assert facts == {"rank": 2, "iterations": 7, "overruns": 1, "rounds": 1, "finished": True}


def test_facts_of_an_algorithm_may_be_numpys_and_replace_none_of_all_algorithms(run):
    run.trainer.algorithm.facts = {"drift": np.float32(0.5), "drifts": np.ones(2), "rounds": 7, "rank": -1}
    run.round()
    run.end()
    facts = json.loads((run.logs.folder / "run.json").read_text())
    assert (facts["drift"], facts["drifts"], facts["rounds"], facts["rank"]) == (0.5, [1.0, 1.0], 1, 2)


def test_what_no_log_file_can_hold_is_named(run):
    run.trainer.algorithm.facts = {"drift": {1, 2}}
    with pytest.raises(TypeError, match=r"\{1, 2\} cannot be written to a log file"):
        run.end()


def test_an_accuracy_that_arrives_between_rounds_is_filed_under_its_own(run):
    run.round()
    run.keeper.poll(run.trainer)
    run.arrive()
    run.keeper.poll(run.trainer)
    run.round()
    assert run.end() == {1: 0.01, 2: 0.02}


def test_an_accuracy_that_arrives_in_an_iteration_that_ends_a_round_is_filed_too(run):
    """As in the modes in which every iteration is a round: nobody asks for it between two rounds."""
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


def test_the_final_weights_are_evaluated_after_an_evaluation_under_way(run):
    run.round()
    run.round(finished=True)
    assert run.end() == {1: 0.01, 2: 0.02}
    assert len(run.evaluator.started) == 2


def test_the_final_weights_are_evaluated_once(run):
    run.round(finished=True)
    run.arrive()
    assert run.end() == {1: 0.01}
    assert len(run.evaluator.started) == 1


def test_only_the_final_weights_are_evaluated_on_every_image(run):
    run.round()
    run.arrive()
    run.round(finished=True)
    assert run.end() == {1: 0.01, 2: 0.02}
    assert run.evaluator.every_image == [False, True]


def test_once_the_target_is_reached_only_the_final_weights_are_evaluated(tmp_path):
    run = Run(tmp_path, target=0.02)
    run.round()
    run.arrive()
    run.round()
    run.arrive()
    run.round()  # the one in which the others learn of the end
    run.round(finished=True)
    assert run.end() == {1: 0.01, 2: 0.02, 3: None, 4: 0.04}


def test_every_so_many_rounds_and_in_the_end(tmp_path):
    run = Run(tmp_path, every=3)
    for _ in range(7):
        run.round()
        if run.evaluator.started:
            run.arrive()
    assert run.end() == {1: None, 2: None, 3: 0.03, 4: None, 5: None, 6: 0.06, 7: 0.07}


def test_a_worker_that_does_not_evaluate(tmp_path):
    run = Run(tmp_path, evaluate=False)
    run.round()
    run.round(finished=True)
    assert run.end() == {1: None, 2: None}


def test_a_run_that_is_over_before_its_first_round(run):
    run.trainer.round = 7  # of a slot that somebody else has held
    assert run.end() == {}
    assert run.evaluator.closed


def test_reaching_the_target_stops_the_run(tmp_path):
    run = Run(tmp_path, target=0.02)
    run.round()
    run.arrive()
    run.keeper.poll(run.trainer)
    assert run.trainer.stops == 0
    run.round()
    run.arrive()
    run.keeper.poll(run.trainer)
    assert run.trainer.stops == 1


def test_no_need_to_stop_a_run_that_is_over(tmp_path):
    run = Run(tmp_path, target=0.01)
    run.round(finished=True)
    run.end()
    assert run.trainer.stops == 0
