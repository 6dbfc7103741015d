"""Does a program of one's own use the devices as well as the built-in worker?

    python benchmarks/own_program.py [--seconds 60] [--pairs 2] [--json FILE]

Trains LeNet with ESync on three emulated devices of unequal speed, with the built-in worker and
with a program of about 30 lines around esync.Trainer and esync.Run, in turns, and compares their
efficiency: samples per second, divided by what the devices could do without ever waiting. The
target is a difference of two points at most.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

import yaml
from harness import jobs, program
from harness.figures import write_figures

STEPS = [0.1, 0.23, 0.9]  # seconds of an iteration, as in clusters/quick.yaml
BATCH_SIZE = 32
TARGET = 0.02

#: The program: the network, data and batch size of the built-in worker's job.
SCRIPT = f"""
import sys
import numpy as np
import esync
from esync import mx
from esync.data import as_floats, load
from esync.models.networks import build

data = load("fashion-mnist")
net = build("lenet", data.classes, esync.context(), 0)
loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
test = mx.nd.array(as_floats(data.test_images[:1000]))

def accuracy():
    return (net(test).asnumpy().argmax(1) == data.test_labels[:1000]).mean()

run = esync.Run(evaluate=accuracy, every=10)
limits = esync.Limits(seconds=float(sys.argv[1]))
net(mx.nd.zeros((1, 1, 28, 28)))
with esync.Trainer(net.collect_params(), "sgd", {{"learning_rate": 0.02}}, limits=limits, run=run) as trainer:
    dataset = mx.gluon.data.ArrayDataset(as_floats(data.train_images).astype(np.float32), data.train_labels)
    loader = mx.gluon.data.DataLoader(esync.shard(dataset, trainer), {BATCH_SIZE}, shuffle=True, last_batch="discard")
    for images, labels in trainer.batches(loader):
        with mx.autograd.record():
            loss = loss_of(net(images), labels)
        loss.backward()
        trainer.step({BATCH_SIZE})
"""


def efficiency(folder: Path, seconds: float, own: bool) -> float:
    """Run a job for so many seconds, and return its efficiency (0 to 1)."""
    folder.mkdir()
    train: dict[str, Any] = (
        {} if own else {"network": "lenet", "batch_size": BATCH_SIZE, "max_time": seconds, "eval_duration": 10}
    )
    (folder / "cluster.yaml").write_text(yaml.safe_dump(jobs.describe(STEPS, mode="esync", **train)))
    (folder / "train.py").write_text(SCRIPT)
    words = ["--", "python", str(folder / "train.py"), str(seconds)] if own else ["--test-images", "1000"]
    report = folder / "job.json"
    flags = ["--log-dir", str(folder / "logs"), "--json", str(report)]
    command = [sys.executable, "-m", "esync.launch", str(folder / "cluster.yaml"), *flags, *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=jobs.LIMIT, check=False)
    if done.returncode:
        raise RuntimeError(f"launch has failed, exit code {done.returncode}:\n{done.stdout.decode()[-3000:]}")
    return float(json.loads(report.read_text())["figures"]["efficiency"])


def main() -> int:
    """Run the pairs, print the efficiencies, and return 1 where the target is missed."""
    parser = program.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of a job (default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=2, help="jobs of each kind (default: %(default)s)")
    options = parser.parse_args()
    found: dict[str, list[float]] = {"built in": [], "own": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.pairs):
            for name in found:
                value = efficiency(Path(folder) / f"{name.split()[0]}-{number}", options.seconds, name == "own")
                found[name].append(value)
                print(f"{name:8s}  efficiency {value:.3f}", flush=True)
    difference = mean(found["own"]) - mean(found["built in"])
    met = abs(difference) <= TARGET
    print(f"difference {100 * difference:+.1f} points, target {100 * TARGET:.0f}: {program.verdict(met)}")
    write_figures(options.json, {"command": program.command(), **found, "difference": difference})
    return 0 if met else 1


if __name__ == "__main__":
    program.run(main)
