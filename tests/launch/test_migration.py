"""docs/how-to/migration.md: each of its differences applies, and the result trains on unequal devices.

Without --long only the plain loop trains.
"""

import json
import re

import pytest
from launching import Start, description

from tests.support.documented import PAGES, apply, block
from tests.support.variants import variants

pytestmark = pytest.mark.timeout(600)
PAGE = "migration.md"
PROGRAMS = re.findall(r"<!-- before: (\w+) -->", (PAGES / PAGE).read_text())

#: Runs a program on few samples of the shape of CIFAR-10, which scripts/setup.sh does not fetch.
SMALL_CIFAR = """
import runpy, sys
import numpy as np
import esync
from esync import mx

class Small(mx.gluon.data.ArrayDataset):
    def __init__(self, train):
        labels = (np.arange(96 if train else 32) % 10).astype(np.int32)
        images = np.random.RandomState(train).randint(0, 255, (len(labels), 32, 32, 3)).astype(np.uint8)
        super().__init__(mx.nd.array(images, dtype=np.uint8), labels)

mx.gluon.data.vision.CIFAR10 = Small
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def test_plain_loop_needs_six_changed_lines():
    assert sum(line.startswith("+") for line in block(PAGE, "diff: loop").splitlines()) <= 6


@pytest.mark.parametrize("name", variants(PROGRAMS, quick=["loop"]))
def test_migrated_program_trains_on_unequal_devices(tmp_path, launch: Start, name: str):
    source = apply(block(PAGE, f"diff: {name}"), block(PAGE, f"before: {name}"))
    source = re.sub(r"samples=(10|200) \* len\(\w+\)", "samples=384", source)  # shorter; everything else is the guide's
    (tmp_path / "train.py").write_text(source)
    (tmp_path / "small.py").write_text(SMALL_CIFAR)
    content = {**description([0.05, 0.2]), "train": {}}
    program = ["small.py", "train.py"] if "CIFAR10" in source else ["train.py"]
    job = launch(content, "--", "python", *program)
    job.finish(limit=300)
    runs = [json.loads(path.read_text()) for path in (tmp_path / "logs").rglob("run.json")]
    assert sorted(run["rank"] for run in runs) == [0, 1]
    assert all(run["finished"] and run["mode"] == "esync" for run in runs)
    assert list((tmp_path / "logs").rglob("model.params"))
    evaluated = [path for path in (tmp_path / "logs").rglob("iter-*.txt") if "accuracy" in path.read_text()]
    assert bool(evaluated) == ("evaluate=" in source)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_before_the_migration_is_valid_python(name: str):
    compile(block(PAGE, f"before: {name}"), name, "exec")
