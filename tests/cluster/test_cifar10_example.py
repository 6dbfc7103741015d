"""examples/cifar10.py with a server and two workers, on small generated images."""

from pathlib import Path

import numpy as np

from ..support.child import environment
from ..support.forked import ForkedProgram
from ..support.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "cifar10.py"


def generate(folder: Path, samples: int = 600) -> None:
    """Files in CIFAR-10's binary format."""
    rng = np.random.default_rng(0)
    folder = folder / "cifar-10"
    folder.mkdir()
    training = [(f"data_batch_{number}.bin", samples // 5) for number in range(1, 6)]
    for name, count in (*training, ("test_batch.bin", 100)):
        labels = rng.integers(0, 10, count)
        images = rng.integers(0, 60, (count, 3, 1024)) + 20 * labels[:, None, None]
        np.hstack([labels[:, None], images.reshape(count, -1)]).astype(np.uint8).tofile(folder / name)


def test_cifar10_example_trains_on_a_server_and_two_workers(tmp_path: Path) -> None:
    generate(tmp_path)
    variables = environment(DMLC_NODE_HOST="127.0.0.1", OMP_NUM_THREADS="1")
    common = ["--world-size", "3", "--master", "127.0.0.1", "--port", str(free_port()), "--data", str(tmp_path)]
    flags = ["--model", "mobilenet0.25", "--epochs", "0.5", "--batch-size", "10", "--lr", "0.01", "--ratio", "0.05"]
    logs = [tmp_path / f"{rank}.log" for rank in range(3)]
    processes = [
        ForkedProgram([str(EXAMPLE), *common, *flags, "--rank", str(rank)], variables, log)
        for rank, log in enumerate(logs)
    ]
    try:
        codes = [process.wait(90) for process in reversed(processes)]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    outputs = [log.read_text() for log in logs]
    assert codes == [0, 0, 0], outputs
    assert all("test accuracy 0." in output for output in outputs[1:])
