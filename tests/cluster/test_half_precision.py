"""float16 weights on a real cluster: updates are neither overwritten nor rounded away.

The weight begins at 1, where float16 counts in steps of 2⁻¹⁰; each worker adds its own slope in
every iteration. --long adds compression and overlap.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from .half_worker import Plan
from .harness import outputs_of

#: One step of float16 between 1 and 2.
STEP = 2.0**-10
MASTERS = {"multi_precision": True}


def train(folder: Path, slopes: list[float], **plan: Any) -> list[float]:
    """Train on a cluster of a worker for each slope; their final weights."""
    results = [folder / f"weight-{rank}.json" for rank in range(len(slopes))]
    pairs = zip(slopes, results, strict=True)
    outputs_of(folder, [Plan(slope=slope, result=str(result), **plan).arguments() for slope, result in pairs])
    return [json.loads(result.read_text()) for result in results]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain"),
        pytest.param({"compression": "fp16"}, id="compressed", marks=pytest.mark.long),
        pytest.param({"run_ahead": 2}, id="overlapped", marks=pytest.mark.long),
    ],
)
def test_float16_workers_with_master_weights_follow_the_common_model(tmp_path: Path, options: dict[str, Any]) -> None:
    """One worker moves by half a step a round, the other stays, and half of the mean counts."""
    plan = {"algorithm": "local-sgd", "options": {"local_iterations": 2, "global_lr": 0.5, **options}}
    assert train(tmp_path, [STEP / 4, 0.0], settings=MASTERS, rounds=80, **plan) == [1 + 10 * STEP] * 2


def test_float16_workers_without_master_weights_keep_averaged_progress(tmp_path: Path) -> None:
    """One worker moves by a step a round, the other stays, and a quarter of the mean counts."""
    plan = {"algorithm": "local-sgd", "options": {"local_iterations": 1, "global_lr": 0.25, "run_ahead": 1}}
    assert train(tmp_path, [STEP, 0.0], rounds=80, **plan) == [1 + 10 * STEP] * 2
