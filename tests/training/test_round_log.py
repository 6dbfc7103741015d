import gc
import signal
import threading
import time
import weakref
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from esync import config
from esync.training.round_log import LogDirectoryError, RoundLog, claim

from ..support import child
from ..support.disks import fill
from ..support.json_files import read_json as read

ENTRY = {"num_iters": 1, "time": {"0": {"get_batch": 0.5}}, "num_samples": 64, "total_time": 1.5}


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


# --- files ----------------------------------------------------------------------------------------


def test_round_log_writes_rounds_and_run_json(tmp_path):
    log = RoundLog(tmp_path / "logs", "cpu")
    assert log.folder == tmp_path / "logs/cpu"
    log.run({"rank": 3, "finished": False})
    for number in (1, 2):
        log.round(number, {**ENTRY, "num_iters": number})
    log.run({"rank": 3, "finished": True})
    log.close()
    assert visible(log.folder) == ["iter-1.txt", "iter-2.txt", "run.json"]
    assert read(log.folder / "iter-2.txt") == {**ENTRY, "num_iters": 2}
    assert read(log.folder / "run.json") == {"rank": 3, "finished": True}


def test_round_log_rewrites_a_round_when_its_accuracy_arrives(tmp_path):
    log = RoundLog(tmp_path, "cpu")
    log.round(1, {**ENTRY, "num_iters": 1})
    log.round(2, {**ENTRY, "num_iters": 2})
    log.round(3, {**ENTRY, "num_iters": 3})
    log.evaluation(1, {"accuracy": 0.25})
    log.evaluation(3, {"accuracy": 0.75})
    log.close()
    assert read(log.folder / "iter-1.txt") == {**ENTRY, "num_iters": 1, "accuracy": 0.25}
    assert read(log.folder / "iter-2.txt") == {**ENTRY, "num_iters": 2}
    assert read(log.folder / "iter-3.txt") == {**ENTRY, "num_iters": 3, "accuracy": 0.75}


def test_round_log_writer_that_is_killed_leaves_no_truncated_file(tmp_path):
    """SIGKILL at many moments of a process that writes large files without a pause."""
    program = (
        "import sys, esync.training.round_log\n"
        "esync.config.LOG_BACKLOG = 10**6\n"  # three of the files
        "log = esync.training.round_log.RoundLog(sys.argv[1], 'cpu', overwrite=True)\n"
        "print('ready', flush=True)\n"
        "number = 0\n"
        "while True:\n"
        "    number += 1\n"
        "    log.round(number, {'number': number, 'filling': 'x' * 300_000})\n"
        "    log.evaluation(number, {'accuracy': 0.5})\n"
        "    log.run({'number': number, 'filling': 'y' * 300_000})\n"
    )
    complete = 0
    attempts = 0
    while attempts < 6 or complete <= 6:  # a slow disk needs more of them
        attempts += 1
        assert attempts <= 100, f"only {complete} files in 100 attempts"
        with child.started("-c", program, str(tmp_path)) as process:
            time.sleep(0.02 + 0.013 * min(attempts, 40))
            process.send_signal(signal.SIGKILL)
            process.wait()
        for path in (tmp_path / "cpu").iterdir():
            if path.name.startswith("."):
                continue
            content = read(path)
            assert len(content["filling"]) == 300_000
            complete += 1
    RoundLog(tmp_path, "cpu").close()
    hidden = {path.name for path in (tmp_path / "cpu").iterdir() if path.name.startswith(".")}
    assert hidden == {".lock"}  # what was half written is cleared away


# --- folders --------------------------------------------------------------------------------------


def test_round_log_moves_logs_of_an_earlier_run_aside(tmp_path):
    for run in (1, 2, 3):
        log = RoundLog(tmp_path, "gpu0")
        log.run({"run": run})
        log.round(1, {"run": run})
        if run == 1:
            log.round(2, {"run": run})
        log.close()
    folder = tmp_path / "gpu0"
    assert [name for name in visible(folder) if not name.startswith("earlier-")] == ["iter-1.txt", "run.json"]
    assert read(folder / "iter-1.txt") == {"run": 3}
    earlier = sorted(folder.glob("earlier-*"))
    assert {read(path / "iter-1.txt")["run"]: visible(path) for path in earlier} == {
        1: ["iter-1.txt", "iter-2.txt", "run.json"],
        2: ["iter-1.txt", "run.json"],
    }


