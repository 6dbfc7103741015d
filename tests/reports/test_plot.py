"""The program plot: from summaries to figures and tables."""

import json
import shutil
from pathlib import Path

import pytest
from log_trees import figures_below, plot_logs, speedups, summarize_logs, write_run
from matplotlib.colors import same_color, to_hex
from matplotlib.image import imread
from pydantic import ValidationError

from esync.algorithms.styles import SPARE_STYLES
from esync.reports import figures, style
from esync.reports.grouping import compare_singly
from esync.reports.metrics_table import RunFigures, run_figures
from esync.reports.modes import FOLDERS, mode_of
from esync.reports.plot import main
from esync.reports.runs import LoggedRun
from esync.reports.speedups import speedup
from esync.reports.summarize import main as summarize
from esync.reports.summary_file import DeviceSummary, RunInfo, SummaryError, load_summary
from esync.reports.tables import duration, runs_text
from tests.support.json_files import change_json, read_json

CLUSTER = {"cloud1/gpu0": 0.5, "cloud1/cpu": 2.0, "cloud3/gpu0": 0.4}


def device(**changes: object) -> DeviceSummary:
    """Two rounds, ten seconds; 100 samples, a 64-sample iteration stands for 0.5 s."""
    columns: dict = {
        "accuracy_list": [0.7, 0.8],
        "num_samples_list": [40, 60],
        "self_iters_list": [2, 2],
        "elapsed_time_list": [4, 10],
        "aggregate_time_list": [1.0, 2.0],
        "rounds_list": [1, 2],
        "accuracy_rounds": [1, 2],
        "accuracy_time_list": [4.2, 9.9],
        "accuracy_exact_list": [0.7004, 0.8],
        "computing_time_list": [2.0, 4.0],
        "bytes_sent_list": [100, 200],
        "bytes_received_list": [300, 400],
        "wait_list": [0.5, 1.5],
        "total_time": 10.0,
        "iterations": 200,
        "run": RunInfo(batch_size=64, step_time=0.5),
    }
    return DeviceSummary(**(columns | changes))


def figures_of(folder: str = "esync", target: float = 0.8, **changes: object) -> RunFigures:
    return run_figures(mode_of(folder), {"h": {"gpu0": device(**changes)}}, target)


def make(base: Path, modes: dict[str, dict], seconds: float = 60.0, network: str = "lenet") -> Path:
    """Write a run of each mode on the cluster, and summarize it; return the network's folder."""
    for mode, options in modes.items():
        devices = {"cloud1/gpu0": 0.5} if mode == "local" else CLUSTER
        write_run(base / network / mode, devices, seconds, **options)
    assert summarize_logs(base, network=network) == 0
    return base / network


def test_run_figures_equal_those_by_hand() -> None:
    other = device(
        accuracy_list=[],
        accuracy_rounds=[],
        accuracy_time_list=[],
        accuracy_exact_list=[],
        total_time=8.0,
        wait_list=[],
    )
    run = run_figures(mode_of("esync"), {"a": {"cpu": other}, "b": {"gpu0": device()}}, 0.8)
    assert run.total_time == 10.0
    assert run.throughput == 20.0  # 200 samples in 10 s
    assert run.speed_limit == 256.0  # 2 · 64 / 0.5
    assert run.efficiency == pytest.approx(0.078125)
    assert (run.bytes_sent, run.bytes_received, run.bytes_per_second) == (60.0, 140.0, 200.0)
    assert run.accuracy_device == "b gpu0"
    assert (run.time_to_target, run.final_accuracy) == (9.9, 0.8)
    cpu, gpu = run.devices
    assert (gpu.computing_ratio, gpu.published_computing_ratio) == (pytest.approx(0.6), pytest.approx(0.7))
    assert (cpu.computing_ratio, cpu.published_computing_ratio) == (pytest.approx(0.75), pytest.approx(0.625))
    assert (gpu.wait_mean, gpu.wait_max) == (1.0, 1.5)
    assert (cpu.wait_mean, cpu.wait_max) == (None, None)


def test_speedup_without_baseline_says_why() -> None:
    esync = figures_of()
    slow = figures_of("sync", accuracy_time_list=[20.0, 49.5])
    never = figures_of("sync", accuracy_exact_list=[0.1, 0.2])
    broken = figures_of("sync", overruns=3)
    assert speedup(esync, [esync, slow]).value == pytest.approx(5.0)
    assert speedup(slow, [esync, slow]).value == 1.0
    assert speedup(esync, [esync]).reason == "no SSGD run"
    assert speedup(esync, [esync, never]).reason == "SSGD not reached"
    assert speedup(never, [esync, never]).reason == "not reached"
    assert speedup(esync, [esync, broken]).reason == "SSGD invalid"
    assert speedup(broken, [esync, broken]).reason == "invalid"
    other_data = figures_of("esync-niid")
    assert speedup(other_data, [other_data, slow]).reason == "no SSGD run"


