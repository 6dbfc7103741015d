"""What a plan says of accuracies stands in the documents that it names."""

import math
import re
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from esync import config
from esync.planning import accuracy
from esync.planning.candidates import Candidate
from esync.samples import Training, persistent, worth

DOCS = Path(__file__).parents[2] / "docs/results"


def test_accuracies_stand_in_the_documents() -> None:
    pages = [*DOCS.glob("*.md"), DOCS.parents[1] / "results/beyond/README.md"]
    documents = "".join(page.read_text() for page in pages)
    document_numbers = {round(float(number), 3) for number in re.findall(r"\b0\.\d+", documents)}
    figures = Path(accuracy.__file__).with_suffix(".yaml").read_text()
    code_numbers = {float(number) for number in re.findall(r"\b0\.\d{3}\b", figures)}
    assert code_numbers
    assert code_numbers <= document_numbers


@pytest.mark.parametrize(
    ("flags", "skewed"),
    [
        ({"mode": "sync"}, "0.807"),
        ({"mode": "sync", "collective": "ring"}, "0.807"),
        ({"mode": "esync", "compression": "2bit"}, "0.433"),
        ({"mode": "esync", "overlap": True, "compression": "fp16"}, "0.339"),
        ({"mode": "esync", "local_iterations": 50}, "not measured"),
    ],
)
def test_known_accuracy_is_that_of_mode_and_flags(flags: dict[str, object], skewed: str) -> None:
    assert skewed in accuracy.measured_accuracy(Candidate(flags)).skewed


#: Iterations of each device from model to model, time of one device alone ÷ measured time (results/fastest-device).
MEASURED = [
    ([9.1] * 4, 2.6),
    ([11.2] * 4, 2.6),
    ([10.8] * 4 + [3.6] * 4, 2.9),
    ([26 / k for k in range(1, 9)], 1.05),
    ([13 / k for k in range(1, 5)], 1.5),
    ([54.0] * 4, 1.5),
    ([12.0] * 4, 2.9),
]


def test_worth_of_samples_gives_the_measured_speedups_of_the_preset() -> None:
    deviations = [
        math.log(sum(iterations) / max(iterations) * worth(config.NOISE_SCALE, iterations) / measured)
        for iterations, measured in MEASURED
    ]
    assert math.sqrt(fmean(deviation**2 for deviation in deviations)) < 0.17


def test_worth_of_a_sample_is_one_on_one_device_and_falls_with_devices_and_local_steps() -> None:
    assert worth(80, [100]) == worth(80, [100], factor=1) == 1
    assert worth(80, [1] * 4) > worth(80, [8] * 4) > worth(80, [8] * 8) > worth(20, [8] * 8)
    assert worth(1e12, [1] * 4) == pytest.approx(1)  # all noise
    assert worth(1e-9, [1] * 4) == pytest.approx(1 / 4)  # no noise: four devices compute the same
    assert worth(1e12, [1] * 4, factor=1) == pytest.approx(7 / 16)  # the noise of a fourth at the same step
    assert worth(80, [8, 8, 0]) == worth(80, [8, 8])
    assert worth(80, [8, 8, 1e-3]) == pytest.approx(worth(80, [8, 8]), rel=1e-3)


def test_persistent_part_of_the_noise_is_that_of_many_iterations() -> None:
    assert persistent(np.array([10.0]), [12, 12]) == pytest.approx([20.0])
    assert persistent(np.array([10.0]), [12, 4]) == persistent(np.array([10.0]), [4, 12])


def test_samples_needed_are_those_of_the_logs_for_their_own_method() -> None:
    noise = np.array([8.0, 32.0, 128.0])
    training = Training(np.array([100.0, 200.0, 300.0]), noise, worth(noise, [8] * 4, 1), "0.85")
    assert training.needed([8] * 4, 1) == pytest.approx(600)
    assert training.needed([8], 1) == pytest.approx(training.alone)
    assert training.alone < training.needed([8] * 4, None) < 600  # at its best learning rate
