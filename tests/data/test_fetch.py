import dataclasses
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny_dataset
from mirror import Mirror
from tiny_dataset import CONTENTS, ENTRY

from esync import config
from esync.data import DataError, load
from esync.data.__main__ import main
from esync.data.fetch import faults, fetch
from esync.runtime.files import leftovers

IMAGES, LABELS = ENTRY.train.images.name, ENTRY.train.labels.name
TROUBLE = {
    "truncated": "the connection closed after",
    "closed": "truncated gzip file",
    "corrupt": "corrupt gzip file",
    "wrong": "content",
    "huge": "more compressed bytes than",
    "stall": "no byte for 0.2 s",
    404: "HTTP status 404",
    500: "HTTP status 500",
}


@pytest.fixture
def mirror():
    with Mirror() as server:
        yield server


def get(data_dir, *mirrors, entry=ENTRY, **options):
    return fetch(entry, data_dir, mirrors=[server.url for server in mirrors], timeout=1, pause=0.01, **options)


def assert_whole(data_dir):
    assert faults(ENTRY, data_dir) == {}
    assert {path.name for path in (data_dir / ENTRY.name).iterdir()} == set(CONTENTS)
    assert len(load(ENTRY.name, data_dir).train_labels) == 40


def test_fetch_with_complete_data_set_downloads_nothing(tmp_path, mirror, capsys):
    folder = tiny_dataset.write(tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    get(tmp_path, mirror)
    assert "already in" in capsys.readouterr().out
    assert mirror.requests == []
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_fetch_downloads_only_missing_or_broken_files(tmp_path, mirror, capsys):
    folder = tiny_dataset.write(tmp_path)
    (folder / LABELS).unlink()
    (folder / IMAGES).write_bytes((folder / IMAGES).read_bytes()[:1000])
    get(tmp_path, mirror)
    assert_whole(tmp_path)
    assert sorted(mirror.requests) == [IMAGES, LABELS]
    assert f"{IMAGES}: truncated gzip file of 1000 bytes; it will be replaced" in capsys.readouterr().out


def test_fetch_with_transient_errors_retries(tmp_path, mirror, monkeypatch, capsys):
    monkeypatch.setattr(config, "FETCH_ATTEMPTS", len(TROUBLE) + 1)
    mirror.plans[IMAGES] = list(TROUBLE)
    folder = tmp_path / "new" / "data"
    assert fetch(ENTRY, folder, mirrors=[mirror.url], timeout=0.2, pause=0.001) == folder / "fashion-mnist"
    assert_whole(folder)
    assert mirror.requests.count(IMAGES) == len(TROUBLE) + 1
    out = capsys.readouterr().out
    assert all(message in out for message in TROUBLE.values())
    assert "complete in" in out


@pytest.mark.parametrize("behaviour", ["closed", 404])
def test_fetch_with_persistent_error_names_it_and_leaves_no_partial_file(tmp_path, mirror, behaviour):
    mirror.plans[LABELS] = [behaviour] * config.FETCH_ATTEMPTS
    with pytest.raises(DataError) as caught:
        get(tmp_path, mirror)
    message = str(caught.value)
    assert f"{mirror.url}/{LABELS}: " in message
    assert TROUBLE[behaviour] in message
    assert "--mirror" in message
    assert mirror.requests == [IMAGES] + [LABELS] * config.FETCH_ATTEMPTS
    assert [path.name for path in (tmp_path / ENTRY.name).iterdir()] == [IMAGES]
    get(tmp_path, mirror)
    assert_whole(tmp_path)
    assert mirror.requests.count(IMAGES) == 1


def test_fetch_with_broken_mirror_falls_back_to_the_next(tmp_path, mirror):
    with Mirror() as other:
        other.plans[IMAGES] = ["wrong"]
        get(tmp_path, other, mirror)
        assert_whole(tmp_path)
        assert mirror.requests == [IMAGES]
        assert len(other.requests) == 4


def test_fetch_without_given_mirror_uses_those_of_the_registry(tmp_path, mirror):
    get(tmp_path, entry=dataclasses.replace(ENTRY, mirrors=(mirror.url + "/",)))
    assert_whole(tmp_path)


# --- whole processes ------------------------------------------------------------------------------


def start_fetch(data_dir, mirror):
    command = [sys.executable, tiny_dataset.__file__, "fetch", f"--to={data_dir}", f"--mirror={mirror.url}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_fetch_that_is_killed_leaves_no_file_that_looks_complete(tmp_path, mirror, number):
    mirror.plans[LABELS] = ["stall"]
    folder = tmp_path / ENTRY.name
    process = start_fetch(tmp_path, mirror)
    assert mirror.stalled.wait(120)
    while not leftovers(folder / LABELS):
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    names = {path.name for path in folder.iterdir()}
    if number == signal.SIGKILL:
        assert process.returncode == -number
        assert names == {IMAGES, leftovers(folder / LABELS)[0].name}
    else:
        assert process.returncode == 1
        assert names == {IMAGES}
        assert errors.startswith("interrupted")
    with pytest.raises(DataError, match=f"{LABELS}: no such file"):
        load(ENTRY.name, tmp_path)
    again = start_fetch(tmp_path, mirror)
    again.communicate(timeout=120)
    assert again.returncode == 0
    assert not leftovers(folder / LABELS)
    assert_whole(tmp_path)
    assert mirror.requests.count(IMAGES) == 1


def test_fetch_run_twice_at_once_downloads_each_file_once(tmp_path, mirror):
    mirror.plans[LABELS] = ["stall"]
    first = start_fetch(tmp_path, mirror)
    assert mirror.stalled.wait(120)
    second = start_fetch(tmp_path, mirror)
    assert "another fetch is filling" in second.stdout.readline()
    mirror.released.set()
    for process in (first, second):
        process.communicate(timeout=120)
        assert process.returncode == 0
    assert_whole(tmp_path)
    assert len(mirror.requests) == len(CONTENTS) + 1  # the stalled one once more


# --- command line ---------------------------------------------------------------------------------


@pytest.fixture
def run(mirror, monkeypatch, tmp_path, capsys):
    """Run the command line in an empty folder with data directories.

    Returns the exit code and all output.
    """
    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(config, "DATA_DIRS", ("data", "system"))

    def run(*arguments):
        try:
            code = main(arguments, registry={ENTRY.name: dataclasses.replace(ENTRY, mirrors=(mirror.url,))})
        except SystemExit as end:  # argparse
            code = end.code
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    yield run
    signal.signal(signal.SIGTERM, handler)


def test_fetch_command_without_to_fills_the_first_data_directory_unless_another_one_is_whole(run, mirror):
    folder = tiny_dataset.write(Path("system"))
    code, output = run("fetch")
    assert (code, mirror.requests) == (0, [])
    assert "already in system" in output
    (folder / LABELS).unlink()
    assert run("fetch")[0] == 0
    assert_whole(Path("data"))


def test_fetch_command_that_fails_exits_with_1_and_one_sentence(run, mirror, monkeypatch):
    monkeypatch.setattr(config, "FETCH_ATTEMPTS", 1)
    mirror.plans[IMAGES] = [404]
    code, output = run("fetch", "--to", "data")
    assert code == 1
    assert not Path("data/fashion-mnist").exists()
    assert "error: data/fashion-mnist/train-images-idx3-ubyte.gz: could not be downloaded" in output


def test_fetch_command_with_unwritable_directory_exits_with_1(run):
    Path("file").write_text("in the way")
    code, output = run("fetch", "--to", "file")
    assert code == 1
    assert "error: file" in output
    assert "--to DIR" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "command"),
        (["fetch", "--dataset", "imagenet"], "imagenet"),
        (["fetch", "--mirror", "ftp://example.org"], "expected a URL"),
        (["fetch", "--mirror", "http://host:port/"], "expected a URL"),
    ],
)
def test_data_command_with_bad_usage_exits_with_2(run, arguments, message):
    code, output = run(*arguments)
    assert code == 2
    assert message in output