@pytest.mark.parametrize(("overruns", "invalid"), [(2, None), (3, "invalid: overruns 1.5 %")])
def test_run_above_one_percent_of_overruns_is_invalid(overruns: int, invalid: str | None) -> None:
    run = figures_of(overruns=overruns)  # of 200 iterations
    assert run.invalid == invalid
    logged = LoggedRun(Path("esync"), mode_of("esync"), {"h": {"gpu0": device(overruns=overruns)}})
    assert ("(10.0)" in runs_text(compare_singly("lenet", [logged]))) is (invalid is not None)


def test_overruns_are_counted_among_padded_iterations_only() -> None:
    real = device(iterations=100_000, run=RunInfo(batch_size=64))
    run = run_figures(mode_of("esync"), {"h": {"cpu": device(overruns=10), "gpu0": real}}, 0.8)
    assert run.invalid == "invalid: overruns 5.0 %"
    assert run.efficiency is None  # the speed of one device is not known


@pytest.mark.usefixtures("pictures")
def test_plot_writes_all_five_figures_and_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    modes = {
        "esync": {"final_accuracy": 0.95, "half_time": 4.0},
        "sync": {"final_accuracy": 0.9, "half_time": 12.0},
        "async": {"half_time": 6.0},
        "dcasgd": {"half_time": 5.0, "overruns": 50},
        "esync-niid": {"final_accuracy": 0.7},
        "local": {"final_accuracy": 0.97, "half_time": 2.0},
    }
    folder = make(tmp_path, modes)
    (folder / "async/cloud1/cpu/iter-3.txt").unlink()
    report = tmp_path / "report.json"
    assert plot_logs(tmp_path, "--json", str(report)) == 0

    names = ("accuracy-iid", "accuracy-non-iid", "throughput", "traffic", "computing-time-ratio")
    out = folder / "figures"
    assert {path.name for path in out.iterdir()} == {
        *(f"{name}.{suffix}" for name in names for suffix in ("png", "pdf")),
        "speedup.txt",
        "speedup.json",
    }
    for name in names:
        assert imread(out / f"{name}.png").std() > 0.05  # something is drawn
        assert (out / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    output = capsys.readouterr().out
    assert (out / "speedup.txt").read_text() in output
    runs = read_json(out / "speedup.json")["runs"]
    assert list(runs) == ["ESync", "Sync", "Async", "DCASGD", "ESync-Non-IID", "Standalone"]
    assert runs["ESync"]["speedup"] == pytest.approx(runs["Sync"]["time_to_target"] / runs["ESync"]["time_to_target"])
    assert runs["Sync"]["speedup"] == 1.0
    assert (runs["DCASGD"]["valid"], runs["DCASGD"]["speedup"]) == (False, None)
    assert runs["ESync-Non-IID"]["time_to_target"] is None
    assert "not reached" in output
    assert "1 rounds missing from the logs" in output
    ratio = runs["Standalone"]["time_to_target"] / runs["ESync"]["time_to_target"]
    assert runs["ESync"]["standalone_speedup"] == pytest.approx(ratio)
    assert runs["ESync"]["standalone_speedup_limit"] == pytest.approx(320 / 128)  # samples per second
    assert "over Standalone" in output
    assert f"{ratio:.2f}× " in output
    # 25 rounds of 2.4 s; 4 · 64 + 64 + 5 · 64 samples each
    assert runs["ESync"]["throughput"] == pytest.approx(640 / 2.4)
    content = read_json(report)
    assert sorted(Path(path).stem for path in content["figures"]) == sorted(2 * names)


@pytest.mark.usefixtures("pictures")
@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_figure_that_is_saved_again_has_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    contents = set()
    for number in range(2):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", str(number))  # the time, for Matplotlib
        path = tmp_path / f"{number}.{suffix}"
        figures.save_as(figures.throughput("lenet", [figures_of()]), path)
        contents.add(path.read_bytes())
    assert len(contents) == 1


def test_plot_of_published_logs_draws_estimated_traffic(tmp_path: Path) -> None:
    plain = {"published": True}
    folder = make(tmp_path, {"esync": plain, "sync": plain, "async": plain}, network="resnet18-v1")
    assert plot_logs(tmp_path, network="resnet18-v1") == 0
    runs = speedups(folder)["runs"]
    # rounds · workers · 42.6 MB / total time; a round takes 2.4 s
    assert runs["ESync"]["bytes_per_second"] == pytest.approx(3 * 42.6e6 / 2.4)
    # iterations · 42.6 MB / total time: 66 of 0.9 s, 25 of 2.4 s, 75 of 0.8 s
    assert runs["Async"]["bytes_per_second"] == pytest.approx(166 * 42.6e6 / 60.0)
    for run in runs.values():
        assert (run["bytes_estimated"], run["bytes_received_per_second"], run["efficiency"]) == (True, None, None)
        assert run["accuracy_device"] == "cloud1 gpu0"
    assert "traffic estimated, push only" in (folder / "figures/speedup.txt").read_text()


def test_plot_reads_a_summary_of_the_published_tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = {
        "num_samples_list": [64, 64],
        "self_iters_list": [1, 1],
        "elapsed_time_list": [2, 4],
        "aggregate_time_list": [1.0, 1.0],
    }
    summary = {"cloud1": {"gpu0": {"accuracy_list": [0.5, 0.8], **columns}, "cpu": {"accuracy_list": [], **columns}}}
    path = tmp_path / "resnet18-v1/sync/Sync.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(summary))

    read = load_summary(path)["cloud1"]["gpu0"]
    assert (read.accuracy_rounds, read.accuracy_time_list, read.total_time) == ([1, 2], [2.0, 4.0], 4.0)
    assert plot_logs(tmp_path, network="resnet18-v1") == 0
    run = speedups(path.parents[1])["runs"]["Sync"]
    assert (run["time_to_target"], run["throughput"]) == (4.0, 64.0)
    assert run["bytes_per_second"] == pytest.approx(4 * 42.6e6 / 4)
    assert [d["computing_ratio"] for d in run["devices"]] == [None, None]
    assert [d["published_computing_ratio"] for d in run["devices"]] == [0.5, 0.5]

    summary["cloud1"]["gpu0"]["accuracy_list"] = [0.8]  # of which round?
    path.write_text(json.dumps(summary))
    capsys.readouterr()
    assert plot_logs(tmp_path, network="resnet18-v1") == 0
    assert "the accuracies of gpu0" in capsys.readouterr().err


def test_plot_with_unusable_summaries_names_them_and_leaves_them_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make(tmp_path, {"esync": {}, "sync": {}, "async": {}, "dcasgd": {}})
    for mode in ("sync", "async"):
        shutil.rmtree(folder / mode / "cloud1")
        shutil.rmtree(folder / mode / "cloud3")
    (folder / "sync/Sync.json").write_text('{"h": {"cpu": {"accuracy_list": [1, 2')
    broken = read_json(folder / "async/Async.json")
    broken["cloud1"]["cpu"]["num_samples_list"].pop()
    (folder / "async/Async.json").write_text(json.dumps(broken))
    (folder / "dcasgd/DCASGD.json").unlink()
    capsys.readouterr()
    assert plot_logs(tmp_path) == 0
    stderr = capsys.readouterr().err
    assert f"left out: {folder}/sync: there is no run in it" in stderr
    assert "cloud1 → cpu: Value error, num_samples_list has" in stderr
    assert "run summarize again" in stderr
    runs = speedups(folder)["runs"]
    assert list(runs) == ["ESync", "DCASGD"]  # whose rounds are there


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((field, 1e308) for field in ("wait_list", "total_time", "accuracy_exact_list")),
        *((field, 10**300) for field in ("num_samples_list", "overruns")),
        ("computing_time_list", -1.0),
    ],
)
def test_summary_with_impossible_numbers_is_refused_by_name(tmp_path: Path, field: str, value: float) -> None:
    content = device().model_dump(mode="json")
    content[field] = [value] * 2 if isinstance(content[field], list) else value
    path = tmp_path / "ESync.json"
    path.write_text(json.dumps({"cloud1": {"gpu0": content}}))
    with pytest.raises(SummaryError, match=f"is not a summary: cloud1 → gpu0 → {field}"):
        load_summary(path)


