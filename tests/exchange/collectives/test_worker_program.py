"""`python -m esync.worker --collective` as ranks of an MPI job.

--long adds modes.
"""

import json
import re
import sys
from pathlib import Path

import pytest

from esync.arguments import read
from esync.exchange.collectives.worker_exchange import check_start
from esync.runtime.environment import EnvironmentProblemError

from . import mpiexec

DATA = Path(__file__).parents[3] / "data"


@pytest.mark.parametrize(
    "words", ["-m async", "-m sync-switch --epochs 1", "-m dgs", "-m esync --elastic", "-m sync --compression fp16"]
)
def test_worker_with_collective_refuses_flags_that_need_a_server(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        read("worker", "", [*words.split(), "--collective", "ring"])
    assert error.value.code == 2
    assert re.search("--collective ring has no server, which --(mode|elastic|compression)", capsys.readouterr().err)


def test_worker_with_collective_not_started_by_mpi_says_how_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PMI_RANK", "PMIX_RANK", "PMI_ID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(EnvironmentProblemError, match=r"mpiexec -n 1 python -m esync\.worker"):
        check_start("ring")


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param((), marks=pytest.mark.long),
        pytest.param(("--overlap",), marks=pytest.mark.long),
        ("-m", "fedprox", "--overlap"),
    ],
)
def test_worker_with_collective_trains_two_workers_without_a_server(extra: tuple[str, ...], tmp_path: Path) -> None:
    if reason := mpiexec.why_not():
        pytest.skip(reason)
    flags = "-c 1 -n lenet -b 4 --rounds 3 --local-iterations 2 --no-evaluation --no-export --collective ring"
    worker = [sys.executable, "-m", "esync.worker", *flags.split(), *extra, "-dd", str(DATA), "-ld", str(tmp_path)]
    code, output = mpiexec.run(1, [worker, worker], 150)
    assert code == 0, output
    folders = sorted(tmp_path.iterdir())
    assert [folder.name for folder in folders] == ["cpu", "cpu-1"]
    for folder in folders:
        logged = json.loads((folder / "iter-3.txt").read_text())
        facts = json.loads((folder / "run.json").read_text())
        assert facts["finished"]
        assert facts["collective"] == "ring"
        model = facts["model_bytes"]
        assert model <= logged["bytes_sent"] <= 1.01 * model + 10_000  # each half of it once to add, once added
        assert logged["bytes_received"] >= model
    assert not (tmp_path / "cpu" / "iter-4.txt").exists()
