"""The programs of docs/how-to/examples.md: alone, in a cluster, resumed, and without ESync."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from launching import Start, description

from tests.support import child
from tests.support.documented import apply, block
from tests.support.forked import ForkedProgram

pytestmark = pytest.mark.timeout(400)
EXAMPLES = Path(__file__).parents[2] / "examples"
PAGE = "examples.md"
#: Seconds for what takes ten on a machine with nothing else to do.
LONG = 180
#: Program → flags that make it short, a regular expression of its metric, and whether a value shows that it has
#: learned: without that, the perplexity is the number of characters, about 90, the accuracy that of chance, 0.2, and
#: the distance 4.2.
PROGRAMS: dict[str, tuple[tuple[str, ...], str, Callable[[float], bool]]] = {
    "language_model": (("--characters", "20000"), r"perplexity (\S+)", lambda perplexity: perplexity < 35),
    "fine_tuning": (("--samples", "2000"), r"accuracy (\S+)", lambda accuracy: accuracy > 0.4),
    "gan": (("--samples", "2000"), r"Fréchet distance (\S+)", lambda distance: distance < 3.9),
}
#: Runs the program that is named on its command line, and prints a digest of the weights.
DIGEST = """
import hashlib, runpy, sys
del sys.argv[0]
net = runpy.run_path(sys.argv[0])["main"]()
weights = b"".join(parameter.data().asnumpy().tobytes() for parameter in net.collect_params().values())
print("\\nweights", hashlib.sha256(weights).hexdigest())
"""


def check_learning(name: str, output: str) -> None:
    """Check that the metric that a program has printed last shows that it has learned."""
    _, pattern, learned = PROGRAMS[name]
    assert learned(float(re.findall(pattern, output)[-1])), output


def digest(output: str) -> str:
    """The digest of the weights that DIGEST has printed."""
    return output.rpartition("weights ")[2]


def run(folder: Path, program: Path, *words: str, **variables: str) -> str:
    """Run a program in one process to its end; what it has printed."""
    environment = child.environment(OMP_NUM_THREADS="1", **variables)
    code = ForkedProgram([str(program), *words], environment, folder / "log", folder).wait(LONG)
    output = (folder / "log").read_text()
    assert code == 0, output
    return output


def differences(name: str) -> list[str]:
    return [block(PAGE, f"diff: {part}") for part in ("both", name)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_example_marks_the_lines_that_its_page_shows(name: str) -> None:
    lines = (EXAMPLES / f"{name}.py").read_text().splitlines()
    shown = [line[1:] for difference in differences(name) for line in difference.splitlines() if line[0] == "+"]
    assert [line for line in lines if line.endswith("  # esync")] == shown


@pytest.mark.parametrize("name", PROGRAMS)
def test_example_without_these_lines_is_a_gluon_program_that_learns(tmp_path: Path, name: str) -> None:
    source = (EXAMPLES / f"{name}.py").read_text()
    for difference in differences(name):
        source = apply(difference, source, reverse=True)
    assert not re.findall(r"\besync\b(?!\.data|\")", source.split('"""', 2)[2])
    (tmp_path / "plain.py").write_text(source)
    check_learning(name, run(tmp_path, tmp_path / "plain.py", *PROGRAMS[name][0], "--epochs", "2"))
    assert (tmp_path / "model.params").is_file()


@pytest.mark.parametrize(("name", "resumed"), [("language_model", False), ("fine_tuning", True), ("gan", False)])
def test_example_alone_learns_and_goes_on_from_its_checkpoint(tmp_path: Path, name: str, resumed: bool) -> None:
    variables = {"ESYNC_CHECKPOINT_DIR": str(tmp_path / "kept"), "ESYNC_RESUME": "1"}
    output = ""
    for epochs in (1, 2) if resumed else (2,):
        output += run(tmp_path, EXAMPLES / f"{name}.py", *PROGRAMS[name][0], "--epochs", str(epochs), **variables)
    check_learning(name, output)
    assert output.count("going on from the checkpoint") == resumed


@pytest.mark.parametrize(
    ("name", "mode", "resumed"),
    [("language_model", "esync", False), ("fine_tuning", "sync", False), ("gan", "sync", True)],
)
def test_example_in_a_cluster_learns_with_equal_weights(
    tmp_path: Path, launch: Start, name: str, mode: str, resumed: bool
) -> None:
    (tmp_path / "train.py").write_text(DIGEST)
    content = {**description([0.03, 0.1]), "train": {}}
    processes = tmp_path / "logs/train" / mode / "processes"
    output = ""
    for epochs in (1, 2) if resumed else (2,):
        program = ("python", "train.py", str(EXAMPLES / f"{name}.py"), *PROGRAMS[name][0], "--epochs", str(epochs))
        job = launch(content, "-m", mode, "--checkpoint-dir", "kept", "--resume", "--", *program)
        job.finish()
        first, second = ((processes / f"worker-{rank}.log").read_text() for rank in range(2))
        assert digest(first) == digest(second)
        output += first
    check_learning(name, output)
    assert output.count("going on from the checkpoint") == resumed