@pytest.mark.usefixtures("pictures")
@pytest.mark.parametrize(
    "changes", [{"total_time": 5e-324}, {"total_time": 1e15, "wait": 1e15, "num_samples": 10**15, "bytes_sent": 10**15}]
)
def test_plot_with_extreme_numbers_draws_them(tmp_path: Path, changes: dict) -> None:
    """A quotient by almost no time is unknown; everything else fits on an axis."""
    folder = make(tmp_path, {"esync": {}})
    for path in (folder / "esync/cloud1/cpu").glob("iter-*.txt"):
        change_json(path, **changes)
    shutil.rmtree(folder / "esync/cloud1/gpu0")
    shutil.rmtree(folder / "esync/cloud3")
    for program in (summarize, main):
        assert program(["-b", str(tmp_path), "-n", "lenet", "--json", str(tmp_path / "all.json")]) == 0


@pytest.mark.parametrize(("field", "value"), [("batch_size", 10**300), ("step_time", 5e-324), ("overruns", 10**400)])
def test_run_json_with_impossible_numbers_is_refused(field: str, value: float) -> None:
    with pytest.raises(ValidationError, match=field):
        RunInfo.model_validate({field: value})


def test_plot_without_runs_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plot_logs(tmp_path) == 1
    assert "nothing to draw: no run in" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_plot_with_impossible_target_accuracy_exits_with_2(tmp_path: Path, capsys) -> None:
    folder = make(tmp_path, {"esync": {}})
    for target in ("0", "80"):
        assert plot_logs(tmp_path, "--target", target) == 2
        assert f"--target {target}: expected an accuracy above 0 and up to 1" in capsys.readouterr().err
    assert not (folder / "figures").exists()


