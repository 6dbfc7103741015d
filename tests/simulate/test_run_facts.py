"""run.json of a simulated worker; a real one writes the same (tests/cluster)."""

import json
from pathlib import Path

import pytest

from esync import __version__, config
from esync.algorithms import ALGORITHMS
from esync.arguments import read
from esync.simulate.__main__ import summary
from esync.simulate.job import SimulationJob, run

CLUSTER = """
scheduler: {host: localhost}
servers: [{host: localhost}]
state_server: {host: localhost}
workers:
  - {host: localhost, device: cpu, step_time: 0.1}
  - {host: localhost, device: cpu, step_time: 0.2}
train: {network: lenet, epochs: 0.01}
"""


def facts_of(tmp_path: Path, **typed: object) -> dict:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    done = run(SimulationJob(path, "none", {"log_dir": str(tmp_path / "logs"), **typed}, logs=True, quiet=True))
    assert done.logs is not None
    return json.loads((done.logs / "localhost" / "cpu" / "run.json").read_text())


@pytest.mark.parametrize("mode", [name for name, algorithm in ALGORITHMS.items() if not algorithm.needs_gradients])
def test_run_json_contains_every_flag_of_the_mode(tmp_path, mode):
    facts = facts_of(tmp_path, mode=mode)
    words = ["--mode", mode, "--network", "lenet", "--epochs", "0.01"]
    expected = vars(read("worker", "", words)).keys() - {"algorithm", "typed"}
    assert facts["options"].keys() >= expected
    assert facts["options"]["epochs"] == 0.01
    assert facts["options"]["momentum"] == config.MOMENTUM


def test_run_json_contains_what_the_log_tools_need(tmp_path):
    facts = facts_of(tmp_path, mode="async", use_dcasgd=1, dcasgd_lambda=0.5)
    style = ALGORITHMS["dcasgd"].style
    assert facts["algorithm"] == {
        "name": "dcasgd",
        "label": "DC-ASGD",
        "folder": "dcasgd",
        "summary": "DCASGD",
        "style": {"color": style.color, "line": [0, list(style.line[1])], "marker": style.marker},
    }
    assert (facts["options"]["mode"], facts["options"]["dcasgd_lambda"]) == ("async", 0.5)


def test_run_json_contains_versions(tmp_path):
    versions = facts_of(tmp_path)["versions"]
    assert versions["esync"] == __version__
    assert versions.keys() >= {"python", "mxnet", "numpy", "gluoncv", "pydantic"}


def test_run_json_contains_resolved_defaults(tmp_path):
    options = facts_of(tmp_path, mode="sync-switch")["options"]
    assert options["online_policy"] == config.ONLINE_POLICY  # None on the command line, with a state server
    assert options["bsp_share"] == pytest.approx(config.BSP_SHARE)


@pytest.mark.parametrize(
    ("typed", "order", "share"),
    [
        ({"bsp_share": 1.0}, "1", 1.0),
        ({"bsp_share": 0.0}, "0", 0.0),
        ({}, "10", config.BSP_SHARE),
        ({"train_steps": [4, 8], "epochs": None}, "10", 8 / 12),
    ],
)
def test_run_json_contains_the_plan_in_place_of_the_flags(tmp_path, typed, order, share):
    """The report of Sync-Switch finds BSP and ASP alone by it, and shares that no flag has given."""
    facts = facts_of(tmp_path, mode="sync-switch", **typed)
    assert (facts["switch_order"], facts["bsp_share"]) == (order, pytest.approx(share))


def test_run_json_contains_the_momentum_of_the_algorithm():
    from esync.algorithms import DGS

    assert DGS().effective_options["momentum"] == config.DGS_MOMENTUM


def test_run_json_and_summary_of_a_run_per_host_say_so(tmp_path):
    path = tmp_path / "cluster.yaml"
    results = {}
    for name in ("flat", "per_host"):
        path.write_text(CLUSTER + f"per_host: {str(name == 'per_host').lower()}\n")
        job = SimulationJob(path, "none", {"log_dir": str(tmp_path / name), "mode": "sync"}, logs=True, quiet=True)
        done = run(job)
        facts = json.loads((done.logs / "localhost" / "cpu" / "run.json").read_text())
        results[name] = facts["options"].get("per_host"), "one exchange per host" in summary(done)[0]
    assert results == {"flat": (None, False), "per_host": (2, True)}


@pytest.mark.parametrize(("mode", "limit"), [("esync", 1.5), ("local", 1.0)])
def test_summary_says_how_much_faster_than_the_fastest_device_alone_a_run_is(tmp_path, mode, limit):
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    done = run(SimulationJob(path, "none", {"mode": mode}, logs=False, quiet=True))
    assert done.result["speedup_limit"] == pytest.approx(limit)
    ratio = done.result["throughput"] / (done.result["batch_size"] / 0.1)
    text = f"{ratio:.2f} times the fastest device alone, localhost/cpu (limit 1.50)"
    assert (text in summary(done)[1]) is (mode == "esync")
