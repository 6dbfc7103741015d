"""Traces of runs, read back by the rules of the Trace Event Format."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from log_trees import esync_round, sync_round, write_round, write_run

from esync.reports import report
from esync.reports.job_events import OUTCOME_FILE
from esync.reports.runs import load_run
from esync.reports.trace import LATEST_START, trace_events, write_trace
from esync.simulate.network import Link
from tests.simulate.modelling import cluster, simulate
from tests.support.json_files import read_json
from tests.support.trace_reader import Trace, read_trace, understood


def trace_of(folder: Path) -> Trace:
    path = folder.parent / "trace.json"
    write_trace([load_run(folder)], path)
    return read_trace(path)


def logged(device: Path) -> list[dict[str, Any]]:
    """The rounds of a device as they are in its log."""
    count = len(list(device.glob("iter-*.txt")))
    return [read_json(device / f"iter-{number}.txt") for number in range(1, count + 1)]


def change_facts(device: Path, **facts: Any) -> None:
    path = device / "run.json"
    path.write_text(json.dumps((read_json(path) if path.exists() else {}) | facts))


def test_trace_of_a_simulated_run_has_the_rounds_of_the_log_with_their_phases(tmp_path):
    folder = tmp_path / "lenet/esync"
    simulate(cluster(0.1, 0.3, 1.0, link=Link(125e6)), "--mode=esync", "--network=lenet", rounds=6, log_dir=folder)
    trace = trace_of(folder)
    assert trace.processes == ["w0", "w1", "w2"]
    for host in trace.processes:
        track, rounds = f"{host}/cpu", logged(folder / host / "cpu")
        outer = [span for span in trace.slices[track] if span.depth == 0]
        assert [span.name for span in outer] == [f"round {number}" for number in range(1, 7)]
        assert [span.end / 1e6 for span in outer] == pytest.approx([entry["total_time"] for entry in rounds], abs=0.001)
        assert [span.args["samples"] for span in outer] == [entry["num_samples"] for entry in rounds]
        phases = [phases for entry in rounds for phases in entry["time"].values()]
        computing = sum(times.get("forward and backward", 0) + times.get("local update", 0) for times in phases)
        assert trace.seconds(track, "computing") == pytest.approx(computing, rel=0.01)
        assert trace.seconds(track, "waiting") == pytest.approx(sum(entry["wait"] for entry in rounds), abs=0.01)
        transfers = sum(entry["transfer"] for entry in rounds)
        assert trace.seconds(track, "transferring") == pytest.approx(transfers, abs=0.01)
        speeds = trace.counters[host, "cpu"]
        assert speeds[-1][1] == {"samples/s": 0}
        first = rounds[0]
        assert speeds[0][1]["samples/s"] == pytest.approx(first["num_samples"] / first["total_time"], rel=0.01)
        sent = trace.counters[host, "cpu bytes/s"][0][1]
        assert sent["sent"] == pytest.approx(first["bytes_sent"] / first["total_time"], rel=0.01)


def test_arrows_lead_from_the_last_device_of_a_round_to_those_that_waited_for_it(tmp_path):
    folder = tmp_path / "lenet/sync"
    write_run(folder, {"one/gpu0": 1.0, "one/gpu1": 2.0, "two/cpu": 3.0}, 20)
    trace = trace_of(folder)
    (starts, ends) = zip(*trace.arrows, strict=True)
    assert {track for track, _ in starts} == {"two/cpu"}
    assert Counter(track for track, _ in ends) == {"one/gpu0": 5, "one/gpu1": 5}
    assert {span.name for _, span in ends} == {"transferring"}


def test_trace_of_an_asynchronous_run_has_exchanges_and_no_arrows(tmp_path):
    folder = tmp_path / "lenet/async"
    simulate(cluster(0.1, 0.4, link=Link(125e5)), "--mode=async", "--network=lenet", rounds=6, log_dir=folder)
    trace = trace_of(folder)
    outer = [span for span in trace.slices["w1/cpu"] if span.depth == 0]
    rounds = logged(folder / "w1/cpu")
    assert [span.name for span in outer] == [f"exchange {number + 1}" for number in range(len(rounds))]
    assert [span.args["round of the run"] for span in outer] == [entry["round"] for entry in rounds]
    assert trace.arrows == []
    assert trace.seconds("w1/cpu", "waiting") == 0
    assert trace.seconds("w1/cpu", "transferring") > 0


def test_trace_of_published_logs_does_not_tell_waits_and_bytes_that_they_lack(tmp_path):
    folder = tmp_path / "resnet18-v1/sync"
    write_run(folder, {"one/gpu0": 1.0, "two/cpu": 3.0}, 20, published=True)
    trace = trace_of(folder)
    for track in ("one/gpu0", "two/cpu"):
        assert {span.name for span in trace.slices[track] if span.depth} == {"computing", "waiting and transferring"}
    assert trace.arrows == []
    assert not [name for _, name in trace.counters if "bytes" in name]


def test_trace_of_a_replaced_worker_in_virtual_time_shows_its_absence_as_none_of_the_phases(tmp_path):
    folder = tmp_path / "lenet/sync"
    simulate(cluster(0.1, 0.1, crashes=[(1, 0.55, 30.0)]), "--mode=sync", "--network=lenet", rounds=9, log_dir=folder)
    trace = trace_of(folder)
    longest = max((span for span in trace.slices["w1/cpu"] if span.depth == 0), key=lambda span: span.end - span.begin)
    assert longest.end - longest.begin > 30e6
    within = [span for span in trace.slices["w1/cpu"] if span.depth == 1 and longest.begin <= span.begin < longest.end]
    assert sum(span.end - span.begin for span in within) < 2e6
    assert trace.seconds("w0/cpu", "waiting") > 29


def test_arrows_do_not_vanish_where_clocks_differ_by_more_than_a_transfer(tmp_path):
    folder = tmp_path / "lenet/sync"
    write_run(folder, {"one/gpu0": 1.0, "two/cpu": 3.0}, 20)
    change_facts(folder / "one/gpu0", started=1.7e9)
    change_facts(folder / "two/cpu", started=1.7e9 + 0.6)  # a transfer takes 0.4 s
    assert Counter(track for _, (track, _) in trace_of(folder).arrows) == {"one/gpu0": 5}


@pytest.mark.parametrize(
    ("late", "shift"), [(0.25, 0.25), (LATEST_START + 1, 0.0), (3600.0, 0.0), ("soon", 0.0), (None, 0.0)]
)
def test_devices_are_aligned_by_their_starts_unless_a_clock_is_wrong(tmp_path, late, shift):
    folder = tmp_path / "lenet/sync"
    write_run(folder, {"one/gpu0": 1.0, "two/cpu": 1.0}, 20)
    change_facts(folder / "one/gpu0", started=1.7e9)
    change_facts(folder / "two/cpu", started=1.7e9 + late if isinstance(late, float) else late)
    trace = trace_of(folder)
    ends = [[span.end for span in trace.slices[track] if span.depth == 0] for track in ("one/gpu0", "two/cpu")]
    assert [later - earlier for earlier, later in zip(*ends, strict=True)] == [round(shift * 1e6)] * len(ends[0])


def test_what_happened_to_the_job_is_at_its_time_in_the_run(tmp_path):
    folder = tmp_path / "lenet/sync"
    write_run(folder, {"one/gpu0": 1.0, "two/cpu": 3.0}, 40)
    end = logged(folder / "two/cpu")[-1]["total_time"]
    change_facts(folder / "one/gpu0", started=1.7e9)
    change_facts(folder / "two/cpu", started=1.7e9 + 9)  # the replacement
    (folder / OUTCOME_FILE).parent.mkdir()
    outcome = {
        "began": 1.7e9 - 5,
        "seconds": 60.0,
        "replacements": [{"name": "worker-1", "how": "was ended by SIGKILL", "at": 12.0}],
        "lost": ["worker-2"],
    }
    (folder / OUTCOME_FILE).write_text(json.dumps(outcome))
    killed, lost = ((7_000_000, "worker-1 was ended by SIGKILL and was replaced"), "worker-2 was lost")
    trace = trace_of(folder)
    assert trace.processes[-1] == "job"
    assert trace.instants["job/events"][0] == killed
    at, text = trace.instants["job/events"][1]
    assert at == round(1e6 * end)
    assert text.startswith(lost)
    change_facts(folder / "one/gpu0", resumed=4)  # its log goes on at the end of round 4
    at_4 = round(1e6 * logged(folder / "one/gpu0")[3]["total_time"])
    resumed, again, _ = trace_of(folder).instants["job/events"]
    assert resumed == (at_4, "went on from the checkpoint of round 4")
    assert again[0] == at_4 + killed[0]


def test_evaluations_are_marks_and_a_curve_on_the_device_that_evaluates(tmp_path):
    folder = tmp_path / "lenet/esync"
    write_run(folder, {"one/gpu0": 1.0, "two/cpu": 3.0}, 40, evaluate_every=5)
    trace = trace_of(folder)
    rounds = [entry for entry in logged(folder / "one/gpu0") if "accuracy" in entry]
    assert len(rounds) == 2
    curve = [(at / 1e6, value) for at, value in trace.counters["one", "evaluated"]]
    assert curve == [(entry["total_time"], {"accuracy": entry["accuracy"]}) for entry in rounds]
    assert [text.partition(":")[0] for _, text in trace.instants["one/gpu0"]] == [
        "evaluation of round 5",
        "evaluation of round 10",
    ]
    assert trace.instants["two/cpu"] == []


def test_evaluations_whose_duration_is_logged_are_slices_beside_training(tmp_path):
    folder = tmp_path / "lenet/sync"
    for number, evaluation in enumerate(({"evaluation_time": 1.2}, {}, {"evaluation_time": 9.0}, {}), start=1):
        evaluated = {"accuracy": 0.5, **evaluation} if number != 2 else {}
        log = sync_round(number, 2.0 * number, wait=0.1, transfer=0.4, **evaluated)
        write_round(folder / "one/gpu0", number, log)
    trace = trace_of(folder)
    assert [(span.name, span.begin, span.end) for span in trace.slices["one/gpu0 evaluation"]] == [
        ("evaluation of round 1: accuracy 0.500", 2_000_000, 3_200_000),
        ("evaluation of round 3: accuracy 0.500", 6_000_000, 8_000_000),  # the next one has begun by then
    ]
    assert trace.instants["one/gpu0"] == [(8_000_000, "evaluation of round 4: accuracy 0.500")]


def test_trace_of_logs_with_gaps_and_of_two_runs_still_nests(tmp_path):
    folder = tmp_path / "lenet/sync"
    for number in (1, 2, 5, 6):
        write_round(folder / "one/cpu", number, esync_round(number, 2.6 * number, wait=0.2, transfer=0.3))
    for number in range(1, 8):
        total = 1.6 * number if number < 4 else 0.4 * number  # 4.8 s is followed by 1.6 s
        write_round(folder / "two/cpu", number, sync_round(number, total, wait=0.1, transfer=0.4))
    trace = trace_of(folder)
    assert [span.name for span in trace.slices["one/cpu"] if span.depth == 0][-2:] == ["round 5", "round 6"]
    gap = next(span for span in trace.slices["one/cpu"] if span.name == "round 5")
    assert gap.end - gap.begin == pytest.approx(2.4e6)
    assert ((gap.begin, {"samples/s": pytest.approx(128 / 2.4, rel=0.01)})) in trace.counters["one", "cpu"]
    assert (5_200_000, {"samples/s": 0}) in trace.counters["one", "cpu"]


def test_trace_written_again_while_the_run_lasts_has_the_rounds_since(tmp_path):
    folder, path = tmp_path / "lenet/esync", tmp_path / "trace.json.gz"
    seen = []
    for rounds in (3, 7):
        for device in ("gpu0", "cpu"):
            for number in range(1, rounds + (device == "gpu0")):
                write_round(folder / "one" / device, number, esync_round(number, 3.0 * number, wait=0.2, transfer=0.3))
            change_facts(folder / "one" / device, finished=False, mode="esync")
        (folder / f"one/cpu/.iter-{rounds}.txt.77").write_text('{"num_')  # what is being written now
        assert report.main([str(folder), "--trace", str(path)]) == 0
        trace = read_trace(path)
        seen.append([sum(span.depth == 0 for span in trace.slices[f"one/{name}"]) for name in ("gpu0", "cpu")])
    assert seen == [[3, 2], [7, 6]]


def test_names_in_logs_are_texts_only(tmp_path):
    folder = tmp_path / "lenet/esync"
    evil = '"},{\x1b[31m\u2028'
    write_run(folder, {f"{evil}/gpu0": 1.0}, 10)
    (name,) = trace_of(folder).processes
    assert "\x1b" not in name
    assert name.startswith('"},{')


def test_report_command_with_trace_writes_no_page_unless_asked(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "lenet/esync"
    write_run(folder, {"one/gpu0": 1.0}, 10)
    monkeypatch.chdir(tmp_path)
    assert report.main(["lenet/esync", "--trace", "new/trace.json"]) == 0
    assert "new/trace.json: " in capsys.readouterr().out
    assert read_trace(tmp_path / "new/trace.json").processes == ["one"]
    assert not (tmp_path / "report.html").exists()
    assert report.main(["lenet/esync", "--trace", "trace.json", "-o", "page.html"]) == 0
    assert (tmp_path / "page.html").exists()


def test_report_command_refuses_a_trace_of_several_runs(tmp_path, capsys):
    for mode in ("esync", "sync"):
        write_run(tmp_path / "lenet" / mode, {"one/gpu0": 1.0}, 10)
    page = tmp_path / "page.html"
    assert report.main([str(tmp_path / "lenet"), "--trace", str(tmp_path / "trace.json"), "-o", str(page)]) == 2
    assert "a trace shows one run, and these are 2: " in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"lenet"}


def test_trace_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path, capsys):
    write_run(tmp_path / "lenet/esync", {"one/gpu0": 1.0}, 10)
    (tmp_path / "taken").mkdir()
    assert report.main([str(tmp_path / "lenet"), "--trace", str(tmp_path / "taken")]) == 1
    assert "taken" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"lenet", "taken"}


@pytest.mark.parametrize(
    ("kind", "change", "rule"),
    [
        ("X", {"dur": -1}, "ends before it begins"),
        ("X", {"ts": 1_500_000, "dur": 9_000_000}, "overlaps"),
        ("X", {"ts": 0.5}, "microseconds"),
        ("s", {"id": 0}, "only one end"),
        ("s", {"ts": 10**12}, "back in time"),
        ("B", {}, "unknown kind"),
    ],
)
def test_reader_of_these_tests_refuses_what_breaks_the_rules(tmp_path, kind, change, rule):
    write_run(tmp_path / "lenet/sync", {"one/gpu0": 1.0, "two/cpu": 3.0}, 20)
    events = list(trace_events(load_run(tmp_path / "lenet/sync")))
    example = next((event for event in events if event["ph"] == kind), None)
    events.append({**(example or events[-1]), "ph": kind, **change})
    if example is not None and kind == "s":
        events.remove(example)
    with pytest.raises(AssertionError, match=rule):
        understood(events)
