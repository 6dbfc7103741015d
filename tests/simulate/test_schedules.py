"""Random schedules with invariant checks, and faults that the checks must notice."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from pydantic import Field

from esync import rules
from esync.algorithms import ALGORITHMS
from esync.algorithms.options import Options, option
from esync.algorithms.registry import names, options_of
from esync.exchange.protocol.round_state import RoundState
from esync.simulate import schedules
from esync.simulate.invariants import InvariantCheck, InvariantError
from esync.simulate.schedule_generator import draw, sample, schedulable

COUNT = 25
MODES = names(schedulable)


def run_all(mode, *given, count=COUNT):
    """Run schedules; return how often commits were not counted, and why."""
    uncounted = Counter()
    for seed in range(count):
        check = InvariantCheck(draw(mode, seed, given=given))
        check.run()
        uncounted[check.uncounted] += 1
    return uncounted


def test_random_schedules_exist_for_every_dense_algorithm():
    assert set(MODES) == set(ALGORITHMS) - {"local", "gd-async", "dgc-async", "dgs"}


@pytest.mark.parametrize("mode", MODES)
def test_random_schedules_break_no_invariant(mode):
    # In these it was checked that what was committed was applied.
    assert run_all(mode)[""] >= (1 if mode == "tiered" else 3)


@pytest.mark.parametrize(
    "words",
    [
        "sync-switch --switch-order 01",
        "sync-switch --switch-order 101 --train-steps 3 12 20",
        "sync-switch --switch-order 0101 --train-steps 5 8 20 24 --online-policy elastic --straggler-window 2 "
        "--straggler-stride 1 --straggler-raise-after 1 --straggler-clear-after 1 --straggler-sigmas 0.1",
        "local-sgd --compression 2bit",
    ],
)
def test_random_schedules_with_given_options_break_no_invariant(words):
    mode, *given = words.split()
    run_all(mode, *given, count=20)


def test_random_schedules_differ_by_seed_and_repeat():
    assert len({repr(draw("sync", seed).cluster.workers) for seed in range(20)}) == 20

    def times():
        check = InvariantCheck(draw("esync", 3))
        check.run()
        return [(sums.ended, sums.waits, sums.iterations) for sums in check.simulation.workers]

    assert times() == times()


@pytest.mark.parametrize("crashes", [False, True])
def test_random_schedules_draw_crashes_where_wanted(crashes):
    drawn = [draw("sync", seed, crashes) for seed in range(30)]
    assert any(worker.crashes for each in drawn for worker in each.cluster.workers) == crashes


@pytest.mark.parametrize("mode", MODES)
def test_random_schedules_draw_hosts_that_exchange_as_one_where_there_are_rounds(mode):
    drawn = [draw(mode, seed).cluster for seed in range(40)]
    rounds = mode in ("sync", "esync", "tiered", "local-sgd", "fedprox", "scaffold", "diloco", "sync-switch")
    assert {each.per_host for each in drawn} == ({False, True} if rounds else {False})
    assert any(each.host_groups() for each in drawn) == rounds


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["esync", "dcasgd", "sync-switch"])
def test_random_schedules_draw_every_option_with_enumerable_values(mode):
    known = {each.dest: each for each in options_of(ALGORITHMS[mode]) if each.flags}
    random = np.random.default_rng(0)
    expected = {name for name, each in known.items() if sample(each.kind, random) is not None}
    drawn = {name for seed in range(50) for name in draw(mode, seed).drawn}
    assert drawn == expected
    assert known.keys() - drawn <= {"compression", "switch_order", "hparams", "lr_decay"}  # texts


def test_random_schedules_draw_whole_numbers_near_the_least():
    assert {draw("ssp", seed).options.staleness for seed in range(50)} == {0, 1, 2, 3}


class Various(Options):
    """Options of every kind."""

    between: int = option(3, ge=2, le=4)
    below: int = option(0, gt=-1, lt=2)
    positive: float = option(1.0, gt=0)
    share: float = option(0.5, ge=0, le=1)
    momentum: float = option(0.9, ge=0, lt=1)
    either: Annotated[float, Field(ge=3)] | Literal["auto"] = option("auto")
    perhaps: int | None = option(None, ge=1)
    switch: bool = option(False)
    steps: tuple[Annotated[int, Field(ge=1)], ...] = option(())
    text: str = option("")


def test_random_schedules_draw_values_within_types_and_bounds():
    kinds = {each.name: each.kind for each in Various.info()}
    random = np.random.default_rng(0)
    seen: dict[str, set[Any]] = {name: {sample(kind, random) for _ in range(200)} for name, kind in kinds.items()}
    assert seen["between"] == {2, 3, 4}
    assert seen["below"] == {0, 1}
    assert min(seen["positive"]) > 0
    assert {0.0, 1.0} <= seen["share"]
    assert 0.0 in seen["momentum"]
    assert max(seen["momentum"]) < 1
    assert {"auto", 3.0} <= seen["either"]
    assert seen["perhaps"] == {1, 2, 3, 4}
    assert seen["switch"] == {True}
    assert all(list(steps) == sorted(set(steps)) and 1 <= len(steps) <= 3 for steps in seen["steps"])
    assert seen["text"] == {None}
    for name, values in seen.items():
        for value in values - {None}:
            assert getattr(Various.of(**{name: value}), name) == value


def test_random_schedules_do_not_draw_given_options():
    for seed in range(10):
        schedule = draw("ssp", seed, given=["--staleness=2"])
        assert schedule.options.staleness == 2
        assert "staleness" not in schedule.drawn
        assert schedule.again.endswith(f"--mode ssp --seed {seed} --staleness=2")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--mode local", "mode local exchanges nothing"),
        ("--mode dgs", "mode dgs needs gradients"),
        ("--mode esyncc", "unknown algorithm 'esyncc'"),
        ("--mode sync --staleness 1", "--staleness makes no sense with --mode sync"),
        ("--mode sync --collective ring", "--collective is not an option of mode sync"),
        ("--mode ssp --staleness -1", "should be a whole number of 0 or more"),
    ],
)
def test_schedules_program_with_unsupported_mode_is_refused(words, message, capsys):
    with pytest.raises(SystemExit) as error:
        schedules.main(words.split())
    assert error.value.code == 2
    assert message in capsys.readouterr().err


# --- algorithms from outside ----------------------------------------------------------------------


def program(folder, *words, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "esync.simulate.schedules", *words],
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_schedules_program_runs_an_algorithm_file(tmp_path):
    shutil.copy(Path(__file__).parents[1] / "algorithms" / "halfway.py", tmp_path)
    out = program(tmp_path, "--mode", "halfway.py:Halfway", "--schedules", "20")
    assert out.startswith("halfway.py:Halfway: 20 schedules, 0 broken, in ")


FAULTY = """
from esync.algorithms import SSP, option


