"""Plans of whole clusters: what is recommended, the command line, and mistakes."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from esync.planning.__main__ import main
from esync.planning.candidates import PlanClass
from esync.planning.ranking import plan
from esync.planning.report import left_out, reasons
from esync.planning.steady import steady
from esync.samples import UNKNOWN
from esync.simulate import parallel
from esync.simulate.job import SimulationJob

from ..support.json_files import read_json
from .clusters import write

MODES = ("sync", "esync", "local")
pytestmark = pytest.mark.usefixtures("same_process")


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    """Plans of the three kinds of clusters, by name."""
    kinds = {
        "equal": ((0.4, 0.4, 0.408, 0.42), "10Gbit"),
        "unequal, fast": ((0.05, 0.06, 0.2, 0.5), "1Gbit"),
        "unequal, slow": ((0.05, 0.06, 0.2, 0.5), "100Mbit"),
    }
    results = {}
    for name, (step_times, bandwidth) in kinds.items():
        path = write(tmp_path_factory.mktemp("plan"), *step_times, bandwidth=bandwidth)
        what_ifs = ["without=w3", "network=1Gbit"] if name == "unequal, slow" else []
        results[name] = plan(path, modes=MODES, what_ifs=what_ifs)
    return results


def speeds(result, plan_class):
    return {
        tuple(forecast.candidate.flags.values()): forecast.throughput for forecast in result.ranking.classes[plan_class]
    }


def test_nearly_equal_devices_on_a_fast_network_are_to_train_synchronously(plans):
    result = plans["equal"]
    assert result.ranking.recommended.candidate.mode == "sync"
    assert result.ranking.recommended.plan_class is PlanClass.EXACT
    assert result.ranking.recommended.efficiency > 0.9
    assert len(result.ranking.classes[PlanClass.FAST]) == 1  # leaving any of them out would be slower


def test_unequal_devices_are_not_to_wait_for_the_slowest(plans):
    ranking = plans["unequal, fast"].ranking
    assert ranking.recommended.plan_class is PlanClass.AVERAGING
    assert ranking.recommended.candidate.mode == "esync"
    assert speeds(plans["unequal, fast"], PlanClass.EXACT)["sync",] < 4 * 10 / 0.5
    assert not ranking.failed


def test_fastest_device_alone_is_recommended_where_samples_of_others_are_redundant(tmp_path):
    path = write(tmp_path, 0.05, 0.06, 0.2, 0.5, bandwidth="100Mbit")
    result = plan(path, modes=("esync", "local"), training=replace(UNKNOWN, noise_scales=np.array([5.0])))
    ranking = result.ranking
    assert ranking.recommended.candidate.mode == "local"
    assert ranking.recommended.candidate.ranks == (0,)
    averaging = ranking.best(PlanClass.AVERAGING)
    assert averaging.throughput > ranking.recommended.throughput  # samples per second alone would not say so
    text = reasons(ranking)
    assert f"has {averaging.throughput / ranking.recommended.throughput:.3g} times the samples/s" in text
    assert f"each worth {averaging.worth:.0%} of one on one device alone" in text
    (line,) = left_out(result, ranking.recommended.candidate)
    assert line.endswith("w1/cpu (38.2%), w2/cpu (11.5%), w3/cpu (4.6%)")


def test_averaging_on_the_fast_devices_only_is_recommended_where_slow_ones_bring_little(tmp_path):
    path = write(tmp_path, 0.05, 0.05, 0.05, 0.05, 5.0, bandwidth="10Gbit")
    result = plan(path, modes=MODES)
    best = result.ranking.recommended
    assert best.candidate.ranks == (0, 1, 2, 3)
    assert best.useful > 1.2 * result.ranking.best(PlanClass.FAST).useful
    on_all = [
        forecast
        for forecast in result.ranking.every
        if forecast.candidate.mode == "esync" and forecast.candidate.ranks is None
    ]
    assert max(forecast.useful for forecast in on_all) < best.useful
    assert left_out(result, best.candidate) == ["Left out, with their shares of the devices' speed: w4/cpu (0.2%)"]


def test_slow_network_makes_the_port_of_the_server_the_bottleneck(plans):
    held = {
        kind: next(
            forecast
            for forecast in plans[kind].ranking.classes[PlanClass.AVERAGING]
            if not forecast.candidate.variation
        )
        for kind in ("unequal, fast", "unequal, slow")
    }
    assert held["unequal, slow"].bottleneck.where == "centre"
    assert held["unequal, slow"].bottleneck.cause.value == "server's port"
    assert held["unequal, fast"].bottleneck.share < 0.5 < held["unequal, slow"].bottleneck.share
    assert held["unequal, slow"].throughput < held["unequal, fast"].throughput


def test_what_ifs_are_ordered_by_gain_and_agree_with_a_plan_of_that_cluster(plans):
    asked = plans["unequal, slow"].what_ifs
    assert {what_if.text for what_if in asked} == {"without=w3", "network=1Gbit"}
    assert [what_if.gain for what_if in asked] == sorted((what_if.gain for what_if in asked), reverse=True)
    faster = next(what_if for what_if in asked if what_if.text == "network=1Gbit").ranking
    for plan_class, members in plans["unequal, fast"].ranking.classes.items():
        assert faster.best(plan_class).throughput == pytest.approx(members[0].throughput)


def test_steady_part_is_what_arithmetic_says(tmp_path):
    path = write(tmp_path, 0.1, 0.2, bandwidth="1000Gbit", latency="0us", model_bytes="4B")
    job = SimulationJob(path, "none", {"mode": "local", "max_time": None}, logs=False, quiet=True)
    alone = steady(job, 1)
    assert alone["throughput"] == pytest.approx(10 / 0.1)
    assert alone["efficiency"] == pytest.approx(1.0)
    job = SimulationJob(path, "none", {"mode": "sync", "max_time": None}, logs=False, quiet=True)
    both = steady(job, 2)
    assert both["throughput"] == pytest.approx(20 / 0.2, rel=0.02)
    assert both["devices"][0]["wait"] / both["rounds"] == pytest.approx(0.1, rel=0.1)  # polls


def test_plan_in_processes_prints_ranking_recommendation_and_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("esync.planning.ranking.pool", parallel.pool)
    path = write(tmp_path, 0.05, 0.05, 0.5)
    json_file = tmp_path / "plan.json"
    words = [
        str(path),
        "--no-measure",
        "--modes=esync,local",
        "--jobs=1",
        "--what-if=add=gpu:0.05x2",
        f"--json={json_file}",
    ]
    assert main(words) == 0
    output = capsys.readouterr()
    assert "Recommended: esync" in output.out
    assert re.search(rf"esync launch ({path}|fast_devices\.yaml) --mode esync", output.out)
    for word in (
        "fast devices only",
        "local averaging",
        "bottleneck",
        "skewed",
        "docs/results/beyond.md",
        "add=gpu:0.05x2",
    ):
        assert word in output.out
    assert max(len(line) for line in output.out.splitlines() if "esync launch" not in line) <= 100
    assert re.search(r"^     (--|[a-z0-9])", output.out, re.MULTILINE)  # what a method's name goes on with is indented
    assert not re.search(r"^ (--|fp16|ring)", output.out, re.MULTILINE)
    assert 'times as fast as the best of "fast devices only"' in " ".join(output.out.split())
    assert "simulated" in output.err
    report = read_json(json_file)
    assert report["recommended"]["flags"]["mode"] == "esync"
    assert report["recommended"]["command"][-1].startswith("esync launch ")
    assert [method["class"] for method in report["classes"]["fast"]] == ["fast"]
    assert report["what_if"][0]["gain"] > 1.5
    assert report["classes"]["averaging"][0]["bottleneck"]["remedy"]


def test_plan_of_hosts_with_several_workers_says_how_they_exchange_as_one(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path(write(tmp_path, *[0.1] * 6, bandwidth="8Gbit", on_one_host=3).name)
    json_file = tmp_path / "plan.json"
    words = [
        "--no-measure",
        "--modes=sync,async",
        "--what-if=per-host",
        "--what-if=per-host=false",
        f"--json={json_file}",
    ]
    assert main([str(path), *words]) == 0
    output = capsys.readouterr().out
    assert "* sync, per host" in output
    assert f"# with per_host: true in {path}:\n    esync launch {path} --mode sync\n" in output
    report = read_json(json_file)
    assert report["recommended"]["per_host"]
    by_host, flat = (
        next(
            method
            for method in report["classes"]["exact"]
            if method["flags"] == {"mode": "sync"} and method["per_host"] == per_host
        )
        for per_host in (True, False)
    )
    assert by_host["throughput"] > 1.1 * flat["throughput"]
    assert by_host["traffic"] * by_host["round_time"] < 0.4 * flat["traffic"] * flat["round_time"]
    asked = {what_if["change"]: what_if for what_if in report["what_if"]}
    assert asked["per-host"]["gain"] == 1.0
    assert asked["per-host=false"]["gain"] < 0.95
    assert not any(method["per_host"] for method in asked["per-host=false"]["classes"]["exact"])
    assert "asynchronous" not in asked["per-host"]["classes"]
    assert "asynchronous" in report["classes"]


def test_command_undoes_what_the_description_says_of_the_flags_that_are_varied(tmp_path, capsys):
    path = write(tmp_path, 0.1, 0.1, train="compression: fp16, overlap: true")
    assert main([str(path), "--no-measure", "--modes=sync"]) == 0
    output = capsys.readouterr().out
    assert f"esync launch {path} --mode sync" in output
    assert output[output.index("esync launch") :].partition("\n")[0].endswith("--compression none")


def test_plan_of_a_program_has_the_options_of_the_mode_in_its_command(tmp_path, capsys):
    path = write(tmp_path, 0.05, 0.5, bandwidth="100Mbit")
    text = path.read_text().replace("model_bytes: 4MB", "model_bytes: 4MB, batch_size: 10")
    path.write_text(
        "\n".join(line for line in text.splitlines() if not line.startswith("train:")) + "\nprogram: python t.py"
    )
    assert main([str(path), "--no-measure", "--modes=esync"]) == 0
    output = capsys.readouterr().out
    assert re.search(rf"esync launch {path} --mode esync --(overlap|compression)", output)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--modes=esnc"], "esnc"),
        (["--modes=dgs"], "dgs: its messages depend on gradients"),
        (["--what-if=servers"], "--what-if servers: expected KEY=VALUE"),
    ],
)
def test_mistakes_are_named_without_a_traceback(tmp_path, capsys, words, message):
    path = write(tmp_path, 0.1, 0.2)
    try:
        code = main([str(path), "--no-measure", *words])
    except SystemExit as ended:
        code = ended.code
    stderr = capsys.readouterr().err
    assert code in (1, 2)
    assert message in stderr
    assert "Traceback" not in stderr


def test_description_without_times_is_refused(tmp_path, capsys):
    path = write(tmp_path, 0.1, 0.2)
    path.write_text(path.read_text().replace(", simulate: {step_time: 0.2}", ""))
    assert main([str(path), "--no-measure"]) == 2
    stderr = capsys.readouterr().err
    assert "workers[1].simulate.step_time: a simulation needs it" in stderr
    assert "esync plan measures it" in stderr


@pytest.mark.parametrize(
    ("text", "bandwidth", "message"),
    [
        ("network=10Gbit", None, "--what-if network=10Gbit: everything runs on here, and there is no network"),
        ("add=cpu:0.2", None, "no network is measured or described, so messages between hosts take no time here"),
        ("network=10Gbit,add=cpu:0.2", None, None),
        ("add=cpu:0.2", "1Gbit", None),
    ],
)
def test_network_that_costs_nothing_is_told(tmp_path, text, bandwidth, message):
    path = tmp_path / "one.yaml"
    limit = f"network: {{bandwidth: {bandwidth}}}\n" if bandwidth else ""
    path.write_text(
        "scheduler: {host: here}\nservers: [{host: here}]\nstate_server: {host: here}\n"
        "workers:\n  - {host: here, device: cpu, step_time: 0.1}\n  - {host: here, device: cpu, step_time: 0.3}\n"
        f"train: {{mode: sync, network: lenet}}\n{limit}"
    )
    notes = [note for note in plan(path, modes=["sync"], what_ifs=[text]).notes if "network" in note]
    assert len(notes) == (message is not None)
    assert message is None or notes[0].startswith(message)


@pytest.mark.parametrize(
    ("train", "reason"),
    [
        ("partition: uniform", None),
        ("partition: class-sorted", "partition class-sorted"),
        ("split_by_class: 1", "partition class"),
        ("preset: skewed-data", "preset skewed-data"),
    ],
)
def test_data_that_differ_from_worker_to_worker_are_not_modelled(tmp_path, train, reason):
    path = write(tmp_path, 0.1, 0.2, train=f"network: resnet18-v1, {train}")
    remarks = [note for note in plan(path, modes=["local"]).notes if "different data" in note]
    assert [remark.split(": what")[0] for remark in remarks] == ([f"train: {reason}"] if reason else [])