@pytest.mark.parametrize("overwrite", [False, True])
def test_round_log_with_resume_keeps_rounds_up_to_the_checkpoint(tmp_path, overwrite):
    log = RoundLog(tmp_path, "cpu")
    for number in range(1, 13):
        log.round(number, {"life": 1})
    log.run({"life": 1})
    log.close()
    (tmp_path / "cpu/model").mkdir()
    log = RoundLog(tmp_path, "cpu", overwrite, rounds=9)
    log.round(10, {"life": 2})
    log.close()
    lives = {path.name: read(path)["life"] for path in (tmp_path / "cpu").glob("iter-*.txt")}
    assert lives == {**{f"iter-{number}.txt": 1 for number in range(1, 10)}, "iter-10.txt": 2}
    assert read(tmp_path / "cpu/run.json") == {"life": 1}


def test_round_log_moves_the_model_of_an_earlier_run_aside(tmp_path):
    for overwrite in (False, True):
        (tmp_path / "cpu/model").mkdir(parents=True)
        (tmp_path / "cpu/model/model.params").write_text("earlier")
        RoundLog(tmp_path, "cpu", overwrite).close()
        assert not (tmp_path / "cpu/model").exists()
        assert len(list((tmp_path / "cpu").glob("earlier-*/model/model.params"))) == 1


def test_round_log_with_overwrite_deletes_an_earlier_run_and_keeps_files_of_others(tmp_path):
    foreign_files = ["iter-1.json", "notes.md", "weights-iter.txt"]
    (tmp_path / "cpu").mkdir()
    for name in foreign_files:
        (tmp_path / "cpu" / name).write_text("mine")
    for run in (1, 2):
        log = RoundLog(tmp_path, "cpu", overwrite=True)
        log.round(1, {"run": run})
        if run == 1:
            log.round(2, {"run": run})
            log.run({"run": run})
        log.close()
    assert visible(tmp_path / "cpu") == sorted([*foreign_files, "iter-1.txt"])
    assert read(tmp_path / "cpu/iter-1.txt") == {"run": 2}


def test_round_log_of_second_process_on_the_device_uses_another_folder(tmp_path):
    program = (
        "import sys\n"
        "from esync.training.round_log import RoundLog\n"
        "log = RoundLog(sys.argv[1], 'cpu')\n"
        "log.round(1, {'from': sys.argv[2]})\n"
        "print(log.folder.name, 'ready', sep='\\n', flush=True)\n"
        "sys.stdin.readline()\n"
        "log.close()\n"
    )
    with (
        child.started("-c", program, str(tmp_path), "first") as first,
        child.started("-c", program, str(tmp_path), "second") as second,
    ):
        mine, lock = claim(tmp_path, "cpu", overwrite=True)
        with lock:
            assert mine.name == "cpu-2"
        for process in (first, second):
            process.stdin.close()
            assert process.wait(20) == 0
    assert read(tmp_path / "cpu/iter-1.txt") == {"from": "first"}
    assert read(tmp_path / "cpu-1/iter-1.txt") == {"from": "second"}


