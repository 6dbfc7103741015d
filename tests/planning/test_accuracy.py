"""What a plan says of accuracies stands in the documents that it names."""

import re
from pathlib import Path

import pytest

from esync.planning import accuracy, sample_worth
from esync.planning.candidates import Candidate

DOCS = Path(__file__).parents[2] / "docs/results"


def test_accuracies_stand_in_the_documents():
    pages = [*DOCS.glob("*.md"), DOCS.parents[1] / "results/beyond/README.md"]
    documents = "".join(page.read_text() for page in pages)
    there = {round(float(number), 3) for number in re.findall(r"\b0\.\d+", documents)}
    said = {float(number) for number in re.findall(r"\b0\.\d{3}\b", Path(accuracy.__file__).read_text())}
    assert said
    assert said <= there


@pytest.mark.parametrize(
    ("flags", "iid"),
    [
        ({"mode": "sync"}, "0.792"),
        ({"mode": "sync", "collective": "ring"}, "0.792"),
        ({"mode": "esync", "compression": "2bit"}, "0.795"),
        ({"mode": "esync", "overlap": True, "compression": "fp16"}, "0.813"),
        ({"mode": "esync", "local_iterations": 50}, "not measured"),
    ],
)
def test_known_accuracy_is_that_of_mode_and_flags(flags, iid):
    assert iid in accuracy.known_accuracy(Candidate(flags)).iid


@pytest.mark.parametrize(
    ("local_iterations", "devices", "measured"),
    [
        (1, 6, 10.9 / 18.8),  # SSGD at its best rate: 320.7 s · 58.7 samples/s; one device: 5.1 s · 2,133
        (117, 4.02, 10.9 / 89.6),  # the best of ESync, 12.9 s · 6,942 samples/s
        (16, 4, 6.0 / 3.8 / 4),  # the four GPUs only, free exchanges
    ],
)
def test_worth_of_a_sample_is_near_what_was_measured(local_iterations, devices, measured):
    assert sample_worth.worth(local_iterations, local_iterations * devices) == pytest.approx(measured, rel=0.15)


def test_worth_of_a_sample_is_one_in_sequential_sgd_and_falls_with_devices_and_local_steps():
    assert sample_worth.worth(1, 1) == 1.0
    assert sample_worth.worth(1, 1 + sample_worth.HALF_DEVICES) == pytest.approx(0.5)
    assert sample_worth.worth(1 + sample_worth.HALF_LOCAL, 1 + sample_worth.HALF_LOCAL) == pytest.approx(0.5)
    assert 1 > sample_worth.worth(1, 2) > sample_worth.worth(2, 4) > sample_worth.worth(2, 8)