class Faulty(SSP):
    '''SSP that cannot be patient.'''

    class Options(SSP.Options):
        patience: int = option(0, ge=0, le=2, help="how patient it is")

    def step(self, batch_size):
        if self.options.patience == 2:
            raise RuntimeError("out of patience")
        super().step(batch_size)
"""


def test_schedules_program_finds_what_an_option_of_an_algorithm_file_breaks(tmp_path):
    (tmp_path / "mine.py").write_text(FAULTY)
    out = program(tmp_path, "--mode", "mine.py:Faulty", "--schedules", "20", code=1)
    lines = [line for line in out.splitlines() if "out of patience" in line]
    assert 0 < len(lines) < 20
    assert all("patience=2, " in line for line in lines)
    assert f"{len(lines)} broken" in out
    again = lines[0].rpartition("python -m esync.simulate.schedules ")[2].rstrip(")")
    assert lines[0] in program(tmp_path, *again.split(), code=1)


# --- faults that are found ------------------------------------------------------------------------


def broken(mode, monkeypatch, target, name, replacement, given=(), count=COUNT):
    monkeypatch.setattr(target, name, replacement)
    with pytest.raises(InvariantError, match=r"--mode [\w-]+ --seed [0-9]+") as error:
        run_all(mode, *given, count=count)
    return str(error.value)


@pytest.mark.parametrize(
    ("mode", "rule"),
    [
        ("async", "sgd"),
        ("sync-switch", "momentum_sgd"),
        ("dcasgd", "delay_compensated_sgd"),
        ("esync", "add_mean_update"),
        ("diloco", "outer_nesterov"),
        ("dylu", "delayed_nesterov"),
    ],
)
def test_invariant_check_notices_a_payload_applied_twice(mode, rule, monkeypatch):
    make = rules.RULES[rule]
    doubled = {**rules.RULES, rule: lambda **options: twice(make(**options))}
    assert "was applied" in broken(mode, monkeypatch, rules, "RULES", doubled)


def twice(rule):
    return lambda weights, value, state, step: rule(weights, 2 * value, state, step)


@pytest.mark.parametrize("mode", ["sync", "local-sgd", "sync-switch"])
def test_invariant_check_notices_a_round_that_does_not_wait_for_all(mode, monkeypatch):
    text = broken(mode, monkeypatch, RoundState, "due", lambda self: sorted(self.pending))
    assert any(words in text for words in ("was applied", "others", "round", "the servers are at step"))


def test_invariant_check_notices_a_round_used_after_the_end(monkeypatch):
    in_time = RoundState.applied

    def applied(self, ranks, now):
        waiting = {rank: each for rank, each in self.pending.items() if rank not in ranks}
        in_time(self, ranks, now)
        self.pending |= waiting

    text = broken(
        "sync-switch",
        monkeypatch,
        RoundState,
        "applied",
        applied,
        given=["--switch-order=101", "--train-steps", "3", "12", "20"],
        count=300,
    )
    assert "was applied" in text


def test_invariant_check_notices_a_coordinator_that_is_never_ready(monkeypatch):
    from esync.coordination import coordinator
    from esync.coordination.decision import ExchangeDecision

    monkeypatch.setattr(InvariantCheck, "_check_waits", lambda self: None)
    calls = iter(range(3000))

    def never(*_):
        next(calls)
        return ExchangeDecision(False)

    assert "StopIteration" in broken("esync", monkeypatch, coordinator, "decide", never)


def test_invariant_check_notices_too_long_waits(monkeypatch):
    from esync.coordination import coordinator
    from esync.coordination.decision import READY, decide

    def always(records, record, *rest):
        return READY if record.asked > 0 else decide(records, record, *rest)

    assert "its bound is" in broken("esync", monkeypatch, coordinator, "decide", always, count=4 * COUNT)


def test_invariant_check_notices_a_worker_beyond_the_staleness(monkeypatch):
    in_time = RoundState._release

    def release(self, now):
        self.staleness += 1
        in_time(self, now)
        self.staleness -= 1

    assert "exchanges ahead of worker" in broken("ssp", monkeypatch, RoundState, "_release", release)


def test_schedules_program_prints_the_seeds_that_break(monkeypatch, capsys):
    assert schedules.main(["--mode", "sync", "--schedules", "3"]) == 0
    assert capsys.readouterr().out.startswith("sync: 3 schedules, 0 broken, in ")
    monkeypatch.setattr(RoundState, "due", lambda self: [])
    assert schedules.main(["--mode", "sync", "--seed", "2", "--no-crashes"]) == 1
    out = capsys.readouterr().out
    assert "sync, seed 2: DeadlockError: deadlock at" in out
    assert "--mode sync --seed 2 --no-crashes)" in out
    assert "sync: 1 schedules, 1 broken" in out
    assert "the commits of the others" in out