def test_round_log_reuses_the_folder_of_a_dead_process(tmp_path):
    program = (
        "import sys\n"
        "from esync.training.round_log import claim\n"
        "kept = claim(__import__('pathlib').Path(sys.argv[1]), 'cpu', False)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    with child.started("-c", program, str(tmp_path)) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    folder, lock = claim(tmp_path, "cpu", overwrite=False)
    lock.close()
    assert folder.name == "cpu"


# --- what cannot be written -----------------------------------------------------------------------


@pytest.mark.parametrize("place", ["a-file", "a-file/below", "/proc/logs"])
def test_round_log_in_unusable_directory_names_it(tmp_path, place):
    (tmp_path / "a-file").write_text("in the way")
    with pytest.raises(LogDirectoryError, match=r"cannot write logs to .*(a-file|/proc/logs)"):
        RoundLog(tmp_path / place, "cpu")


def test_round_log_on_full_disk_leaves_no_partial_file(tmp_path):
    program = (
        "import resource, sys\n"
        "from esync.runtime import program\n"
        "from esync.training.round_log import RoundLog\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "def body(watchdog):\n"
        "    log = RoundLog(sys.argv[1], 'cpu')\n"
        "    log.round(1, {'small': 1})\n"
        "    log.round(2, {'filling': 'x' * 2000})\n"
        "    log.close()\n"
        "sys.exit(program.run('worker', body))\n"
    )
    result = child.run("-c", program, str(tmp_path))
    assert (result.returncode, result.stderr) == (
        1,
        f"worker: error: cannot write logs to {tmp_path / 'cpu'}: File too large\n",
    )
    assert visible(tmp_path / "cpu") == ["iter-1.txt"]
    assert read(tmp_path / "cpu/iter-1.txt") == {"small": 1}


def test_round_log_on_full_disk_writes_when_there_is_space_again(small_disk, caplog):
    ballast = fill(small_disk, pages=6)  # every file takes one
    log = RoundLog(small_disk, "cpu")
    for number in range(1, 11):
        log.round(number, ENTRY)
    child.until(lambda: caplog.records, 20)
    assert "No space left on device; training goes on" in caplog.text
    assert len(list(log.folder.glob("iter-*.txt"))) < 10
    ballast.unlink()
    log.close()
    assert [read(log.folder / f"iter-{number}.txt") for number in range(1, 11)] == [ENTRY] * 10
    assert "there is space again" in caplog.text


def test_round_log_whose_folder_is_deleted_makes_it_anew_and_says_so(tmp_path, caplog):
    log = RoundLog(tmp_path / "logs", "cpu")
    log.round(1, ENTRY)
    log.flush()
    (tmp_path / "logs").rename(tmp_path / "gone")
    for number in (2, 3):
        log.round(number, ENTRY)
    log.close()
    assert visible(log.folder) == ["iter-2.txt", "iter-3.txt"]
    assert [record.getMessage() for record in caplog.records] == [
        f"the folder {log.folder} is gone, and made anew without what has been written so far"
    ]


def test_round_log_on_disk_full_for_too_long_raises(small_disk, monkeypatch):
    monkeypatch.setattr(config, "LOG_DISK_FULL", 0.2)
    fill(small_disk)
    log = RoundLog(small_disk, "cpu")
    log.round(1, ENTRY)
    with pytest.raises(LogDirectoryError, match=f"cannot write logs to {log.folder}: No space left on device"):
        log.close()


def start_logging(log: RoundLog, rounds: int) -> "Future[None]":
    """Log rounds without a pause, in a thread that a test which fails leaves behind."""
    future: Future[None] = Future()

    def body() -> None:
        try:
            for number in range(1, rounds + 1):
                log.round(number, ENTRY)
            future.set_result(None)
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=body, daemon=True).start()
    return future


def test_round_log_on_slow_disk_blocks_training_with_a_message(small_disk, caplog, monkeypatch):
    monkeypatch.setattr(config, "LOG_BACKLOG", 6000)  # nine of these rounds, 600 bytes each
    ballast = fill(small_disk)
    log = RoundLog(small_disk, "cpu")
    training = start_logging(log, 12)
    child.until(lambda: "the disk does not keep up with the logs in" in caplog.text, 60)
    assert not training.done()
    assert not list(log.folder.glob("iter-*.txt"))
    ballast.unlink()
    training.result(60)
    log.close()
    assert [read(log.folder / f"iter-{number}.txt") for number in range(1, 13)] == [ENTRY] * 12
    assert "the disk has caught up: the logs in" in caplog.text


def test_round_log_on_slow_disk_given_up_raises_in_training(small_disk, monkeypatch):
    monkeypatch.setattr(config, "LOG_BACKLOG", 6000)
    monkeypatch.setattr(config, "LOG_DISK_FULL", 0.2)
    fill(small_disk)
    training = start_logging(RoundLog(small_disk, "cpu"), 12)
    with pytest.raises(LogDirectoryError, match=r"cannot write logs to .*: No space left on device"):
        training.result(60)


def test_round_log_frees_rounds_that_are_written(tmp_path):
    class Entry(dict[str, Any]):
        """Can be referred to weakly."""

    log = RoundLog(tmp_path, "cpu")
    entry = Entry(ENTRY)
    reference = weakref.ref(entry)
    log.round(1, entry)
    log.flush()
    del entry
    gc.collect()
    assert reference() is None
    log.evaluation(1, {"accuracy": 0.5})
    log.close()
    assert read(log.folder / "iter-1.txt") == {**ENTRY, "accuracy": 0.5}


def test_round_log_accuracy_leaves_a_round_file_of_others_alone(tmp_path):
    log = RoundLog(tmp_path, "cpu")
    (log.folder / "iter-7.txt").write_text("mine")
    log.evaluation(7, {"accuracy": 0.5})
    log.close()
    assert (log.folder / "iter-7.txt").read_text() == "mine"
