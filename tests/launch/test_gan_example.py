"""examples/gan.py: alone, and in a cluster whose run goes on from its checkpoint."""

import re
from collections.abc import Callable
from pathlib import Path

import launching
import pytest
from launching import Launch, write

from tests.support import child
from tests.support.forked import ForkedProgram

pytestmark = pytest.mark.timeout(400)
PROGRAM = str(Path(__file__).parents[2] / "examples/gan.py")
#: Seconds for what takes ten on a machine with nothing else to do.
LONG = 180
#: Runs the program that is named on its command line, and prints a digest of all weights.
DIGEST = """
import hashlib, runpy, sys
del sys.argv[0]
net = runpy.run_path(sys.argv[0])["main"]()
weights = b"".join(parameter.data().asnumpy().tobytes() for parameter in net.collect_params().values())
print("\\nweights", hashlib.sha256(weights).hexdigest())
"""


def check_learning(output: str) -> None:
    """Check that the generated images are nearer to the real ones in the end than at first."""
    first, *_, last = map(float, re.findall(r"Fréchet distance (\S+)", output))
    assert last < first, output


def test_gan_alone_learns(tmp_path: Path) -> None:
    environment = child.environment(OMP_NUM_THREADS="1")
    program = ForkedProgram([PROGRAM, "--samples", "2000", "--epochs", "1"], environment, tmp_path / "log", tmp_path)
    assert program.wait(LONG) == 0, (tmp_path / "log").read_text()
    check_learning((tmp_path / "log").read_text())
    assert list(tmp_path.rglob("model.params"))


def test_gan_in_mode_sync_goes_on_from_its_checkpoint_with_equal_weights(
    tmp_path: Path, launch: Callable[..., Launch]
) -> None:
    (tmp_path / "train.py").write_text(DIGEST)
    file = write(tmp_path / "cluster.yaml", {**launching.description([0.01, 0.03]), "train": {}})
    processes = tmp_path / "logs" / "train" / "sync" / "processes"
    output, digests = "", set()
    for epochs in (1, 2):
        flags = ("-m", "sync", "--checkpoint-dir", "kept", "--resume")
        job = launch(file, *flags, "--", "python", "train.py", PROGRAM, "--samples", "2000", "--epochs", str(epochs))
        assert job.wait(LONG) == 0, job.output
        first, second = ((processes / f"worker-{rank}.log").read_text() for rank in range(2))
        assert first.rpartition("weights ")[2] == second.rpartition("weights ")[2]
        digests.add(first.rpartition("weights ")[2])
        output += first
    assert len(digests) == 2
    assert output.count("going on from the checkpoint") == 1
    check_learning(output)
