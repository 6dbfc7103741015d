"""How the supervisor deals with a user's own program, with small Python programs in its place."""

from collections.abc import Callable

import pytest
from test_supervisor import TELLING, impatient, spec, supervise  # noqa: F401

from esync import config
from esync.launch.spec import ProcessSpec

#: What a Trainer tells launch, in the order of a run.
EVENTS = """
from esync.runtime import progress
def joins():
    progress.report_event(progress.JOINED, rank=0, exchanges=0)
def leaves():
    progress.report_event(progress.FINISHED)
    progress.report_event(progress.LEFT)
"""


@pytest.fixture
def program() -> Callable[[str], ProcessSpec]:
    """Make worker 0 of a program of the user's."""
    return lambda text: spec("worker-0", EVENTS + text, environment=TELLING, is_user_program=True)


def test_supervisor_with_program_that_ends_without_a_trainer_fails_the_job(tmp_path, program):
    outcome, _ = supervise(tmp_path, program("print('nothing to do')"), restarts=3)
    (failure,) = outcome.failures
    assert failure.how == "ended before it took part in the training (no esync.Trainer has found the others)"
    assert failure.last_lines == ("nothing to do",)
    assert outcome.replacements == []


def test_supervisor_with_program_that_fails_after_the_servers_fails_the_job(tmp_path, program):
    flag = str(tmp_path / "left")
    server = f"import os, time\nwhile not os.path.exists({flag!r}): time.sleep(0.05)"
    late = f"import time; joins(); leaves(); open({flag!r}, 'w').close(); time.sleep(2); raise SystemExit(3)"
    outcome, _ = supervise(tmp_path, spec("server-0", server, "server"), program(late), restarts=3)
    assert [failure.how for failure in outcome.failures] == ["ended with exit code 3"]
    assert outcome.replacements == []


@pytest.mark.parametrize(
    ("errors", "rounds", "elastic", "replacements"),
    [
        (["no", "no"], [0, 0], False, 1),
        (["no", "no"], [9, 1], False, 1),
        (["no", "no"], [9, 9], False, 1),
        (["no", "other", "other"], [0, 0, 0], False, 2),
        (["no", "no", "no"], [9, 8, 2], False, 2),  # it comes and goes
        (["no", "no", "no"], [0, 0, 0], True, 2),
    ],
)
def test_supervisor_replaces_program_until_the_same_error_comes_again_at_the_same_place(
    tmp_path, program, errors, rounds, elastic, replacements
):
    text = f"""
from pathlib import Path
lives = len(list(Path({str(tmp_path)!r}).glob("life-*")))
Path({str(tmp_path)!r}, f"life-{{lives}}").touch()
progress.report_event(progress.JOINED, rank=0, exchanges=7)
progress.report_event(progress.FAILED, reason={errors!r}[lives], exchanges=7 + {rounds!r}[lives])
raise SystemExit(1)
"""
    outcome, _ = supervise(tmp_path, program(text), restarts=2, elastic=elastic)
    assert [replacement.error.reason for replacement in outcome.replacements] == errors[:replacements]
    repeated = ", by the same error at the same place as the process that it replaced: it would happen again"
    exhausted = ", after 2 replacements, as many as --max-restarts allows"
    again = errors[-2] == errors[-1] and rounds[-1] in (0, 1, rounds[-2]) and not elastic
    assert [failure.how for failure in outcome.failures] == [
        f"ended with exit code 1{repeated if again else exhausted}"
    ]


def test_supervisor_waits_for_program_that_has_more_to_do_after_the_run(tmp_path, program):
    flag = str(tmp_path / "left")
    server = f"import os, time\nwhile not os.path.exists({flag!r}): time.sleep(0.05)"
    busy = f"import time; joins(); leaves(); open({flag!r}, 'w').close(); time.sleep(3 * {config.LAUNCH_FAREWELL})"
    outcome, view = supervise(tmp_path, spec("server-0", server, "server"), program(f"{busy}; print('saved')"))
    assert outcome.ok
    assert ("worker-0", "saved") in view.heard


def test_supervisor_takes_events_from_behind_an_unfinished_line(tmp_path, program):
    outcome, view = supervise(tmp_path, program("print('epoch 1: 10 %', end=''); joins(); leaves()"))
    assert outcome.ok
    assert view.heard == [("worker-0", "epoch 1: 10 %")]
    assert "@event" not in (tmp_path / "worker-0.log").read_text()


def test_supervisor_leaves_program_that_reports_no_rounds_in_peace(tmp_path, program, monkeypatch):
    monkeypatch.setattr(config, "ANNOUNCE_AFTER", 0.3)
    trains = program("import time; joins(); print('training'); time.sleep(3)")
    words = "worker-0; worker-0 said last: training"
    assert not any(words in text for text in supervise(tmp_path, trains)[1].said)
    monkeypatch.setattr(config, "LAUNCH_PROGRAM_SILENCE", 0.5)
    messages = supervise(tmp_path, trains)[1].said
    assert any(text.startswith("nothing has been printed for") and text.endswith(words) for text in messages)
