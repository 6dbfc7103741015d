"""Random schedules of deaths.

`python -m tests.search` runs more of them, and repeats a single one.
"""

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from esync import rules
from esync.algorithms import ALGORITHMS
from esync.algorithms.registry import names

from .__main__ import main
from .faults import AFTER_THE_END, FAULTS, Fault
from .options import searchable
from .schedule import KINDS, MODE, Death, draw, with_words
from .search import Finding, _simpler, failure, search, shrink

#: Of each kind; with --long as many more as --schedules says.
SCHEDULES = 10


def check(kind: str, schedules: int, jobs: int = 1, *arguments: str) -> None:
    failures = [finding for chunk in search([kind], 0, schedules, jobs, arguments) for finding in chunk.failures]
    assert not failures, "\n".join(f"{described(finding)}\n" for finding in failures[:3])


def described(finding: Finding) -> str:
    smallest = shrink(finding.schedule)
    return f"{finding.error}\n  {finding.schedule.command}\n  {smallest.command}\n    {failure(smallest).error}"


@pytest.mark.parametrize("kind", KINDS)
def test_random_schedules_of_deaths_break_no_run(kind: str) -> None:
    check(kind, SCHEDULES)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_random_schedules_of_deaths_in_large_numbers_break_no_run(kind: str, pytestconfig: pytest.Config) -> None:
    check(kind, pytestconfig.getoption("--schedules"), os.cpu_count() or 1)


@pytest.mark.parametrize(
    "command",
    [
        # The servers' own counts ended the run on some of them, which left out commits that server
        # 0 still used.
        "private-elastic 2009 --deaths commit+13:machine --calm 1013",
        # Rank 0 died when its commit of the last round had reached one server, which then left a slow
        # worker's commit unused; its replacement named that one to the other server, which used it.
        "tiered 20 --every 0 --deaths end+4:worker:1,commit+12:worker,commit+18:worker",
        "tiered 20 --workers 2 --machines 1 --rounds 1 --every 0 --deaths commit+0:worker --calm 0",
        # With three servers, rank 0 died twice around its commit: the round that one server had
        # ended without a slow worker's commit was ended with it on another.
        "tiered 50005 --every 0 --keep 3 --stop 1 "
        "--deaths commit+2:worker,commit+5:worker,commit+7:machine,638:worker:1",
        "tiered 50005 --machines 1 --rounds 3 --every 0 --keep 3 --stop 1 "
        "--deaths commit+2:worker,commit+5:worker --calm 1005",
        # A slow worker died in the last round, and its commit, which one server had used, was taken
        # back on the other.
        "tiered 1634 --every 0 --deaths commit+5:machine,287:worker:1 --calm 1287",
        "mode:tiered 1119 --machines 2 --every 0 --keep 3 --deaths end+2:worker:1 "
        "--options --slowest-iterations=auto --calm 1002",
        # A worker that had finished was replaced, and took the place that worker 0 needed to write
        # the final model.
        "hosts-2bit 1838 --deaths end+21:machine:0 --calm 1021",
        "mode:tiered 305",
        # The only worker that the state server waited for was dead, and it refused the others' messages.
        "mode:tiered-elastic 70",
        "mode:tiered-elastic 404",
        # The check compared the workers' rounded weights with the servers' exact ones.
        "hosts-fp16-elastic 55 --stop 0 --deaths 667:power --calm 667",
        # A job had the number of the job before, and its parts of a checkpoint were taken for that
        # one's.
        "sync 3709",
        # A replacement that found the run finished wrote the last part again, which was there
        # already, and meanwhile it was not.
        "sync 5381 --servers 1 --rounds 3 --every 2 --momentum 0 --deaths part+90:power --calm 0",
        "async 5802 --rounds 4 --deaths part+99:machine,474:worker:1 --calm 474",
        "ssp 5896",
        "sync 5643",
        "sync 5643 --rounds 2 --every 1 --stop 0 --deaths join+18:machine:0 --calm 1018",
        # Newcomers took the slots of workers that had left the finished run, and nobody took that
        # of worker 0, which had died before it wrote the final model.
        "sync 5818 --machines 1 --rounds 1 --every 1 --momentum 0 --deaths part+28:worker --calm 0",
        "sync 5818",
        # A worker looked so late that it wrote no part of round 6, and its next one was taken for a
        # sign that it had: the whole checkpoint of round 3 was deleted.
        "hosts-switch 116 --machines 2 --rounds 9 --deaths - --calm 1000",
    ],
)
def test_schedule_that_once_failed_passes(command: str) -> None:
    kind, seed, *words = command.split()
    chosen = {name[2:]: value for name, value in zip(words[::2], words[1::2], strict=True)}
    assert failure(with_words(draw(kind, int(seed)), chosen)).error == ""


@pytest.mark.parametrize("kind", ["async-elastic", "mode:esync"])
def test_schedule_repeats_its_history(kind: str) -> None:
    one, again, other = (failure(draw(kind, seed)) for seed in (3, 3, 4))
    assert one == again
    assert one.history != other.history
    assert len(one.history) > 100