def test_accuracy_figure_draws_every_evaluation_as_logged() -> None:
    run, standalone = figures_of(), figures_of("local")
    axes = figures.accuracy("lenet", [run], standalone, 0.8).axes[0]
    curve, alone, final, target = axes.get_lines()
    for line in (curve, alone):
        assert line.get_xydata().tolist() == [[4.2, 0.7004], [9.9, 0.8]]
    assert (curve.get_label(), alone.get_label()) == ("ESync", "Standalone")
    assert set(final.get_ydata()) == {0.8}
    assert final.get_label() == "Standalone, final (0.800)"
    assert set(target.get_ydata()) == {0.8}
    assert axes.get_xlabel() == "Time (seconds)"


def test_throughput_and_traffic_figures_mark_invalid_runs() -> None:
    runs = [figures_of(), figures_of("sync", overruns=3), figures_of("sync-niid")]
    bars = figures.throughput("lenet", runs).axes[0].patches
    assert [bar.get_height() for bar in bars] == [10.0, 10.0, 10.0]
    assert [to_hex(bar.get_facecolor()) for bar in bars] == [
        to_hex(mode_of("esync").style.color),
        style.INVALID,
        to_hex(mode_of("sync").style.color),
    ]
    stacked = figures.traffic("lenet", runs[:1]).axes[0].patches
    assert [bar.get_height() for bar in stacked] == [30 / 1e6, 70 / 1e6]
    texts = [text.get_text() for text in figures.traffic("lenet", runs).axes[0].texts]
    assert texts == ["0.0", "(0.0)\ninvalid:\noverruns 1.5 %", "0.0"]


def test_computing_ratio_figure_shows_each_device_of_each_run() -> None:
    wide = {f"h{host}": {f"gpu{gpu}": device() for gpu in range(4)} for host in range(3)}
    runs = [run_figures(mode_of("esync"), wide, 0.8), figures_of("sync")]
    twelve, one = figures.computing_ratio("lenet", runs).axes
    assert [bar.get_width() for bar in twelve.patches] == [pytest.approx(0.6)] * 12
    assert [line.get_xdata()[0] for line in twelve.get_lines()] == [pytest.approx(0.7)] * 12
    assert len(one.patches) == 1
    labels = [label.get_text() for label in twelve.get_yticklabels()]
    assert labels[:5] == ["h0 gpu0", "h0 gpu1", "h0 gpu2", "h0 gpu3", "h1 gpu0"]
    assert len(labels) == 13  # the last is the other cluster's


def test_styles_of_built_in_algorithms_differ() -> None:
    styles = {mode_of(folder).name: mode_of(folder).style for folder in FOLDERS}
    for part in ("line", "marker"):
        assert len({getattr(line_style, part) for line_style in styles.values()}) == len(styles)
    colours = [*(line_style.color for line_style in (*styles.values(), *SPARE_STYLES)), style.INVALID]
    assert not any(same_color(a, b) for i, a in enumerate(colours) for b in colours[:i])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(48.25, "48.2 s"), (119.99, "120.0 s"), (725.4, "12 min 05 s"), (7379.0, "2 h 03 min"), (3599.6, "60 min 00 s")],
)
def test_duration_is_formatted_by_its_size(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_named_runs_stand_beside_the_others(tmp_path: Path) -> None:
    for folder, seconds in (("sync", 1.0), ("sync@b", 1.0), ("esync", 0.5), ("esync@a", 0.5), ("esync@b", 0.5)):
        write_run(tmp_path / "lenet" / folder, {"h/gpu0": seconds, "h/cpu": 1.5}, 400)
    assert summarize_logs(tmp_path) == 0
    assert plot_logs(tmp_path) == 0
    table = (tmp_path / "lenet/figures/speedup.txt").read_text()
    for label in ("SSGD ", "SSGD, b", "ESync ", "ESync, a", "ESync, b"):
        assert f"| {label}" in table
    runs = figures_below(tmp_path / "lenet")
    assert len({run.mode.style.color for run in runs}) == 5
    bars = figures.throughput("lenet", runs).axes[0].patches
    assert len({bar.get_x() for bar in bars}) == 5
