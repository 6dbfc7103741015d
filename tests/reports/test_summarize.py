"""The program summarize: from log trees to summaries."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from log_trees import MODEL_BYTES, esync_round, sync_round, write_round, write_run

from esync.reports.plot import main as plot
from esync.reports.summarize import main
from tests.support import child
from tests.support.json_files import read_json as read

ROOT = Path(__file__).resolve().parents[2]


def summarize(base: Path, *arguments: str, mode: str | None = "esync", network: str = "resnet18-v1") -> int:
    return main(["-b", str(base), "-n", network, *(["-m", mode] if mode else []), *arguments])


def test_summarize_of_published_logs_gives_the_published_summary(tmp_path: Path) -> None:
    folder = tmp_path / "resnet18-v1/esync/cloud1"
    write_round(folder / "gpu0", 1, esync_round(1, 3.49, iterations=2, exchange=0.5, accuracy=0.12345))
    write_round(folder / "gpu0", 2, esync_round(2, 6.51, iterations=3, exchange=0.25, accuracy=0.5678))
    write_round(folder / "cpu", 1, esync_round(1, 3.6, iterations=1, exchange=0.125))
    write_round(folder / "cpu", 2, esync_round(2, 7.5, iterations=1, exchange=0.375))

    assert summarize(tmp_path) == 0

    summary = read(tmp_path / "resnet18-v1/esync/ESync.json")
    assert list(summary) == ["cloud1"]
    assert list(summary["cloud1"]) == ["cpu", "gpu0"]
    gpu, cpu = summary["cloud1"]["gpu0"], summary["cloud1"]["cpu"]
    published = ("accuracy_list", "num_samples_list", "self_iters_list", "elapsed_time_list", "aggregate_time_list")
    assert [gpu[name] for name in published] == [[0.123, 0.568], [128, 192], [3, 4], [3, 7], [0.5, 0.25]]
    assert [cpu[name] for name in published] == [[], [64, 64], [2, 2], [4, 8], [0.125, 0.375]]
    # 42.6 MB for each push, as the published figures count
    assert (gpu["bytes_sent_list"], gpu["bytes_received_list"], gpu["bytes_estimated"]) == ([42_600_000] * 2, [], True)


def test_summarize_adds_lists_of_bytes_waits_and_transfers(tmp_path: Path) -> None:
    folder = tmp_path / "resnet18-v1/sync/h/gpu0"
    added = {"bytes_sent": 5, "bytes_received": 7, "transfer": 0.2}
    write_round(folder, 1, sync_round(1, 1.5, wait=0.25, **added))
    write_round(folder, 2, sync_round(2, 3.0, accuracy=0.79961, evaluation_time=0.4, **added))
    write_round(folder, 3, sync_round(3, 4.5, accuracy=0.9, wait=0.75, **added))
    (folder / "run.json").write_text(json.dumps({"batch_size": 64, "step_time": 1.0, "seed": 3, "overruns": 1}))

    assert summarize(tmp_path, mode="sync") == 0

    device = read(tmp_path / "resnet18-v1/sync/Sync.json")["h"]["gpu0"]
    assert device["accuracy_rounds"] == [2, 3]
    assert device["accuracy_list"] == [0.8, 0.9]
    assert device["accuracy_exact_list"] == [0.79961, 0.9]
    assert device["accuracy_time_list"] == [3.0, 4.5]
    assert device["evaluation_time_list"] == [0.4, None]
    assert device["bytes_sent_list"] == [5, 5, 5]
    assert device["bytes_received_list"] == [7, 7, 7]
    assert device["bytes_estimated"] is False
    assert device["wait_list"] == [0.25, None, 0.75]
    assert device["transfer_list"] == [0.2] * 3
    assert device["computing_time_list"] == [1.0] * 3
    assert (device["total_time"], device["iterations"], device["overruns"]) == (4.5, 3, 1)
    assert device["run"]["seed"] == 3


def test_summarize_with_broken_files_names_skips_and_counts_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mode_folder = tmp_path / "resnet18-v1/esync"
    gpu = mode_folder / "cloud1/gpu0"
    for number in (1, 2, 6, 9):
        write_round(gpu, number, esync_round(number, number * 2.0))
    write_round(gpu, 3, "")
    write_round(gpu, 4, json.dumps(esync_round(4, 8.0))[:50])
    write_round(gpu, 5, esync_round(55, 10.0))
    (gpu / "notes.txt").write_text("mine")
    write_round(gpu / "earlier-20240101T000000", 8, esync_round(8, 16.0))
    (gpu / ".lock").write_text("")
    (gpu / "run.json").write_text('{"batch_size": 0}')
    write_round(mode_folder / "cloud1/gpu1", 1, "{")
    write_round(mode_folder / "cloud1/gpu0.old", 1, esync_round(1, 2.0))
    write_round(mode_folder / "cpu", 1, esync_round(1, 2.0))  # no host

    report_path = tmp_path / "report.json"
    assert summarize(tmp_path, "--json", str(report_path)) == 0

    summary = read(mode_folder / "ESync.json")
    assert list(summary) == ["cloud1"]
    assert list(summary["cloud1"]) == ["gpu0"]
    assert summary["cloud1"]["gpu0"]["rounds_list"] == [1, 2, 6, 9]
    report = read(report_path)["modes"]["esync"]
    skipped = {str(Path(skip["path"]).relative_to(mode_folder)): skip["category"] for skip in report["skipped"]}
    assert skipped == {
        "cloud1/gpu0/iter-3.txt": "empty",
        "cloud1/gpu0/iter-4.txt": "truncated",
        "cloud1/gpu0/iter-5.txt": "foreign",
        "cloud1/gpu0/notes.txt": "foreign",
        "cloud1/gpu0/run.json": "foreign",
        "cloud1/gpu1/iter-1.txt": "truncated",
        "cloud1/gpu1": "missing",
        "cloud1/gpu0.old": "foreign",
        "cpu": "foreign",
    }
    assert (report["rounds_read"], report["rounds_missing"], report["files_skipped"]) == (4, 2, 9)
    assert report["warnings"] == ["cloud1/gpu0: iter-7.txt to iter-8.txt missing"]
    stderr = capsys.readouterr().err
    for name in skipped:
        assert str(mode_folder / name) in stderr
    assert "iter-7.txt to iter-8.txt missing" in stderr
    assert "9 skipped (1 empty, 5 foreign, 1 missing, 2 truncated)" in stderr


def test_summarize_with_many_broken_files_names_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "resnet18-v1/esync/h/cpu"
    write_round(folder, 1, esync_round(1, 1.0))
    for number in range(2, 40):
        write_round(folder, number, "")
    assert summarize(tmp_path, "--json", str(tmp_path / "r.json")) == 0
    stderr = capsys.readouterr().err
    assert stderr.count("skipped (empty)") == 20
    assert "… and 18 more" in stderr
    assert len(read(tmp_path / "r.json")["modes"]["esync"]["skipped"]) == 38


def test_summarize_with_rounds_of_two_runs_in_a_folder_reports_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "resnet18-v1/esync/h/cpu"
    for number, total in ((1, 5.0), (2, 10.0), (3, 7.0), (4, 9.0), (10, 20.0), (11, 21.0)):
        write_round(folder, number, esync_round(number, total))
    assert summarize(tmp_path) == 0
    assert read(folder.parents[1] / "ESync.json")["h"]["cpu"]["rounds_list"] == [1, 2, 3, 4, 10, 11]
    assert "falls from 10.0 s in round 2 to 7.0 s in round 3" in capsys.readouterr().err


def test_summarize_without_mode_takes_every_known_folder(tmp_path: Path) -> None:
    network = tmp_path / "lenet"
    for folder in ("esync", "dcasgd-niid", "local", "figures"):
        write_round(network / folder / "h/cpu", 1, sync_round(1, 1.0, ending="local update"))
    assert summarize(tmp_path, mode=None, network="lenet") == 0
    summaries = {str(path.relative_to(network)) for path in network.rglob("*.json")}
    assert summaries == {"esync/ESync.json", "dcasgd-niid/DCASGD-Non-IID.json", "local/Standalone.json"}


def test_summarize_of_logs_without_bytes_uses_the_model_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "alexnet/esync/h/cpu"
    summary = tmp_path / "alexnet/esync/ESync.json"
    write_round(folder, 1, esync_round(1, 1.0))

    assert summarize(tmp_path, network="alexnet") == 0
    assert "give --model-bytes" in capsys.readouterr().err
    assert read(summary)["h"]["cpu"]["bytes_sent_list"] == []

    assert summarize(tmp_path, "--model-bytes", "1000", network="alexnet") == 0
    device = read(summary)["h"]["cpu"]
    assert (device["bytes_sent_list"], device["bytes_estimated"]) == ([1000], True)

    (folder / "run.json").write_text(json.dumps({"model_bytes": MODEL_BYTES}))
    assert summarize(tmp_path, "--model-bytes", "1000", network="alexnet") == 0
    assert read(summary)["h"]["cpu"]["bytes_sent_list"] == [MODEL_BYTES]


def test_summarize_sorts_hosts_by_their_numbers(tmp_path: Path) -> None:
    write_run(tmp_path / "lenet/esync", {"h10/gpu1": 1.0, "h2/gpu0": 2.0}, 10.0)
    assert summarize(tmp_path, network="lenet") == 0
    assert list(read(tmp_path / "lenet/esync/ESync.json")) == ["h2", "h10"]


@pytest.mark.parametrize("make", [lambda base: None, lambda base: (base / "resnet18-v1/esync/h").mkdir(parents=True)])
def test_summarize_without_logs_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str], make) -> None:
    make(tmp_path)
    assert summarize(tmp_path) == 1
    assert f"nothing to summarize in {tmp_path}/resnet18-v1: expected esync/HOST/DEVICE" in capsys.readouterr().err


@pytest.mark.parametrize("program", [main, plot])
def test_log_tools_without_network_name_those_that_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], program: Callable[[list[str]], int]
) -> None:
    for network in ("train", "my nets"):
        write_run(tmp_path / network / "esync", {"h/cpu": 1.0}, 10.0)
    (tmp_path / "empty/esync/h/cpu").mkdir(parents=True)
    (tmp_path / "notes.txt").touch()
    assert program(["-b", str(tmp_path)]) == 1
    message = " ".join(capsys.readouterr().err.split())
    assert message.endswith(f"; {tmp_path} holds rounds of my nets, train: choose with -n, for instance -n 'my nets'")
    program(["-b", str(tmp_path), "-n", "train", *(["-m", "sync"] if program is main else [])])
    assert "choose with -n" not in capsys.readouterr().err


def test_summarize_without_logs_keeps_an_earlier_summary(tmp_path: Path) -> None:
    folder = tmp_path / "resnet18-v1/esync"
    write_round(folder / "h/cpu", 1, esync_round(1, 1.0))
    assert summarize(tmp_path) == 0
    before = (folder / "ESync.json").read_bytes()
    write_round(folder / "h/cpu", 1, "")
    assert summarize(tmp_path) == 1
    assert (folder / "ESync.json").read_bytes() == before


def test_summarize_with_bad_usage_exits_with_2(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["-b", str(tmp_path), "--model-bytes", "-3"])
    assert caught.value.code == 2


def test_summarize_with_unwritable_result_exits_with_1_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_round(tmp_path / "resnet18-v1/esync/h/cpu", 1, esync_round(1, 1.0))
    (tmp_path / "file").write_text("")
    assert summarize(tmp_path, "--json", str(tmp_path / "file/report.json")) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not list(tmp_path.rglob("*.part"))


def test_log_tools_started_as_files_use_their_own_checkout_and_no_mxnet(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for folder in ("logs_tools", "esync"):
        shutil.copytree(ROOT / folder, checkout / folder, ignore=shutil.ignore_patterns("__pycache__", "config.py"))
    defaults = (ROOT / "config.py").read_text() + '\nLOG_DIR = "of-this-checkout"\n'
    (checkout / "esync/config.py").write_text(defaults)
    (checkout / "mxnet.py").write_text("raise ImportError('the log tools must not import mxnet')\n")
    for start in ([str(checkout / "logs_tools/plot.py")], ["-m", "logs_tools.summarize"]):
        done = child.run(*start, "-n", "lenet", cwd=checkout)
        assert done.returncode == 1
        assert "of-this-checkout/lenet" in done.stderr
        assert "Traceback" not in done.stderr