def test_schedule_command_names_the_same_schedule() -> None:
    drawn = draw("switch", 7)
    assert drawn.command == "python -m tests.search switch 7"
    words = {"workers": "1", "momentum": "0.5", "deaths": "12:worker:0,90:power,part+3:hang", "calm": "40"}
    other = with_words(drawn, words)
    assert other.deaths == (Death(12, "worker", 0), Death(90, "power"), Death(3, "hang", moment="part"))
    assert (other.workers, other.calm) == (1, 40)
    assert other.command.startswith("python -m tests.search switch 7 --")
    arguments = dict(zip(*[iter(other.command.split()[5:])] * 2, strict=True))
    assert with_words(drawn, {name[2:]: value for name, value in arguments.items()}) == other


# --- modes ----------------------------------------------------------------------------------------


def test_every_dense_algorithm_is_searched() -> None:
    assert set(names(searchable)) == set(ALGORITHMS) - {"local", "gd-async", "dgc-async", "dgs"}


@pytest.mark.parametrize(
    "words",
    [
        "sync-switch --switch-order=01",
        "sync-switch --switch-order=101 --train-steps 3 12 20",
        "sync-switch --switch-order=0101 --train-steps 5 8 20 24 --online-policy=elastic --straggler-window=2 "
        "--straggler-stride=1 --straggler-raise-after=1 --straggler-clear-after=1 --straggler-sigmas=0.1",
        "local-sgd --compression=2bit",
    ],
)
def test_random_schedules_with_given_options_break_no_run(words: str) -> None:
    mode, *arguments = words.split()
    assert draw(MODE + mode, 3, tuple(arguments)).options[: len(arguments)] == tuple(arguments)
    check(MODE + mode, SCHEDULES, 1, *arguments)


@pytest.fixture
def program(
    code_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run the program with a command line; check its exit code, and return what it prints."""

    def run(*words: str, code: int) -> str:
        monkeypatch.setattr(sys, "argv", ["search", *words])
        try:
            status: Any = main()
        except SystemExit as end:
            status = end.code
        assert status == code
        return "".join(capsys.readouterr())

    return run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--mode local", "mode local exchanges nothing"),
        ("--mode dgs", "mode dgs needs gradients"),
        ("--mode esyncc", "unknown algorithm 'esyncc'"),
        ("--mode sync --options=--staleness=1", "--staleness makes no sense with --mode sync"),
        ("--kinds nothing", "no kind 'nothing'"),
    ],
)
def test_search_program_refuses_what_it_cannot_search(words: str, message: str, program: Callable[..., str]) -> None:
    assert message in program(*words.split(), code=2)


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


def test_search_program_finds_what_an_option_of_an_algorithm_file_breaks(
    tmp_path: Path, program: Callable[..., str]
) -> None:
    (tmp_path / "mine.py").write_text(FAULTY)  # schedules are drawn from the name of the file
    out = program("--mode", "mine.py:Faulty", "--schedules", "20", code=1)  # an eighth of them fail
    simple = next(line for line in out.splitlines() if "as simple as it gets" in line)
    _, _, again = simple.partition("python -m tests.search ")
    rerun = program(*shlex.split(again), code=1)
    assert "options=('--patience=2',)" in rerun  # which the command leaves out where the seed draws just that
    assert "out of patience" in rerun


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
def test_rule_that_takes_each_step_twice_is_found(mode: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make = rules.RULES[rule]

    def twice(**options: Any) -> Any:
        step = make(**options)
        return lambda weights, value, *arguments: step(weights, 2 * value, *arguments)

    monkeypatch.setattr(rules, "RULES", {**rules.RULES, rule: twice})
    # A tenth of the schedules of dylu have no outer momentum, without which the model can be checked.
    errors = (failure(draw(MODE + mode, seed)).error for seed in range(5 * SCHEDULES))
    assert any("does not hold what was used" in error for error in errors)


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_fault_can_be_put_back(fault: Fault) -> None:
    with fault.put_back():
        pass


def test_round_of_fewer_after_the_end_is_found() -> None:
    words = {"servers": "1", "machines": "3", "deaths": "-", "options": "--switch-order=01 --train-steps 5 40"}
    schedule = with_words(draw("mode:sync-switch", 6), words)
    assert failure(schedule).error == ""
    with FAULTS[AFTER_THE_END].put_back():
        assert "a round was one of" in failure(schedule).error


@pytest.mark.long
@pytest.mark.parametrize("fault", [pytest.param(fault, id=name) for name, fault in FAULTS.items() if not fault.missed])
def test_fault_put_back_is_found(fault: Fault) -> None:
    assert fault.found(1000) is not None


def test_schedule_without_options_is_made_simpler() -> None:
    drawn = replace(draw(f"{MODE}esync", 1), options=(), workers=2)
    assert {simpler.workers for simpler in _simpler(drawn)} >= {1}
