"""Networks of a user's, on a modelled cluster with and without gradients."""

import json
from pathlib import Path

import pytest

from esync.models.networks import build
from esync.runtime.mxnet_import import mx
from esync.simulate.built_network import vector_sizes
from esync.simulate.job import SimulationJob, run
from esync.simulate.timing import SIZES

from ..data import tiny_dataset

NETWORKS = Path(__file__).parents[1] / "support" / "user_networks.py"
CLUSTER = """
scheduler: {host: localhost}
servers: [{host: localhost}]
state_server: {host: localhost}
network: {bandwidth: 1Gbit}
workers:
  - {host: localhost, device: cpu, step_time: 0.1}
  - {host: localhost, device: cpu, step_time: 0.2}
"""


def simulated(folder: Path, numerics: str, **train: object) -> tuple[dict, dict]:
    """The result, and what run.json says."""
    path = folder / "cluster.yaml"
    path.write_text(CLUSTER + "train: " + json.dumps({"rounds": 2, "batch_size": 4, **train}))
    typed = {"log_dir": str(folder / numerics)}
    done = run(SimulationJob(path, numerics, typed, logs=True, quiet=True))
    assert done.logs is not None
    return done.result, json.loads((done.logs / "localhost" / "cpu" / "run.json").read_text())


def test_simulation_of_own_network_has_same_traffic_without_gradients(tmp_path):
    tiny_dataset.write(tmp_path)
    train = {"network": f"{NETWORKS}:small", "data_dir": str(tmp_path)}
    real, facts = simulated(tmp_path, "real", **train)
    timed, same = simulated(tmp_path, "none", **train)
    assert real["network"] == timed["network"] == facts["network"] == "user_networks.small"
    assert facts["sources"] == same["sources"]
    assert real["accuracies"]
    assert timed["traffic"] == real["traffic"]
    assert timed["seconds"] == pytest.approx(real["seconds"], rel=1e-3)


def test_vector_sizes_of_built_network_are_those_of_the_table():
    """Built, a network of this package has the sizes that simulations without gradients know."""
    assert vector_sizes("lenet", 10, (1, 28, 28)) == SIZES["lenet"]
    net = build(f"{NETWORKS}:small", 3, mx.cpu(), 0, shape=(3, 9, 9))
    sizes = [parameter.data().size for parameter in net.collect_params().values() if parameter.grad_req == "null"]
    assert vector_sizes(f"{NETWORKS}:small", 3, (3, 9, 9))["statistics"] == sum(sizes)
