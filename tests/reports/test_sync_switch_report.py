"""The report on Sync-Switch runs, published ones and this package's."""

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from esync.reports.sync_switch.rows import UnusableRunError, read_rows
from esync.reports.sync_switch.settings import SETUPS, Setting, corrected, published_setting
from esync.reports.sync_switch_report import main
from tests.support.json_files import read_json

PUBLISHED = Path(__file__).parents[3] / "shared/data/sync-switch"
START = 1_600_000_000.0  # seconds since 1970, of every run below


def write(path: Path, heading: str, *rows: str, end: str = "\r\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(end.join([heading, *rows]).encode())


def job(kind: str, start: float, end: float, steps: int) -> str:
    def when(seconds: float) -> str:
        return datetime.fromtimestamp(START + seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")

    return (
        f"Job name: crashed, SGD: {kind}\nStarted training at:    {when(start - 9000)}\n"
        f"Job name: x, SGD: {kind}\nStarted training at:    {when(start)}\n"
        f"Ended training at:    {when(end)}, {steps} steps\nFinal loss:    0.25"
    )


def published(base: Path) -> Path:
    """Write one run each of BSP and 12.5 %, in the CIFAR-100 setup.

    They have the oddities of the real ones.
    """
    folder = base / "cifar100_res50"
    write(folder / "bsp_1/acc.csv", "Wall time,Step,Value,", f"{START + 20},0,0.01,", f"{START + 900},16000,0.75,")
    write(folder / "bsp_1/loss.csv", "Step,Value,Wall time", f"1,6.9,{START}", f"15901,0.01,{START + 980}", end="\n")
    heading, filler = "Wall time,Raw Time,Step,Value,Time", [",,,,"] * 3
    rows = [f"{START},0,1,6.9,0", f"{START + 980},980,15901,0.01,980", f"{START + 1000},1000,16000,0.01,1000"]
    write(folder / "bsp_1/loss_proc.csv", heading, *rows, *filler)
    again = folder / "12_88_1"
    write(again / "acc.csv", "Wall time,Step,Value", f"{START + 1000.5},500,0.5", f"{START + 1600},114014,0.74", "")
    rows = [f"{START + 10},1,8.0", f"{START + 1050},2101,4.0", f"{START + 1590},113964,0.2"]
    write(again / "loss.csv", "Wall time,Step,Value", *rows)
    (base / "bsp_job.txt").write_text(job("BSP", 5, 200, 2000))
    (base / "asp_job.txt").write_text(job("ASP", 1030, 1600, 114014) + job("ASP", 90_000, 91_000, 128_014))
    return base


def reported(folder: Path, *words: str) -> list[dict]:
    """The groups in the report on a folder; its figures are in f."""
    assert main([str(folder), "--json", str(folder / "r.json"), "--out", str(folder / "f"), *words]) == 0
    return read_json(folder / "r.json")["groups"]


def test_sync_switch_report_reads_published_folders(tmp_path, capsys):
    bsp, switched = reported(published(tmp_path))
    out, err = capsys.readouterr()
    assert "B12.5-A87.5" in out
    assert "no loss_proc.csv; its time is from the job log" in err
    assert (bsp["time"], bsp["span"], bsp["accuracy"]) == (1000, 980, 0.75)
    # From the first row (10) to the job's end (1600), without what lay between the first segment's
    # end (200) and the first row after the second one's start (1050).
    assert switched["time"] == 1600 - 10 - (1050 - 200)
    assert switched["gap"] == 1030 - 200
    assert switched["speedup"] == pytest.approx(1000 / 740)
    assert switched["speedup_with_gap"] == pytest.approx(1000 / 1570)
    assert switched["relative_time"] == pytest.approx(0.74)
    names = {path.name for path in (tmp_path / "f").iterdir()}
    assert names == {f"sync-switch-{what}.{kind}" for what in ("accuracy", "time") for kind in ("png", "pdf")}


def test_sync_switch_report_names_what_it_leaves_out(tmp_path, capsys):
    write(tmp_path / "baseline/bsp_1/acc.csv", "Wall time,Step,Value", "1,1,0.5")
    write(tmp_path / "baseline/bsp_1/loss.csv", "Wall time,Step,Value", "1,1,0.5")
    write(tmp_path / "other/x/run_eval-tag-accuracy.csv", "Wall time,Step,Value", "1,1,0.5")
    write(tmp_path / "cifar100_res50/asp_1/acc.csv", "Wall time,Step", "1,1")
    write(tmp_path / "cifar100_res50/asp_1/loss.csv", "Wall time,Step,Value", "1,1,0.5")
    assert main([str(tmp_path), "--no-figures"]) == 1
    err = capsys.readouterr().err
    assert "half as fast" in err
    assert "no acc.csv and loss.csv in it, but run_eval-tag-accuracy.csv" in err
    assert "acc.csv: no column Value in its first line" in err
    assert "no run in" in err


def test_sync_switch_report_of_missing_folder_exits_with_1(tmp_path, capsys):
    assert main([str(tmp_path / "no")]) == 1
    assert "no such folder" in capsys.readouterr().err


def write_own_run(folder: Path, accuracy: str, loss: str, seconds: float, **facts: object) -> None:
    write(folder / "acc.csv", "Wall time,Time,Step,Value", f"{START},0,1,0.1", f"{START + 5},5,9,{accuracy}", end="\n")
    write(folder / "loss.csv", "Wall time,Time,Step,Value", f"{START},0,1,2.3", f"{START},{seconds},9,{loss}", end="\n")
    info = {"mode": "sync-switch", "network": "lenet", "dataset": "fashion-mnist", "workers": 8, **facts}
    (folder / "run.json").write_text(json.dumps(info))


def test_sync_switch_report_reads_own_runs_diverged_and_with_stragglers(tmp_path, capsys):
    write_own_run(tmp_path / "a/cpu", "0.9", "0.1", 80.0, switch_order="1", bsp_share=1.0)
    write_own_run(tmp_path / "b/cpu", "0.8", "0.2", 40.0, switch_order="10", bsp_share=0.0625)
    write_own_run(tmp_path / "d/cpu", "0.8", "0.2", 40.0, switch_order="10", bsp_share=0.75, bsp_share_done=0.5)
    write_own_run(tmp_path / "c/cpu", "0.8", "nan", 40.0, switch_order="10", bsp_share=0.0625)
    for policy, seconds in (("none", 100.0), ("elastic", 50.0)):
        facts = {"switch_order": "10", "bsp_share": 0.5, "stragglers": "2 workers 4 times", "online_policy": policy}
        write_own_run(tmp_path / policy / "cpu", "0.9", "0.1", seconds, **facts)
    groups = {group["setting"]: group for group in reported(tmp_path)}
    switched = groups["B6.25-A93.75"]
    assert (switched["accuracy"], switched["diverged"], switched["speedup"]) == (0.4, 1, 2.0)
    assert groups["elastic (2 workers 4 times)"]["relative_time"] == 0.5
    captured = capsys.readouterr()
    assert "B6.25-A93.75, 1 diverged" in captured.out
    assert "75.00% of the samples were planned as BSP, 50.00% were trained so" in captured.out + captured.err
    assert (tmp_path / "f/sync-switch-time-stragglers.pdf").exists()


@pytest.mark.parametrize(
    ("accuracy", "seconds", "facts"),
    [
        ("1e308", 40.0, {}),
        ("0.8", float("nan"), {}),
        ("-1", 40.0, {}),
        ("0.8", 40.0, {"bsp_share": 1e308}),
        ("0.8", 40.0, {"bsp_share_done": float("inf")}),
        ("0.8", 40.0, {"workers": float("inf")}),
    ],
)
def test_sync_switch_report_leaves_out_runs_with_impossible_numbers_by_name(tmp_path, capsys, accuracy, seconds, facts):
    write_own_run(tmp_path / "a/cpu", "0.9", "0.1", 80.0, switch_order="1", bsp_share=1.0)
    write_own_run(tmp_path / "b/cpu", accuracy, "0.2", seconds, **{"switch_order": "10", "bsp_share": 0.5, **facts})
    assert len(reported(tmp_path)) == 1
    captured = capsys.readouterr()
    assert str(tmp_path / "b/cpu") in captured.out + captured.err


@pytest.mark.parametrize(
    ("folder", "name", "order", "share"),
    [
        ("switch_exp", "b50-a50", "10", 0.5),
        ("switch_exp", "b50_a50_run5", "10", 0.5),
        ("switch_exp", "a75-b25-run3", "01", 0.25),
        ("cifar100_res50", "6_94_2", "10", 0.06),
        ("cifar100_res50", "asp_3", "0", 0.0),
        ("cluster_16", "5050_run1", "10", 0.5),
    ],
)
def test_published_setting_is_read_from_the_folder_name(folder, name, order, share):
    assert published_setting(folder, name) == Setting(order, share)


def test_published_setting_with_stragglers_is_read_from_the_folder_name():
    setting = published_setting("straggler", "policy2_freq4_2straggler_30ms_run1")
    assert setting is not None
    assert setting.label == "elastic (2 workers 4 times 30 ms)"
    assert published_setting("straggler", "hybrid_baseline__1") is None


@pytest.mark.parametrize(
    ("folder", "name", "last", "share", "corrects"),
    [
        ("switch_exp", "b15-a85-run4", 50_014, 0.25, True),
        ("switch_exp", "a50-b50-run2", 50_000, 0.25, True),
        ("switch_exp", "b5-a95-run1", 61_213, 0.05, False),
        ("cifar100_res50", "12_88_1", 114_013, 0.125, False),
        ("cluster_16", "5050_run1", 34_029, 0.5, False),
    ],
)
def test_corrected_setting_has_the_share_that_the_last_step_tells(folder, name, last, share, corrects):
    setting = published_setting(folder, name)
    assert setting is not None
    real, remark = corrected(setting, SETUPS[folder], last)
    assert real.share == pytest.approx(share)
    assert bool(remark) == corrects


def test_read_rows_with_broken_row_names_the_line(tmp_path):
    write(tmp_path / "x.csv", "Wall time,Step,Value", "1,1,0.5", "1,two,0.5")
    with pytest.raises(UnusableRunError, match=r"x.csv, line 3: '1,two,0.5' should hold numbers"):
        read_rows(tmp_path / "x.csv")


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published measurements are not beside this checkout")
def test_sync_switch_report_of_published_measurements_gives_the_papers_table(capsys):
    assert main([str(PUBLISHED), "--no-figures"]) == 0
    table = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("|")
    }
    bsp_row = ["5", "0.746240 ± 0.004548", "0.7467", "11288.2 ± 24.8", "1.0000", "1.00", "1.00", "11211.1"]
    assert table["BSP"][:8] == bsp_row
    assert table["ASP"][1:6] == ["0.708500 ± 0.027140", "0.7095", "6070.0 ± 34.8", "0.5377", "1.86"]
    assert table["B6.25-A93.75"][1:6] == ["0.732460 ± 0.007734", "0.7333", "6426.6 ± 36.2", "0.5693", "1.76"]
    assert table["B12.5-A87.5"][:8] == [
        "5",
        "0.746000 ± 0.007883",
        "0.7471",
        "6789.7 ± 4.5",
        "0.6015",
        "1.66",
        "1.62",
        "6974.5",
    ]
    assert table["B25-A75"][1:6] == ["0.750540 ± 0.003072", "0.7523", "7294.2 ± 6.1", "0.6462", "1.55"]
    assert table["B50-A50"][1:6] == ["0.742520 ± 0.003101", "0.7446", "8511.7 ± 6.4", "0.7540", "1.33"]
    spans = [table[name][7] for name in ("ASP", "B6.25-A93.75", "B25-A75", "B50-A50")]
    assert spans == ["6060.1", "6608.7", "7479.5", "8693.4"]
    assert {cells[8] for cells in table.values() if len(cells) > 8} >= {"0.7362"}  # 0.74624 − 0.01
    assert table["ASP"][9] == "–"
    assert table["B25-A75"][9] == "4582.7 ± 6.4"
    assert table["B6.25-A93.75"][9] == "4490.3 ± 591.0 (2 of 5)"


def curve(folder: Path, *points: tuple[float, float], **facts: object) -> None:
    """Write a run with these pairs of seconds and accuracy."""
    write_own_run(folder, "0.9", "0.1", points[-1][0], **{"switch_order": "10", "bsp_share": 0.5, **facts})
    rows = [f"{START + at},{at},{step},{accuracy}" for step, (at, accuracy) in enumerate(points)]
    write(folder / "acc.csv", "Wall time,Time,Step,Value", *rows, end="\n")


def groups_of(tmp_path: Path, *words: str) -> dict[str, dict]:
    return {group["setting"]: group for group in reported(tmp_path / "runs", "--no-figures", *words)}


def test_sync_switch_report_takes_the_time_to_bsps_accuracy_less_beta(tmp_path, capsys):
    runs = tmp_path / "runs"
    curve(runs / "bsp", (10, 0.5), (20, 0.795), (30, 0.8), (90, 0.8), switch_order="1", bsp_share=1.0)
    curve(runs / "a", (10, 0.6), (12, 0.79), (20, 0.7), (40, 0.81))
    curve(runs / "b", (10, 0.6), (16, 0.81), (40, 0.78))
    curve(runs / "c", (10, 0.6), (40, 0.78))
    groups = groups_of(tmp_path)
    assert groups["BSP"]["target"] == pytest.approx(0.79)
    assert groups["BSP"]["time_to_target"] == 20  # the first evaluation with it, whatever comes after
    switched = groups["B50-A50"]
    assert [run["time_to_target"] for run in switched["runs"]] == [12, 16, None]
    assert (switched["reached_target"], switched["time_to_target"], switched["time_to_target_deviation"]) == (2, 14, 2)
    assert "14.0 ± 2.0 (2 of 3)" in capsys.readouterr().out
    assert groups_of(tmp_path, "--beta", "0.3")["B50-A50"]["time_to_target"] == 10
    assert groups_of(tmp_path, "--target", "0.805")["BSP"]["time_to_target"] is None


def test_sync_switch_report_without_bsp_takes_the_time_to_a_given_accuracy_only(tmp_path, capsys):
    curve(tmp_path / "runs/a", (10, 0.6), (40, 0.8))
    assert groups_of(tmp_path)["B50-A50"]["target"] is None
    assert groups_of(tmp_path, "--target", "0.7")["B50-A50"]["time_to_target"] == 40
    capsys.readouterr()
    for words in (["--target", "70"], ["--beta", "x"], ["--target", "0.7", "--beta", "0.1"]):
        with pytest.raises(SystemExit) as end:
            main([str(tmp_path / "runs"), *words])
        assert end.value.code == 2
    assert "'70' should be a number from 0 to 1" in capsys.readouterr().err


def test_sync_switch_report_of_a_diverged_run_has_no_time_to_accuracy(tmp_path):
    folder = tmp_path / "runs/a"
    curve(folder, (10, 0.6), (40, 0.8))
    own_loss = f"{START},0,1,2.3", f"{START},40,9,nan"
    write(folder / "loss.csv", "Wall time,Time,Step,Value", *own_loss, end="\n")
    assert groups_of(tmp_path, "--target", "0.5")["B50-A50"]["time_to_target"] is None


def test_sync_switch_report_of_published_run_leaves_the_gap_out_of_the_time_to_accuracy(tmp_path, capsys):
    """Without acc_proc.csv, the job log tells the gap: from 200 to 1030, with the first loss at 1050."""
    published(tmp_path / "runs")
    groups = groups_of(tmp_path, "--target", "0.74")
    assert groups["B12.5-A87.5"]["time_to_target"] == 1600 - 10 - (1050 - 200)
    processed = tmp_path / "runs/cifar100_res50/12_88_1/acc_proc.csv"
    write(processed, "Wall time,Time,Step,Value", f"{START + 30},0,0,0.1", f"{START + 1600},700,114014,0.74")
    assert groups_of(tmp_path, "--target", "0.74")["B12.5-A87.5"]["time_to_target"] == 30 - 10 + 700


def test_sync_switch_report_distinguishes_what_became_of_the_momentum(tmp_path):
    runs = tmp_path / "runs"
    curve(runs / "a", (10, 0.8), switch_momentum="zero")
    curve(runs / "b", (10, 0.8), switch_momentum="keep")
    curve(runs / "c", (10, 0.8))  # of an earlier version
    curve(runs / "d", (10, 0.8), bsp_share=1.0, switch_momentum="zero")  # nothing is switched
    groups = groups_of(tmp_path)
    assert {name: len(group["runs"]) for name, group in groups.items()} == {
        "BSP": 1,
        "B50-A50": 2,
        "B50-A50, momentum zero": 1,
    }


def test_sync_switch_report_takes_the_last_evaluation_for_the_end_of_a_run(tmp_path):
    """Rank 0 does not log the loss of every batch, and others go on after its last one."""
    folder = tmp_path / "runs/a"
    curve(folder, (10, 0.6), (40, 0.8))
    write(folder / "loss.csv", "Wall time,Time,Step,Value", f"{START},0,1,2.3", f"{START},37,9,0.1", end="\n")
    assert groups_of(tmp_path)["B50-A50"]["time"] == 40


def test_sync_switch_report_reads_a_share_of_1_or_0_as_one_segment(tmp_path):
    """Some versions wrote the order as it was given, whatever the share."""
    runs = tmp_path / "runs"
    curve(runs / "a", (10, 0.8), bsp_share=1.0)
    curve(runs / "b", (10, 0.8), bsp_share=0.0)
    assert set(groups_of(tmp_path)) == {"BSP", "ASP"}
